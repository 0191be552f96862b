# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the answer of the program on a node is told from whatever else a login prints, whole from half."""

from __future__ import annotations

from typing import Optional

# Of no use to Python, a shell, timeout(1), sudo and ssh, which end with what is below 3 or above 123.
ANSWERED = 90
MARK = "gpufleet-look:"


def framed(text: str) -> str:
    """The answer as it is printed; ``text`` is JSON in ASCII, without a newline."""
    return f"{MARK}{len(text)}:{text}\n"


def unframed(output: str) -> Optional[str]:
    """The last answer in what was printed; None where there is none, or only a part of it."""
    length, _colon, rest = output.rpartition(MARK)[2].partition(":")
    # More digits than any answer has are not worth a conversion.
    if MARK not in output or not (length.isdigit() and len(length) < 12):
        return None
    text = rest[: int(length)]
    return text if len(text) == int(length) else None
