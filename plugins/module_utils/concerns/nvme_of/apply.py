# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps that only connections have: hand them to the kernel, end them, and choose between paths."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, List, Optional, Sequence, Tuple

from ..._core import baseline
from ..._core import steps as shared
from ..._core.change import RunCommand
from ..._core.contract import Scope
from ..._core.errors import Refused
from ..._kinds import steps
from . import targets
from .lines import DEVICE, SECONDS, Line
from .plan import Connect, ConnectTold, Disconnect, SetPolicy
from .spec import NAME, name_of

if TYPE_CHECKING:
    from ..._core.change import Change, Step
    from ..._core.contract import AnyConcern
    from ..._core.protocols import Host

# What is there already is as wanted: another run, or the unit, was faster.
ALREADY = "Operation already in progress"
# How long disks may take to appear, and udev to name them.
ATTEMPTS, POLL_SECONDS, SETTLE_SECONDS = 25, 0.2, 10
# From one discovery controller to the next.
MOST_REFERRALS = 8
HINT = "see dmesg for the reason; the other connections were made"


def perform(concern: AnyConcern, step: Step, host: Host) -> Optional[Tuple[Change, ...]]:
    """One step. What is found only on the way are changes of it too."""
    if isinstance(step.action, ConnectTold):
        return connect_told(concern, step.action, host)
    if isinstance(step.action, Connect):
        connect(step.action, host)
    elif isinstance(step.action, Disconnect):
        disconnect(step.action, host)
    elif isinstance(step.action, SetPolicy):
        set_policy(step.action, host)
    else:
        steps.perform(step, host)
    return None


def connect_told(concern: AnyConcern, action: ConnectTold, host: Host) -> Tuple[Change, ...]:
    """Connect what discovery controllers tell of, and what those tell of that they refer to.

    It is planned as if it had been known before, and recorded, so that it ends when nobody declares it any more.
    """
    scope = Scope(permanent=False)
    made: List[Change] = []
    for _referral in range(MOST_REFERRALS):
        state = concern.observe(host, action.declaration, scope)
        plan = concern.plan(state, concern.resolve(action.declaration, state), scope)
        if not plan.changes:
            break
        baseline.save(host.files, NAME, plan.settings, plan.steps)
        for step in plan.steps:
            if not isinstance(step.action, ConnectTold):
                perform(concern, step, host)
                made += step.changes
    return tuple(made)


def connect(action: Connect, host: Host) -> None:
    """Raises ``Refused``, which names all that were not made."""
    for module in dict.fromkeys(line.module for line in action.lines):
        shared.run(RunCommand(("modprobe", module), f"load {module}"), host)
    failures: List[str] = []
    for line in action.lines:
        cause = _hand_over(line, host)
        if cause:
            failures.append(f"{line.name}: {cause}")
    _wait_for_disks(action.lines, host)
    for policy in action.policies:
        set_policy(policy, host)
    if failures:
        first, *others = failures
        name, _colon, cause = first.partition(": ")
        raise Refused("connect to {}", object=name, cause="; ".join((cause, *others)), hint=HINT)


def _wait_for_disks(lines: Sequence[Line], host: Host) -> None:
    """The kernel looks for disks once it is connected, and udev names them, by which others mount them.

    Where there is none, as on a target that has not given this host any, it is not waited for longer than this.
    """
    wanted = {line.name for line in lines if not line.discovers}
    for _attempt in range(ATTEMPTS):
        there, subsystems = targets.read_controllers(host.files), targets.read_subsystems(host.files)
        new = [one for key, one in there.items() if name_of(key) in wanted]
        if all(one.disks or (one.key[0] in subsystems and subsystems[one.key[0]].disks) for one in new):
            break
        time.sleep(POLL_SECONDS)
    if host.commands.find("udevadm") is not None:
        host.commands.run(("udevadm", "settle", f"--timeout={SETTLE_SECONDS}"), timeout=2.0 * SETTLE_SECONDS)


def _hand_over(line: Line, host: Host) -> str:
    """What went wrong, empty where nothing did. A program does it: it can be ended where a target does not answer."""
    # Arguments are seen by anybody, and what the shell itself reads and writes is not.
    secrets = "".join(f',{option}=$(cat "${at}")' for at, (option, _path) in enumerate(line.secrets, 2))
    argv = ("/bin/sh", "-c", f'printf %s "$1{secrets}" >{DEVICE}', "sh", line.options)
    paths = tuple(path for _option, path in line.secrets)
    completed = host.commands.run((*argv, *paths), timeout=float(SECONDS))
    if completed.status == 0:
        return ""
    if completed.timed_out:
        return f"it did not respond within {SECONDS} seconds"
    said = (completed.errors or completed.output).strip().rpartition("\n")[2]
    if ALREADY in said:
        return ""
    return f"the kernel returned {said.rpartition(': ')[2] or f'exit status {completed.status}'}"


def disconnect(action: Disconnect, host: Host) -> None:
    """Raises ``OSError`` where the kernel refuses."""
    path = f"{targets.CONTROLLERS}/{action.controller}/delete_controller"
    if host.files.exists(path):
        host.files.write_attribute(path, "1")


def set_policy(action: SetPolicy, host: Host) -> None:
    """Raises ``Refused`` for a policy that this kernel does not have."""
    subsystem = targets.read_subsystems(host.files).get(action.nqn)
    if subsystem is None or not subsystem.policy or subsystem.policy == action.policy:
        return
    path = f"{subsystem.folder}/iopolicy"
    try:
        host.files.write_attribute(path, action.policy)
    except OSError as error:
        raise Refused(
            "set io_policy",
            object=action.nqn,
            cause=f"the kernel refused the value at {path}: {error.strerror}",
            found=subsystem.policy,
            wanted=action.policy,
            hint="declare another policy; queue-depth needs Linux 6.11",
        ) from error
