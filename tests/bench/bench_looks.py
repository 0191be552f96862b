# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who really looked in a run, so that one that fell back is not taken for what it was meant to be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Dict

from bench_node import BenchError

# Who looks at a node: what is compiled there, or the module that is sent.
PROGRAM, MODULE = "program", "module"


def noting(file: Path) -> Dict[str, str]:
    """The environment of a run that leaves in ``file`` who looked."""
    file.unlink(missing_ok=True)
    return {
        "ANSIBLE_CALLBACK_PLUGINS": str(Path(__file__).with_name("callbacks")),
        "ANSIBLE_CALLBACKS_ENABLED": "looks",
        "GPUFLEET_BENCH_LOOKS": str(file),
    }


def looks_in(file: Path, *, way: str, looked_by: str) -> int:
    """How many looks a run made. Raises ``BenchError`` where not all, or none, were by whom the way is about."""
    total = 0
    for who, why_not, count in json.loads(file.read_text(encoding="utf-8")):
        if who != looked_by:
            wanted = f"the {looked_by} was to look" if looked_by else "nobody was to look"
            because = f": {why_not}" if why_not else ""
            raise BenchError(f"Cannot measure {way}: {wanted}, and for {count} looks it was the {who}{because}")
        total += count
    if looked_by and not total:
        raise BenchError(f"Cannot measure {way}: the {looked_by} was to look, and nobody did")
    return total
