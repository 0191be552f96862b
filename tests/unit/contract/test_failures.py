# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run that fails anywhere: what it changed is named, no more than that is kept, and all of it can be given back."""

from __future__ import annotations

import errno
import json
from typing import Any, Dict, Iterable, Sequence, Set, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core import baseline
from ansible_collections.gpufleet.node.plugins.module_utils._core.change import Change
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import (
    ABSENT,
    CONCERNS,
    PRESENT,
    Node,
    Nodes,
    difference,
)

pytestmark = pytest.mark.once
pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.contract.concern_machines",)

OURS = ("var/lib/gpufleet", "etc/gpufleet")
# One after the other, each at a third of the points.
ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS)
Values = Dict[Tuple[str, str, str], Tuple[Any, Any]]


def values_of(changes: Iterable[Change]) -> Values:
    """Before and after by object, setting and scope."""
    return {(change.object, change.setting, change.scope): (change.before, change.after) for change in changes}


def settings_of(values: Values) -> Set[str]:
    return {setting for _object, setting, _scope in values}


def unaccounted(planned: Values, made: Values, left: Values) -> Dict[Tuple[str, str, str], Any]:
    """What of the planned changes is neither made nor left to do, or made otherwise than it is said.

    What follows from another change of the same object, such as the depth of a queue from its scheduler, need not be
    named once it is as planned.
    """
    wrong: Dict[Tuple[str, str, str], Any] = {}
    changed = {object_ for object_, _setting, _scope in made}
    for key, (before, after) in planned.items():
        if key[0] in changed and key not in made and key not in left:
            continue
        now = made[key][1] if key in made else before
        then, end = left.get(key, (now, now))
        if (then, end) != (now, after):
            wrong[key] = {"planned": (before, after), "made": made.get(key), "left": left.get(key)}
    return wrong


def kept(node: Node) -> Set[str]:
    """The settings that the record has a value of from before us."""
    text = node.host.files.read_optional(baseline.path_of(node.name))
    return {entry["setting"] for entry in json.loads(text)["values"]} if text is not None else set()


@pytest.mark.parametrize("concern", CONCERNS)
@pytest.mark.parametrize(("verb", "before"), [(PRESENT, ()), (ABSENT, (PRESENT,))], ids=["present", "absent"])
def test_a_run_that_fails_anywhere_names_what_it_changed_keeps_no_more_and_can_be_given_back(
    nodes: Nodes, concern: str, verb: str, before: Sequence[str]
) -> None:
    node = nodes(concern)
    untouched = node.found()
    start = node.save() if node.refused_until_boot else None
    elsewhere = {path: entry for path, entry in untouched[0].items() if not path.startswith(OURS)}
    node.arrive(*before)
    all_planned = values_of(node.check(verb).changes)
    for point in range(1, 200):
        # At first it is there already.
        if point > 1:
            node.arrive(*before)
        outcome = node.failing(verb, point, ERRORS[point % len(ERRORS)])
        if len(node.effects) < point:
            assert outcome.error is None
            assert point > 3
            break
        kind, path, _value = node.effects[point - 1]
        when = f"at side effect {point}, {kind} {path}: {outcome.error}"
        made = values_of(outcome.changes)
        left = values_of(node.check(verb).changes)
        refused = {(entry.object, entry.setting) for entry in outcome.remaining.unmanaged}
        planned = {key: values for key, values in all_planned.items() if key[:2] not in refused}
        assert unaccounted(planned, made, left) == {}, when
        if verb == ABSENT and refused:
            assert start is not None, when
            node.back_to(start)
            continue
        if outcome.error is None:
            assert left == {}, when
        elif verb == PRESENT:
            tree, state = node.found()
            rest = {path: entry for path, entry in tree.items() if not path.startswith(OURS)}
            if not made and (rest, state) == (elsewhere, untouched[1]):
                assert difference(tree, untouched[0]) == [], when
            # Of a change that takes several files, those that are written are kept too.
            begun = settings_of(left) if rest != elsewhere else set()
            assert kept(node) <= settings_of(made) | begun, when
        assert node.left_by_absent(untouched) == [], when
    else:
        pytest.fail("it never ended")
    node.absent()
