# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The frame that tells the program's answer from what else a login prints, and a whole answer from a part of one."""

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
    """The first whole answer in what was printed; None where there is none, or only a part of it.

    What an answer quotes may look like another one, and is passed over with the answer that it is in.
    """
    start = output.find(MARK)
    while start >= 0:
        start += len(MARK)
        # More digits than any answer has are not worth a conversion.
        length, colon, _text = output[start : start + LONGEST].partition(":")
        if colon and length.isdigit() and length.isascii():
            begin = start + len(length) + len(colon)
            end = begin + int(length)
            if output.startswith(("\n", "\r\n"), end):
                return output[begin:end]
        start = output.find(MARK, start)
    return None
