# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``systemctl daemon-reload``, guarded, and units that are started and enabled.

At a reload systemd writes the device rules of all scopes anew, from what it knows itself. A container whose GPUs came
by the legacy hook, behind the back of systemd, loses them then ("Failed to initialize NVML: Unknown Error", issues 48
and 1227 of nvidia-container-toolkit). Containers that got them by CDI or ``--device`` keep them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Callable, List, Optional, Sequence, Tuple

from .._core import steps
from .._core.change import ReplaceFile, RoomAction, RunCommand, Step
from .._core.errors import CannotLook, NotInEffect, Refused
from .._core.value import frozen
from .systemd import (
    DAEMON_REEXEC,
    DAEMON_RELOAD,
    ETC,
    MARKER,
    NOT_FOUND,
    REEXEC_MARKER,
    announce,
    containers_that_lose_gpus,
    links,
    needs_reload,
    running,
    show,
    sources,
    unit_files,
)

if TYPE_CHECKING:
    from .._core.change import Plan
    from .._core.protocols import Files, Host

SECONDS = 90.0
# systemctl returns when systemd leaves the bus, which it does just before it executes itself.
REEXEC_SECONDS = 5.0
POLL_SECONDS = 0.1
# Each has 90 seconds to stop, by systemd's default, and some have more.
SECONDS_OF_MANY = 300.0
SYSTEMCTL = "systemctl"
NOT_RESTARTED = "systemctl restart exited with 0, but the service was not restarted"


@frozen
class AnnounceUnit(RoomAction):
    """Note that systemd must read this unit again."""

    unit: str


@frozen
class ReloadUnits(RoomAction):
    """Let systemd do so, if it may."""

    # A part of systemd, which it asks only while that runs.
    optional_programs = (SYSTEMCTL,)

    def followed_by(self, plan: Plan, host: Host) -> Tuple[str, ...]:
        units = [step.action.unit for step in plan.steps if isinstance(step.action, AnnounceUnit)]
        if not (units and running(host.files) and containers_that_lose_gpus(host)):
            return ()
        # A unit that is new is read when it is first asked for.
        written = {step.action.path for step in plan.steps if isinstance(step.action, ReplaceFile)}
        known = unit_files(host.files)
        new = [unit for unit in units if f"{ETC}/{unit}" in written and known.status(unit) == NOT_FOUND]
        return (DAEMON_RELOAD,) if set(units).difference(new) else ()


@frozen
class ReexecuteManager(RoomAction):
    """Let systemd read its own configuration, and with it all units, if it may; REEXEC_MARKER was noted before."""

    optional_programs = (SYSTEMCTL,)

    def followed_by(self, plan: Plan, host: Host) -> Tuple[str, ...]:
        return (DAEMON_REEXEC,) if running(host.files) and containers_that_lose_gpus(host) else ()


@frozen
class StartAtBoot(RoomAction):
    """Make the links that a unit asks for, where it is ``static`` and asks for none the usual one; or remove all."""

    programs = (SYSTEMCTL,)
    unit: str
    enable: bool
    static: bool = False


@frozen
class ChangeUnitFiles(RoomAction):
    """Mask, unmask, enable or disable units (``verb``), all at once."""

    programs = (SYSTEMCTL,)
    verb: str
    units: Tuple[str, ...]


@frozen
class RunUnits(RoomAction):
    """Start or stop units (``verb``), all at once."""

    programs = (SYSTEMCTL,)
    verb: str
    units: Tuple[str, ...]


@frozen
class RunService(RoomAction):
    """Start, stop or restart a unit (``verb``)."""

    verb: str
    unit: str

    @property
    def programs(self) -> Tuple[str, ...]:
        return (SYSTEMCTL,)

    @property
    def restarts(self) -> Tuple[str, ...]:
        return (self.unit,) if self.verb == "restart" else ()


def perform(step: Step, host: Host) -> None:
    """One of these steps, or one that all rooms share."""
    if isinstance(step.action, AnnounceUnit):
        announce(host, step.action.unit)
    elif isinstance(step.action, ReloadUnits):
        # What must wait is found again by the look that follows, with its reason.
        reload_announced(host)
    elif isinstance(step.action, ReexecuteManager):
        reexecute(host)
    elif isinstance(step.action, StartAtBoot):
        start_at_boot(step.action, host)
    elif isinstance(step.action, RunService):
        run_service(step.action, host)
    elif isinstance(step.action, ChangeUnitFiles):
        change_unit_files(step.action, host)
    elif isinstance(step.action, RunUnits):
        run_units(step.action, host)
    else:
        steps.perform(step, host)


def start_at_boot(action: StartAtBoot, host: Host) -> None:
    if not action.enable:
        disable(host, action.unit)
    elif action.static:
        # A drop-in cannot add an [Install] section, so the link that one would ask for is made for itself.
        _systemctl(host, ("--no-reload", "add-wants", "multi-user.target", action.unit), f"enable {action.unit}")
    else:
        enable(host, action.unit)
    reload_where_harmless(host)


def run_service(action: RunService, host: Host) -> None:
    """Raises ``Refused`` with systemd's message if systemctl fails, or if a restart did not restart the unit."""
    before = invocation(host, action.unit) if action.verb == "restart" else ""
    _systemctl(host, (action.verb, action.unit), f"{action.verb} {action.unit}")
    if before and invocation(host, action.unit) == before:
        raise Refused(
            f"{action.verb} {{}}", object=action.unit, cause=NOT_RESTARTED, hint=f"see journalctl -u {action.unit}"
        )


def invocation(host: Host, unit: str) -> str:
    """The InvocationID of a unit, which is new after each start; empty if systemd reports none."""
    try:
        return "".join(value for block in show(host, ("InvocationID",), (unit,)) for value in block["InvocationID"])
    except (CannotLook, KeyError):
        return ""


def change_unit_files(action: ChangeUnitFiles, host: Host) -> None:
    """Raises ``Refused`` with what systemd said, and ``NotInEffect`` as ``disable`` does."""
    goal = f"{action.verb} {', '.join(action.units)}"
    _systemctl(host, ("--no-reload", action.verb, *action.units), goal)
    if action.verb == "disable":
        for unit in action.units:
            _check_disabled(host, unit)
    reload_where_harmless(host)


def run_units(action: RunUnits, host: Host) -> None:
    """Raises ``Refused`` with what systemd said. What was masked when systemd read its units can start after that."""
    if action.verb == "start":
        reload_where_harmless(host)
    command = ("systemctl", action.verb, *action.units)
    steps.run(RunCommand(command, f"{action.verb} {', '.join(action.units)}", SECONDS_OF_MANY), host)


def attempt(host: Host, verb: str, unit: str, *, seconds: float) -> str:
    """What went wrong, in the words of systemd; empty where nothing did. For those who have a way on from there."""
    try:
        completed = host.commands.run(["systemctl", verb, unit], timeout=seconds)
    except OSError as error:
        return f"systemctl: {error.strerror or error}"
    if completed.timed_out:
        return f"it took longer than {seconds:g} s"
    if completed.status == 0:
        return ""
    # The first line is what happened, the others say where to read more.
    said = (completed.errors or completed.output).strip().partition("\n")[0].rstrip(".")
    return said or f"systemctl {verb} failed with exit status {completed.status}"


def attempt_start(host: Host, verb: str, unit: str, *, seconds: float) -> str:
    """The same for ``start`` and ``restart``, also of a unit that systemd gave up.

    It starts nothing that was started five times in ten seconds, whoever did so: that would look like a refusal.
    """
    attempt(host, "reset-failed", unit, seconds=seconds)
    return attempt(host, verb, unit, seconds=seconds)


def attempt_each(
    host: Host, verb: str, units: Sequence[str], *, seconds: float, tell: Callable[[str, str], None]
) -> Optional[Refused]:
    """Stop or start units, one after another. One that fails keeps none of the others; the error names all such.

    ``tell`` is called with each unit and the verb where that has worked.
    """
    errors: List[Refused] = []
    for unit in units:
        cause = (attempt if verb == "stop" else attempt_start)(host, verb, unit, seconds=seconds)
        if cause:
            errors.append(Refused(f"{verb} {{}}", object=unit, cause=cause, hint=f"see journalctl -u {unit}"))
        else:
            tell(unit, verb)
    if not errors:
        return None
    errors[0].args = (" ".join(map(str, errors)),)
    return errors[0]


def restart(host: Host, unit: str) -> None:
    """Raises ``Refused`` with what systemd said."""
    run_service(RunService("restart", unit), host)


def enable(host: Host, unit: str) -> None:
    """Make the links that its [Install] asks for, also where systemd does not run; it reads no unit again for them."""
    _systemctl(host, ("--no-reload", "enable", unit), f"enable {unit}")


def reenable(host: Host, unit: str) -> None:
    """The same, and remove all other links to it."""
    _systemctl(host, ("--no-reload", "reenable", unit), f"enable {unit}")


def disable(host: Host, unit: str) -> None:
    """Remove all links to it; systemd reads no unit again for it. Raises ``NotInEffect`` where links are left."""
    _systemctl(host, ("--no-reload", "disable", unit), f"disable {unit}")
    _check_disabled(host, unit)


def _check_disabled(host: Host, unit: str) -> None:
    """Without its file, which is removed next, no later run would look for links to a unit."""
    left = links(host.files, unit, (ETC,))
    if left:
        raise NotInEffect(
            "disable {}",
            object=unit,
            cause=f"systemctl disable exited with 0, but its link in {ETC}/{left[0]} is still there",
            hint=f"run again, or remove {ETC}/{left[0]}/{unit}",
        )


def reload_announced(host: Host) -> Optional[str]:
    """Reload when an announced unit needs it; the note stays while it must wait, and its reason is returned.

    Raises ``NotInEffect`` where systemd then has not read it, and the note stays too.
    """
    units = (host.files.read_optional(MARKER) or "").splitlines()
    if running(host.files) and any(needs_reload(host, unit) for unit in units):
        reason = containers_that_lose_gpus(host)
        if reason:
            return reason
        steps.run(RunCommand(("systemctl", "daemon-reload"), "reload systemd units", SECONDS), host)
        # Of a service that is gone systemd reads no drop-ins.
        there = [unit for unit in units if sources(host.files, unit) or not unit.endswith(".service") or "@" in unit]
        unread = [unit for unit in there if needs_reload(host, unit)]
        if unread:
            raise NotInEffect(
                "reload systemd units",
                object=unread[0],
                cause="systemctl daemon-reload exited with 0, but systemd still uses the old files of this unit",
                hint="see journalctl --unit=init.scope for the reason, then run again",
            )
    host.files.remove(MARKER)
    return None


def reload_where_harmless(host: Host) -> None:
    """Let systemd see new links. Nothing needs it, but until then ``systemctl`` asks for a reload at every unit."""
    if running(host.files) and not containers_that_lose_gpus(host):
        steps.run(RunCommand(("systemctl", "daemon-reload"), "reload systemd units", SECONDS), host)


def reexecute(host: Host) -> None:
    """Re-execute systemd, which keeps its state and interrupts no service.

    Does nothing if systemd does not run, or if containers would lose their GPUs. Raises ``NotInEffect`` if systemctl
    exits with 0 but systemd was not re-executed.
    """
    if not running(host.files) or containers_that_lose_gpus(host):
        return
    before = _stack_of_init(host.files)
    steps.run(RunCommand(("systemctl", "daemon-reexec"), "re-execute systemd", SECONDS), host)
    deadline = time.monotonic() + REEXEC_SECONDS
    while before and _stack_of_init(host.files) == before:
        if time.monotonic() > deadline:
            raise NotInEffect(
                "re-execute {}",
                object="systemd",
                cause="systemctl daemon-reexec exited with 0, but systemd was not re-executed",
                hint="see journalctl --unit=init.scope for the reason, then run again",
            )
        time.sleep(POLL_SECONDS)
    host.files.remove(MARKER)
    host.files.remove(REEXEC_MARKER)


def _stack_of_init(files: Files) -> str:
    """The start address of the stack of process 1, which the kernel chooses at random at each execve(2).

    Empty where it does not choose, or does not tell: the 28th field of proc_pid_stat(5) is 0 without the right to trace
    the process.
    """
    if (files.read_optional("/proc/sys/kernel/randomize_va_space") or "0").strip() == "0":
        return ""
    fields = (files.read_optional("/proc/1/stat") or "").rpartition(")")[2].split()
    return fields[25] if len(fields) > 25 and fields[25] != "0" else ""


def _systemctl(host: Host, arguments: Tuple[str, ...], goal: str) -> None:
    steps.run(RunCommand(("systemctl", *arguments), goal), host)
