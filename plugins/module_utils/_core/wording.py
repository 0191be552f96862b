# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Counts in sentences: one node, two nodes."""

from __future__ import annotations


def counted(count: int, one: str, many: str = "") -> str:
    """``1 node``, ``2 nodes``; ``many`` where it is not ``one`` with an s."""
    return f"{count} {agreeing(count, one, many or f'{one}s')}"


def agreeing(count: int, one: str, many: str) -> str:
    """The word that goes with the count, such as ``is`` or ``are``."""
    return one if count == 1 else many
