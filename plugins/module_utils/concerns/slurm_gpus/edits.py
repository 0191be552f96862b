# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of Slurm with another value: changed in its place, and back again byte for byte. Pure."""

from __future__ import annotations

import re
from typing import Iterator, Optional

from .slurm_conf import COMMENT, GRES, NODE, PAIR, ConfLine, NodeLine, lines_of


def with_gres(text: str, node: NodeLine, gres: Optional[str]) -> str:
    """The text with another Gres= in the line of the node; None takes it away. All else stays as it is."""
    start, end = node.line.start, node.line.end
    # What a line for DEFAULT brings needs no word of its own.
    gres = None if gres == node.inherited else gres
    found = {pair[1].lower(): pair for pair in _pairs(text, start, end)}
    pair = found.get(GRES)
    if pair is None:
        at = found[NODE].end()
        return text if gres is None else f"{text[:at]} Gres={gres}{text[at:]}"
    if gres is not None:
        return f"{text[: pair.start(3)]}{gres}{text[pair.end(3) :]}"
    return _without(text, pair)


def with_value(text: str, key: str, value: Optional[str]) -> str:
    """The text with another value of a key that stands for itself; None takes its lines away. A new one comes first."""
    lines = [line for line in lines_of(text) if key.lower() in line.pairs and NODE not in line.pairs]
    if not lines:
        return text if value is None else f"{key}={value}\n{text}"
    if value is None:
        for line in reversed(lines):
            alone = len(line.pairs) == 1
            text = text[: line.start] + text[line.end :] if alone else _without(text, _pair_in(text, line, key))
        return text
    pair = _pair_in(text, lines[-1], key)
    return f"{text[: pair.start(3)]}{value}{text[pair.end(3) :]}"


def _without(text: str, pair: re.Match[str]) -> str:
    before = text[: pair.start()]
    return (before[:-1] if before.endswith((" ", "\t")) else before) + text[pair.end() :]


def _pair_in(text: str, line: ConfLine, key: str) -> re.Match[str]:
    return next(pair for pair in _pairs(text, line.start, line.end) if pair[1].lower() == key.lower())


def _pairs(text: str, start: int, end: int) -> Iterator[re.Match[str]]:
    """The pairs in a part of a text, but those in comments."""
    hidden = [comment.span() for comment in COMMENT.finditer(text, start, end)]
    for pair in PAIR.finditer(text, start, end):
        if not any(first <= pair.start() < last for first, last in hidden):
            yield pair
