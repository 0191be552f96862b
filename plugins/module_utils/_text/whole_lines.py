# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lines of a configuration file as programs in C and Go read them."""

from __future__ import annotations

from typing import List


def whole_lines(text: str) -> List[str]:
    """Lines with their newlines, which alone end them.

    ``str.splitlines`` also ends one at a form feed, a carriage return or U+2028, within what other readers take for a
    comment or a value.
    """
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines
