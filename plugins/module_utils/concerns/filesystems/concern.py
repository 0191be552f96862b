# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``filesystems``: what is mounted, as the kernel took it, and what is mounted at boot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Tuple

from ..._core.registration import Registration
from ..._linux import systemd
from . import observation, plan, resolve, tunables, unit_files
from .options import OPTIONS
from .spec import NAME, FilesystemsDeclaration, parse

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.change import Plan, Step
    from ..._core.contract import Scope
    from ..._core.protocols import Host
    from ..._linux.mounts import Mount
    from .made import Made
    from .state import FilesystemsDesired, FilesystemsState, Place
    from .unit_files import AtBoot


class Filesystems:
    """``convergence.Concern`` for mounts."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = False
    # A module that a mount needs, and what is set of it, comes first, and what makes at boot what a stop took. A disk
    # that is reached over a network is there once it is connected.
    registration = Registration(
        after=("node_tools", "kernel_modules", "nvme_of", "rdma"),
        owns=("unit gpufleet-lustre-*.service", "unit gpufleet-read-ahead-*.service"),
    )

    def parse(self, params: Mapping[str, Any]) -> FilesystemsDeclaration:
        return parse(params)

    def needs_boot_service(self, params: Mapping[str, Any]) -> bool:
        """Drives that are empty after a stop are in use again only if a boot makes them anew."""
        return any((item.get("made_of") or {}).get("ephemeral") for item in params["mounts"])

    def knobs(self, declaration: FilesystemsDeclaration) -> Tuple[str, ...]:
        return tuple(f"unit {unit_files.mount_unit(path)}" for path in declaration.mounts)

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> FilesystemsDeclaration:
        return FilesystemsDeclaration({}, baseline)

    def observe(self, host: Host, declaration: FilesystemsDeclaration, scope: Scope) -> FilesystemsState:
        return observation.observe(host, declaration, scope)

    def resolve(self, declaration: FilesystemsDeclaration, state: FilesystemsState) -> FilesystemsDesired:
        return resolve.resolve(declaration, state)

    def restore(self, baseline: Baseline, state: FilesystemsState) -> FilesystemsDesired:
        return resolve.restore(baseline, state)

    def plan(self, state: FilesystemsState, desired: FilesystemsDesired, scope: Scope) -> Plan:
        return plan.plan(state, desired, scope)

    def perform(self, step: Step, host: Host) -> None:
        from . import apply

        apply.perform(step, host)

    def report(self, state: FilesystemsState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        now = {
            path: {**_now(place, place.automount or place.mount), **_array(state.made.get(path))}
            for path, place in state.places.items()
            if place.mount is not None
        }
        enabled = [place for place in state.places.values() if place.status == systemd.ENABLED]
        mounts = [(place, unit_files.at_boot(place.unit.text)) for place in enabled]
        boot = {place.path: _boot(place, mount) for place, mount in mounts if mount is not None}
        return {"mounts": now}, {"mounts": {**boot, **_by_boot_service(state)}}


CONCERN = Filesystems()


def _now(place: Place, mount: Mount) -> Dict[str, Any]:
    found: Dict[str, Any] = {
        "source": mount.source,
        "fstype": mount.fstype,
        "options": list(dict.fromkeys((*mount.flags, *mount.options))),
    }
    if place.read_ahead is not None:
        found["read_ahead_kb"] = place.read_ahead
    if place.tunables:
        found["tunables"] = {name: tunables.told(values) for name, values in place.tunables.items()}
    return found


def _array(made: Optional[Made]) -> Dict[str, Any]:
    """The array under a file system that is made here."""
    if made is None or made.array is None:
        return {}
    array = made.array
    links = [drive.link for drive in made.drives]
    return {"array": {"device": array.node, "level": array.level, "chunk_kb": array.chunk_kb, "drives": links}}


def _by_boot_service(state: FilesystemsState) -> Dict[str, Any]:
    """What the boot service mounts, by the declaration that lies on the node."""
    if not state.carrier.applies:
        return {}
    return {
        path: {"source": state.made[path].source, "fstype": entry.fstype, "options": list(entry.options)}
        for path, entry in state.ephemeral.items()
    }


def _boot(place: Place, mount: AtBoot) -> Dict[str, Any]:
    found: Dict[str, Any] = {
        "source": mount.source,
        "fstype": mount.fstype,
        "options": mount.options.split(",") if mount.options else [],
    }
    read_ahead, tuned = place.services
    kb, values = unit_files.read_ahead_at_boot(read_ahead.text), unit_files.tunables_at_boot(tuned.text)
    found = found if kb is None else {**found, "read_ahead_kb": kb}
    return {**found, "tunables": values} if values else found
