# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a change of layouts has to bring back, on disk: a run after one that was interrupted does it in its place.

``/var/lib/gpufleet/mig_layout.transaction``: there from before the first step until every GPU is old or new. A boot
ends what a run had stopped and all instances; what it may leave is a mode that nobody wanted for long.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Tuple, Union

from ..._core.record import Damaged, listed, read_record
from ..._core.value import field, frozen, replace
from ..._machine.boot_id import boot_id
from .model import Geometry, Layout
from .records import INTERRUPTED_RUN
from .text import layout_text, parse_layout

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from .driver import MigReading

SCHEMA = 1
# Profiles by their numbers: another driver may name them in another way, or not while MIG is off.
NUMBERS = Geometry(())


@frozen
class TargetLayout:
    """What a GPU was on its way to: MIG mode and instances, None where these were left alone."""

    mig: bool
    layout: Optional[Layout]


@frozen
class Snapshot:
    """One GPU before its change: MIG mode, instances, and persistence mode, None where it has none.

    The instances are None where a boot has ended them.
    """

    mig: bool
    layout: Optional[Layout]
    persistence: Optional[bool] = None
    toward: Optional[TargetLayout] = None


@frozen
class Record:
    """GPUs by UUID as they were, and the units that stand still. ``rebooted``: it is from before the last boot."""

    gpus: Mapping[str, Snapshot] = field(default_factory=dict)
    stopped: Tuple[str, ...] = ()
    rebooted: bool = False


def keep(files: Files, record: Record) -> None:
    """Write the record; one that has nothing to bring back is removed."""
    if not record.gpus and not record.stopped:
        files.remove(INTERRUPTED_RUN)
        return
    gpus = {uuid: _as_document(before) for uuid, before in record.gpus.items()}
    document = {"schema": SCHEMA, "boot": boot_id(files), "gpus": gpus, "stopped": list(record.stopped)}
    files.replace(INTERRUPTED_RUN, json.dumps(document, indent=1) + "\n", 0o600)


def interrupted_run(files: Files) -> Optional[Record]:
    """What an interrupted run left behind, None where none was. Raises ``CannotLook`` on a damaged record."""
    found = read_record(
        files,
        INTERRUPTED_RUN,
        lambda document: (str(document["boot"]), _record(document)),
        schema=SCHEMA,
        goal="read what an interrupted run left in {}",
        hint="start the services that it may have stopped, look at MIG mode, instances and persistence mode of the "
        "GPUs, and remove it",
    )
    if found is None:
        return None
    boot, record = found
    if boot == boot_id(files):
        return record
    return Record({uuid: replace(one, layout=None, persistence=None) for uuid, one in record.gpus.items()}, (), True)


def has(reading: MigReading, one: Union[Snapshot, TargetLayout]) -> bool:
    """Whether a GPU has this mode, also after a reset, and these instances."""
    return reading.mode in ((one.mig, one.mig), None) and one.layout in (None, reading.layout)


def _as_document(before: Snapshot) -> Dict[str, Any]:
    document = {"mig": before.mig, "instances": _as_text(before.layout), "persistence": before.persistence}
    toward = before.toward
    return document if toward is None else {**document, "to": {"mig": toward.mig, "instances": _as_text(toward.layout)}}


def _as_text(layout: Optional[Layout]) -> Optional[str]:
    return None if layout is None else layout_text(layout, NUMBERS)


def _record(document: Mapping[str, Any]) -> Record:
    gpus = {str(uuid): _from_document(entry) for uuid, entry in document["gpus"].items()}
    return Record(gpus, tuple(map(str, listed(document["stopped"]))))


def _from_document(entry: Mapping[str, Any]) -> Snapshot:
    persistence, to = entry["persistence"], entry.get("to")
    if not isinstance(persistence, (bool, type(None))):
        raise Damaged(f"{entry!r:.80} is not a state of a GPU")
    return Snapshot(*_divided(entry), persistence, None if to is None else TargetLayout(*_divided(to)))


def _divided(entry: Mapping[str, Any]) -> Tuple[bool, Optional[Layout]]:
    mig, instances = entry["mig"], entry["instances"]
    if not isinstance(mig, bool):
        raise Damaged(f"{entry!r:.80} is not a state of a GPU")
    return mig, None if instances is None else parse_layout(instances, NUMBERS)
