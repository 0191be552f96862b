# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Container engines as their daemons have them, and as their files will bring them at the next start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Tuple

from ..._core.errors import CannotLook
from ..._core.value import field, frozen, replace
from .kinds import kind_of
from .model import Configuration, Kind, RunningDaemon, WantedEngine
from .spec import ContainerRuntimeDeclaration

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host
    from .leftover import Leftover
    from .original_files import OriginalFile

# There while a restart of ours is under way; a boot ends that too.
UNDER_WAY = "/run/gpufleet/container_engine_restart"
NO_FILE, NO_PROGRAM = "it does not exist", "it cannot be executed"


@frozen
class Engine:
    """One engine as it is.

    ``interrupted_restart``: no daemon runs, because a restart of ours did not come to its end. ``leftover`` is what
    others say of what an entry wants gone, or of what ``state: absent`` restores.
    """

    kind: Kind
    configuration: Configuration
    running: Optional[RunningDaemon]
    interrupted_restart: bool = False
    leftover: Optional[Leftover] = None

    @property
    def engine(self) -> str:
        return self.configuration.installation.engine


@frozen
class ContainerRuntimeState:
    """What was seen of the engines that ``declaration`` names and that are installed.

    ``unusable`` are the paths in it of which an engine could make nothing, with the reason. ``specification`` is what
    is wrong with that of CDI (``cdi.state_of``), and ``refresh`` what makes it anew, where that is declared.
    ``originals`` are the files that we changed, only where something of ours goes. ``damaged`` is the error of a record
    of theirs that is not what was written.
    """

    declaration: ContainerRuntimeDeclaration
    engines: Tuple[Engine, ...]
    unusable: Mapping[str, str] = field(default_factory=dict)
    specification: str = ""
    refresh: Tuple[str, ...] = ()
    originals: Tuple[OriginalFile, ...] = ()
    damaged: Optional[CannotLook] = None


def inspect(host: Host, engine: str) -> Optional[Engine]:
    """An engine, the toolkit or CDI; None where it is not installed."""
    kind = kind_of(engine)
    installation = kind.find(host)
    if installation is None:
        return None
    configuration = kind.read(host.files, installation)
    running = kind.running(host, configuration)
    interrupted_restart = running is None and host.files.exists(marker_of(engine))
    return Engine(kind, configuration, running, interrupted_restart)


def observe(host: Host, declaration: ContainerRuntimeDeclaration) -> ContainerRuntimeState:
    """The engines of the entries, and what these name beside them."""
    engines: List[Engine] = []
    unusable: Dict[str, str] = {}
    for entry in declaration.entries:
        seen = inspect(host, entry.engine)
        if seen is not None:
            seen = replace(seen, configuration=seen.kind.foresee(host, seen.configuration, seen.running, entry))
            engines.append(seen if entry.present else _with_leftover(host, seen, entry))
            unusable.update(_unusable(host.files, entry))
    originals: Tuple[OriginalFile, ...] = ()
    damaged: Optional[CannotLook] = None
    goes = any(seen.leftover for seen in engines)
    if goes or host.may_change:
        from . import last_good, original_files

        try:
            noted = original_files.load(host.files)
            originals = noted if goes else ()
            for seen in engines:
                last_good.load(host.files, seen.engine)
        except CannotLook as error:
            damaged = error
    state = ContainerRuntimeState(declaration, tuple(engines), unusable, originals=originals, damaged=damaged)
    if not declaration.refresh:
        return state
    from .cdi import cdi

    specifications = engines[-1].configuration.parsed
    return replace(
        state,
        specification=cdi.state_of(host.files, specifications),
        refresh=cdi.refresh_command(host, specifications),
    )


def _with_leftover(host: Host, seen: Engine, entry: WantedEngine) -> Engine:
    # What an engine reads without what is ours, nobody knows before it is read so: other files may count then. So the
    # edits that take it out are made here already.
    wanted = seen.kind.wanted(entry, seen.configuration)
    if all(seen.configuration.settings.get(name) == value for name, value in wanted.items()):
        return seen
    from . import leftover

    edits = seen.kind.edit(seen.configuration, entry)
    rest = leftover.find(host, seen.kind, seen.configuration.installation, wanted, edits)
    return replace(seen, leftover=rest)


def _unusable(files: Files, entry: WantedEngine) -> Dict[str, str]:
    specification, program = entry.options.get("base_runtime_spec"), entry.runtime_path
    found: Dict[str, str] = {}
    if specification and not files.exists(specification):
        found[specification] = NO_FILE
    # The toolkit and CDI have none.
    if program and not files.exists(program):
        found[program] = NO_FILE
    elif program and (files.is_folder(program) or not files.mode(program) & 0o111):
        found[program] = NO_PROGRAM
    return found


def marker_of(engine: str) -> str:
    return f"{UNDER_WAY}/{engine}"
