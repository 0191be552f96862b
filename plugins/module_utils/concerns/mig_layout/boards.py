# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the known boards can be divided into, by PCI device id.

A driver up to R535 tells no profiles while MIG is off, so this predicts them; what is applied is what the driver says
then. It also knows what other drivers call a profile of the same board. Sources: NVIDIA MIG user guide, and what
drivers listed on these boards.
"""

from __future__ import annotations

from typing import Mapping, Optional, Tuple

from ..._core.value import frozen
from .model import ALL_ME, GFX, ME, NO_ME, PLAIN, Geometry, Profile

# Number, compute slices, memory slices, starts, how many, attribute.
_Row = Tuple[int, int, int, Tuple[int, ...], int, str]

_SEVEN: Tuple[_Row, ...] = (
    (19, 1, 1, (0, 1, 2, 3, 4, 5, 6), 7, PLAIN),
    (20, 1, 1, (0, 1, 2, 3, 4, 5, 6), 1, ME),
    (15, 1, 2, (0, 2, 4, 6), 4, PLAIN),
    (14, 2, 2, (0, 2, 4), 3, PLAIN),
    (9, 3, 4, (0, 4), 2, PLAIN),
    (5, 4, 4, (0,), 1, PLAIN),
    (0, 7, 8, (0,), 1, PLAIN),
)
_FOUR: Tuple[_Row, ...] = (
    (14, 1, 1, (0, 1, 2, 3), 4, PLAIN),
    (21, 1, 1, (0, 1, 2, 3), 1, ME),
    (5, 2, 2, (0, 2), 2, PLAIN),
    (6, 2, 2, (0, 2), 1, ME),
    (0, 4, 4, (0,), 1, PLAIN),
)
_FOUR_WITH_GRAPHICS: Tuple[_Row, ...] = (
    (14, 1, 1, (0, 1, 2, 3), 4, PLAIN),
    (21, 1, 1, (0, 1, 2, 3), 1, ME),
    (47, 1, 1, (0, 1, 2, 3), 4, GFX),
    (65, 1, 1, (0, 1, 2, 3), 1, ALL_ME),
    (67, 1, 1, (0, 1, 2, 3), 4, NO_ME),
    (5, 2, 2, (0, 2), 2, PLAIN),
    (35, 2, 2, (0, 2), 2, GFX),
    (64, 2, 2, (0, 2), 1, ALL_ME),
    (66, 2, 2, (0, 2), 2, NO_ME),
    (0, 4, 4, (0,), 1, PLAIN),
    (32, 4, 4, (0,), 1, GFX),
)


@frozen
class _Board:
    """``gigabytes`` is in the names of profiles with 1, 2, 4 and 8 memory slices.

    ``renamed`` is what another driver calls a profile.
    """

    devices: Tuple[int, ...]
    rows: Tuple[_Row, ...]
    gigabytes: Tuple[int, ...]
    renamed: Mapping[str, str]


_A100_80 = {"7g.79gb": "7g.80gb", "3g.39gb": "3g.40gb", "4g.39gb": "4g.40gb"}
_GB200 = {"1g.24gb": "1g.23gb", "3g.95gb": "3g.93gb", "4g.95gb": "4g.93gb", "7g.189gb": "7g.186gb"}
_GB300 = {"1g.31gb": "1g.35gb", "3g.126gb": "3g.139gb", "4g.126gb": "4g.139gb", "7g.251gb": "7g.278gb"}

_BOARDS = (
    _Board((0x20B0, 0x20B1, 0x20F1, 0x20F6), _SEVEN, (5, 10, 20, 40), {}),  # A100 40 GB
    _Board((0x20B2, 0x20B5, 0x20F3, 0x20F5), _SEVEN, (10, 20, 40, 80), _A100_80),  # A100 80 GB
    _Board((0x20B7,), _FOUR, (6, 12, 24), {}),  # A30
    _Board((0x2330, 0x2331, 0x2322, 0x2324), _SEVEN, (10, 20, 40, 80), {}),  # H100 80 GB
    _Board((0x2321, 0x233A), _SEVEN, (12, 24, 47, 94), {}),  # H100 94 GB
    _Board((0x2342, 0x233D, 0x20B6), _SEVEN, (12, 24, 48, 96), {}),  # H100 96 GB, GH200 96 GB
    _Board((0x2329,), _SEVEN, (12, 24, 48, 96), {}),  # H20
    _Board((0x2335, 0x233B), _SEVEN, (18, 35, 71, 141), {}),  # H200
    _Board((0x2348,), _SEVEN, (18, 36, 72, 144), {}),  # GH200 144 GB
    _Board((0x2901,), _SEVEN, (23, 45, 90, 180), {}),  # B200
    _Board((0x2941,), _SEVEN, (23, 47, 93, 186), _GB200),  # GB200
    _Board((0x3182,), _SEVEN, (34, 67, 135, 269), {}),  # B300
    _Board((0x31C2,), _SEVEN, (35, 70, 139, 278), _GB300),  # GB300
    _Board((0x2BB5,), _FOUR_WITH_GRAPHICS, (24, 48, 96), {}),  # RTX PRO 6000
)


def geometry_of(device_id: int) -> Optional[Geometry]:
    """What a board can be divided into with a driver of today, without sizes in MiB; None for one that is not known."""
    board = _board(device_id)
    return Geometry(tuple(_profile(board, row) for row in board.rows)) if board else None


def alias(device_id: int, name: str) -> Optional[int]:
    """The number of the profile that some driver calls ``name`` on this board. An attribute stays what it is."""
    board = _board(device_id)
    if board is None:
        return None
    size = name.partition("+")[0]
    own = board.renamed.get(size, size) + name[len(size) :]
    profiles = (_profile(board, row) for row in board.rows)
    return next((profile.number for profile in profiles if profile.name == own), None)


def _board(device_id: int) -> Optional[_Board]:
    return next((board for board in _BOARDS if device_id in board.devices), None)


def _profile(board: _Board, row: _Row) -> Profile:
    number, slices, size, starts, most, attribute = row
    gigabytes = dict(zip((1, 2, 4, 8), board.gigabytes))[size]
    sign = "" if attribute in (PLAIN, NO_ME) else "+"
    return Profile(number, f"{slices}g.{gigabytes}gb{sign}{attribute}", slices, size, starts, most, attribute)
