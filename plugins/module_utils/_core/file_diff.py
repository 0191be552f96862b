# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a plan would change the files of other software, as unified diffs without secrets.

Our own files follow from the declaration, and their settings are in the plan. Of a foreign file an administrator wants
to see the lines around what changes. They may hold what no one else may read, such as the password of a proxy.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

from .change import RemoveFile, ReplaceFile, RoomAction
from .targets import UNITS, in_our_folder, is_managed
from .tokens import MASKED, without_tokens

if TYPE_CHECKING:
    from .change import Step
    from .protocols import Files

CONTEXT = 3
MOST_LINES = 120
LONGEST_LINE = 2000
# A name that says so. The others are secrets only where a value is given to them.
_SECRET = re.compile(
    r"""(?ix) auth | bearer | passw | pass-?phrase | passcode | token | secret | credential | creds?(?![a-z]) | cookie
    | signature | [?&]sig(?![a-z]) | webhook | jwt | psk | dhchap | DHHC-1: | NVMeTLSkey
    | (?:private|api|access|shared|session|encryption)[_-]?key | (?<![\w.-])key
    | (?: pass | pwd | _pat | keys?(?:[_-]?data)?[0-9]* ) (?=["'\]]*\s*[:=])
    # No names: what stands before a password in a header, and how a key in PEM begins in base64.
    | (?P<itself> [:=][\s"'\[]*basic\s | LS0tLS1CRUdJT )"""
)
# What stands behind a name, in JSON, YAML, TOML, INI, shell, netrc and Slurm's files.
_TO_VALUE = re.compile(r"""[\w.-]*["'\]]*\s*(?:[:=]\s*)?""")
_SECTION = re.compile(r"\s*\[.*\]\s*(?:[#;].*)?")
# What follows a name that ends its line: a text, the sign before it, or a single word.
_VALUE_BELOW = re.compile(
    r"""(?x) \s* (?: [:=].* | (["']).*\1\s*,? | ["']?value["']?\s*[:=].* | [^\s:=\[\]{}()\#;]+ ) \s*"""
)
_TEXT = re.compile(r""""(?:\\.|[^"\\])*(?:"|$)|'[^']*(?:'|$)""")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]{0,20}://")
_PEM = re.compile("----[- ]BEGIN "), re.compile("----[- ]END ")
_BLOCK = ('"""', "'''")
# Also what turns the direction of a text, what ends a line for some programs, and bytes that are no UTF-8.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def is_foreign(path: str) -> bool:
    """Whether a file belongs to other software, so that its text does not follow from the declaration."""
    return not (is_managed(path) or in_our_folder(path) or path.startswith(UNITS))


def file_diffs(steps: Sequence[Step], files: Files, no_diff: Sequence[str] = ()) -> List[Dict[str, str]]:
    """For each foreign file that these steps change, its ``path`` and ``diff``: hunks as ``diff -u`` prints them.

    ``no_diff`` are shell globs of paths of which only the path is named, with an empty ``diff``; so is a file that
    cannot be read.
    """
    found: Dict[str, Optional[str]] = {}
    for step in steps:
        found.update((path, text) for path, text in _written(step) if is_foreign(path))
    differences = []
    for path, after in found.items():
        try:
            before = files.read_optional(path)
        except (OSError, UnicodeError):
            differences.append({"path": path, "diff": ""})
            continue
        if before != after:
            hidden = any(fnmatchcase(path, pattern) for pattern in no_diff)
            differences.append({"path": path, "diff": "" if hidden else _unified(path, before or "", after or "")})
    return differences


def masked(text: str) -> List[str]:
    """The lines of a text without secrets: values of names that say so, keys in PEM, userinfo of addresses, and tokens.

    A value may go on over lines, such as a list or a block of YAML, and is masked to its last one. So is a line that
    is too long to be read.
    """
    lines = text.split("\n")
    found: List[str] = []
    hidden_to = key_to = -1
    for number, line in enumerate(lines):
        hidden = number <= hidden_to or len(line) > LONGEST_LINE
        shown = line
        # The line that ends what is hidden may begin something else.
        if line and number >= hidden_to:
            secret = _SECRET.search(line)
            if secret is not None:
                behind = None if secret["itself"] else _TO_VALUE.match(line, secret.end())
                start = behind.end() if behind else secret.end()
                hidden_to = _last_line(lines, number, start)
                shown = f"{line[:start]}{MASKED}" if line[start:].strip().strip("\"',])}>") else line
        begins = list(_PEM[0].finditer(line)) if number >= key_to and "BEGIN" in line else []
        if begins:
            key_to = number if _PEM[1].search(line, begins[-1].end()) else _next(lines, number, _PEM[1].search)
            hidden, hidden_to = True, max(hidden_to, key_to)
        shown = MASKED if hidden else without_tokens(_without_userinfo(shown))
        found.append(shown if shown.isprintable() else _UNPRINTABLE.sub("?", shown))
    return found


def _without_userinfo(line: str) -> str:
    """The line without what stands before the host in addresses, where a password may hold all but a space."""
    if "@" not in line:
        return line
    words = re.split(r"(\s+)", line)
    for place, word in enumerate(words):
        end = word.rfind("@")
        scheme = _SCHEME.search(word, 0, max(end, 0))
        start = scheme.end() if scheme else word.find(":", 0, max(end, 0)) + 1
        if start:
            words[place] = f"{word[:start]}{MASKED}{word[end:]}"
    return "".join(words)


def _next(lines: Sequence[str], first: int, is_last: Callable[[str], object]) -> int:
    return next((later for later in range(first + 1, len(lines)) if is_last(lines[later])), len(lines))


def _last_line(lines: Sequence[str], first: int, start: int) -> int:
    """The last line of a value that begins on the ``first``: of a section, a text, brackets, or what is indented."""
    last = first
    value = lines[first][start:].strip()
    if _SECTION.fullmatch(lines[first]):
        return _next(lines, first, re.compile(r"\s*\[").match) - 1
    block = next((quote for quote in _BLOCK if value.startswith(quote)), "")
    if block:
        return first if block in value[len(block) :] else _next(lines, first, lambda line: block in line)
    # The name may stand in a text itself.
    texts = f'"{value}' if _is_odd(lines[first][:start], '"') else value
    for quote in ('"', "'"):
        if _is_odd(texts, quote) and (quote == '"' or value.startswith(quote)):
            return _next(lines, first, partial(_is_odd, quote=quote))
    depth = _opened(texts)
    while depth > 0 and last + 1 < len(lines):
        last += 1
        depth += _opened(lines[last])
    while lines[last].rstrip().endswith("\\") and last + 1 < len(lines):
        last += 1
    indent = _indent(lines[first])
    blank = 0
    while last + blank + 1 < len(lines):
        later = lines[last + blank + 1]
        if not later.strip():
            blank += 1
            continue
        deeper = _indent(later) > indent
        if not deeper and later.lstrip()[0] in "#;":
            # A comment ends no value; what is behind it says whether there was more.
            blank += 1
            continue
        if not deeper and (value or _indent(later) != indent or not later.lstrip().startswith("- ")):
            break
        last += blank + 1
        blank = 0
    return _below(lines, last) if last == first else last


def _below(lines: Sequence[str], first: int) -> int:
    """The last line of what a name at the end of the ``first`` has for a value in the lines below."""
    last = first
    end = lines[first].rstrip().rstrip(":=,").rstrip().rstrip("\"']\\")
    wants = bool(_SECRET.search(re.split(r"[^\w.-]", end[-100:])[-1]))
    while wants:
        below = _next(lines, last, str.strip)
        if below == len(lines) or not _VALUE_BELOW.fullmatch(lines[below]):
            break
        last = below
        # It may be the sign alone.
        wants = not lines[last].strip(" \t:=")
    return last


def _is_odd(text: str, quote: str) -> bool:
    return re.sub(r"\\.", "", text).count(quote) % 2 == 1


def _opened(text: str) -> int:
    text = _TEXT.sub("", text)
    return sum(text.count(bracket) for bracket in "[{(") - sum(text.count(bracket) for bracket in "]})")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _written(step: Step) -> Iterable[Tuple[str, Optional[str]]]:
    action = step.action
    if isinstance(action, ReplaceFile):
        return ((action.path, action.text),)
    if isinstance(action, RemoveFile):
        return ((action.path, None),)
    return action.written if isinstance(action, RoomAction) else ()


def _unified(path: str, before: str, after: str) -> str:
    # Only a difference has a use for it, and importing it costs every look a millisecond.
    from difflib import unified_diff

    then, now = (masked(text)[: None if text and not text.endswith("\n") else -1] for text in (before, after))
    lines = list(unified_diff(then, now, path, path, n=CONTEXT, lineterm=""))
    # What changes is masked on both sides.
    lines = lines or [f"--- {path}", f"+++ {path}", f" {MASKED}"]
    rest = len(lines) - MOST_LINES
    return "".join(f"{line}\n" for line in [*lines[:MOST_LINES], *([f"... {rest} more lines"] if rest > 0 else [])])
