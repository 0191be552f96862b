# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Numbers, sizes and limits in unit files, as systemd reads them (``safe_atou64`` and ``parse_size`` of its
parse-util.c, ``rlimit_parse`` of rlimit-util.c).
"""

from __future__ import annotations

from typing import Optional

from .._core.regex import regex

INFINITY = "infinity"
# The largest number is how the kernel writes infinity, and no limit can be that number.
MAX = 2**64 - 1
BINARY, DECIMAL = 1024, 1000

_NUMBER = regex(r"[+-]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]*|[1-9][0-9]*)")
_TERM = regex(r"\s*\+?([0-9]+)(?:\.([0-9]*))?\s*([EPTGMKB]?)")
# Of one size the units go down.
_UNITS = ("E", "P", "T", "G", "M", "K", "B", "")


def number(text: str) -> Optional[int]:
    """A number in C's notation: decimal, hexadecimal, octal or binary. None for what systemd refuses."""
    if _NUMBER.fullmatch(text) is None:
        return None
    digits = text.lstrip("+-").lower()
    is_octal = len(digits) > 1 and digits[0] == "0" and digits[1] not in "xbo"
    value = int(digits, 8 if is_octal else 0)
    return value if value <= MAX and (value == 0 or text[0] != "-") else None


def size(text: str, base: int = BINARY) -> Optional[int]:
    """Bytes, such as ``1.5G`` or ``1G 512M``. None for what systemd refuses."""
    total, position, unit = 0, 0, -1
    while position < len(text):
        term = _TERM.match(text, position)
        if term is None or _UNITS.index(term[3]) <= unit:
            return None
        unit, position = _UNITS.index(term[3]), term.end()
        factor = base ** max(0, 6 - unit)
        fraction = term[2] or "0"
        total += int(term[1]) * factor + int(fraction) * factor // 10 ** len(fraction)
    return total if unit >= 0 and total <= MAX else None


def limit(text: str, *, is_size: bool) -> Optional[str]:
    """A value of a ``Limit...=`` as ``soft:hard``. None for what systemd ignores."""
    values = []
    for part in text.split(":"):
        value = MAX if part == INFINITY else size(part) if is_size else number(part)
        if value is None or (value == MAX and part != INFINITY):
            return None
        values.append(value)
    if len(values) > 2 or values[0] > values[-1]:
        return None
    soft, hard = (INFINITY if value == MAX else str(value) for value in (values[0], values[-1]))
    return f"{soft}:{hard}"
