# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine on which a program that reads it is missing, or ends well without an answer that can be understood.

What is not known is neither as declared nor restored, and the record of what was there before is kept.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Callable, List, Mapping, Optional, Sequence, cast

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core import baseline
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import AnyConcern, Scope
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed, Host
from ansible_collections.gpufleet.node.plugins.module_utils._core.setting import IN_SYNC
from ansible_collections.gpufleet.node.plugins.module_utils._linux import systemd_apply
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import (
    ABSENT,
    CONCERNS,
    PRESENT,
    Node,
    Nodes,
)
from ansible_collections.gpufleet.node.tests.unit.foresight import only_reads

pytestmark = pytest.mark.once
pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.contract.concern_machines",)

Fault = Callable[[Completed], Completed]
# How a program fails that reads the machine: it is missing, or ends well and says nothing that can be understood.
FAULTS: Mapping[str, Optional[Fault]] = {
    "is missing": None,
    "says nothing": lambda answer: Completed(0, "", ""),
    "says something else": lambda answer: Completed(0, "{}\n", ""),
}
# A machine without this program may have no initramfs at all, and then nothing has to be built.
NOT_NEEDED: Mapping[str, Sequence[str]] = {"kernel_modules": ("update-initramfs",)}


def break_program(node: Node, name: str, fault: Optional[Fault]) -> None:
    """Let a program of a machine fail so whenever it only reads; what changes something does its work all the same."""
    program = node.host.commands.programs.pop(name)
    if fault is None:
        return
    spoil = fault
    node.host.commands.programs[name] = lambda argv: spoil(program(argv)) if only_reads(argv) else program(argv)


def readers(node: Node, verb: str) -> List[str]:
    """The programs that a look of this kind starts."""
    node.host.commands.calls.clear()
    node.check(verb)
    names = {os.path.basename(argv[0]) for argv in node.host.commands.calls}
    return sorted(names & node.host.commands.programs.keys())


@pytest.mark.parametrize("concern", CONCERNS)
def test_the_record_of_what_could_not_be_read_back_is_kept(nodes: Nodes, concern: str) -> None:
    node = nodes(concern)
    untouched = node.found()
    programs = dict(node.host.commands.programs)
    node.arrive(PRESENT)
    asked = readers(node, ABSENT)
    for name in sorted(programs.keys() - {*NOT_NEEDED.get(concern, ())}):
        for words, fault in FAULTS.items():
            if fault is not None and name not in asked:
                continue
            node.arrive(PRESENT)
            break_program(node, name, fault)
            outcome = node.outcome(ABSENT)
            when = f"{name} {words}: {outcome.error}"
            if node.host.files.exists(baseline.path_of(concern)):
                assert outcome.error is not None or outcome.remaining.needs, when
            else:
                assert node.differs_from(untouched) == [], when
            node.host.commands.programs[name] = programs[name]
            assert node.left_by_absent(untouched) == [], when
    node.absent()


@pytest.mark.parametrize("concern", CONCERNS)
def test_what_could_not_be_read_is_neither_in_sync_nor_restored(nodes: Nodes, concern: str) -> None:
    node = nodes(concern)
    untouched = node.found()
    programs = dict(node.host.commands.programs)
    for name in readers(node, PRESENT):
        for words, fault in FAULTS.items():
            break_program(node, name, fault)
            assert node.look(PRESENT)["status"] != IN_SYNC, f"{name} {words}"
            outcome = node.outcome(PRESENT)
            node.host.commands.programs[name] = programs[name]
            assert node.left_by_absent(untouched) == [], f"{name} {words}: {outcome.error}"


@pytest.mark.parametrize("concern", CONCERNS)
@pytest.mark.parametrize(("before", "verb"), [((), PRESENT), ((PRESENT,), ABSENT)], ids=["present", "absent"])
def test_what_systemctl_did_not_do_is_done_by_the_next_run(
    nodes: Nodes, monkeypatch: pytest.MonkeyPatch, concern: str, before: Sequence[str], verb: str
) -> None:
    node = nodes(concern)
    untouched = node.found()
    programs = node.host.commands.programs
    if "systemctl" not in programs:
        pytest.skip("it needs no systemctl")
    monkeypatch.setattr(systemd_apply, "REEXEC_SECONDS", 0.0)
    whole = programs["systemctl"]
    node.arrive(*before)
    programs["systemctl"] = lambda argv: whole(argv) if only_reads(argv) else Completed(0, "", "")
    node.outcome(verb)
    programs["systemctl"] = whole
    node.converge(verb)
    assert node.check(verb).changes == ()
    node.absent()
    assert node.differs_from(untouched) == []


class FailsToLook:
    """A concern that cannot read the machine from the look of this number on, counted from 1."""

    def __init__(self, concern: AnyConcern, at: int) -> None:
        self._concern = concern
        self.left = at

    def __getattr__(self, name: str) -> Any:
        return getattr(self._concern, name)

    def observe(self, host: Host, declaration: Any, scope: Scope) -> Any:
        self.left -= 1
        if self.left <= 0:
            raise CannotLook("look", cause="it could not be read")
        return self._concern.observe(host, declaration, scope)


@pytest.mark.parametrize("concern", CONCERNS)
def test_a_look_of_absent_that_fails_is_a_failure_that_keeps_the_record(nodes: Nodes, concern: str) -> None:
    node = nodes(concern)
    untouched = node.found()
    for number in range(1, 20):
        node.arrive(PRESENT)
        failing = FailsToLook(node.concern, number)
        outcome = replace(node, concern=cast("AnyConcern", failing)).outcome(ABSENT)
        if failing.left > 0:
            break
        assert outcome.error is not None, number
        assert "it could not be read" in str(outcome.error)
        assert node.host.files.exists(baseline.path_of(concern)), number
    assert number > 3
    node.absent()
    assert node.differs_from(untouched) == []
