# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""/etc/nccl.conf as NCCL reads it (``setEnvFile`` of src/misc/param.cc, the same from 2.4 to 2.30).

A line is a comment where its very first character is ``#``. All before the first ``=`` is the name, and all after it
the value: no blank, quote, carriage return or later ``#`` is taken off. Each is given to setenv(3) without
overwriting, so what the process has already counts, then NCCL_CONF_FILE or ~/.nccl.conf, and of equal lines the first.
"""

from __future__ import annotations

from typing import Iterator, Tuple

PATH = "/etc/nccl.conf"
# In bytes; the rest is cut off.
LONGEST = 1023


def parse(text: str) -> Iterator[Tuple[int, str, str]]:
    """The lines that define something, as their number, name and value."""
    for number, line in enumerate(text.split("\n"), 1):
        # The line is a string of C.
        name, equals, value = line.partition("\0")[0].partition("=")
        # setenv(3) refuses a name without a character.
        if equals and name and not line.startswith("#"):
            yield number, _cut(name), _cut(value)


def _cut(text: str) -> str:
    # Of so many characters, none can be too long in bytes.
    if len(text) * 4 <= LONGEST:
        return text
    return text.encode("utf-8", "surrogateescape")[:LONGEST].decode("utf-8", "surrogateescape")
