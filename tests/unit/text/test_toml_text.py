# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The reader of TOML, judged by Python's own from 3.11 on, and where it says that things are."""

from __future__ import annotations

import sys
import time
from typing import Any, Dict

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._text.toml_text import (
    DEEPEST,
    Moment,
    Path,
    TomlError,
    parse,
)
from ansible_collections.gpufleet.node.tests.unit.support import PATIENCE, quickest
from ansible_collections.gpufleet.node.tests.unit.text.toml_corpus import TEXTS, documents, paths, plain
from hypothesis import given


def judged(text: str) -> Any:
    """What Python's reader makes of a text. It does not know byte-order marks, and knows other line ends by one."""
    if sys.version_info < (3, 11):
        pytest.skip("this Python has no reader of TOML")
    import tomllib

    return plain(tomllib.loads(text.lstrip("\ufeff")))


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_document_means_what_python_reads(name: str, ending: str, mark: str) -> None:
    text = mark + TEXTS[name].replace("\n", ending)
    assert plain(parse(text).data) == judged(text)


@given(documents())
def test_a_random_document_means_what_python_reads(text: str) -> None:
    assert plain(parse(text).data) == judged(text)


@given(documents())
def test_every_place_has_the_value_that_it_says(text: str) -> None:
    document = parse(text)
    for path, place in document.places.items():
        written = text[place.start : place.end]
        assert plain(parse(f"x = {written}").data["x"]) == plain(document.get(path))
        if isinstance(path[-1], str):
            assert text[place.key : place.start].rstrip().endswith("=")


@given(documents())
def test_every_table_goes_from_its_header_to_the_end_of_its_last_value(text: str) -> None:
    document = parse(text)
    last = 0
    for path, span in document.tables.items():
        assert span.start >= last
        last = span.end
        if path:
            header = text[span.start : span.end].split("\n")[0]
            assert header.startswith("[[" if isinstance(path[-1], int) else "[")
            inside = parse(text[span.start : span.end]).data
            own = {key for at in document.places if at[:-1] == path for key in at[-1:]}
            assert own <= paths_end(inside)


def paths_end(data: Dict[str, Any]) -> Any:
    return {path[-1] for path in paths(data)}


def test_a_text_without_a_single_key_is_an_empty_table() -> None:
    for text in ("", "\n", "# only this", "\ufeff", "\ufeff# this\r\n", " \t\n\n"):
        assert parse(text).data == {}


def test_dates_and_times_stay_as_they_are_written() -> None:
    for written in ("1979-05-27T00:32:00.999999-07:00", "1979-05-27 07:32:00", "1979-05-27", "07:32:00.5"):
        value = parse(f"x = {written}").data["x"]
        assert isinstance(value, Moment)
        assert value == written


def test_windows_line_ends_in_a_text_are_plain_ones() -> None:
    assert parse("x = '''\r\na\r\nb'''\r\ny = \"\"\"\r\na\\\r\n  b\r\n\"\"\"\r\n").data == {"x": "a\nb", "y": "ab\n"}


def test_an_escaped_return_before_a_line_end_stays() -> None:
    assert parse('x = """a\\r\nb"""').data == {"x": "a\r\nb"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("bare",), 1),
        (("site", "example.com", "a b"), True),
        (("inline", "point", "y", "a", "b"), 3),
        (("arrays", "mixed", 3, "four"), 4),
        (("products", 2, "parts", 1, "maker", "name"), "n"),
        (("products", 3), None),
        (("products", -1), None),
        (("bare", 0), None),
        (("strings", "empty", 0), None),
        (("nothing",), None),
        (("products", "name"), None),
    ],
)
def test_a_value_is_found_by_its_path(path: Path, value: Any) -> None:
    assert parse(TEXTS["everything"]).get(path) == value


def test_a_header_goes_into_the_last_item_of_an_array_however_many_went_that_way_before() -> None:
    text = '[[a]]\n[a.b.c]\nx = 1\n[a.b.d]\n[[a]]\n[a.b.c]\nx = 2\n[a.b."d"]\n[b]\n[[a.b.e]]\n[[a.b.e]]\n[a.b.f]\n'
    inner = [{"c": {"x": 1}, "d": {}}, {"c": {"x": 2}, "d": {}, "e": [{}, {}], "f": {}}]
    assert parse(text).data == {"a": [{"b": table} for table in inner], "b": {}}


KEY = "this is not a key with an = after it"
COMMENT = "only a comment may follow on this line"
ARRAY = "an array goes on with a comma or ends with ]"
EQUALS = "an = must follow the key"
HEADER = "the header of a table goes on with a dot or ends with ]"
INLINE = "an inline table goes on with a comma or ends with }, on the same line"
ENDLESS = "the text does not end, or has a control character"


@pytest.mark.parametrize(
    ("text", "line", "column", "cause"),
    [
        ("a", 1, 2, EQUALS),
        ("a =", 1, 4, "the value is missing"),
        ("a = \nb = 1", 1, 5, "the value is missing"),
        ("= 1", 1, 1, KEY),
        ("a\n= 1", 1, 2, EQUALS),
        ("a = 1\n  this is nonsense", 2, 8, EQUALS),
        ("a : 1", 1, 3, EQUALS),
        ("a = 1 b = 2", 1, 7, COMMENT),
        ("a b = 1", 1, 3, EQUALS),
        ("a. = 1", 1, 2, EQUALS),
        ('"""a""" = 1', 1, 3, EQUALS),
        ("é = 1", 1, 1, KEY),
        ("a = 1\n  a = 2", 2, 3, "a is already defined"),
        ("a = 1\na.b = 2", 2, 1, "a is already defined, and a dotted key cannot add to it"),
        ("a.b = 1\na.b.c = 2", 2, 1, "a.b is already defined, and a dotted key cannot add to it"),
        ("a = {b = 1}\na.c = 2", 2, 1, "a is already defined, and a dotted key cannot add to it"),
        ("a = {b = 1, b = 2}", 1, 13, "a.b is already defined"),
        ("a = {b = {c = 1}, b.d = 2}", 1, 19, "a.b is already defined, and a dotted key cannot add to it"),
        ("[a]\n[a]", 2, 1, "a is already defined"),
        ("[a.b]\n[a]\nb.c = 1", 3, 1, "a.b is already defined, and a dotted key cannot add to it"),
        ("[[a.b]]\n[a]\nb.y = 2", 3, 1, "a.b is already defined, and a dotted key cannot add to it"),
        ("a.b = 1\n[a]", 2, 1, "a is already defined"),
        ("a = 1\n[a.b]", 2, 1, "a has a value already, and cannot get a table in it"),
        ("a = {}\n[a.b]", 2, 1, "a has a value already, and cannot get a table in it"),
        ("[t]\na = 1\n[t.a]", 3, 1, "t.a is already defined"),
        ("[[a]]\n[a]", 2, 1, "a is already defined"),
        ("[a.b]\n[[a]]", 2, 1, "a is already defined, and is not an array of tables"),
        ("a = []\n[[a]]", 2, 1, "a is already defined, and is not an array of tables"),
        ("[[a]]\n[a.b]\n[a.b]", 3, 1, "a.0.b is already defined"),
        ("[]", 1, 2, "this is not a header of a table"),
        ("[a", 1, 3, HEADER),
        ("[a.]", 1, 3, HEADER),
        ("[[ a b ]]", 1, 6, HEADER),
        ("[[a] ]", 1, 4, "the header begins with [[ and does not end so"),
        ("[a]]", 1, 3, "the header begins with [ and does not end so"),
        ("[a.b]\n[a.c]]", 2, 5, "the header begins with [ and does not end so"),
        ("[a.b]\n[a.b]", 2, 1, "a.b is already defined"),
        ("[[a.b]]\n[[a.c]", 2, 6, "the header begins with [[ and does not end so"),
        ("[a.b]\n[a.c] d = 1", 2, 7, COMMENT),
        ("[a.b]\n[a.c", 2, 5, HEADER),
        ("a = ['1' '2']", 1, 10, ARRAY),
        ("[a] b = 1", 1, 5, COMMENT),
        ("a = yes", 1, 5, "yes is not a value; strings are quoted"),
        ("a = True", 1, 5, "True is not a value; strings are quoted"),
        ("a = 01", 1, 5, "01 is not a value; strings are quoted"),
        ("a = 1__0", 1, 5, "1__0 is not a value; strings are quoted"),
        ("a = 1.", 1, 5, "1. is not a value; strings are quoted"),
        ("a = .5", 1, 5, ".5 is not a value; strings are quoted"),
        ("a = 0XFF", 1, 5, "0XFF is not a value; strings are quoted"),
        ("a = +0x1", 1, 5, "+0x1 is not a value; strings are quoted"),
        ("a = 9223372036854775808", 1, 5, "the number does not fit in 64 bits"),
        ("a = " + "9" * 5000, 1, 5, "the number does not fit in 64 bits"),
        ("a = 1979-02-30", 1, 5, "1979-02-30 is not a date that exists"),
        ("a = 24:00:00", 1, 5, "24:00:00 is not a value; strings are quoted"),
        ("a = 07:32", 1, 5, "07:32 is not a value; strings are quoted"),
        ("a = @", 1, 5, "this is not a value"),
        ('a = "x', 1, 5, ENDLESS),
        ("a = 'x\n'", 1, 5, ENDLESS),
        ('b = 1\na = """x\n\n', 2, 5, ENDLESS),
        ('a = """x""""""', 1, 14, COMMENT),
        ('a = "x" "y"', 1, 9, COMMENT),
        ('a = "\\x41"', 1, 6, "this is not an escape sequence of TOML"),
        ('a = "ab\\ud800"', 1, 8, "this is not an escape sequence of TOML"),
        ('a = "\\U00110000"', 1, 6, "this is not an escape sequence of TOML"),
        ('a = """\n\n  \\q"""', 3, 3, "this is not an escape sequence of TOML"),
        ('"\\z" = 1', 1, 2, "this is not an escape sequence of TOML"),
        ("a = [1 2]", 1, 8, ARRAY),
        ('a = ["1" "2"]', 1, 10, ARRAY),
        ('a = ["1", 2 "3"]', 1, 13, ARRAY),
        ('a = [ # "1"\n"""2""" ""]', 2, 9, ARRAY),
        ('a = ["1",, "2"]', 1, 10, "this is not a value"),
        ("a = [1,, 2]", 1, 8, "this is not a value"),
        ("a = [\n1,\n", 3, 1, "the value is missing"),
        ("a = [\n1\n", 3, 1, ARRAY),
        ("a = {b = 1,}", 1, 12, KEY),
        ("a = {b c}", 1, 8, EQUALS),
        ("a = {b = 1\n}", 1, 11, INLINE),
        ("a = {b = 1 c = 2}", 1, 12, INLINE),
        ("a = 1 # \x01", 1, 9, "the control character '\\x01' may not be here"),
        ("a = 1\rb = 2", 1, 6, "the control character '\\r' may not be here"),
        ("# x\x00\na = 1", 1, 4, "the control character '\\x00' may not be here"),
        ('a = """\n\x07"""', 2, 1, "the control character '\\x07' may not be here"),
        ("a = '\udcff'", 1, 6, "this is not UTF-8"),
        ("\ufeff\r\n\r\na", 3, 2, EQUALS),
        ("\ufeff[a", 1, 3, HEADER),
        ("a = " + "[" * 5000, 1, 5 + DEEPEST, f"this is nested more than {DEEPEST} tables deep"),
        ("[" + ".".join("a" * 5000) + "]", 1, 1, f"this is nested more than {DEEPEST} tables deep"),
        (".".join("a" * 5000) + " = {}", 1, 1, f"this is nested more than {DEEPEST} tables deep"),
        ('{{ template "base" . }}', 1, 1, KEY),
        ('{"runtimes": {}}', 1, 1, KEY),
    ],
)
def test_what_is_no_toml_is_refused_with_its_place(text: str, line: int, column: int, cause: str) -> None:
    with pytest.raises(TomlError) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column, caught.value.cause) == (line, column, cause)
    assert str(caught.value) == f"line {line}, column {column}: {cause}"


@given(documents())
def test_a_document_that_was_cut_short_never_ends_in_another_error(text: str) -> None:
    whole = parse(text)
    for end in range(0, len(text), 7):
        try:
            part = parse(text[:end])
        except TomlError:
            continue
        assert set(part.data) <= set(whole.data)


MIRROR = """\
      [plugins."io.containerd.grpc.v1.cri".registry.mirrors."host{0}.example.com"]
        # mirror {0}
        endpoint = ["https://host{0}.example.com", "https://mirror.example.com"]
        number = {0}
        text = "{0}"  # a comment

"""


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("version = 2\n\n" + "".join(MIRROR.format(number) for number in range(833)), 0.015),
        ("[engine.runtimes]\n" + "".join(f'r{n} = ["/usr/bin/r{n}", "/bin/r{n}"]\n' for n in range(5000)), 0.025),
        ("[a]\n" + "".join(f"{number} = '\\{number}'\n" for number in range(5000)), 0.025),
    ],
    ids=["tables", "arrays", "literal texts"],
)
def test_five_thousand_lines_take_milliseconds(text: str, seconds: float) -> None:
    assert text.count("\n") >= 5000
    assert quickest(lambda: parse(text)) < seconds * PATIENCE


@pytest.mark.parametrize(
    "quoted",
    ['"' + "\\\\" * 20000, "'" * 3 + "''x" * 20000, '"""' + '""x' * 20000, "#" * 40000],
    ids=["backslashes", "apostrophes", "quotation marks", "a comment"],
)
def test_a_text_without_an_end_is_refused_in_time_that_grows_with_its_length(quoted: str) -> None:
    started = time.process_time()
    with pytest.raises(TomlError):
        parse(f"x = {quoted}")
    assert time.process_time() - started < 0.5
