# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Dict, List, Optional

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError
from ansible_collections.gpufleet.node.plugins.module_utils._core.match import Candidate, parse, select

KEYS = ("index", "serial", "model")
DEVICES = (
    Candidate("a", {"index": ("0",), "serial": ("S1",), "model": ("MZ-1",)}),
    Candidate("b", {"index": ("1",), "serial": ("S2", "S2b"), "model": ("MZ-2",)}),
    Candidate("c", {"index": ("2",), "serial": ("T3",), "model": ("PM [x]",)}),
    Candidate("shy", {"index": ("9",), "serial": ("Z9",), "model": ("MZ-9",)}, named_by="serial"),
)


def winners(*entries: Dict[str, Any]) -> List[Optional[int]]:
    return list(select(parse("queues", entries, KEYS), DEVICES))


@pytest.mark.parametrize(
    ("matches", "expected"),
    [
        pytest.param([{}], [0, 0, 0, None], id="an empty match takes everything that needs no name"),
        pytest.param([{"index": 1}, {}], [1, 0, 1, None], id="the first entry that matches wins"),
        pytest.param([{"serial": "S*"}, {"serial": "T*"}], [0, 0, 1, None], id="text keys are shell globs"),
        pytest.param([{"index": [0, "2"]}, {}], [0, 1, 0, None], id="a key may have alternatives"),
        pytest.param([{"serial": "S*", "model": "*-2"}, {}], [1, 0, 1, None], id="all keys must agree"),
        pytest.param([{"serial": "S2b"}], [None, 0, None, None], id="any of the values of a device will do"),
        pytest.param([{"serial": "[ST][!1]"}], [None, 0, 0, None], id="brackets are sets of characters"),
        pytest.param([{"serial": "Z*"}], [None, None, None, 0], id="a device that must be named is named by a pattern"),
        pytest.param([{"serial": "*9", "model": "MZ-*"}, {}], None, id="a pattern of anything names nothing"),
    ],
)
def test_the_first_entry_whose_keys_all_agree_wins_a_device(
    matches: List[Dict[str, Any]], expected: Optional[List[Optional[int]]]
) -> None:
    entries = [{"match": match} for match in matches]
    if expected is None:
        with pytest.raises(DeclarationError, match="matches no device"):
            winners(*entries)
    else:
        assert winners(*entries) == expected


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        pytest.param(
            [{"match": {"serail": "S1"}}],
            "Cannot use queues[0]: there is no key serail. Did you mean serial?",
            id="a typo names the nearest key",
        ),
        pytest.param(
            [{"match": {}}, {"match": {"colour": "red"}}],
            "Cannot use queues[1]: there is no key colour. The keys are index, serial, model.",
            id="a key that is near nothing names all keys",
        ),
        pytest.param(
            [{"match": {"serial": []}}],
            "Cannot use queues[0]: serial is [], and must be a string or a list of strings.",
            id="no alternative at all",
        ),
        pytest.param(
            [{"match": {"index": True}}],
            "Cannot use queues[0]: index is True, and must be a string or a list of strings.",
            id="a truth value is no index",
        ),
        pytest.param(
            # What YAML makes of 0000:17:00.0.
            [{"match": {"serial": ["S1", 1020.0]}}],
            "Cannot use queues[0]: serial is ['S1', 1020.0], and must be a string or a list of strings. Put it in "
            "quotes, or YAML reads a number.",
            id="an address that YAML takes for a number",
        ),
        pytest.param(
            [{"match": {"serial": {"is": "S1"}}}],
            "Cannot use queues[0]: serial is {'is': 'S1'}, and must be a string or a list of strings.",
            id="a dictionary is not a string",
        ),
        pytest.param(
            [{"match": {"serial": ["X1", "X2"]}}],
            "Cannot apply queues[0] (serial: X1, X2): it matches no device; there is a, b, c, shy. "
            "Correct the match, or set optional: true.",
            id="an entry that matches nothing names what is there",
        ),
        pytest.param(
            [{"match": {}}, {"match": {"serial": "S*"}}],
            "Cannot apply queues[1] (serial: S*): a, b matched earlier queues[0] (which matches "
            "everything). Put the entry before them, or set optional: true.",
            id="an entry that came too late names the one that took its devices",
        ),
        pytest.param(
            [{"match": {"serial": "S1"}}, {"match": {"index": 1}}, {"match": {"serial": "S*"}}],
            "Cannot apply queues[2] (serial: S*): a, b matched earlier queues[0] (serial: S1) and "
            "queues[1] (index: 1). Put the entry before them, or set optional: true.",
            id="several entries took them",
        ),
    ],
)
def test_an_entry_that_cannot_be_meant_is_refused(entries: List[Dict[str, Any]], message: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        winners(*entries)
    assert str(caught.value) == message


@pytest.mark.parametrize("match", [{"serial": "X1"}, {"serial": "S1"}])
def test_an_optional_entry_may_win_nothing(match: Dict[str, str]) -> None:
    assert winners({"match": {}}, {"match": match, "optional": True}) == [0, 0, 0, None]
