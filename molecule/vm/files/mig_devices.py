# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Print the MIG devices of every GPU that has any, as the driver lists them: {"2": ["1g.10gb@0", "3g.40gb@4"]}."""

from __future__ import annotations

import json
import sys
from typing import Any, List

sys.path.insert(0, "/usr/local/lib/gpufleet/python")

import pynvml


def devices_of(gpu: Any) -> List[str]:
    """Their profiles, and at which memory slices they begin."""
    found = []
    for number in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, number)
        except pynvml.NVMLError_NotFound:
            continue
        instance = pynvml.nvmlDeviceGetGpuInstanceById(gpu, pynvml.nvmlDeviceGetGpuInstanceId(device))
        start = pynvml.nvmlGpuInstanceGetInfo(instance).placement.start
        found.append(f"{pynvml.nvmlDeviceGetName(device).rpartition(' ')[2]}@{start}")
    return sorted(found)


pynvml.nvmlInit()
gpus = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
print(json.dumps({index: devices for index, devices in enumerate(map(devices_of, gpus)) if devices}))
