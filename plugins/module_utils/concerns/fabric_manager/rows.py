# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of a node's fabric, three ways."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator, List, Optional

from ..._core.setting import REBOOT, Setting
from ..._core.value import replace
from ..._core.wording import first_of
from ..._kinds import units
from ..._kinds.units import NOT_READ, RUNNING, STOPPED
from ..._nvidia.fabric import COMPLETED
from . import imex
from .daemons import CONFIG, FABRIC_MANAGER, how_to_end
from .key_values import is_same, values_of

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from .daemons import Daemon
    from .driver import FabricGpu
    from .state import FabricDesired, FabricState, WantedDaemon

HOLD, HELD, NOT_HELD = "hold", "held", "not held"
VERSION, VERSION_AT_BOOT = "version", "version at boot"
NODES = "nodes"
DOMAIN, STATE = "IMEX domain", "state"
CHANNEL = "IMEX channel"
FABRIC, COMPLETE = "fabric", "completed"
# What a result has in needs while somebody else has to do something: the fabric, or the other nodes of the domain.
NEEDS_FABRIC, NEEDS_PEERS, NEEDS_IDLE = "fabric", "imex_peers", "idle_gpu"


def rows_of(state: FabricState, desired: FabricDesired, scope: Scope) -> List[Setting]:
    rows: List[Setting] = []
    if scope.permanent:
        rows += _holds(state, desired)
    for wanted in desired.daemons:
        rows += versions(state, wanted.daemon, scope) if wanted.needed and wanted.daemon.version else ()
        # What ends in this run need not read its files again.
        stays = wanted.daemon.process is not None and (wanted.service != STOPPED or bool(state.clients))
        rows += _files(wanted, scope, counts=scope.immediate and stays)
        if scope.permanent:
            rows += units.start_row(wanted.daemon.unit, wanted.start, wanted.daemon.status)
        if scope.immediate and wanted.service is not None:
            rows.append(_service(wanted, state, scope))
    if scope.immediate:
        rows += [_fabric(gpu, state) for gpu in state.gpus if gpu.reading is not None]
        if state.domain.status is not None:
            rows.append(_domain(state))
    if desired.channel:
        now, later = state.channel
        row = Setting(imex.CHANNEL, CHANNEL, imex.PRESENT, now, later, imex.CHANNEL, pending=_channel_waits(later))
        rows.append(replace(row, effective_matters=scope.immediate, boot_matters=scope.permanent))
    return rows


def versions(state: FabricState, daemon: Daemon, scope: Scope) -> Iterator[Setting]:
    """The program on disk against the driver that is loaded, and against the one that the next boot loads."""
    name, found, driver = daemon.program.name, daemon.version, state.driver
    boots = found == driver.at_boot
    if scope.immediate and driver.loaded:
        # Whoever restarts it before that boot loses it.
        pending = skew(state, daemon) if boots and found != driver.loaded else ""
        row = Setting(name, VERSION, driver.loaded, found, None, name, boot_matters=False, pending=pending)
        yield replace(row, needs=REBOOT)
    if scope.permanent and driver.at_boot:
        yield Setting(name, VERSION_AT_BOOT, driver.at_boot, found, found, name, effective_matters=False)


def skew(state: FabricState, daemon: Daemon) -> str:
    """What becomes of a daemon of another version than the driver's; empty where it is the same now and at boot."""
    starts = not state.driver.loaded or daemon.version == state.driver.loaded
    boots = not state.driver.at_boot or daemon.version == state.driver.at_boot
    if starts and boots:
        return ""
    restart = f"the next restart {'works' if starts else 'fails'}"
    if starts == boots:
        return f"{restart}, and so does the next boot"
    return f"{restart}, the next boot {'works' if boots else 'fails'}"


def _holds(state: FabricState, desired: FabricDesired) -> Iterator[Setting]:
    for name, wanted in sorted(desired.held.items()):
        package = state.holds.packages.get(name)
        if package is not None:
            found = HELD if package.held else NOT_HELD
            goal = HELD if wanted else NOT_HELD
            yield Setting(name, HOLD, goal, found, found, name, effective_matters=False)


def _files(wanted: WantedDaemon, scope: Scope, *, counts: bool) -> Iterator[Setting]:
    """What stands in the files of a daemon. What a process has read of it ``counts`` or not."""
    if not scope.permanent:
        return
    daemon = wanted.daemon
    config = daemon.files.get(CONFIG)
    if config is not None and wanted.values:
        there = values_of(config.text or "")
        read = None if config.read is None else values_of(config.read)
        for key, goal in sorted(wanted.values.items()):
            default = wanted.defaults.get(key)
            found = _meant(there.get(key), goal, default)
            effective = NOT_READ if read is None else _meant(read.get(key), goal, default)
            yield _file_row(daemon, config.path, key, goal, effective, found, counts)
    nodes = daemon.files.get(NODES)
    if nodes is not None and wanted.has_nodes:
        listed = imex.nodes_of(imex.text_of(wanted.nodes)) if not scope.restoring else ()
        found = imex.describe(nodes.text, listed)
        effective = NOT_READ if nodes.read is None and nodes.text is not None else imex.describe(nodes.read, listed)
        yield _file_row(daemon, nodes.path, NODES, wanted.nodes, effective, found, counts)


def _meant(found: Optional[str], goal: Optional[str], default: Optional[str]) -> Optional[str]:
    """What is found, in the words of what is wanted where it means the same."""
    if goal is not None and is_same(default if found is None else found, goal):
        return goal
    return found


def _file_row(
    daemon: Daemon,
    path: str,
    setting: str,
    goal: Optional[str],
    effective: Optional[str],
    found: Optional[str],
    counts: bool,
) -> Setting:
    return Setting(
        object=path,
        setting=setting,
        wanted=goal,
        effective=effective,
        boot=found,
        identity=path,
        effective_matters=counts,
        pending=f"{daemon.program.title} reads it only when it starts, and a restart ends the CUDA jobs of the node",
        needs=daemon.program.needs,
    )


def _service(wanted: WantedDaemon, state: FabricState, scope: Scope) -> Setting:
    daemon = wanted.daemon
    found = RUNNING if daemon.process is not None else STOPPED
    pending = ""
    if wanted.service != found and state.clients:
        doing = "starting" if wanted.service == RUNNING else "stopping"
        names = first_of([client.name for client in state.clients], 3)
        pending = f"GPUs are in use by {names}; {doing} it would disturb them"
        # Of a server of MPS nothing would ever come by waiting.
        way_out = how_to_end(state.clients)
        pending += f"; {way_out}" if way_out else ""
    row = units.service_row(daemon.unit, str(wanted.service), found, pending)
    return replace(row, needs=NEEDS_IDLE if scope.restoring or wanted.service == STOPPED else daemon.program.needs)


def _fabric(gpu: FabricGpu, state: FabricState) -> Setting:
    reading = gpu.reading
    if reading is None:
        raise ValueError(f"{gpu.name} has no fabric")
    found = reading.state_name.replace("_", " ")
    if reading.state == COMPLETED and reading.status:
        found += f" with NVML error {reading.status}"
    if reading.faults:
        found += f", {', '.join(reading.faults)}"
    mode = "0"
    for daemon in state.daemons:
        if daemon.program is FABRIC_MANAGER and CONFIG in daemon.files:
            mode = values_of(daemon.files[CONFIG].read or "").get("FABRIC_MODE", "0")
    if reading.state != COMPLETED:
        pending = f"the Fabric Manager may need some minutes after its start; see journalctl -u {FABRIC_MANAGER.unit}"
        if mode != "0":
            pending = f"with FABRIC_MODE={mode} it completes when a partition with this GPU is activated"
    else:
        pending = "the hardware or its configuration is at fault; see the logs of the Fabric Manager and of the kernel"
    row = Setting(gpu.name, FABRIC, COMPLETE, found, None, gpu.identity.uuid, boot_matters=False, pending=pending)
    return replace(row, needs=NEEDS_FABRIC)


def _domain(state: FabricState) -> Setting:
    pending = "it is up when IMEX runs on all of its nodes, in one version and with the same list of nodes"
    row = Setting(DOMAIN, STATE, imex.UP, state.domain.words, None, DOMAIN, boot_matters=False, pending=pending)
    return replace(row, needs=NEEDS_PEERS)


def _channel_waits(later: Optional[str]) -> str:
    return f"the driver makes it when it is loaded with {imex.PARAMETER}=1" if later else ""
