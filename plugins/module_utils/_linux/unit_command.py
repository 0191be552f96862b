# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command line that a unit of systemd gives its program, as its files have it."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Dict, List, Mapping, Sequence, Tuple

from .._core.regex import regex
from . import systemd

if TYPE_CHECKING:
    from .._core.protocols import Files

# What may be in double and in single quotes, also on several lines, and what may be on the rest of a line.
_DOUBLE, _SINGLE, _REST = r'(?:[^"\\]|\\.)*', r"[^']*", r"(?:[^\n\\]|\\.)*"
QUOTED = regex(rf"""[ \t]*(?:"({_DOUBLE})(?:"|\Z)|'({_SINGLE})(?:'|\Z))[ \t]*""", re.DOTALL)
# A comment, or a name with its value: any number of quoted texts, then the rest of the line.
_TEXT = rf"""(?:"{_DOUBLE}(?:"|\Z)|'{_SINGLE}(?:'|\Z))"""
ENTRY = regex(rf"\s*(?:[#;]{_REST}|([^=\n]*)=((?:[ \t]*{_TEXT})*{_REST})|[^\n]*)", re.DOTALL)

Word = Tuple[str, str]
"""A word of a command line, and where it comes from: the unit, or the file of its environment."""


def read(files: Files, unit: str) -> Tuple[Word, ...]:
    """The words of its ExecStart with their variables replaced (systemd.service(5)); none where it has not just one."""
    lines = systemd.unit_lines(files, unit)
    commands = lines.get("Service.ExecStart", ())
    return words_of(commands[0], environment_of(files, unit, lines), unit) if len(commands) == 1 else ()


def environment_of(files: Files, unit: str, lines: Mapping[str, Sequence[str]]) -> Dict[str, Word]:
    """The variables of a unit with these lines (systemd.exec(5)): files count after Environment=, and the last most."""
    environment: Dict[str, Word] = {}
    for text in lines.get("Service.Environment", ()):
        for word in split(text):
            name, _equals, value = word.partition("=")
            environment[name] = (value, unit)
    for path in lines.get("Service.EnvironmentFile", ()):
        environment.update(_assigned(files, path.lstrip("-")))
    return environment


def words_of(line: str, environment: Mapping[str, Word], unit: str) -> Tuple[Word, ...]:
    """A command line as its program gets it: a variable that is a word of its own becomes as many as it has."""
    words: List[Word] = []
    # The prefixes change how the program runs, not what it is told.
    for word in split(line.lstrip("-@:+!")):
        variable = re.fullmatch(r"\$(\w+)", word)
        if variable:
            value, place = environment.get(variable[1], ("", unit))
            words += [(part, place) for part in split(value)]
        else:
            replaced = re.sub(r"\$\{(\w+)\}", lambda match: environment.get(match[1], ("", ""))[0], word)
            words.append((replaced, unit))
    return tuple(words)


def split(text: str) -> List[str]:
    """The words of a line, its quotes taken off; one that is not quoted right is cut at its blanks."""
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()


def _assigned(files: Files, path: str) -> Dict[str, Word]:
    """The assignments of a file of variables, as systemd reads it (``parse_env_file_internal`` of its env-file.c)."""
    text = files.read_optional(path) or ""
    # NULs are what a crash may leave, and what systemd takes nothing from.
    found = ENTRY.finditer(text if "\0" not in text else "")
    return {match[1].strip(): (_value(match[2]), path) for match in found if match[1] is not None}


def _value(written: str) -> str:
    """A value without the quotes that it begins with, and what is escaped as it is; later quotes are a part of it."""
    made = ""
    at = 0
    quoted = QUOTED.match(written)
    while quoted:
        made += quoted[2] if quoted[1] is None else re.sub(r'\\(?:\n|(["\\`$]))', r"\1", quoted[1])
        at = quoted.end()
        quoted = QUOTED.match(written, at)
    return made + re.sub(r"\\(?:\n|(.))", r"\1", written[at:]).strip()
