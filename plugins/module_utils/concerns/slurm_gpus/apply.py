# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The step that only Slurm has: its daemons read their files again, and the node is back in service."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Optional

from ..._core import steps
from ..._core.errors import CannotLook, Refused
from ..._core.value import frozen
from ..._linux import systemd_apply
from ..._machine.slurm_answers import INVALID, NOT_RESPONDING, UNKNOWN, SlurmNode
from ..._machine.slurmctld import Controller
from ..._text.slurm_conf import counts_of
from .state import NOTE, SLURMCTLD, TOO_FEW
from .steps import RestartSlurm

if TYPE_CHECKING:
    from ..._core.change import Step
    from ..._core.protocols import Host

RESTART_SECONDS = 120.0
# slurmd registers when it starts; slurmctld looks for all nodes first.
REGISTER_SECONDS = 40.0
POLL_SECONDS = 0.5


@frozen
class Seen:
    """The node as slurmctld had it last, None where it never answered; ``ready``: it is registered as wanted."""

    node: Optional[SlurmNode]
    ready: bool


def perform(step: Step, host: Host) -> None:
    if isinstance(step.action, RestartSlurm):
        restart(step.action, host)
    else:
        steps.perform(step, host)


def restart(action: RestartSlurm, host: Host) -> None:
    """Raises ``Refused`` with what systemd said."""
    controller = Controller(host.commands)
    before = _started(controller, action.node)
    for unit in action.units:
        cause = systemd_apply.attempt_start(host, "restart", unit, seconds=RESTART_SECONDS)
        if cause:
            raise Refused("restart {}", object=unit, cause=cause, hint=f"see journalctl -u {unit} and its log file")
    host.files.remove(NOTE)
    seen = _registered(action, controller, before)
    if seen.ready and seen.node is not None and seen.node.drained and TOO_FEW.fullmatch(seen.node.reason):
        controller.resume(action.node)
        _await_response(action, controller)


def _started(controller: Controller, node: str) -> str:
    try:
        return controller.node(node).slurmd_start
    except CannotLook:
        return ""


def _await_response(action: RestartSlurm, controller: Controller) -> None:
    """Wait until the node takes jobs: after a resume slurmctld wants to hear of slurmd once more."""
    deadline = time.monotonic() + REGISTER_SECONDS
    while controller.node(action.node).has(NOT_RESPONDING) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)


def _has_heard(node: SlurmNode, before: str) -> bool:
    """Whether slurmctld has heard of another slurmd than before. Until then a new one does not know when it began."""
    began = node.slurmd_start
    return began != before and began[:1].isdecimal() and node.base != UNKNOWN and not node.has(NOT_RESPONDING)


def _registered(action: RestartSlurm, controller: Controller, before: str) -> Seen:
    """Wait until slurmctld has heard of the new slurmd. What is wrong after that the look that follows says."""
    deadline = time.monotonic() + REGISTER_SECONDS
    node: Optional[SlurmNode] = None
    while True:
        try:
            node = controller.node(action.node)
        except CannotLook:
            # slurmctld is not there yet.
            node = None
        if node is not None:
            same = counts_of(node.gres) == action.gres
            valid = not node.has(INVALID)
            # Where slurmctld runs elsewhere another count than its own cannot be valid before it is restarted there.
            if _has_heard(node, before) and (same and valid if SLURMCTLD in action.units else valid or not same):
                return Seen(node, ready=same)
        if time.monotonic() >= deadline:
            return Seen(node, ready=False)
        time.sleep(POLL_SECONDS)
