# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How often we made the driver let go of a GPU since the boot: what it keeps of one ends with that, untold.

Neither the load of the module, nor its daemon, nor the GPU's own counts show every reset.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Dict, Iterable

from .._core.record import read_note

if TYPE_CHECKING:
    from .._core.protocols import Files

RECORD = "/run/gpufleet/gpu_reset_counts.json"


def read(files: Files) -> Dict[str, int]:
    """The counts by UUID. A damaged record is none, which differs from what was noted before."""
    return read_note(files, RECORD, lambda noted: {str(uuid): int(count) for uuid, count in noted.items()}) or {}


def note(files: Files, uuids: Iterable[str]) -> None:
    """Count once more for these. To be called before it happens, so that a run that is killed has counted."""
    counts = read(files)
    for uuid in uuids:
        counts[uuid] = counts.get(uuid, 0) + 1
    files.replace(RECORD, json.dumps(counts, indent=1, sort_keys=True) + "\n")
