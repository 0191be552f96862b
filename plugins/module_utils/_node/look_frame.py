# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the answer of the program on a node is told from whatever else a login prints, whole from half."""

from __future__ import annotations

from typing import Optional

# Of no use to Python, a shell, timeout(1), sudo and ssh, which end with what is below 3 or above 123.
ANSWERED = 90
MARK = "gpufleet-look:"
LONGEST = 12


def framed(text: str) -> str:
    """The answer as it is printed; ``text`` is JSON in ASCII, without a newline."""
    return f"{MARK}{len(text)}:{text}\n"


def unframed(output: str) -> Optional[str]:
    """The last whole answer in what was printed; None where there is none, or only a part of it.

    What an answer quotes may look like another one, but no line ends behind that.
    """
    end = len(output)
    while True:
        start = output.rfind(MARK, 0, end)
        if start < 0:
            return None
        end = start
        length, _colon, rest = output[start + len(MARK) :].partition(":")
        # More digits than any answer has are not worth a conversion.
        if length.isdigit() and len(length) < LONGEST and rest[int(length) :].startswith(("\n", "\r\n")):
            return rest[: int(length)]
