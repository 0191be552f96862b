# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run that is killed anywhere: the next one completes it, and what it did can be given back."""

from __future__ import annotations

import os
from typing import Any, Callable, Iterator, List, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core import baseline
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import (
    ABSENT,
    CONCERNS,
    OTHER,
    PRESENT,
    Found,
    Node,
    Nodes,
    difference,
)
from ansible_collections.gpufleet.node.tests.unit.support import Killed

pytestmark = pytest.mark.once
pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.contract.concern_machines",)

Arrange = Callable[[], None]
# What the next run that writes it takes away, and what says nothing of a setting: the records of what was before us may
# have more in it after two runs, and how Python compiled a file tells when the file was written.
BESIDES = (".gpufleet-tmp", "/__pycache__", "var/lib/gpufleet/")


def killed(node: Node, verb: str, before: Sequence[str]) -> Iterator[Tuple[str, Arrange]]:
    """Each way to be killed in a run that comes after others: before which side effect, and how to make it so.

    Begins on a machine without anything of ours, and wants it to be so again each time.
    """
    points: List[Found] = []
    for earlier in before:
        node.converge(earlier)
    node.effects.clear()
    if node.save_state is not None:
        node.host.files.before_effect = lambda: points.append(node.save())
    node.converge(verb)
    node.host.files.before_effect = lambda: None
    effects = list(node.effects)
    if ABSENT not in (verb, *before):
        node.absent()
    assert len(effects) > 1
    for number, (kind, path, _value) in enumerate(effects):

        def kill(at: int = number + 1) -> None:
            for earlier in before:
                node.converge(earlier)
            node.effects.clear()
            node.host.files.kill_at = at
            with pytest.raises(Killed):
                node.converge(verb)
            node.host.files.kill_at = None

        def go_back(to: int = number) -> None:
            node.back_to(points[to])

        yield f"before side effect {number + 1}, {kind} {path}", go_back if points else kill


def settled(node: Node) -> Any:
    """The machine without what says nothing of a setting."""
    tree, state = node.found()
    return {path: entry for path, entry in tree.items() if not any(part in path for part in BESIDES)}, state


@pytest.mark.parametrize("concern", CONCERNS)
@pytest.mark.parametrize(
    ("verb", "before"),
    [(PRESENT, ()), (OTHER, (PRESENT,)), (ABSENT, (PRESENT,))],
    ids=["first", "changed", "absent"],
)
def test_what_a_killed_run_began_is_completed_by_the_next_and_can_be_given_back(
    nodes: Nodes, concern: str, verb: str, before: Sequence[str]
) -> None:
    node = nodes(concern)
    untouched = node.found()
    again = PRESENT if verb == ABSENT else verb
    for earlier in (*before, again):
        node.converge(earlier)
    complete = settled(node)
    node.absent()
    for when, arrange in killed(node, verb, before):
        arrange()
        node.absent()
        assert node.differs_from(untouched) == [], when
        arrange()
        node.converge(again)
        tree, state = settled(node)
        assert difference(tree, complete[0]) == [], when
        assert state == complete[1], when
        assert node.left_by_absent(untouched) == [], f"{when}, and completed"


@pytest.mark.parametrize("concern", CONCERNS)
@pytest.mark.parametrize("folder", baseline.OUR_FOLDERS)
def test_a_folder_that_a_run_made_before_its_record_is_removed(nodes: Nodes, concern: str, folder: str) -> None:
    node = nodes(concern)
    untouched = node.found()
    os.makedirs(f"{node.host.files.root}{folder}", exist_ok=True)
    node.absent()
    assert node.differs_from(untouched) == []
