# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Facts as one text.

Ansible keeps what a task registers of all hosts. The facts of a thousand nodes take its processes gigabytes; as a text
for each node they take megabytes (docs/performance.md).
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

# More than any node has to say, and less than what a forged answer could become.
MOST_BYTES = 64 << 20


def compress(value: Any) -> str:
    """``value`` as JSON, compressed by zlib (RFC 1950), in base64."""
    text = json.dumps(value, separators=(",", ":"))
    return base64.b64encode(zlib.compress(text.encode("utf-8"))).decode("ascii")


def decompress(text: str) -> Any:
    """What ``compress`` was given. Raises ``ValueError`` for what it did not make."""
    unpacking = zlib.decompressobj()
    try:
        found = unpacking.decompress(base64.b64decode(text, validate=True), MOST_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if not unpacking.eof:
        raise ValueError(f"it ends too early, or has more than {MOST_BYTES} bytes")
    try:
        return json.loads(found.decode("utf-8"))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
