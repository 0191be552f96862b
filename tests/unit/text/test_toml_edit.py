# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Edits of TOML texts: what they mean afterwards, and that every other byte stays."""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Callable, Dict, Iterable

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._text import toml_edit
from ansible_collections.gpufleet.node.plugins.module_utils._text.toml_edit import (
    TomlEditError,
    add_to_array,
    dump,
    literal,
    remove,
    remove_block,
    remove_from_array,
    same,
    set_block,
    set_value,
)
from ansible_collections.gpufleet.node.plugins.module_utils._text.toml_text import (
    Moment,
    Path,
    TomlDocument,
    TomlError,
    parse,
)
from ansible_collections.gpufleet.node.tests.unit.text.toml_corpus import NAMES, TEXTS, documents, names, paths, values
from hypothesis import assume, given, reject
from hypothesis import strategies as st

pytestmark = pytest.mark.once

CRI = "io.containerd.grpc.v1.cri"
NEW = "new key"
BLOCK = "gpufleet container_runtime"
BODY = f'[plugins."{CRI}".containerd.runtimes.nvidia]\nruntime_type = "io.containerd.runc.v2"\n'
# What a reader of the text could have told before; anything else would be a mistake of ours.
EXPECTED = (
    "is a table, which cannot get the value",
    "is an array of tables",
    "is not an array of values",
    "is not a table",
    "has an index beyond the end of the array",
)


def pick(data: st.DataObject, text: str, wanted: Callable[[Path, Any], bool]) -> Path:
    """A path in a document; the example is given up where there is none."""
    found = [path for path, value in paths(parse(text).data).items() if wanted(path, value)]
    assume(found)
    return data.draw(st.sampled_from(found))


def attempt(edit: Callable[..., str], text: str, path: Path, *arguments: Any) -> str:
    """The edit, or an example given up because the text cannot take it."""
    try:
        return edit(text, path, *arguments)
    except TomlEditError as error:
        cause = str(error)
    assert any(expected in cause for expected in EXPECTED), cause
    return reject()


def without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: without_empty(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in ({}, [])}
    return [without_empty(item) for item in value] if isinstance(value, list) else value


def is_in_order(part: Iterable[str], whole: Iterable[str]) -> bool:
    lines = iter(whole)
    return all(line in lines for line in part)


def has_own_lines(document: TomlDocument, path: Path) -> bool:
    """Whether it is a key or a table with a header, and not inside a value."""
    return path in document.tables or (
        path in document.places and not any(path[:length] in document.places for length in range(1, len(path)))
    )


# --- What random edits come to


@given(documents(), st.data())
def test_a_value_that_was_set_is_the_only_one_that_changed(text: str, data: st.DataObject) -> None:
    document = parse(text)
    known = [(), *paths(document.data)]
    path = data.draw(st.sampled_from(known)) + tuple(data.draw(st.lists(st.sampled_from(NAMES), max_size=3)))
    assume(path)
    value = data.draw(values)
    after = attempt(set_value, text, path, value)
    model: Any = deepcopy(document.data)
    table = model
    for part in path[:-1]:
        table = table.setdefault(part, {}) if isinstance(table, dict) else table[part]
    table[path[-1]] = value
    assert same(parse(after).data, model)
    assert set_value(after, path, value) == after


@given(documents(), st.data(), values)
def test_a_value_is_replaced_where_it_is(text: str, data: st.DataObject, value: Any) -> None:
    document = parse(text)
    assume(document.places)
    path = data.draw(st.sampled_from(sorted(document.places, key=str)))
    place = document.places[path]
    after = attempt(set_value, text, path, value)
    assert after.startswith(text[: place.start])
    assert after.endswith(text[place.end :])


@given(documents(), st.data(), values)
def test_a_new_key_that_is_removed_leaves_the_text_as_it_was(text: str, data: st.DataObject, value: Any) -> None:
    document = parse(text)
    inline = [path for path in document.places if isinstance(document.get(path), dict)]
    table = data.draw(st.sampled_from([*document.tables, *inline]))
    inside = data.draw(st.lists(st.sampled_from(NAMES), max_size=2))
    after = set_value(text, (*table, NEW, *inside), value)
    assert same(parse(after).get((*table, NEW, *inside)), value)
    assert remove(after, (*table, NEW)) == text


@given(documents(), st.data())
def test_what_is_removed_is_gone_and_nothing_else(text: str, data: st.DataObject) -> None:
    document = parse(text)
    path = pick(data, text, lambda path, value: True)
    after = remove(text, path)
    model: Any = deepcopy(document.data)
    table = model
    for part in path[:-1]:
        table = table[part]
    del table[path[-1]]
    assert same(without_empty(parse(after).data), without_empty(model))
    if has_own_lines(document, path):
        assert is_in_order(after.lstrip("\ufeff").splitlines(), text.lstrip("\ufeff").splitlines())


@given(documents(), st.data(), values)
def test_an_item_that_was_added_and_removed_leaves_the_text_as_it_was(
    text: str, data: st.DataObject, item: Any
) -> None:
    path = pick(data, text, lambda path, value: isinstance(value, list))
    found = parse(text).get(path)
    assume(not any(same(item, present) for present in found))
    after = attempt(add_to_array, text, path, item)
    assert same(parse(after).get(path), [*found, item])
    assert add_to_array(after, path, item) == after
    assert remove_from_array(after, path, item) == text
    assert after.count("#") - literal(item).count("#") == text.count("#")


@given(documents(), st.data())
def test_an_item_is_removed_however_often_it_is_there(text: str, data: st.DataObject) -> None:
    path = pick(data, text, lambda path, value: isinstance(value, list) and bool(value))
    assume(path in parse(text).places)
    found = parse(text).get(path)
    item = data.draw(st.sampled_from(found))
    after = remove_from_array(text, path, item)
    assert same(parse(after).get(path), [present for present in found if not same(present, item)])
    assert remove_from_array(after, path, item) == after


@given(documents(), st.lists(st.integers(0, 9), min_size=1, max_size=3))
def test_a_block_that_was_added_and_removed_leaves_the_text_as_it_was(text: str, numbers: Any) -> None:
    body = "".join(f"[{NEW.replace(' ', '-')}.t{number}]\n" for number in dict.fromkeys(numbers))
    after = set_block(text, BLOCK, body)
    assert set_block(after, BLOCK, body) == after
    other = set_block(after, BLOCK, body + "x = 1\n")
    assert other != after
    assert set_block(other, BLOCK, body) == after
    assert remove_block(after, BLOCK) == text
    assert remove_block(text, BLOCK) == text


@given(st.recursive(st.dictionaries(names, values), lambda inner: st.dictionaries(names, inner), max_leaves=6))
def test_what_is_dumped_is_read_back(data: Dict[str, Any]) -> None:
    assert same(parse(dump(data)).data, data)


# --- How it looks


@pytest.mark.parametrize("name", [name for name in TEXTS if name.startswith("config-default")])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_file_of_containerd_gets_a_runtime_and_loses_it_again(name: str, ending: str) -> None:
    text = TEXTS[name].replace("\n", ending)
    after = set_block(text, BLOCK, BODY)
    lines = f"# BEGIN {BLOCK}\n{BODY}# END {BLOCK}\n".replace("\n", ending)
    assert after == f"{text}{ending}{lines}"
    document = parse(after)
    for path in list(document.places)[::7]:
        if has_own_lines(document, path):
            line = after.count("\n", 0, document.places[path].key)
            changed = set_value(after, path, NEW).splitlines()
            assert [at for at, (old, new) in enumerate(zip(after.splitlines(), changed)) if old != new] == [line]
    assert remove_block(after, BLOCK) == text


@pytest.mark.parametrize(
    ("text", "path", "value", "after"),
    [
        ("", ("a",), 1, "a = 1\n"),
        ("\ufeff", ("a",), 1, "\ufeffa = 1\n"),
        ("", ("t", "u v", "a"), "x", '[t."u v"]\na = "x"\n'),
        ("a = 1", ("a",), 2, "a = 2"),
        ("a = 1", ("b",), 2, "a = 1\nb = 2"),
        ("a = 1\r\n", ("b",), 2, "a = 1\r\nb = 2\r\n"),
        ("a = 1\r\nb = 2", ("t", "c"), 3, "a = 1\r\nb = 2\r\n\r\n[t]\r\nc = 3"),
        ("a = 'x' # why", ("a",), 'y "z"', 'a = "y \\"z\\"" # why'),
        # Text, number and truth are different things.
        ("a = 1\n", ("a",), True, "a = true\n"),
        ("a = 1\n", ("a",), 1.0, "a = 1.0\n"),
        ("a = 1979-05-27\n", ("a",), "1979-05-27", 'a = "1979-05-27"\n'),
        # What says the same in other words stays.
        ("a = 0x10", ("a",), 16, "a = 0x10"),
        ("a = 'x'", ("a",), "x", "a = 'x'"),
        # At the top: after the first comment, before that of the first header.
        ("# about the file\n\n[t]\n", ("a",), 1, "# about the file\na = 1\n\n[t]\n"),
        ("# about the file\n\n\n# about t\n[t]\n", ("a",), 1, "# about the file\na = 1\n\n\n# about t\n[t]\n"),
        ("# about the file\n[t]\n", ("a",), 1, "# about the file\na = 1\n[t]\n"),
        ("[t]\n", ("a",), 1, "a = 1\n[t]\n"),
        ("\n  [t]\n", ("a",), 1, "a = 1\n\n  [t]\n"),
        ("# only this", ("a",), 1, "# only this\na = 1"),
        ("b = 1\n# about t\n[t]\n", ("a",), 1, "b = 1\na = 1\n# about t\n[t]\n"),
        # As the keys beside it, and before the comments after them.
        (
            "[t]\n    a = 1 # one\n    # end\n\n[u]\n",
            ("t", "b"),
            2,
            "[t]\n    a = 1 # one\n    b = 2\n    # end\n\n[u]\n",
        ),
        ("  [t]\n\n[u]\n", ("t", "b"), 2, "  [t]\n  b = 2\n\n[u]\n"),
        ("[t]\n\ta = [\n\t\t1,\n\t]\n", ("t", "b"), 2, "[t]\n\ta = [\n\t\t1,\n\t]\n\tb = 2\n"),
        # Dotted keys, inline tables, arrays.
        ("a.b = 1\n[t]\n", ("a", "c"), 2, "a.b = 1\na.c = 2\n[t]\n"),
        ("[t]\na.b = 1\n", ("t", "a", "c", "d e"), 2, '[t]\na.b = 1\na.c."d e" = 2\n'),
        ("a = {}\n", ("a", "b"), 1, "a = {b = 1}\n"),
        ("a = { b = 1 } # x\n", ("a", "c", "d"), 2, "a = { b = 1, c.d = 2 } # x\n"),
        ("a = { b = 1 }\n", ("a", "b"), {"c": [1]}, "a = { b = { c = [1] } }\n"),
        ("a = [ 1, { b = 1 } ]\n", ("a", 1, "b"), 2, "a = [ 1, { b = 2 } ]\n"),
        ("a = [\n  1, # one\n  2, # two\n]\n", ("a",), [1, 3], "a = [\n  1, # one\n  3,\n]\n"),
        ("a = [\n  1, # one\n  2, # two\n]\n", ("a",), [2, 1], "a = [2, 1]\n"),
        # Arrays of tables: the item that is meant.
        ("[[a]]\nx = 1\n[[a]]\n", ("a", 0, "y"), 2, "[[a]]\nx = 1\ny = 2\n[[a]]\n"),
        ("[[a]]\nx = 1\n[[a]]\n", ("a", 0, "t", "y"), 2, "[[a]]\nx = 1\n\n[a.t]\ny = 2\n[[a]]\n"),
        # A table that only the ones in it make known.
        ("[t.u]\na = 1\n", ("t", "b"), 2, "[t.u]\na = 1\n\n[t]\nb = 2\n"),
    ],
)
def test_a_value_is_set(text: str, path: Path, value: Any, after: str) -> None:
    assert set_value(text, path, value) == after
    assert set_value(after, path, value) == after


@pytest.mark.parametrize(
    ("text", "path", "after"),
    [
        ("a = 1", ("b",), "a = 1"),
        ("a = 1", (), "a = 1"),
        ("a = 1", ("a",), ""),
        ("a = 1\nb = 2", ("b",), "a = 1"),
        ("a = 1\r\nb = 2\r\n", ("a",), "b = 2\r\n"),
        ("# x\na = [\n  1, # one\n]\n# y\n", ("a",), "# x\n# y\n"),
        (
            "# about t\n\n[t]\n# in t\na = 1\n# after a\n\n[u]\n",
            ("t",),
            "# about t\n# after a\n\n[u]\n",
        ),
        ("[t]\na = 1\n[t.u]\nb = 1\n[v]\n[t.w]\n", ("t",), "[v]\n"),
        ("[t]\na = 1\n[t.u]\nb = 1\n", ("t", "a"), "[t]\n[t.u]\nb = 1\n"),
        ("a.b = 1\nc = 1\na.d.e = 2\n", ("a",), "c = 1\n"),
        ("a.b = 1\na.d.e = 2\n", ("a", "d"), "a.b = 1\n"),
        ("[[a]]\nx = 1\n[a.t]\n[[a]]\nx = 2\n", ("a", 0), "[[a]]\nx = 2\n"),
        ("[[a]]\nx = 1\n[a.t]\n[[a]]\nx = 2\n", ("a",), ""),
        ("a = { b = 1 }\n", ("a", "b"), "a = {  }\n"),
        ("a = { b = 1, c = 2, d = 3 }\n", ("a", "b"), "a = { c = 2, d = 3 }\n"),
        ("a = { b = 1, c = 2, d = 3 }\n", ("a", "c"), "a = { b = 1, d = 3 }\n"),
        ("a = { b = 1, c = 2, d = 3 }\n", ("a", "d"), "a = { b = 1, c = 2 }\n"),
        ("a = { b = [1, 2], c = 2 }\n", ("a", "b"), "a = { c = 2 }\n"),
        ("a = { b.x = 1, c = 2, b.y = 3 }\n", ("a", "b"), "a = { c = 2 }\n"),
        ("a = [1, 2, 3]\n", ("a", 1), "a = [1, 3]\n"),
    ],
)
def test_something_is_removed(text: str, path: Path, after: str) -> None:
    assert remove(text, path) == after


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("", 'imports = ["/n"]\n'),
        ("version = 2\n\n[t]\n", 'version = 2\nimports = ["/n"]\n\n[t]\n'),
        ("imports = []\n", 'imports = ["/n"]\n'),
        ("imports = ['/a'] # x\n", "imports = ['/a', \"/n\"] # x\n"),
        ("imports = [ '/a', ]\n", "imports = [ '/a', \"/n\", ]\n"),
        ("imports = ['/n']\n", "imports = ['/n']\n"),
        ("imports = [\n  '/a'\n]\n", "imports = [\n  '/a',\n  \"/n\"\n]\n"),
        ("imports = [\n  '/a' # a, b\n]\n", "imports = [\n  '/a', # a, b\n  \"/n\"\n]\n"),
        ("imports = [\r\n\t'/a', # a\r\n]\r\n", "imports = [\r\n\t'/a', # a\r\n\t\"/n\",\r\n]\r\n"),
        ("imports = ['/a',\n           '/b']\n", "imports = ['/a',\n           '/b',\n           \"/n\"]\n"),
        ("imports = [ # none\n]\n", 'imports = ["/n" # none\n]\n'),
    ],
)
def test_an_item_is_added_in_the_dress_of_the_others(text: str, after: str) -> None:
    assert add_to_array(text, ("imports",), "/n") == after
    assert add_to_array(after, ("imports",), "/n") == after


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("", ""),
        ("a = 1", "a = 1"),
        ("a = ['x']\n", "a = []\n"),
        ("a = [ 'x', ]\n", "a = [  ]\n"),
        ("a = ['x', 'y', 'x']\n", "a = ['y']\n"),
        ("a = [\n  'x', # the x\n  'y', # the y\n]\n", "a = [\n  'y', # the y\n]\n"),
        ("a = [\n  'y', # the y\n  'x'\n]\n", "a = [\n  'y' # the y\n]\n"),
        ("a = ['y', # the y\n  'x']\n", "a = ['y' # the y\n  ]\n"),
        ("a = ['x', # the x\n  'y']\n", "a = [ # the x\n  'y']\n"),
        ("a = [\n  'y' # y, or not\n  , 'x'\n]\n", "a = [\n  'y' # y, or not\n   \n]\n"),
    ],
)
def test_an_item_goes_with_its_comma_and_leaves_the_comments_of_others(text: str, after: str) -> None:
    assert remove_from_array(text, ("a",), "x") == after


def test_a_block_comes_after_an_empty_line_and_is_replaced_where_it_is() -> None:
    first = set_block("a = 1\n", BLOCK, "[t]\nx = 1\n")
    assert first == f"a = 1\n\n# BEGIN {BLOCK}\n[t]\nx = 1\n# END {BLOCK}\n"
    behind = first + "\n[u]\n"
    assert set_block(behind, BLOCK, "[t]\nx = 2") == behind.replace("x = 1", "x = 2")
    assert remove_block(behind, BLOCK) == "a = 1\n\n[u]\n"
    assert set_block("", BLOCK, "[t]\n") == f"# BEGIN {BLOCK}\n[t]\n# END {BLOCK}\n"


def test_what_looks_like_a_block_inside_a_text_is_none() -> None:
    text = f'a = """\n# BEGIN {BLOCK}\n# END {BLOCK}\n"""\n'
    assert remove_block(text, BLOCK) == text
    assert remove_block(set_block(text, BLOCK, "[t]\n"), BLOCK) == text


def test_a_document_of_ours_has_a_header_for_every_table_with_values() -> None:
    data = {
        "version": 3,
        "plugins": {
            CRI: {
                "enable_cdi": True,
                "containerd": {"runtimes": {"nvidia": {"runtime_type": "io.containerd.runc.v2", "options": {}}}},
            }
        },
        "paths": ["/a", "/b\n"],
        "since": Moment("1979-05-27"),
        "ratio": 0.5,
    }
    assert dump(data) == (
        'version = 3\npaths = ["/a", "/b\\n"]\nsince = 1979-05-27\nratio = 0.5\n'
        f'\n[plugins."{CRI}"]\nenable_cdi = true\n'
        f'\n[plugins."{CRI}".containerd.runtimes.nvidia]\nruntime_type = "io.containerd.runc.v2"\n'
        f'\n[plugins."{CRI}".containerd.runtimes.nvidia.options]\n'
    )
    assert dump({}) == ""


# --- What cannot be


@pytest.mark.parametrize(
    ("edit", "cause"),
    [
        (lambda: set_value("[a]\n", ("a",), 1), "a is a table, which cannot get the value 1"),
        (lambda: set_value("[a.'b c']\n", ("a",), {}), "a is a table, which cannot get the value {}"),
        (lambda: set_value("[[a]]\n", ("a",), [1]), "a is a table, which cannot get the value [1]"),
        (lambda: set_value("[[a]]\n", ("a", "b"), 1), "a is an array of tables"),
        (lambda: set_value("[[a]]\n", ("a", 1, "b"), 1), "a.1.b has an index beyond the end of the array"),
        (lambda: set_value("a = [1]\n", ("a", 1), 1), "a.1 has an index beyond the end of the array"),
        (lambda: set_value("a = 1\n", ("a", "b c"), 1), "a is not a table"),
        (lambda: set_value("", ("a",), None), "TOML has no value like None"),
        (lambda: set_value("", ("a",), [object]), "TOML has no value like <class 'object'>"),
        (
            lambda: set_value("", ("a",), 1 << 63),
            "a cannot be changed in place as it is written: line 1, column 5: the number does not fit in 64 bits",
        ),
        (lambda: add_to_array("a = 1\n", ("a",), 1), "a is not an array of values"),
        (lambda: add_to_array("[[a]]\n", ("a",), 1), "a is not an array of values"),
        (
            lambda: set_block(f"# BEGIN {BLOCK}\n", BLOCK, "[t]\n"),
            f"the block {BLOCK} needs its first and last line once each, in this order",
        ),
        (
            lambda: remove_block(f"# END {BLOCK}\n# BEGIN {BLOCK}\n", BLOCK),
            f"the block {BLOCK} needs its first and last line once each, in this order",
        ),
        (
            lambda: set_block("[t]\n", BLOCK, "[t]\n"),
            f"the block {BLOCK} cannot be changed in place as it is written: line 4, column 1: t is already defined",
        ),
        (
            lambda: set_block("[t]\n", BLOCK, "a = 1\n"),
            f"the block {BLOCK} cannot be changed in place as it is written",
        ),
        (
            lambda: remove_block(f"[u]\n# BEGIN {BLOCK}\n[t]\n# END {BLOCK}\nx = 1\n", BLOCK),
            f"the lines after the block {BLOCK} belong to a table in it",
        ),
    ],
)
def test_what_a_text_does_not_take_is_refused(edit: Callable[[], str], cause: str) -> None:
    with pytest.raises(TomlEditError) as caught:
        edit()
    assert str(caught.value) == cause


@pytest.mark.parametrize(
    "edit",
    [
        lambda text: set_value(text, ("b",), 1),
        lambda text: remove(text, ("a",)),
        lambda text: add_to_array(text, ("a",), 1),
        lambda text: remove_from_array(text, ("a",), 1),
        lambda text: set_block(text, BLOCK, "[t]\n"),
        lambda text: remove_block(text, BLOCK),
    ],
)
def test_a_text_that_is_no_toml_is_never_edited(edit: Callable[[str], str]) -> None:
    with pytest.raises(TomlError, match="line 2, column 1: a is already defined"):
        edit("a = 1\na = 2\n")


def test_an_edit_that_would_mean_something_else_never_comes_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toml_edit, "_insert", lambda document, path, value: document.text + "other = 1\n")
    with pytest.raises(TomlEditError, match="b cannot be changed in place as it is written"):
        set_value("a = 1\n", ("b",), 1)
