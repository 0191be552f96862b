# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Print as JSON what nvidia-smi, systemd and the simulator say; the simulator then begins a new log.

``devices``: the lines of nvidia-smi about GPUs and MIG devices, ``uuids``: those of the MIG devices. ``runs``: the
process of each unit, 0 for none. ``changes``: the calls since the last look that change something. ``gpu0``: the
settings of the GPU that is watched, ``generations`` count the resets of every GPU. ``traces``: what the hooks left.
"""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

UNITS = ("job", "monitor", "dcgm-exporter")
SETTINGS = ("mig", "power_limit", "locked_graphics_min", "locked_graphics_max", "compute_mode")


def output(*command: str) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


gpus = json.loads(output("nvml-sim", "describe", "--json"))["gpus"]
devices = output("nvidia-smi", "-L").splitlines()
seen = {
    "devices": devices,
    "uuids": re.findall(r"MIG-[0-9a-f-]+", "".join(devices)),
    "runs": {unit: int(output("systemctl", "show", "-P", "MainPID", unit)) for unit in UNITS},
    "changes": json.loads(output("nvml-sim", "log", "--changes", "--json")),
    "gpu0": [gpus[0][name] for name in SETTINGS],
    "generations": [gpu["generation"] for gpu in gpus],
    "traces": {
        name: Path("/run", name).read_text().splitlines()
        for name in ("drained", "resumed")
        if Path("/run", name).exists()
    },
}
output("nvml-sim", "log", "--clear")
print(json.dumps(seen))
