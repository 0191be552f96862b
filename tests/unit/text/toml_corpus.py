# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""TOML documents for tests: files of engines, one with all that TOML has, and random ones in random dress.

``data/containerd`` is what ``containerd config default`` printed, in 1.6.20, 1.7.24 and 2.1.9 of Debian.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

from ansible_collections.gpufleet.node.plugins.module_utils._text.toml_text import Path as TomlPath
from hypothesis import strategies as st

HERE = Path(__file__).parent
FOLDERS = (HERE / "data" / "toml", HERE.parent / "concerns" / "container_runtime" / "data" / "containerd")
FILES = sorted(path for folder in FOLDERS for path in folder.glob("*.toml"))
TEXTS = {path.stem: path.read_text(encoding="utf-8") for path in FILES}

NAMES = ("a", "b", "c-d", "io.containerd.grpc.v1.cri", "x y", "", "é", "0")
HEADERS = {8: ("[{}]", "[{}]", "[ {} ]"), 9: ("[[{}]]", "[[ {} ]]")}
names = st.text(st.characters(codec="utf-8"), max_size=3)
scalars = st.one_of(
    st.booleans(),
    st.integers(min_value=-(2**63), max_value=2**63 - 1),
    st.floats(),
    st.text(st.characters(codec="utf-8"), max_size=6),
)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=4)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """A valid document: tables with headers, implied ones, dotted keys, inline tables, arrays of tables, comments."""
    lines: List[str] = []
    _fill(draw, lines, "", depth=0)
    return _finished(draw, lines)


@st.composite
def dressed(draw: st.DrawFn, data: Dict[str, Any]) -> str:
    """A document that means this, written in any of the ways in which people write it."""
    lines: List[str] = []
    _dress(draw, lines, data, "")
    return _finished(draw, lines)


def _finished(draw: st.DrawFn, lines: List[str]) -> str:
    ending = draw(st.sampled_from(["\n", "\r\n"]))
    text = ending.join(lines) + (ending if draw(st.booleans()) and lines else "")
    return draw(st.sampled_from(["", "", "", "\ufeff"])) + text


def _dress(draw: st.DrawFn, lines: List[str], table: Dict[str, Any], header: str) -> None:
    """The lines of a table: its own keys and those of dotted and inline tables, then what has a header."""
    indent = draw(st.sampled_from(["", "", "  ", "\t"]))
    later: Dict[str, Any] = {}
    for name in draw(st.permutations(list(table))):
        value = table[name]
        if _has_tables(value) and draw(st.integers(0, 3)):
            later[name] = value
            continue
        _trivia(draw, lines, indent)
        for statement in _assignments(draw, _quoted(draw, name), value):
            lines.append(indent + statement + draw(st.sampled_from(["", "", "  # said, [so]"])))
    for name, value in later.items():
        inner = f"{header}.{_quoted(draw, name)}" if header else _quoted(draw, name)
        for item in value if isinstance(value, list) else [value]:
            body: List[str] = []
            _dress(draw, body, item, inner)
            # A table that begins with one in it need not be named.
            first = next((line.strip() for line in body if line.strip() and not line.strip().startswith("#")), "")
            if isinstance(value, list) or not first.startswith("[") or draw(st.booleans()):
                _trivia(draw, lines, indent)
                lines.append(indent + draw(st.sampled_from(HEADERS[9 if isinstance(value, list) else 8])).format(inner))
            lines.extend(body)


def _has_tables(value: Any) -> bool:
    """Whether it can have a header: a table, or an array of them."""
    return isinstance(value, dict) or (
        isinstance(value, list) and bool(value) and all(isinstance(i, dict) for i in value)
    )


def _assignments(draw: st.DrawFn, name: str, value: Any) -> List[str]:
    if isinstance(value, dict) and value and draw(st.booleans()):
        dot = draw(st.sampled_from([".", ".", " . "]))
        return [
            line
            for inner, item in value.items()
            for line in _assignments(draw, f"{name}{dot}{_quoted(draw, inner)}", item)
        ]
    return [f"{name}{draw(st.sampled_from([' = ', '=']))}{_written(draw, value, may_break=True)}"]


def _written(draw: st.DrawFn, value: Any, *, may_break: bool) -> str:
    """A value; ``may_break`` is whether it may go over lines by itself."""
    if isinstance(value, dict):
        inside = [f"{_quoted(draw, inner)} = {_written(draw, item, may_break=False)}" for inner, item in value.items()]
        return f"{{ {', '.join(inside)} }}"
    if isinstance(value, list):
        items = [_written(draw, item, may_break=False) for item in value]
        if not may_break or not draw(st.booleans()):
            return f"[{', '.join(items)}{draw(st.sampled_from(['', ', '])) if items else ''}]"
        return "[\n" + "".join(f"  {item}, # one\n" for item in items) + "]"
    if isinstance(value, str):
        return draw(st.sampled_from(['"{}"', "'{}'", '"""{}"""', "'''{}'''"])).format(value)
    return str(value).lower()


def _quoted(draw: st.DrawFn, name: str) -> str:
    plain = name.replace("-", "").replace("_", "")
    forms = ['"{}"', "'{}'"] + (["{}"] * 4 if plain.isascii() and plain.isalnum() else [])
    return draw(st.sampled_from(forms)).format(name)


def key(name: str) -> str:
    plain = name.replace("-", "").replace("_", "")
    return name if plain.isascii() and plain.isalnum() else '"' + name + '"'


def _fill(draw: st.DrawFn, lines: List[str], header: str, *, depth: int) -> None:
    """The lines of one table: first its own keys, then the tables in it."""
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, max_size=4))
    forms = {name: draw(st.integers(0, 9)) for name in names}
    indent = "  " * depth if draw(st.booleans()) else ""
    for name, form in forms.items():
        if form < 7:
            _trivia(draw, lines, indent)
            for statement in _statements(draw, key(name), form):
                lines.append(indent + statement + draw(st.sampled_from(["", "", "  # said, [so]"])))
    for name, form in forms.items():
        inner = f"{header}.{key(name)}" if header else key(name)
        if form < 7 or depth == 3:
            continue
        for _item in range(draw(st.integers(1, 2)) if form == 9 else 1):
            _trivia(draw, lines, indent)
            if form != 7:
                lines.append(indent + draw(st.sampled_from(HEADERS[form])).format(inner))
                _fill(draw, lines, inner, depth=depth + 1)
            else:
                # A table that is only implied by the one in it.
                lines.append(indent + f"[{inner}.deep]")
                _fill(draw, lines, f"{inner}.deep", depth=depth + 2 if depth < 2 else 3)


def _statements(draw: st.DrawFn, name: str, form: int) -> List[str]:
    if form == 4:
        return [f"{name}.p = {_value(draw)}", f"{name} . q.r={_value(draw)}"]
    if form == 5:
        inside = [f"k{number} = {_value(draw)}" for number in range(draw(st.integers(0, 2)))]
        inside += [f"d.{part} = {draw(st.integers(0, 9))}" for part in draw(st.sampled_from(["", "m", "mn"]))]
        return [f"{name} = {{{', '.join(inside)}}}"]
    return [f"{name}{draw(st.sampled_from([' = ', '=']))}{_value(draw)}"]


def _value(draw: st.DrawFn) -> str:
    simple = ["1", "-2.5", "true", "1979-05-27", '"x"', "'#'", '"\\u0041,"', "[]", "[ 1, 2, ]", '["a" , "b"]', "{ }"]
    arrays = [
        "[\n  1, # one, first\n  2\n]",
        "[ # none\n]",
        "[\n  'a',\n  'b' # last\n  ,\n]",
        '[\n    "a",\n    "b",\n]',
    ]
    arrays += ["[ 1,\n  2 ]", "[[1], { a = [\n1\n], b.c = 2 }]", '"""\nx = "1"\n[y]\n"""', "'''it's'''"]
    return draw(st.sampled_from(simple + arrays))


def _trivia(draw: st.DrawFn, lines: List[str], indent: str) -> None:
    lines.extend(draw(st.sampled_from([[], [], [], [""], [indent + "# a comment = 1"], ["", "#[x]", "  "]])))


def plain(value: Any) -> Any:
    """A value as its ``repr``, which tells true from 1 and knows that nan is nan; of a date only that it is one."""
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return repr(value) if type(value) in (bool, int, float, str) else "a date or a time"


def paths(data: Any, so_far: TomlPath = ()) -> Dict[TomlPath, Any]:
    """Every table, array and value of a document by its path."""
    found: Dict[TomlPath, Any] = {so_far: data} if so_far else {}
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for name, value in inner:
        found.update(paths(value, (*so_far, name)))
    return found
