# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The published MIG profiles, from the table of the simulator, as the values of the room ``_mig``."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, Tuple

from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.model import Geometry, Profile

TABLE = Path(__file__).resolve().parents[3] / "nvml_simulator" / "mig_profiles.json"


@lru_cache(maxsize=1)
def document() -> Dict[str, Any]:
    """The table as it is on disk."""
    found: Dict[str, Any] = json.loads(TABLE.read_text(encoding="utf-8"))
    return found


@lru_cache(maxsize=1)
def geometries() -> Dict[str, Geometry]:
    """What every GPU of the table can be divided into, by its key such as ``h100-80``."""
    return {gpu["key"]: Geometry(tuple(_profile(entry) for entry in gpu["profiles"])) for gpu in document()["gpus"]}


def compute_placements() -> Dict[int, Tuple[Tuple[int, int], ...]]:
    """The compute instances that a GPU instance of so many slices can have: slices and start of each."""
    return {
        int(of_slices): tuple(
            (entry["compute_slices"], placement["start"]) for entry in entries for placement in entry["placements"]
        )
        for of_slices, entries in document()["ci_profiles_by_gi_compute_slices"].items()
    }


def _profile(entry: Dict[str, Any]) -> Profile:
    return Profile(
        number=entry["profile_id"],
        name=entry["name"],
        slices=entry["compute_slices"],
        size=entry["memory_slices"],
        starts=tuple(placement["start"] for placement in entry["placements"]),
        most=entry["max_instances"],
        attribute="".join(entry["attributes"]),
        memory_mib=entry["memory_mib"],
    )
