# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Declarations of which one or two values are something that nobody meant: each ends in a result or in a refusal."""

from __future__ import annotations

import json
import random
from typing import Any, Dict, Iterator, List, Mapping, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.arguments import validated
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import refused
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError, GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import CONCERNS, Nodes

pytestmark = pytest.mark.once
pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.contract.concern_machines",)

# So many of each concern get past the argument specification; of some hardly any does.
DECLARATIONS = 40
TRIES = 1600
SEED = 7
ODD: Tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**64, 10**40, 0.5, -0.0),
    *("", " ", "\n", "a b", "a\nb", "64", "²", "٣", "0x40", "1e9", "-", "-1", "1-0", "0-1-2", "0,", "0-99999999999"),
    *("all", "none", "max", "auto", "*", "?", "[", "[!]", "{", "{0}", "%s", "$(x)", "`x`", "a;b", "a#b", "=", "a==b"),
    *("\\", "'", '"', "/", "//", "..", "../../etc", "/etc/passwd", "a" * 5000, "\0", "\x1b[0m", "é", "\u202e", "~"),
    *("1G", "1.5G", "-1G", "1 G", "16777216T", "1:1:1", "::1", "10.0.0.0/33", "300.1.1.1", "zz:zz.z", "GPU-", "MIG-"),
    *([], [None], [[]], [{}], [1, [2]], ["a", "a"], [""], {}, {"a": None}, {"": 1}, {"a": {"b": {}}}),
)

Place = Tuple[Any, ...]


def places(value: Any, here: Place = ()) -> Iterator[Place]:
    """The keys and indices that lead to each value within this one."""
    within = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in within:
        yield (*here, key)
        yield from places(one, (*here, key))


def choices(options: Mapping[str, Any], here: Tuple[str, ...] = ()) -> Iterator[Tuple[Tuple[str, ...], Any]]:
    """Each option, with its names from the outermost on, and its words if it has no others."""
    for name, option in options.items():
        yield (*here, name), option.get("choices")
        yield from choices(option.get("options") or {}, (*here, name))


def spoil(declaration: Dict[str, Any], known: List[Tuple[Tuple[str, ...], Any]], chosen: random.Random) -> None:
    """Put something odd in the place of a value, or give an option a value that it did not have."""
    odd = chosen.choice(ODD)
    if chosen.random() < 0.7 and declaration:
        *way, last = chosen.choice(list(places(declaration)))
        around: Any = declaration
        for key in way:
            around = around[key]
    else:
        (*way, last), words = chosen.choice(known)
        around = declaration
        for name in way:
            around = around.setdefault(name, [{}])
            around = around[0] if isinstance(around, list) and around else around
            if not isinstance(around, dict):
                return
        odd = chosen.choice(words) if words and chosen.random() < 0.6 else odd
    around[last] = json.loads(json.dumps(odd))


@pytest.mark.parametrize("concern", CONCERNS)
def test_what_nobody_meant_ends_in_a_result_or_a_refusal_and_check_mode_changes_nothing(
    nodes: Nodes, concern: str
) -> None:
    node, chosen = nodes(concern), random.Random(SEED)
    options = {**SHARED_OPTIONS, **node.concern.options}
    known = list(choices(node.concern.options))
    read = 0
    for _try in range(TRIES):
        declaration = json.loads(json.dumps(dict(chosen.choice([node.declaration, node.other]))))
        for _one in range(chosen.choice([1, 1, 2])):
            spoil(declaration, known, chosen)
        node.effects.clear()
        try:
            params = validated(options, declaration)
            read += 1
            outcome = converge(node.concern, params, node.host, check_mode=True)
        except GpuFleetError as error:
            outcome = refused(error)
        except Exception as error:
            raise AssertionError(declaration) from error
        assert json.dumps(outcome.as_dict())
        assert node.effects == [], declaration
        if read == DECLARATIONS:
            return
    assert read


def is_number(options: Mapping[str, Any], place: Place) -> bool:
    """Whether a whole number belongs at this place of a declaration."""
    names = [name for name in place if isinstance(name, str)]
    for name in names[:-1]:
        options = (options.get(name) or {}).get("options") or {}
    option = options.get(names[-1]) or {}
    return "int" in (option.get("type"), option.get("elements"))


@pytest.mark.parametrize("concern", CONCERNS)
def test_a_boolean_is_not_a_number(nodes: Nodes, concern: str) -> None:
    node = nodes(concern)
    for declaration in (node.declaration, node.other):
        for *way, last in filter(lambda place: is_number(node.concern.options, place), places(declaration)):
            spoiled = around = json.loads(json.dumps(dict(declaration)))
            for key in way:
                around = around[key]
            if isinstance(around[last], list):
                continue
            around[last] = True
            for check_mode in (True, False):
                with pytest.raises(DeclarationError, match=r" is .*true.*, and must be a whole number"):
                    converge(node.concern, node.params(spoiled), node.host, check_mode=check_mode)
            assert node.effects == []
