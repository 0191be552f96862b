# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Python on the node loads this first, in the run that counts: it notes the lines of every source that is compiled.

What the node has installed comes as bytecode and is not compiled; what a way sends is, every time. A line of the log is
the number of lines and the name of the file, in the words of whoever compiles it.
"""

from __future__ import annotations

import os
import sys
from typing import Set, Tuple

LOG = os.path.join(os.path.dirname(os.path.abspath(__file__)), "compiled.log")
INSTALLED = ("/usr/", "/lib/")


def watch() -> None:
    log = os.open(LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    # compile() tells of the same source twice.
    seen: Set[Tuple[str, int]] = set()

    def hook(event: str, arguments: Tuple[object, ...]) -> None:
        if event != "compile":
            return
        source, name = arguments
        text = os.fsdecode(name) if isinstance(name, (str, bytes)) else ""
        if not isinstance(source, (str, bytes)) or text.startswith("<") or text.startswith(INSTALLED):
            return
        data = source.encode("utf-8", "surrogateescape") if isinstance(source, str) else source
        if (text, hash(data)) in seen:
            return
        seen.add((text, hash(data)))
        os.write(log, f"{data.count(10)} {text}\n".encode("utf-8", "surrogateescape"))

    sys.addaudithook(hook)


watch()
