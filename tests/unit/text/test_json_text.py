# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""JSON texts: what is read, where they are broken, and that an edit touches nothing but what it is for."""

from __future__ import annotations

import contextlib
import json
from typing import Any, Dict, List, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook, DeclarationError
from ansible_collections.gpufleet.node.plugins.module_utils._text import toml_text, yaml_subset
from ansible_collections.gpufleet.node.plugins.module_utils._text.json_edit import remove, set_value
from ansible_collections.gpufleet.node.plugins.module_utils._text.json_text import MAX_DEPTH, parse
from ansible_collections.gpufleet.node.plugins.module_utils._text.toml_text import TomlError
from ansible_collections.gpufleet.node.plugins.module_utils._text.yaml_subset import YamlError
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.cdi import cdi
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.model import Document
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.job_environment import cdi as environment
from ansible_collections.gpufleet.node.tests.unit.text.json_texts import KEYS, VALUES, texts
from hypothesis import given
from hypothesis import strategies as st

PATH = "/etc/docker/daemon.json"

# Reading


@pytest.mark.parametrize("text", [None, "", "\n", " \r\n\t", "\ufeff", "\ufeff\n"])
def test_a_file_that_is_not_there_or_blank_holds_nothing(text: str) -> None:
    assert parse(text, PATH) == {}


@pytest.mark.parametrize("text", ['{"a": 1}', '\ufeff{"a": 1}', '\r\n{\r\n\t"a": 1\r\n}\r\n'])
def test_blanks_and_a_byte_order_mark_mean_nothing(text: str) -> None:
    assert parse(text, PATH) == {"a": 1}


BROKEN: Dict[str, Tuple[str, str]] = {
    # What it is called, and where it is, depends on the release of Python.
    "a comma too many": ('{\n  "a": 1,\n}\n', "line "),
    "a comma too few": ('{\n  "a": 1\n  "b": 2\n}', "line 3, column 3: Expecting ',' delimiter"),
    "a comment": ('{\n  // no\n  "a": 1\n}', "line 2, column 3: Expecting property name enclosed in double quotes"),
    "the file ends": ('{"a": {"b": 1}', "line 1, column 15: Expecting ',' delimiter"),
    "a text behind the object": ('{}\n{"a": 1}', "line 2, column 1: Extra data"),
    "a list": ("\n  [1]", "line 2, column 3: the file does not hold a mapping"),
    "a number": ("5", "line 1, column 1: the file does not hold a mapping"),
    "a word of JavaScript": ('{"NaN": "\\"NaN",\n"b": [1,\n  NaN]}', "line 3, column 3: NaN is not JSON"),
    "less than all numbers": ('{"a": -Infinity}', "line 1, column 7: -Infinity is not JSON"),
    "a tabulator in a text": ('{"a": "\t"}', "line 1, column 8: Invalid control character at"),
    "a key twice": ('{\n  "a": 1,\n  "b": 2,\n  "a": 3\n}', 'line 4, column 3: the key "a" occurs twice'),
    "a key twice, deep": ('{"a": [0, [{"b": 1,\n "b": 2}]]}', 'line 2, column 2: the key "b" occurs twice'),
    "the same key, spelt otherwise": ('{"a": 1, "\\u0061": 2}', 'line 1, column 10: the key "a" occurs twice'),
    "a byte of Latin-1": ('{\n"a": "caf\udce9"}', "line 2, column 10: a byte that is not UTF-8"),
    "UTF-16": ("\udcff\udcfe{\0}\0", "line 1, column 1: a byte that is not UTF-8"),
    "too deep": ('{"a": ' + "[" * 100_000, "line 1, column 1: its objects and lists are nested too deeply"),
}


@pytest.mark.parametrize("name", sorted(BROKEN))
def test_what_is_no_json_is_named_with_its_place(name: str) -> None:
    text, cause = BROKEN[name]
    with pytest.raises(CannotLook) as caught:
        parse(text, PATH)
    said = str(caught.value)
    assert said.startswith(f"Cannot parse {PATH}: {cause}")
    assert said.endswith("Correct the file, then run again; nothing was written.")


# Editing


SET: Dict[str, Tuple[str, Sequence[str], Any, str]] = {
    "no file": ("", ["a"], True, '{\n    "a": true\n}\n'),
    "a blank file": ("\n\n", ["a", "b"], 1, '{\n    "a": {\n        "b": 1\n    }\n}\n'),
    "a mark alone": ("\ufeff", ["a"], 1, '\ufeff{\n    "a": 1\n}\n'),
    "an empty object": ("{}", ["a"], 1, '{\n    "a": 1\n}'),
    "an empty object with a line in it": ("{\n}\n", ["a"], 1, '{\n    "a": 1\n}\n'),
    "another value": ('{ "a" :1 , "b":2 }', ["a"], [3], '{ "a" :[3] , "b":2 }'),
    "two blanks": ('{\n  "a": 1\n}\n', ["b"], {"c": []}, '{\n  "a": 1,\n  "b": {\n    "c": []\n  }\n}\n'),
    "a tabulator": (
        '{\n\t"a": {\n\t\t"x": 1\n\t}\n}',
        ["a", "y"],
        {"z": 2},
        '{\n\t"a": {\n\t\t"x": 1,\n\t\t"y": {\n\t\t\t"z": 2\n\t\t}\n\t}\n}',
    ),
    "lines of Windows": (
        '{\r\n  "a": 1\r\n}\r\n',
        ["b", "c"],
        2,
        '{\r\n  "a": 1,\r\n  "b": {\r\n    "c": 2\r\n  }\r\n}\r\n',
    ),
    "one line": ('{"a": 1}', ["b", "c"], 2, '{"a": 1, "b": {"c": 2}}'),
    "one line without blanks": ('{"a":1,"d":2}', ["b", "c"], 2, '{"a":1,"d":2,"b":{"c":2}}'),
    "one line with blanks": ('{ "a": 1, "d": 2 }', ["b"], 3, '{ "a": 1, "d": 2, "b": 3 }'),
    "an empty object inside": ('{\n  "a": {}\n}', ["a", "b"], 1, '{\n  "a": {\n    "b": 1\n  }\n}'),
    "an empty object inside one line": ('{"a": {}}', ["a", "b"], 1, '{"a": {"b": 1}}'),
    "a null on the way": ('{\n  "a": null\n}', ["a", "b"], 1, '{\n  "a": {\n    "b": 1\n  }\n}'),
    "a key with dots and quotes": ('{"a.b": {"c\\"": 1}}', ["a.b", 'c"'], 2, '{"a.b": {"c\\"": 2}}'),
    "commas first": ('{ "a": 1\n, "b": 2\n}', ["c"], 3, '{ "a": 1\n, "b": 2, "c": 3\n}'),
    "letters of the world": ('{"ä": "\\u00e4"}', ["ö"], "ü", '{"ä": "\\u00e4", "ö": "ü"}'),
}


@pytest.mark.parametrize("name", sorted(SET))
def test_a_value_is_set_in_the_hand_of_the_file(name: str) -> None:
    text, path, value, wanted = SET[name]
    assert set_value(text, path, value) == wanted
    assert set_value(wanted, path, value) == wanted


REMOVED: Dict[str, Tuple[str, Sequence[str], str]] = {
    "no file": ("", ["a"], ""),
    "not there": ('{ "a":1 }', ["b"], '{ "a":1 }'),
    "not there, deep": ('{"a": {"b": 1}}', ["c", "b"], '{"a": {"b": 1}}'),
    "no object on the way": ('{"a": [1]}', ["a", "b"], '{"a": [1]}'),
    "the first": ('{\n  "a": 1,\n  "b": 2\n}\n', ["a"], '{\n  "b": 2\n}\n'),
    "the last": ('{\n  "a": 1,\n  "b": 2\n}\n', ["b"], '{\n  "a": 1\n}\n'),
    "the middle one": ('{"a":1, "b":2, "c":3}', ["b"], '{"a":1, "c":3}'),
    "the only one": ('{\r\n "a": 1\r\n}\r\n', ["a"], "{}\r\n"),
    "a deep one": ('{"a": {"b": {}, "c": 1}, "d": 2}', ["a", "b"], '{"a": {"c": 1}, "d": 2}'),
}


@pytest.mark.parametrize("name", sorted(REMOVED))
def test_a_key_goes_with_its_comma(name: str) -> None:
    text, path, wanted = REMOVED[name]
    assert remove(text, path) == wanted


def test_what_is_no_object_is_not_overwritten_on_the_way() -> None:
    with pytest.raises(DeclarationError) as caught:
        set_value('{"a": {"b": [1, 2]}}', ["a", "b", "c"], 1)
    assert str(caught.value) == "Cannot set a.b.c: a.b is not a mapping (found [1, 2])."


def test_a_long_file_is_edited_in_one_place() -> None:
    document = {f"key-{number}": {"x": [number] * 3} for number in range(1000)}
    text = json.dumps(document, indent=2)
    assert len(text.splitlines()) > 5000
    edited = set_value(text, ["key-500", "x"], "here")
    at = text.index('"key-500"')
    assert edited[:at] == text[:at]
    assert edited[edited.index('"key-501"') :] == text[text.index('"key-501"') :]
    assert parse(edited, PATH) == {**document, "key-500": {"x": "here"}}


PATHS = st.lists(KEYS, min_size=1, max_size=3)


def leaf_of(document: Any, path: List[str]) -> Any:
    for key in path:
        if not isinstance(document, dict) or key not in document:
            return None
        document = document[key]
    return document


@given(text=texts(), path=PATHS, value=VALUES)
def test_a_value_that_was_set_is_there_and_all_others_are_as_they_were(text: str, path: List[str], value: Any) -> None:
    try:
        edited = set_value(text, path, value)
    except DeclarationError:
        return
    found = parse(edited, PATH)
    assert leaf_of(found, path) == value
    assert set_value(edited, path, value) == edited
    assert list(found)[: len(parse(text, PATH))] == list(parse(text, PATH))
    assert edited.startswith("\ufeff") == text.startswith("\ufeff")
    for key, other in parse(text, PATH).items():
        if key != path[0]:
            assert found[key] == other


@given(text=texts(), key=KEYS, value=VALUES)
def test_a_key_that_comes_and_goes_leaves_the_same_bytes(text: str, key: str, value: Any) -> None:
    before = parse(text, PATH)
    if before and key not in before:
        assert remove(set_value(text, [key], value), [key]) == text


@given(text=texts(), path=PATHS)
def test_a_key_that_was_removed_is_gone_and_nothing_else(text: str, path: List[str]) -> None:
    edited = remove(text, path)
    wanted = parse(text, PATH)
    inner = leaf_of(wanted, path[:-1])
    if isinstance(inner, dict):
        inner.pop(path[-1], None)
    assert parse(edited, PATH) == wanted


DEPTHS = (290, 310, 1000, 5000, 200_000)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("[", "]")])
def test_what_is_nested_deeply_is_refused_by_each_reader(depth: int, opening: str, closing: str) -> None:
    deep = f"{opening * depth}1{closing * depth}"
    text = f'{{"kind": "nvidia.com/gpu", "devices": [], "x": {deep}}}'
    fits = depth < MAX_DEPTH
    errors = [cdi.read_specification(Document(f"/etc/cdi/a.{kind}", text)).error for kind in ("json", "yaml")]
    assert [not error or "nested too deeply" in error for error in errors] == [True, True]
    assert [not error for error in errors] == [fits, fits]
    assert list(environment.parse(text)) == []
    for read, error in ((lambda: parse(text, "/a"), CannotLook), (lambda: yaml_subset.parse(text), YamlError)):
        with contextlib.nullcontext() if fits else pytest.raises(error, match="nested too deeply"):
            read()


@pytest.mark.parametrize("depth", [1000, 3000])
@pytest.mark.parametrize("shape", ["block", "dashes", "flow"])
def test_yaml_that_is_nested_deeply_is_refused(depth: int, shape: str) -> None:
    texts = {
        "block": "".join(f"{' ' * level}a:\n" for level in range(depth)),
        "dashes": f"{'- ' * depth}a\n",
        "flow": f"a: {'[' * depth}{']' * depth}\n",
    }
    with pytest.raises(YamlError, match="nested too deeply"):
        yaml_subset.parse(texts[shape])


@pytest.mark.parametrize("text", ["{}.a = 1\n", "[{}]\na = 1\n", "x = {{ {}.a = 1 }}\n"])
def test_a_key_of_toml_with_many_parts_is_refused(text: str) -> None:
    with pytest.raises(TomlError, match="nested more than"):
        toml_text.parse(text.format(".".join("a" * 2000)))
