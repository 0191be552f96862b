# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values of ours in a commented JSON file of others, and the way back, byte for byte."""

from __future__ import annotations

import json
import time
from typing import Any, Dict

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError
from ansible_collections.gpufleet.node.plugins.module_utils._text.json_comments import blanked, parse_commented
from ansible_collections.gpufleet.node.plugins.module_utils._text.json_marks import Marks
from hypothesis import given, settings
from hypothesis import strategies as st

MARKS = Marks("test")
PATH = "/etc/program.json"
KEYS = st.sampled_from(["a", "b", "c", "// d", "ä", "", "*/", "a.b", 'q"\\', "*\\/"])
SCALARS = st.sampled_from([1, 2, True, False, None, "x", "/* no comment */", "\\", [], [1, 2], ["*/"]])
TREES = st.recursive(SCALARS, lambda inner: st.dictionaries(KEYS, inner, max_size=3), max_leaves=8)


@st.composite
def commented(draw: st.DrawFn) -> str:
    """An object as people write it: comments are where JsonCpp takes them."""
    comment = st.sampled_from(["", "", "", ' // x \\ "\n', " /* * / // */ ", "\n  /**/", "\n\n"])

    def written(value: Any, depth: int) -> str:
        if not isinstance(value, dict):
            return json.dumps(value, ensure_ascii=False)
        members = []
        for key, inner in value.items():
            place = draw(st.sampled_from(["", " ", f"\n{'  ' * depth}"]))
            text = (
                f"{json.dumps(key, ensure_ascii=False)}{draw(st.sampled_from([':', ' : ']))}{written(inner, depth + 1)}"
            )
            members.append(f"{draw(comment)}{place}{text}{draw(comment)}")
        return f"{{{','.join(members)}{draw(comment)}}}"

    tree = draw(st.dictionaries(KEYS, TREES, max_size=4))
    return f"{draw(comment)}{written(tree, 1)}{draw(st.sampled_from(['', chr(10)]))}"


def merged(table: Dict[str, Any], values: Dict[str, Any]) -> Dict[str, Any]:
    made = dict(table)
    for key, value in values.items():
        inner = made.get(key)
        made[key] = merged(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return made


@pytest.mark.once
@settings(max_examples=150)
@given(text=commented(), values=st.dictionaries(KEYS, TREES, max_size=3))
def test_values_are_there_and_without_them_every_byte_is_as_it_was(text: str, values: Dict[str, Any]) -> None:
    before = parse_commented(text, PATH)
    try:
        made = MARKS.with_values(text, values)
    except DeclarationError:
        return
    assert parse_commented(made, PATH) == merged(before, values)
    assert MARKS.without(made) == text
    # Where nothing differs nothing is touched.
    assert MARKS.with_values(text, before) == text


@given(text=commented())
def test_blanks_stand_where_comments_stood(text: str) -> None:
    bare = blanked(text)
    assert len(bare) == len(text)
    assert [line for line in bare if line == "\n"] == [line for line in text if line == "\n"]
    assert all(new in (old, " ") for old, new in zip(text, bare))


def test_what_is_kept_in_a_comment_does_not_end_it() -> None:
    text = '{"a": [ "*/", // not /* this */\n "\\\\" ]}'
    made = MARKS.with_values(text, {"a": 1})
    assert parse_commented(made, PATH) == {"a": 1}
    assert MARKS.without(made) == text


def test_the_mark_of_a_member_that_others_removed_says_nothing_of_the_one_before_it() -> None:
    made = MARKS.with_values('{"a": 1, "b": 2}', {"b": 3})
    moved = made.replace(', "b": 3', "")
    assert MARKS.without(moved) == '{"a": 1}'


def test_comments_of_others_above_a_value_of_ours_stay() -> None:
    made = MARKS.with_values('{\n  "a": 1\n}', {"b": 2})
    commented_on = made.replace('\n  "b"', '\n  // of others\n  "b"')
    assert MARKS.without(commented_on) == '{\n  "a": 1\n  // of others\n}'


def test_what_others_appended_to_a_file_of_ours_stays() -> None:
    made = MARKS.with_values(None, {"a": {"b": 1}})
    assert MARKS.without(made) is None
    assert parse_commented(MARKS.without(made.replace("\n}\n", ',\n  "c": 1\n}\n')) or "", PATH) == {"c": 1}


def test_a_comment_costs_the_same_in_a_large_file() -> None:
    text = json.dumps({str(number): [number] for number in range(50_000)}, indent=4).replace("[\n", "[ // said\n")
    began = time.process_time()
    assert len(parse_commented(text, PATH)) == 50_000
    # Where each looked at all that stands around it, these took more than half a minute.
    assert time.process_time() - began < 8
