# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""/etc/fstab: its lines as fstab(5) has them, and lines that are switched off by a mark in front of them.

What is switched off keeps every byte behind the mark, so that switching it on again restores the file.
"""

from __future__ import annotations

from typing import Callable, Tuple

from .._core.value import frozen
from .mounts import decode

PATH = "/etc/fstab"


@frozen
class FstabLine:
    """One entry. ``options`` are those of the fourth field, of which a missing one is ``defaults``.

    ``marked`` says that the line stands behind the mark it was parsed with, so that nothing reads it.
    """

    number: int
    spec: str
    target: str
    kind: str
    options: Tuple[str, ...]
    marked: bool = False


def parse(text: str, mark: str) -> Tuple[FstabLine, ...]:
    """The entries in order, with those that are switched off by ``mark``. What is no entry is left out."""
    found = []
    for number, raw in enumerate(text.split("\n"), 1):
        marked = raw.startswith(mark)
        line = raw[len(mark) :] if marked else raw
        fields = line.split()
        if len(fields) < 3 or fields[0].startswith("#"):
            continue
        options = fields[3].split(",") if len(fields) > 3 else ["defaults"]
        spec, target, kind = (decode(field) for field in fields[:3])
        found.append(FstabLine(number, spec, target, kind, tuple(options), marked))
    return tuple(found)


def switch(text: str, mark: str, *, off: Callable[[FstabLine], bool]) -> str:
    """The file with the entries for which ``off`` says so behind the mark, and all others without it."""
    lines = text.split("\n")
    for entry in parse(text, mark):
        raw, goal = lines[entry.number - 1], off(entry)
        if goal and not entry.marked:
            lines[entry.number - 1] = f"{mark}{raw}"
        elif entry.marked and not goal:
            lines[entry.number - 1] = raw[len(mark) :]
    return "\n".join(lines)
