# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The error counters of ports as they were some time ago, so that it can be said how they have grown since.

A look only reads this. What keeps it are the boot service and ``gpufleet health``. It lies where a boot clears it, as a
boot clears the counters.
"""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Tuple

from ..._core.errors import CannotLook
from ..._core.record import Damaged, read_record
from ..._core.value import frozen
from ..._machine.boot_id import boot_id

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from .fields import Facts

PATH = "/run/gpufleet/ports.json"
LOCK = "/run/gpufleet/ports.lock"
SCHEMA = 1
# Two samples are kept, and the older one is compared with: the growth is that of one to two of these.
PERIOD_SECONDS = 3600.0
# A node has a few dozen ports; a record with more in it is not ours.
MOST_PORTS = 4096

Counters = Mapping[str, Mapping[str, Optional[int]]]


@frozen
class Sample:
    """Counters by port and name, so many ``seconds`` after the boot. Those that were 0 are left out.

    One that could not be read is None: left out, it would seem to have grown by all that it has.
    """

    seconds: float
    counters: Counters


def load(files: Files) -> Tuple[Optional[Sample], str]:
    """The sample to compare with, or None; and what is wrong with the record, if anything is."""
    try:
        samples = _samples(files)
    except (CannotLook, OSError) as error:
        return None, str(error)
    return (samples[0] if samples else None), ""


def keep(files: Files, network: Facts) -> None:
    """Keep the counters of the facts, unless those that were kept last are new enough, or the time was over for some.

    Those would seem to have grown from 0 the next time. Of two that do this at once, one does. A damaged record is
    replaced. Raises ``OSError`` where it cannot be written.
    """
    if not all(port["counters_complete"] for port in network["ports"]):
        return
    seconds = _uptime(files)
    counters = {
        port["name"]: {error["counter"]: error["total"] for error in port["errors"]} for port in network["ports"]
    }
    if seconds is None or not counters:
        return
    with contextlib.suppress(TimeoutError), files.lock(LOCK, 0.0):
        samples: Tuple[Sample, ...] = ()
        with contextlib.suppress(CannotLook):
            samples = _samples(files)
        if samples and 0 <= seconds - samples[-1].seconds < PERIOD_SECONDS:
            return
        kept = [*samples[-1:], Sample(seconds, counters)]
        document = {
            "schema": SCHEMA,
            "boot_id": boot_id(files),
            "samples": [{"seconds": sample.seconds, "counters": sample.counters} for sample in kept],
        }
        files.replace(PATH, json.dumps(document, sort_keys=True) + "\n", 0o600)


def _samples(files: Files) -> Tuple[Sample, ...]:
    """Those of this boot, the older one first."""
    made = read_record(
        files,
        PATH,
        _record,
        schema=SCHEMA,
        goal="read the counters in {}",
        hint="the next gpufleet health as root writes it again",
    )
    boot, samples = made or ("", ())
    return samples if boot == boot_id(files) else ()


def _record(document: Any) -> Tuple[str, Tuple[Sample, ...]]:
    samples = tuple(_sample(entry) for entry in document["samples"])
    if not samples:
        raise Damaged("there is no sample in it")
    return str(document["boot_id"]), samples


def _sample(entry: Any) -> Sample:
    if len(entry["counters"]) > MOST_PORTS:
        raise Damaged(f"it has more than {MOST_PORTS} ports")
    return Sample(float(entry["seconds"]), {str(port): _counters(those) for port, those in entry["counters"].items()})


def _counters(those: Any) -> Dict[str, Optional[int]]:
    return {str(name): None if count is None else int(count) for name, count in those.items()}


def _uptime(files: Files) -> Optional[float]:
    words = (files.read_optional("/proc/uptime") or "").split()
    return float(words[0]) if words else None
