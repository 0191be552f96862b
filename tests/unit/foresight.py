# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nothing happens in a run that its plan does not list, and it fails for nothing that its plan could have refused.

Check mode and a look have the same plan. ``watch`` holds every run of the unit tests to it, on whatever machine.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from pathlib import Path
from typing import Any, Dict, FrozenSet, Iterator, List, Optional, Sequence, Set, Tuple

from ansible_collections.gpufleet.node.plugins.module_utils._core import convergence, targets
from ansible_collections.gpufleet.node.plugins.module_utils._core.change import (
    Change,
    Plan,
    RoomAction,
    RunCommand,
    Step,
    WriteAttribute,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import AnyConcern, Outcome, Params
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import TEMPORARY, Host

ROOT = Path(__file__).resolve().parents[2]
NOT_FORESEEN = ROOT / "tools" / "not_foreseen.yml"
# Those whose steps do not list their programs and restarts yet.
UNLISTED = {"slurm_gpus"}
# Tests make up others.
CONCERNS = {entry.name for entry in os.scandir(ROOT / "plugins" / "module_utils" / "concerns")}
Effect = Tuple[str, str, str]
# Programs that change nothing, with arguments that begin like this. By "env" a control daemon of MPS is asked.
ONLY_READ = (
    ("dcb", "-j"),
    ("dcgmi", "health", "-f"),
    ("env",),
    *(("ethtool", option) for option in ("-a", "-c", "-g", "-k", "-l")),
    ("getent",),
    ("ip", "-json"),
    *((program, "-w", "5", "-S") for program in ("iptables", "ip6tables")),
    ("journalctl",),
    ("ping",),
    ("kubelet", "--version"),
    ("lctl", "get_param"),
    ("modinfo",),
    ("nvidia-smi", "compute-policy", "--list"),
    ("nv-fabricmanager", "--version"),
    ("slurmctld", "-V"),
    ("tail",),
    # A program of ours that asks a device.
    (os.path.basename(sys.executable), "-IBS"),
)
# Programs that only steps ask, such as what is in an image that was built, and words of those that check a file.
ASKED = {"blkid", "dmesg", "lsinitramfs", "lsinitrd", "stat"}
ASKING = {"--validate", "--version", "config", "info"}


def only_reads(argv: Sequence[str]) -> bool:
    """Whether a program that is started like this changes nothing."""
    words = (os.path.basename(argv[0]), *argv[1:])
    return "show" in words or any(words[: len(only)] == only for only in ONLY_READ)


class Taken:
    """One step that was taken, with its side effects and the programs that it started."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.effects: List[Effect] = []
        self.programs: List[Sequence[str]] = []
        self.changes: Sequence[Change] = ()
        # What it wrote last may be what was there before.
        self.failed = True


class Traced:
    """A concern of which is kept what steps it took."""

    def __init__(self, concern: AnyConcern) -> None:
        self._concern = concern
        self.taken: List[Taken] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._concern, name)

    def perform(self, step: Step, host: Host) -> Optional[Tuple[Change, ...]]:
        # Not every machine of the tests keeps them.
        log, calls = getattr(host.files, "log", []), getattr(host.commands, "calls", [])
        effects, programs = len(log), len(calls)
        taken = Taken(step)
        self.taken.append(taken)
        try:
            made = self._concern.perform(step, host)
            taken.changes, taken.failed = step.changes if made is None else made, False
            return made
        finally:
            taken.effects, taken.programs = log[effects:], calls[programs:]


def files_of(step: Step) -> Set[str]:
    """The files that a step lists."""
    written = step.action.written if isinstance(step.action, RoomAction) else ()
    return {*targets.targets_of(step), *(path for path, _text in written)}


def programs_of(step: Step) -> Set[str]:
    """The names of the programs that a step lists."""
    optional = step.action.optional_programs if isinstance(step.action, RoomAction) else ()
    return {os.path.basename(program) for program in (*step.programs, *optional)}


def unlisted(taken: Taken) -> Iterator[str]:
    """What a step did that it does not list."""
    action = taken.step.action
    for kind, path, value in taken.effects:
        if kind in ("replace", "remove"):
            # A program of the machine may write a file too, and the kernel takes its own away.
            is_known = isinstance(action, RunCommand) or taken.failed or path in files_of(taken.step)
            if not (is_known or targets.in_our_folder(path) or path.endswith(TEMPORARY) or path.startswith("/sys/")):
                yield f"{kind} {path}"
        elif kind == "set" and isinstance(action, WriteAttribute):
            if (path, value) != (action.path, action.value):
                yield f"set {path} to {value}"
        elif kind in ("set", "ask") and not (taken.changes or taken.failed):
            yield f"{kind} {path} {value}"
    for argv in taken.programs:
        is_asked = only_reads(argv) or os.path.basename(argv[0]) in ASKED or not ASKING.isdisjoint(argv)
        is_listed = os.path.basename(argv[0]) in programs_of(taken.step)
        if not is_asked and (not is_listed or (isinstance(action, RunCommand) and tuple(argv) != action.argv)):
            yield f"run {' '.join(argv)}"


@functools.cache
def rows() -> Tuple[Dict[str, Any], ...]:
    """What no plan can know, as docs/check-mode.md has it, with the ``messages`` of errors and ``needs`` for it."""
    import yaml

    return tuple(yaml.safe_load(NOT_FORESEEN.read_text(encoding="utf-8")))


@functools.cache
def _messages() -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{message})" for row in rows() for message in row.get("messages", ())))


@functools.cache
def _needs() -> FrozenSet[str]:
    return frozenset(need for row in rows() for need in row.get("needs", ()))


def could_know(plan: Plan, error: GpuFleetError) -> bool:
    """Whether a run failed for what its plan neither refused nor could not know."""
    # Where systemd runs, only a machine of the tests lacks a part of it.
    is_missing = "systemctl: No such file or directory" in str(error)
    return not is_missing and str(error) not in map(str, plan.refusals) and not _messages().search(str(error))


def unforeseen_needs(concern: str, plan: Plan, outcome: Outcome, host: Host) -> Set[str]:
    """What must still happen after a run, and no look at the machine before it said so."""
    left = {need for need in outcome.remaining.needs if need not in plan.needs and f"{concern}: {need}" not in _needs()}
    # What a step leaves does not depend on whether it was taken.
    actions = [step.action for step in plan.steps if isinstance(step.action, RoomAction)] if left else ()
    return left - {need for action in actions for need in action.followed_by(plan, host)}


def watch() -> None:
    """From now on a run fails its test where it did what it had not listed, or ended as it could have known and not
    said.
    """
    take_steps, execute = convergence._take_steps, convergence._execute_locked

    def take_traced(concern: AnyConcern, *arguments: Any) -> Any:
        if concern.name not in CONCERNS - UNLISTED:
            return take_steps(concern, *arguments)
        traced: Any = Traced(concern)
        try:
            return take_steps(traced, *arguments)
        finally:
            done = [(what, taken.step.action) for taken in traced.taken for what in unlisted(taken)]
            assert not done, f"{concern.name}: no plan lists {done}"

    def execute_watched(concern: AnyConcern, params: Params, host: Host, *, plan: Plan, **more: Any) -> Outcome:
        outcome = execute(concern, params, host, plan=plan, **more)
        if concern.name in CONCERNS:
            why = f"or say in tools/{NOT_FORESEEN.name} why no plan can know"
            error = outcome.error if outcome.error is not None and could_know(plan, outcome.error) else None
            assert error is None, f"no plan refuses this: {error} Let it have a step Refuse, {why}"
            needs = unforeseen_needs(concern.name, plan, outcome, host)
            assert not needs, f"{concern.name}: no plan says that it needs {needs}: see RoomAction.followed_by, {why}"
        return outcome

    convergence._take_steps, convergence._execute_locked = take_traced, execute_watched
