# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is refused on this node, and the steps to what is declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core.change import THEM, Change, Conflict, Refuse, ReplaceFile, RunCommand, Step
from ..._core.errors import CannotLook, DeclarationError, NotInEffect, OwnedByAnother
from ..._core.planning import boot_change, file_action
from ..._core.setting import IN_SYNC, Setting
from ..._core.value import replace
from ..._kinds import versionlock
from ..._kinds.units import RUNNING, SERVICE, START, STOPPED, service_row, service_step, start_step
from ..._linux import systemd
from . import holds, imex, notes
from .daemons import CONFIG, FABRIC_MANAGER
from .hardware import IB_UMAD, IBSTAT, NVLSM
from .key_values import changed, contradictions
from .notes import Started
from .rows import CHANNEL, HELD, HOLD, NODES, skew, versions

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from .daemons import ConfigFile, Daemon, DriverVersions
    from .state import FabricDesired, FabricState, WantedDaemon


# By what is lacking: what to do about it.
REMEDIES = {
    NVLSM: "install the package nvlsm from NVIDIA's repository, whose version is not that of the driver",
    IBSTAT: "install ibstat (infiniband-diags)",
    IB_UMAD: "load ib_umad, also at boot, as kernel_modules does",
}


class ModuleNotLoaded(NotInEffect):
    """Nothing is lacking but the module ib_umad; ``kernel_modules`` may be about to load it."""

    code = "no_ib_umad"


def refuse_impossible(state: FabricState, desired: FabricDesired, scope: Scope) -> None:
    """Raise for what no step of ours could bring."""
    for wanted in desired.daemons:
        if wanted.needed:
            _refuse_owners(state, wanted)
            _refuse_missing(state, wanted.daemon)
            _refuse_skew(state, wanted.daemon, scope)
            if wanted.daemon.program is FABRIC_MANAGER:
                _refuse_lacking(state, wanted.daemon)
            _refuse_files(wanted)


def _refuse_owners(state: FabricState, wanted: WantedDaemon) -> None:
    daemon = wanted.daemon
    title, unit = daemon.program.title, daemon.unit
    if state.operator:
        error = OwnedByAnother(
            f"run {title} ({{}})",
            object=unit,
            cause=f"a driver container ({state.operator}) runs {daemon.program.name} itself",
            hint="leave fabric_manager out of the declaration of nodes of the GPU Operator",
        )
        error.conflicts = (Conflict("GPU Operator", state.operator, None, unit, SERVICE, RUNNING, THEM),)
        raise error
    if daemon.outside:
        raise OwnedByAnother(
            f"run {title} ({{}})",
            object=unit,
            cause=f"{daemon.outside} already runs, outside of this unit",
            hint="end that process, or leave fabric_manager out of the declaration of this node",
        )
    if daemon.status == systemd.MASKED:
        hint = f"run systemctl unmask {unit}, or leave fabric_manager out of the declaration of this node"
        raise OwnedByAnother(f"run {title} ({{}})", object=unit, cause="it is masked", hint=hint)


def _refuse_missing(state: FabricState, daemon: Daemon) -> None:
    if daemon.installed and daemon.version:
        return
    version = state.driver.at_boot
    package = daemon.program.packages[0]
    branch = f"{package}-{version.partition('.')[0]}"
    error = NotInEffect(
        f"run {daemon.program.title} ({{}})",
        object=daemon.unit,
        cause=f"{daemon.program.name} is not installed, and this machine has {state.hardware.words}",
        hint=f"install {branch} or {package} in version {version}, that of the driver" if version else "install it",
    )
    error.settings = (service_row(daemon.unit, RUNNING, "not installed"),)
    raise error


def _refuse_skew(state: FabricState, daemon: Daemon, scope: Scope) -> None:
    fate = skew(state, daemon)
    rows = tuple(versions(state, daemon, scope))
    if not fate or not any(row.status != IN_SYNC for row in rows):
        return
    driver = state.driver
    wanted = driver.at_boot or driver.loaded
    # Its name may have the branch in it.
    known = daemon.program.packages[0]
    package = next((name for name in sorted(state.holds.packages) if name.startswith(known)), known)
    hint = (
        "reboot the node before anything restarts the daemon"
        if daemon.version == driver.at_boot
        else f"install {package} in version {wanted}, and hold it together with the driver"
    )
    error = NotInEffect(
        f"run {daemon.program.title} ({{}})",
        object=daemon.program.name,
        cause=f"{_difference(daemon.version, driver)}: {fate}",
        hint=hint,
    )
    error.settings = rows
    raise error


def _refuse_lacking(state: FabricState, daemon: Daemon) -> None:
    """Behind management ports the daemon starts with a subnet manager and the kernel's way to it, or not at all."""
    if not state.lacking:
        return
    words = [
        f"the module {name} is not loaded" if name == IB_UMAD else f"{name} is not installed" for name in state.lacking
    ]
    kind = ModuleNotLoaded if state.lacking == (IB_UMAD,) else NotInEffect
    error = kind(
        f"run {daemon.program.title} ({{}})",
        object=daemon.unit,
        cause=f"{' and '.join(words)}, and this machine has {state.hardware.words}",
        hint=", and ".join(REMEDIES[name] for name in state.lacking),
    )
    error.settings = (service_row(daemon.unit, RUNNING, STOPPED),)
    raise error


def _difference(version: str, driver: DriverVersions) -> str:
    if version == driver.loaded:
        return f"its version is {version}, that of the loaded driver, but the next boot loads {driver.at_boot}"
    later = f", and the next boot loads {driver.at_boot}" if driver.at_boot != driver.loaded else ""
    return f"its version is {version}, but that of the driver is {driver.loaded or 'unknown'}{later}"


def _refuse_files(wanted: WantedDaemon) -> None:
    config = wanted.daemon.files.get(CONFIG)
    if config is None or not wanted.values:
        return
    if config.text is None:
        raise DeclarationError(
            "set {}",
            object=", ".join(sorted(wanted.values)),
            cause=f"{config.path} does not exist",
            hint="reinstall the package of the daemon, which ships the file",
        )
    for key, lines in contradictions(config.text).items():
        if key in wanted.values:
            raise CannotLook(
                "read the value of {}",
                object=f"{key} in {config.path}",
                cause=f"lines {', '.join(map(str, lines))} set it to different values",
                hint="keep one of these lines",
            )


def restore(baseline: Baseline, state: FabricState) -> FabricDesired:
    """What ``state: absent`` wants: the values of before, each in its place, and the units and holds as they were."""
    from .state import FabricDesired, WantedDaemon

    daemons: List[WantedDaemon] = []
    for daemon in state.daemons:
        if not daemon.installed:
            continue
        start = baseline.values.get((daemon.unit, START))
        service = baseline.values.get((daemon.unit, SERVICE))
        config, nodes = daemon.files.get(CONFIG), daemon.files.get(NODES)
        values = {
            setting: _text(value.boot)
            for (path, setting), value in baseline.values.items()
            if config is not None and path == config.path
        }
        listed = baseline.values.get((nodes.path, NODES)) if nodes is not None else None
        daemons.append(
            WantedDaemon(
                daemon,
                start=str(start.boot) if start and daemon.status != systemd.MASKED else None,
                service=str(service.effective) if service else None,
                values=values,
                nodes=_description(listed.boot) if listed is not None else None,
                has_nodes=listed is not None,
            )
        )
    held = {name: value.boot == HELD for (name, setting), value in baseline.values.items() if setting == HOLD}
    return FabricDesired(daemons=tuple(daemons), held=held)


def _text(value: object) -> Optional[str]:
    if value is None or isinstance(value, str):
        return value
    raise ValueError(f"{value!r} is not the value of a key")


def _description(value: object) -> Optional[str]:
    text = _text(value)
    imex.text_of(text)
    return text


def steps_of(state: FabricState, desired: FabricDesired, settings: Sequence[Setting]) -> Tuple[Step, ...]:
    """What is noted first, then the next boot, and at last what runs."""
    wrong = {(row.object, row.setting): row for row in settings if row.status != IN_SYNC}
    steps: List[Step] = [*_hold_steps(state, wrong)]
    runs: List[Step] = []
    started: Dict[str, Started] = dict(state.known.started)
    for wanted in desired.daemons:
        daemon = wanted.daemon
        written = _file_steps(wanted, wrong)
        if written and daemon.process is not None:
            texts = {one.path: one.read for one in daemon.files.values()}
            started[daemon.unit] = Started(daemon.process.identity, texts)
        steps += written
        start, service = wrong.get((daemon.unit, START)), wrong.get((daemon.unit, SERVICE))
        if start is not None:
            steps.append(start_step(start, daemon.status))
        if service is not None and not service.pending:
            runs.append(service_step(service))
    steps += runs
    channel = wrong.get((imex.CHANNEL, CHANNEL))
    if channel is not None and channel.boot != channel.wanted:
        steps.append(Step(Refuse(_no_channel())))
    return noted(state, started, tuple(steps))


def noted(state: FabricState, started: Mapping[str, Started], steps: Tuple[Step, ...]) -> Tuple[Step, ...]:
    """The steps, after one that notes what the next look need not ask, where that is news."""
    text = notes.text_of(replace(state.known, started=started))
    if text == notes.text_of(state.notes):
        return steps
    return (Step(ReplaceFile(notes.PATH, text), notes=(notes.PATH,)), *steps)


class NoChannel(NotInEffect):
    """The parameter of the driver that makes the channel is not set for the next boot; kernel_modules sets it."""

    code = "no_channel"


def _no_channel() -> NoChannel:
    return NoChannel(
        "keep {} across a reboot",
        object=imex.CHANNEL,
        cause=f"nothing loads the driver with {imex.PARAMETER}=1",
        hint=f"set {imex.PARAMETER} to 1 for nvidia in kernel_modules_parameters, or set imex_channel: false",
    )


def _hold_steps(state: FabricState, wrong: Mapping[Tuple[str, str], Setting]) -> List[Step]:
    rows = [row for (_object, setting), row in wrong.items() if setting == HOLD]
    if not rows:
        return []
    if state.holds.manager == holds.DNF:
        locks = {row.object: _lock(state, row) for row in rows}
        text = holds.with_locks(state.holds.locks, locks)
        changes = tuple(map(boot_change, rows))
        return [Step(ReplaceFile(versionlock.LIST, text), changes, probes=(versionlock.LIST,))]
    steps = []
    for verb, goal in (("hold", True), ("unhold", False)):
        some = [row for row in rows if (row.wanted == HELD) is goal]
        if some:
            argv = ("apt-mark", verb, *(row.object for row in some))
            steps.append(Step(RunCommand(argv, f"{verb} packages"), tuple(map(boot_change, some))))
    return steps


def _lock(state: FabricState, row: Setting) -> Optional[str]:
    return state.holds.packages[row.object].lock if row.wanted == HELD else None


def _file_steps(wanted: WantedDaemon, wrong: Mapping[Tuple[str, str], Setting]) -> List[Step]:
    steps: List[Step] = []
    config, nodes = wanted.daemon.files.get(CONFIG), wanted.daemon.files.get(NODES)
    if config is not None:
        rows = [row for (path, _key), row in wrong.items() if path == config.path and row.boot != row.wanted]
        if rows:
            text = changed(config.text or "", {row.setting: _text(row.wanted) for row in rows})
            steps.append(_write(config, text, rows))
    if nodes is not None:
        row = wrong.get((nodes.path, NODES))
        if row is not None and row.boot != row.wanted:
            steps.append(_write(nodes, imex.text_of(_text(row.wanted)), [row]))
    return steps


def _write(file: ConfigFile, text: Optional[str], rows: Sequence[Setting]) -> Step:
    changes: Tuple[Change, ...] = tuple(map(boot_change, rows))
    return Step(file_action(file.path, text), changes, probes=(file.path,))
