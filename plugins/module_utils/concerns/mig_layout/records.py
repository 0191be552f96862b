# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The layouts that were verified last, by the UUID of their GPU: what the next boot makes again, place for place.

Instances at the same places keep their numbers and so their UUIDs, by which containers and jobs may know them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Mapping, Optional

from ..._core.record import read_note

if TYPE_CHECKING:
    from ..._core.protocols import Files

RECORD = "/var/lib/gpufleet/mig_layout.json"
# Who was there at a change of instances (consumers.py).
NOTIFIED = "/run/gpufleet/mig_layout.notified"
# What an interrupted run leaves behind (transaction.py). It outlives a boot, as the mode of a GPU may.
INTERRUPTED_RUN = "/var/lib/gpufleet/mig_layout.transaction"
SCHEMA = 1


def read_record(files: Files) -> Optional[Mapping[str, str]]:
    """Layouts as text by UUID, None where there is no record. A damaged one is empty: any placement will do then."""
    return (read_note(files, RECORD, _layouts) or {}) if files.exists(RECORD) else None


def _layouts(document: Any) -> Mapping[str, str]:
    found = document["gpus"] if document["schema"] == SCHEMA else {}
    return {str(uuid): str(layout) for uuid, layout in found.items()}


def record_text(layouts: Mapping[str, str]) -> str:
    return json.dumps({"schema": SCHEMA, "gpus": dict(layouts)}, indent=1, sort_keys=True) + "\n"
