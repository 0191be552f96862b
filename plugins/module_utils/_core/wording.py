# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Sentences and lines for people: one node, two nodes, the first of many; and what a terminal would obey."""

from __future__ import annotations

from typing import Sequence


def counted(count: int, one: str, many: str = "") -> str:
    """``1 node``, ``2 nodes``; ``many`` where it is not ``one`` with an s."""
    return f"{count} {agreeing(count, one, many or f'{one}s')}"


def agreeing(count: int, one: str, many: str) -> str:
    """The word that goes with the count, such as ``is`` or ``are``."""
    return one if count == 1 else many


def first_of(texts: Sequence[str], most: int) -> str:
    """``a, b, c and 4 more``: so many of them at most."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return f"{', '.join(texts[:most])}{more}"


def lines_named(numbers: Sequence[int]) -> str:
    """``line 3``, ``lines 3, 5``."""
    return f"{agreeing(len(numbers), 'line', 'lines')} {', '.join(map(str, numbers))}"


def printable(text: str) -> str:
    r"""A text as one line that a terminal shows and does not obey: escapes are those of Python, ``\x1b``.

    Any user of a node names processes and mounts, and what is called ``\x1b[2J`` would clear the screen of who looks.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)
