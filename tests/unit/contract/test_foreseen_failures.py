# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run would fail for is said before it: for want of a program, and of whatever else a plan can know."""

from __future__ import annotations

import re
from typing import List

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.change import Step, WriteAttribute
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError, MissingProgram
from ansible_collections.gpufleet.node.tests.unit import foresight
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import (
    ABSENT,
    CONCERNS,
    OTHER,
    PRESENT,
    Node,
    Nodes,
)

pytestmark = pytest.mark.once
pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.contract.concern_machines",)

# Every system has them; the first is a part of systemd.
ALWAYS_THERE = ("systemctl", "env")


def refusals(node: Node, verb: str) -> List[str]:
    """What check mode says that a run of this kind fails for."""
    try:
        outcome = node.attempt(verb, check_mode=True)
    except GpuFleetError as error:
        return [str(error)]
    return [*([str(outcome.error)] if outcome.error else []), *map(str, outcome.remaining.refusals)]


@pytest.mark.parametrize("concern", CONCERNS)
def test_a_program_without_which_a_run_fails_is_named_in_check_mode_and_nothing_changes(
    nodes: Nodes, concern: str
) -> None:
    if concern in foresight.UNLISTED:
        pytest.skip("its steps do not list their programs yet")
    node = nodes(concern)
    programs = node.host.commands.programs
    for verb in (PRESENT, OTHER, ABSENT):
        before = node.everything()
        whole = dict(programs)
        needless: List[str] = []
        refused = ""
        for name in sorted(whole):
            del programs[name]
            said = refusals(node, verb)
            programs[name] = whole[name]
            if not said:
                needless.append(name)
            elif f"Cannot run {name}: " in said[0]:
                refused = name
        if refused:
            del programs[refused]
            error = node.outcome(verb).error
            programs[refused] = whole[refused]
            assert isinstance(error, MissingProgram)
            assert node.everything()[1] == before[1]
            left = {path: entry for path, entry in node.everything()[0].items() if not path.startswith("run")}
            assert left == {path: entry for path, entry in before[0].items() if not path.startswith("run")}, refused
        for name in needless:
            if name not in ALWAYS_THERE:
                del programs[name]
        outcome = node.outcome(verb)
        programs.update(whole)
        assert outcome.error is None, needless
    node.absent()


def test_whatever_else_a_run_may_fail_for_says_why_no_plan_knows_it() -> None:
    for row in foresight.rows():
        assert row["what"].endswith("."), row
        assert row["why"].strip().endswith("."), row
        for message in row.get("messages", ()):
            re.compile(message)


def test_what_a_step_does_and_does_not_list_is_found() -> None:
    taken = foresight.Taken(Step(WriteAttribute("/sys/a", "1")))
    taken.failed = False
    taken.effects = [("set", "/sys/a", "2"), ("replace", "/etc/a", ""), ("remove", "/run/gpufleet/a", "")]
    taken.programs = [("systemctl", "restart", "a.service"), ("systemctl", "show", "a.service")]
    assert list(foresight.unlisted(taken)) == ["set /sys/a to 2", "replace /etc/a", "run systemctl restart a.service"]
