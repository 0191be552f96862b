# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Two runs on one machine at once: what one saw before it had the lock does not count, and neither fails for it."""

from __future__ import annotations

import threading
from typing import Callable, List, Mapping, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.assessment import assess
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from concern_machines import CONCERNS, Node, Nodes

pytestmark = pytest.mark.once
pytest_plugins = ("concern_machines", "gpu_machine", "persistence_machine", "nvml_simulator_fixtures")

# Those whose machines are a tree of files and scripted programs, which two threads can share.
TREES = tuple(name for name in CONCERNS if name not in ("nvidia_persistence", "mig_layout", "gpu_settings", "nvml"))
PRESENT, OTHER, ABSENT = "present", "other", "absent"
WAIT_SECONDS = 60.0


def runs_of(node: Node) -> Mapping[str, Callable[[], Outcome]]:
    return {PRESENT: node.present, OTHER: lambda: node.run(node.other), ABSENT: node.absent}


def is_as(node: Node, verb: str, untouched: Tuple[object, object]) -> bool:
    """Whether the machine is as a run of this kind leaves it."""
    if verb == ABSENT:
        return node.differs_from(untouched) == []
    node.connect()
    try:
        declaration = node.declaration if verb == PRESENT else node.other
        return assess(node.concern, node.params(declaration), node.host)[1].status in ("in_sync", "pending")
    finally:
        node.host.nvml.close()


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
        node.run(node.other)
    runs = runs_of(node)
    done: List[str] = []

    def other() -> None:
        if not done:
            done.append(between)
            runs[between]()

    node.host.files.before_lock = other
    runs[first]()
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
            self._looked.set()

    def ended(self) -> bool:
        """Whether it ran, once the other has ended."""
        if self._started:
            self._thread.join(WAIT_SECONDS)
        self._node.host.files.before_effect = self._node.host.files.before_lock = lambda: None
        return self._started


@pytest.mark.parametrize("concern", TREES)
@pytest.mark.parametrize("verbs", [(PRESENT, PRESENT), (PRESENT, ABSENT), (ABSENT, PRESENT)])
def test_a_run_that_looks_in_the_middle_of_another_does_not_fail_for_it(
    nodes: Nodes, concern: str, verbs: Tuple[str, str]
) -> None:
    first, second = verbs
    for point in range(1, 60):
        node = nodes(concern)
        untouched = node.found()
        if first == ABSENT:
            node.present()
        node.host.files.log.clear()
        other = Second(node, runs_of(node)[second], point)
        runs_of(node)[first]()
        if not other.ended():
            assert point > 4
            break
        assert other.failure is None, f"at side effect {point}"
        if first == second:
            assert is_as(node, second, untouched)
    else:
        pytest.fail("it never ended")
