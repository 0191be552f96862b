# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a change of layouts has to bring back, on disk: a run after one that was killed does it in its place.

``/run/gpufleet/mig_layout.transaction``: there from before the first step to the end of the last.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Tuple

from .._core.record import read_record
from .model import Geometry, Layout
from .records import LEFT_OVER
from .text import layout_text, parse_layout

if TYPE_CHECKING:
    from .._host.protocols import Files

SCHEMA = 1
# Profiles by their numbers: another driver may name them in another way, or not while MIG is off.
NUMBERS = Geometry(())


@dataclass(frozen=True)
class Before:
    """One GPU before its change: MIG mode, instances, and persistence mode, None where it has none."""

    mig: bool
    layout: Layout
    persistence: Optional[bool] = None


@dataclass(frozen=True)
class Record:
    """GPUs by UUID as they were, and the units that stand still."""

    gpus: Mapping[str, Before] = field(default_factory=dict)
    stopped: Tuple[str, ...] = ()


def keep(files: Files, record: Record) -> None:
    """Write the record; one that has nothing to bring back is removed."""
    if record == Record():
        files.remove(LEFT_OVER)
        return
    gpus = {uuid: _as_document(before) for uuid, before in record.gpus.items()}
    document = {"schema": SCHEMA, "gpus": gpus, "stopped": list(record.stopped)}
    files.replace(LEFT_OVER, json.dumps(document, indent=1) + "\n", 0o600)


def left_over(files: Files) -> Optional[Record]:
    """What a run that was killed left behind, None where none was. Raises ``CannotLook`` on a damaged record."""
    return read_record(
        files,
        LEFT_OVER,
        _record,
        schema=SCHEMA,
        goal="read what a run that was killed has left to bring back",
        hint="start the services that it may have stopped, look at persistence mode, and remove it",
    )


def _as_document(before: Before) -> Dict[str, Any]:
    return {"mig": before.mig, "instances": layout_text(before.layout, NUMBERS), "persistence": before.persistence}


def _record(document: Mapping[str, Any]) -> Record:
    gpus = {str(uuid): _from_document(entry) for uuid, entry in document["gpus"].items()}
    return Record(gpus, tuple(str(unit) for unit in document["stopped"]))


def _from_document(entry: Mapping[str, Any]) -> Before:
    mig, persistence = entry["mig"], entry["persistence"]
    if not isinstance(mig, bool) or not isinstance(persistence, (bool, type(None))):
        raise TypeError(f"{entry!r} is no state of a GPU")
    return Before(mig, parse_layout(entry["instances"], NUMBERS), persistence)
