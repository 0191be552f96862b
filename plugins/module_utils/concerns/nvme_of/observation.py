# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a look reads of connections to NVMe subsystems: those that there are, whose they are, and who needs them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from ..._core.errors import DeclarationError
from ..._core.value import field, frozen
from ..._kinds import units
from ..._linux import boot_writers, systemd
from . import lines, targets
from .rows import CONNECTION
from .spec import DISCOVERY, NAME, Connection, Key, NvmeOfDeclaration, identity_of, key_of
from .state import Discovered, NvmeOfState, Told

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from ..._core.protocols import Files, Host
    from ..._kinds.foreign_values import ForeignValue
    from .targets import Controller, Identity, Subsystem

SYSFS = "/sys/class/nvme"


@frozen
class _Ends:
    """Connections of ours that nobody wants any more: ``ours`` are to end, ``left`` are needed by these users."""

    ours: Tuple[Key, ...] = ()
    left: Mapping[Key, Tuple[str, ...]] = field(default_factory=dict)


def observe(host: Host, declaration: NvmeOfDeclaration, scope: Scope) -> NvmeOfState:
    files = host.files
    identity_files = targets.read_identity_files(files)
    identity = _identity(files, identity_files, needed=bool(declaration.at_boot))
    text = files.read_optional(lines.UNIT_PATH)
    # Those of our unit are ours too, where the host got another name since.
    identities = [one for one in (identity, lines.identity_in(text)) if one is not None]
    controllers, subsystems = targets.read_controllers(files, identities), targets.read_subsystems(files)
    at_boot = lines.connected_by(text)
    targets.adopt(controllers, _known(declaration))
    discovered = _discovered(host, declaration, controllers, at_boot, scope)
    status = systemd.enabled(files, lines.UNIT)
    ends = _Ends()
    foreign: Tuple[ForeignValue, ...] = ()
    if not scope.restoring:
        carrier = lines.UNIT if scope.permanent or status == systemd.ENABLED else ""
        foreign = _foreign(files, declaration, discovered.told, carrier)
        ends = _ends_of(files, declaration, controllers, subsystems, at_boot=at_boot, told=discovered.told)
    return NvmeOfState(
        declaration=declaration,
        identity_files=identity_files,
        identity=identity if declaration.at_boot else None,
        controllers=controllers,
        subsystems=subsystems,
        unit=units.unit_file(host, lines.UNIT, lines.UNIT_PATH, "unit", text),
        status=status,
        ours=ends.ours,
        left=ends.left,
        users=_users(files, controllers if scope.restoring else ends.ours, controllers, subsystems),
        lacking=_lacking(files, declaration.at_boot, controllers),
        authentication=_authentication(files, (*declaration.at_boot, *discovered.told.connections), controllers),
        no_interfaces=_no_interfaces(files, declaration.at_boot, controllers),
        discovered=discovered,
        foreign=foreign,
    )


def _foreign(files: Files, declaration: NvmeOfDeclaration, told: Told, carrier: str) -> Tuple[ForeignValue, ...]:
    """The effects of other owners on them at boot, which are read in full only where there are such owners."""
    does = any(one.target == "nvme" or one.target.startswith(SYSFS) for one in boot_writers.read(files))
    if not does and systemd.enabled(files, "stacd.service") != systemd.ENABLED:
        return ()
    from . import foreign

    connections = (*declaration.at_boot, *told.connections)
    return foreign.find(files, connections, {**told.policies, **declaration.policies}, carrier=carrier)


def _identity(files: Files, found: Mapping[str, Optional[str]], *, needed: bool) -> Optional[Identity]:
    """How targets know this host; None where it has no name, and nothing is to be connected."""
    try:
        return targets.identity_of_host(files, found)
    except DeclarationError:
        if needed:
            raise
        return None


def _known(declaration: NvmeOfDeclaration) -> Set[Key]:
    """What is declared, or was; what cannot be is for the one to tell who restores it."""
    known = {one.key for one in declaration.at_boot}
    for identity, _setting in declaration.before:
        with contextlib.suppress(ValueError):
            known.add(key_of(identity))
    return known


def _lacking(files: Files, connections: Sequence[Connection], controllers: Mapping[Key, Controller]) -> Tuple[str, ...]:
    missing = [one for one in connections if one.key not in controllers]
    if not missing:
        return ()
    from .refusals import lacking_modules

    return lacking_modules(files, missing)


def _authentication(
    files: Files, connections: Sequence[Connection], controllers: Mapping[Key, Controller]
) -> Mapping[Key, Optional[str]]:
    by_secret = [one for one in connections if one.secrets]
    if not by_secret:
        return {}
    from . import authentication

    return authentication.observe(files, by_secret, controllers)


def _no_interfaces(
    files: Files, connections: Sequence[Connection], controllers: Mapping[Key, Controller]
) -> Tuple[str, ...]:
    named = dict.fromkeys(one.key[-1] for one in connections if one.key[-1] and one.key not in controllers)
    return tuple(name for name in named if not files.exists(f"/sys/class/net/{name}"))


def _discovered(
    host: Host,
    declaration: NvmeOfDeclaration,
    controllers: Dict[Key, Controller],
    at_boot: Set[Key],
    scope: Scope,
) -> Discovered:
    """What is seen besides where something is discovered, or was: what is in our unit, of which that goes last."""
    if not (scope.restoring or _discovers(declaration, at_boot)):
        return Discovered()
    from . import discovery, later

    logs = discovery.read_logs(host, declaration, controllers)
    told = discovery.told(declaration, logs)
    targets.adopt(controllers, [one.key for one in told.connections])
    told = discovery.without(told, _lacking(host.files, told.connections, controllers))
    missing = later.why_not_later(host.files) if scope.carries else ""
    return Discovered(logs, told, missing, later.observe(host) if scope.permanent else None)


def _discovers(declaration: NvmeOfDeclaration, at_boot: Set[Key]) -> bool:
    """Whether something is discovered, or was until this declaration."""
    return bool(declaration.discovery) or any(key[0] == DISCOVERY for key in at_boot)


def _ends_of(
    files: Files,
    declaration: NvmeOfDeclaration,
    controllers: Mapping[Key, Controller],
    subsystems: Mapping[str, Subsystem],
    *,
    at_boot: Set[Key],
    told: Told,
) -> _Ends:
    wanted = {one.key for one in (*declaration.at_boot, *told.connections)}
    discovers = _discovers(declaration, at_boot)
    unwanted = sorted(key for key in controllers if key not in wanted and (discovers or key in at_boot))
    made = _made_by_us(files, unwanted) if unwanted else set()
    ours = [key for key in unwanted if key in made and key in at_boot]
    others = [key for key in unwanted if key in made and key not in at_boot]
    if not (declaration.discovery and others):
        return _Ends((*ours, *others))
    # Who does not answer may tell of it still.
    if told.unknown:
        return _Ends(tuple(ours))
    users = _users(files, others, controllers, subsystems)
    left = {key: users.get(controllers[key].name) or users.get(key[0]) or () for key in others}
    return _Ends((*ours, *(key for key in others if not left[key])), {key: by for key, by in left.items() if by})


def _made_by_us(files: Files, controllers: Iterable[Key]) -> Set[Key]:
    """Those of them that were not there before this module connected them."""
    from ..._core import baseline

    known = baseline.load(files, NAME).values
    return {key for key in controllers if (identity_of(key), CONNECTION) in known}


def _users(
    files: Files,
    ending: Iterable[Key],
    controllers: Mapping[Key, Controller],
    subsystems: Mapping[str, Subsystem],
) -> Dict[str, Tuple[str, ...]]:
    """Who needs what these lead to, by the name of the controller or of the subsystem."""
    keys: List[Key] = list(ending)
    disks = {controllers[key].name: controllers[key].disks for key in keys}
    disks.update((nqn, subsystems[nqn].disks) for nqn in {key[0] for key in keys} if nqn in subsystems)
    return {name: targets.users_of(files, those) for name, those in disks.items() if those}
