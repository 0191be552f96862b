# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The line of a node with another Gres=: changed in its place, and back again byte for byte. Pure."""

from __future__ import annotations

from typing import Optional

from ..._text.slurm_conf import GRES, NODE, NodeLine, pairs_in, with_pair, without_pair


def with_gres(text: str, node: NodeLine, gres: Optional[str]) -> str:
    """The text with another Gres= in the line of the node; None takes it away. All else stays as it is."""
    start, end = node.line.start, node.line.end
    # What a line for DEFAULT brings needs no word of its own.
    gres = None if gres == node.inherited else gres
    found = {pair[1].lower(): pair for pair in pairs_in(text, start, end)}
    pair = found.get(GRES)
    if pair is None:
        at = found[NODE].end()
        return text if gres is None else f"{text[:at]} Gres={gres}{text[at:]}"
    if gres is not None:
        return with_pair(text, pair, gres)
    return without_pair(text, pair)
