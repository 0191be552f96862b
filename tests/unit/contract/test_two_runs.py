# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two runs on one machine at once: what one saw before it had the lock does not count, and neither fails for it."""

from __future__ import annotations

import threading
from typing import Callable, List, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core import convergence
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import (
    ABSENT,
    CONCERNS,
    OTHER,
    PRESENT,
    Node,
    Nodes,
)

pytestmark = [pytest.mark.once, pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")]
pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.contract.concern_machines",)

WAIT_SECONDS = 60.0


def is_as(node: Node, verb: str, untouched: Tuple[object, object]) -> bool:
    """Whether the machine is as a run of this kind leaves it."""
    if verb == ABSENT:
        return node.differs_from(untouched) == []
    return node.look(verb)["status"] in ("in_sync", "pending")


@pytest.mark.parametrize("concern", CONCERNS)
@pytest.mark.parametrize(
    ("first", "between"), [(PRESENT, PRESENT), (PRESENT, ABSENT), (ABSENT, PRESENT), (ABSENT, ABSENT), (PRESENT, OTHER)]
)
def test_a_run_between_the_look_and_the_lock_of_another_costs_neither_its_end(
    nodes: Nodes, concern: str, first: str, between: str
) -> None:
    node = nodes(concern)
    untouched = node.found()
    if first == ABSENT:
        node.present()
    elif between == ABSENT:
        node.converge(OTHER)
    done: List[str] = []

    def other() -> None:
        if not done:
            done.append(between)
            node.converge(between)

    node.host.files.before_lock = other
    node.converge(first)
    node.host.files.before_lock = lambda: None
    assert done == [between]
    # Who comes last has what they declared.
    assert is_as(node, first, untouched)
    node.absent()
    assert node.differs_from(untouched) == []


class Second:
    """A run that looks when another is about to make its side effect of this number, and then waits for the lock."""

    def __init__(self, node: Node, run: Callable[[], Outcome], point: int) -> None:
        self.failure: Optional[GpuFleetError] = None
        self._node = node
        self._run = run
        self._point = point
        self._looked = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self._started = False
        self._tries = 0
        node.host.files.before_effect = self._at_effect
        node.host.files.before_lock = self._at_lock

    def _work(self) -> None:
        try:
            self._run()
        except GpuFleetError as error:
            self.failure = error
        self._looked.set()

    def _at_effect(self) -> None:
        if not self._started and len(self._node.host.files.log) == self._point - 1:
            self._started = True
            self._thread.start()
            assert self._looked.wait(WAIT_SECONDS)

    def _at_lock(self) -> None:
        if threading.current_thread() is self._thread:
            self._tries += 1
            # The first try does not wait.
            if self._tries == 2:
                self._looked.set()

    def ended(self) -> bool:
        """Whether it ran, once the other has ended."""
        if self._started:
            self._thread.join(WAIT_SECONDS)
        self._node.host.files.before_effect = self._node.host.files.before_lock = lambda: None
        return self._started


@pytest.mark.parametrize("concern", CONCERNS)
@pytest.mark.parametrize("verbs", [(PRESENT, PRESENT), (PRESENT, ABSENT), (ABSENT, PRESENT)])
def test_a_run_that_looks_in_the_middle_of_another_does_not_fail_for_it(
    nodes: Nodes, concern: str, verbs: Tuple[str, str]
) -> None:
    first, second = verbs
    node = nodes(concern)
    untouched = node.found()
    # A run with a driver takes long: of its side effects every third.
    for point in range(1, 60, 3 if node.lasting else 1):
        if first == ABSENT:
            node.arrive(PRESENT)
        node.effects.clear()
        other = Second(node, lambda: node.again().converge(second), point)
        node.converge(first)
        if not other.ended():
            assert point > 3
            break
        assert other.failure is None, f"at side effect {point}"
        if first == second:
            assert is_as(node, second, untouched)
        assert node.left_by_absent(untouched) == [], f"at side effect {point}"
    else:
        pytest.fail("it never ended")
    node.absent()


@pytest.mark.parametrize("concern", CONCERNS)
@pytest.mark.parametrize("verbs", [(PRESENT, OTHER), (PRESENT, ABSENT), (ABSENT, PRESENT)])
def test_a_run_that_waited_long_enough_for_another_is_refused_and_the_other_does_not_notice(
    nodes: Nodes, concern: str, verbs: Tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = verbs
    node = nodes(concern)
    untouched = node.found()
    monkeypatch.setattr(convergence, "LOCK_TIMEOUT_SECONDS", 0.0)
    if first == ABSENT:
        node.present()
    refusals: List[Outcome] = []

    def intrude() -> None:
        node.host.files.before_effect = lambda: None
        before = node.found()
        refusals.append(node.again().outcome(second))
        assert node.differs_from(before) == []

    node.effects.clear()
    node.host.files.before_effect = lambda: intrude() if len(node.effects) == 2 else None
    assert node.attempt(first).error is None
    node.host.files.before_effect = lambda: None
    (refusal,) = refusals
    if refusal.error is None:
        # It found nothing to do, for what it declares is not in its way yet.
        assert refusal.changes == ()
    else:
        assert refusal.error.code == "not_permitted"
        assert "/run/gpufleet/lock" in str(refusal.error)
        assert refusal.error.hint == "wait until the other run has ended, then run again"
    assert is_as(node, first, untouched)
    node.absent()
    assert node.differs_from(untouched) == []
