# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The device files of MIG instances, which the kernel module tells with the minor numbers of GPUs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, Iterable, Optional, Tuple

if TYPE_CHECKING:
    from .._core.protocols import Files

FOLDER = "/proc/driver/nvidia/capabilities"
DEVICES = "/dev/nvidia-caps/nvidia-cap"

# The numbers of a GPU instance and of a compute instance, None for the whole.
MigPlace = Tuple[Optional[int], Optional[int]]


def capability_devices(files: Files, minor: int, instance: int, compute: Iterable[int]) -> Dict[str, MigPlace]:
    """The device files of a GPU instance and of its compute instances, those that the kernel module tells.

    It counts GPUs by minor number here (MIG user guide, "Device Nodes and Capabilities").
    """
    here = f"{FOLDER}/gpu{minor}/mig/gi{instance}"
    paths: Dict[str, MigPlace] = {f"{here}/access": (instance, None)}
    paths.update({f"{here}/ci{number}/access": (instance, number) for number in compute})
    found: Dict[str, MigPlace] = {}
    for path, place in paths.items():
        match = re.search(r"^DeviceFileMinor:\s*(\d+)", files.read_optional(path) or "", re.MULTILINE)
        if match:
            found[f"{DEVICES}{match[1]}"] = place
    return found
