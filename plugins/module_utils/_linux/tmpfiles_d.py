# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""tmpfiles.d(5): what systemd-tmpfiles creates, writes and removes at boot, and again whenever somebody runs it.

Of files with the same name only that of the strongest folder is read, and then all by name across the folders. Unlike
elsewhere, the line that comes first counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterable, Iterator, List, Optional, Tuple

from .._core.value import frozen
from . import dropins

if TYPE_CHECKING:
    from .._core.protocols import Files

WRITE = "w"

_BLANKS = " \t\n\r"
_MODIFIERS = "!+-=~^$?"
# What tmpfiles.c calls needs_glob and takes_ownership, and those whose argument is escaped (COPY_FILES to WRITE_FILE).
_GLOBBING = frozenset("weaAtThHxXrRzZm")
_OWNING = frozenset("fFdDevqQpLcbCwxXrR")
_ESCAPED = frozenset("fFwLC")
# Those of systemd.unit(5) that are the same on every machine.
_SPECIFIERS = {
    "%": "%",
    "C": "/var/cache",
    "g": "root",
    "G": "0",
    "h": "/root",
    "L": "/var/log",
    "S": "/var/lib",
    "t": "/run",
    "T": "/tmp",
    "u": "root",
    "U": "0",
    "V": "/var/tmp",
}


@frozen
class TmpfilesLine:
    """One line of file ``path``: ``kind`` is its letter, ``target`` what it is about, for some kinds maybe a glob.

    ``attributes`` are mode, user, group and age, ``-`` where there is none. ``argument`` is without escapes, and None
    where there is none; with ``~`` among the ``modifiers`` it is in base64, with ``^`` the name of a credential.
    Specifiers are replaced as far as they are the same on every machine.
    """

    path: str
    number: int
    kind: str
    modifiers: str
    target: str
    attributes: Tuple[str, str, str, str]
    argument: Optional[str]

    @property
    def boot_only(self) -> bool:
        """Whether it counts at boot alone (``!``), and not when a package or a person runs systemd-tmpfiles later."""
        return "!" in self.modifiers


def read_texts(files: Files, mentioning: str = "") -> Dict[str, str]:
    """The texts of all files by path, in the order in which they are read; only those that have ``mentioning``."""
    return dropins.read_texts(files, "tmpfiles.d", ".conf", mentioning)


def parse(path: str, text: str, kinds: str) -> Iterator[TmpfilesLine]:
    """The lines of one file that are of these kinds, letters as the manual has them.

    Without those that systemd-tmpfiles refuses: an unknown modifier, a quote or an escape that is none, a path that is
    not absolute, a write of nothing. A comment has a line of its own, and no line goes on in the next.
    """
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip(_BLANKS)
        if line[:1] in kinds and line:
            try:
                found = _parse_line(path, number, line)
            except ValueError:
                continue
            if found is not None:
                yield found


def in_effect(lines: Iterable[TmpfilesLine]) -> Tuple[TmpfilesLine, ...]:
    """The lines that systemd-tmpfiles carries out at boot, in its order: without globs first, with what may be one
    behind them, and those for the same path together, what creates or writes it before what adjusts it.

    Of two lines that create or write the same path and do not say the same, the first counts; a later run knows
    nothing of those that are ``boot_only``, so for it leave them out before. ``w+`` counts behind others: so do systemd
    244 to 250, later releases only behind another ``w+`` (systemd#23021).
    """
    by_path: Dict[Tuple[bool, str], List[TmpfilesLine]] = {}
    for line in lines:
        known = by_path.setdefault((line.kind in _GLOBBING, line.target), [])
        if all(_go_together(earlier, line) for earlier in known):
            known.append(line)
    ordered = sorted(by_path.items(), key=lambda entry: entry[0][0])
    return tuple(line for _path, known in ordered for line in sorted(known, key=_rank))


def _go_together(earlier: TmpfilesLine, line: TmpfilesLine) -> bool:
    if not {earlier.kind, line.kind} <= _OWNING or (line.kind == WRITE and "+" in line.modifiers):
        return True
    return (earlier.attributes, earlier.argument) == (line.attributes, line.argument)


def _rank(line: TmpfilesLine) -> Tuple[bool, str]:
    return line.kind not in _OWNING, line.kind


def _parse_line(path: str, number: int, line: str) -> Optional[TmpfilesLine]:
    """One line; None or ``ValueError`` where it is refused."""
    if '"' in line or "'" in line or "\\" in line:
        from .escapes import split_words

        fields = split_words(line, 6)
    else:
        fields = line.split(None, 6)
    action, target, mode, user, group, age, rest = (*fields, *["-"] * (7 - len(fields)))
    kind, modifiers = action[0], action[1:]
    target = _expanded(target)
    if target[:1] != "/" or any(sign not in _MODIFIERS or modifiers.count(sign) > 1 for sign in modifiers):
        return None
    argument = None if rest == "-" else rest
    if argument is not None and kind in _ESCAPED:
        if "\\" in argument:
            from .escapes import unescape

            argument = unescape(argument)
        argument = _expanded(argument)
    if argument is None and kind == WRITE:
        return None
    target = "/" + "/".join(part for part in target.split("/") if part not in ("", "."))
    if target.startswith("/var/run/"):
        target = target[len("/var") :]
    return TmpfilesLine(path, number, kind, modifiers, target, (mode, user, group, age), argument)


def _expanded(text: str) -> str:
    done = ""
    while "%" in text:
        before, _percent, text = text.partition("%")
        done += before + _SPECIFIERS.get(text[:1], f"%{text[:1]}")
        text = text[1:]
    return done + text
