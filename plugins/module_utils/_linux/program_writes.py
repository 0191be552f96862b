# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files of the kernel that a program in Python or Perl opens to write into them, where their paths stand in it.

Neither whether it comes to that nor what it writes is known from here.
"""

from __future__ import annotations

import re
from typing import Iterator, Tuple

from .._core.regex import regex
from .shell_writes import ShellWrite

_PATH = r"/(?:sys|proc/sys|proc/irq)/[^\"'\n]+"
# The modes of open() of Python with w, a, x or +, what pathlib calls writing, and the signs of open in Perl.
_MODE = r"(?:mode\s*=\s*)?[\"'][^\"'\n]*[wax+][^\"'\n]*[\"']"
_WRITES = regex(
    rf"\bopen\(\s*[rRfFbBuU]{{0,2}}[\"']({_PATH})[\"']\s*,\s*{_MODE}"
    rf"|\bPath\(\s*[rRfF]{{0,2}}[\"']({_PATH})[\"']\s*\)\s*\.\s*(?:write_text\(|write_bytes\(|open\(\s*{_MODE})"
    rf"|\bopen\b[^;\n]*[\"'](?:\+<|\+?>>?)\s*(?:[\"']\s*,\s*[\"'])?({_PATH})[\"']"
)
# What is put into a text when it runs: {name} of Python, $name of Perl.
_INSERTED = regex(r"\{[^{}]*\}|\$\{?\w+\}?|%[sd]")


def read_program(text: str) -> Tuple[ShellWrite, ...]:
    """The writes, all in doubt and without a value."""
    return tuple(_found(text)) if "/sys/" in text or "/proc/irq/" in text else ()


def _found(text: str) -> Iterator[ShellWrite]:
    for match in _WRITES.finditer(text):
        start = text.rfind("\n", 0, match.start()) + 1
        if not text[start : match.start()].lstrip().startswith("#"):
            path = match[1] or match[2] or match[3]
            target = re.sub(r"\*{2,}", "*", _INSERTED.sub("*", path))
            yield ShellWrite(text.count("\n", 0, match.start()) + 1, target, None, True)
