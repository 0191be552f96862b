# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Print as JSON what the kernel and the driver of this node say, without the collection.

``pages``: huge pages by their KiB and NUMA node. ``transparent_hugepages``: by file. ``queues``: those of NVMe
drives, by the last digit of the serial number, which is the NUMA node. ``sysctl``: by key. ``swap``: the priority of
each area in use. ``mtu``: of every card, by its PCI address. ``modules``: what is loaded. ``gpus``: as the simulated
driver has them; power in milliwatts, clocks in MHz, modes as NVML numbers them. ``nvidia_smi``: the profiles it
lists, by GPU. ``modes``: of MIG, current and pending. ``pynvml``: the MIG devices that the binding lists, with the
memory slice at which each begins; none without a binding. ``cpus``: the governor and the frequencies of each CPU, in
kHz. ``node``: its name.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

NODES = Path("/sys/devices/system/node")
THP = Path("/sys/kernel/mm/transparent_hugepage")
SYSCTL = ("vm/swappiness", "vm/dirty_background_bytes", "vm/dirty_background_ratio", "net/ipv4/tcp_rmem")
CPU = ("governor", "min_freq", "max_freq", "cur_freq")
QUEUE = ("scheduler", "read_ahead_kb", "nr_requests", "rq_affinity", "nomerges", "max_sectors_kb")


def output(*command: str) -> str:
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout


def text(path: Path) -> str:
    return path.read_text().strip()


def chosen(path: Path) -> str:
    """The word in brackets. What else could be is left out: a scheduler that was loaded stays on offer."""
    return text(path).partition("[")[2].partition("]")[0]


def pages() -> Dict[str, Dict[str, int]]:
    found: Dict[str, Dict[str, int]] = {}
    for path in sorted(NODES.glob("node*/hugepages/hugepages-*kB/nr_hugepages")):
        node, kib = path.parts[-4][4:], path.parts[-2][len("hugepages-") : -2]
        found.setdefault(kib, {})[node] = int(text(path))
    return found


def transparent_hugepages() -> Dict[str, str]:
    found = {name: chosen(THP / name) for name in ("enabled", "defrag", "shmem_enabled")}
    return {**found, "pages_to_scan": text(THP / "khugepaged" / "pages_to_scan")}


def mtu() -> Dict[str, str]:
    cards = Path("/sys/bus/pci/devices").glob("*/virtio*/net/*/mtu")
    return {path.parts[-5]: text(path) for path in cards}


def cpus() -> Dict[str, List[str]]:
    folders = sorted(Path("/sys/devices/system/cpu").glob("cpu*/cpufreq"))
    return {folder.parent.name: [text(folder / f"scaling_{name}") for name in CPU] for folder in folders}


def queues() -> Dict[str, Dict[str, str]]:
    found = {}
    for serial in Path("/sys/class/nvme").glob("nvme*/serial"):
        for disk in serial.parent.glob("nvme*n*"):
            folder = disk / "queue"
            found[text(serial)[-1]] = {name: (chosen if name == "scheduler" else text)(folder / name) for name in QUEUE}
    return found


def listed() -> Dict[str, List[str]]:
    """The profiles of MIG devices that nvidia-smi lists, by GPU."""
    _nothing, *parts = re.split(r"^GPU (\d+):", output("nvidia-smi", "-L"), flags=re.MULTILINE)
    by_gpu = {
        index: re.findall(r"^\s+MIG (\S+)", lines, flags=re.MULTILINE) for index, lines in zip(parts[::2], parts[1::2])
    }
    return {index: sorted(profiles) for index, profiles in by_gpu.items() if profiles}


def placed() -> Dict[str, List[str]]:
    sys.path.insert(0, "/var/lib/gpufleet/python")
    try:
        import pynvml
    except ImportError:
        return {}

    def devices_of(gpu: Any) -> List[str]:
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
    return {str(index): devices for index, devices in enumerate(map(devices_of, gpus)) if devices}


MODES = "--query-gpu=mig.mode.current,mig.mode.pending"
said = {
    "node": text(Path("/etc/hostname")),
    "pages": pages(),
    "transparent_hugepages": transparent_hugepages(),
    "queues": queues(),
    "sysctl": {key: text(Path("/proc/sys") / key).replace("\t", " ") for key in SYSCTL},
    "mtu": mtu(),
    "cpus": cpus(),
    "swap": {line.split()[0]: line.split()[4] for line in Path("/proc/swaps").read_text().splitlines()[1:]},
    "modules": [line.split()[0] for line in Path("/proc/modules").read_text().splitlines()],
    "gpus": json.loads(output("nvml-sim", "describe", "--json"))["gpus"],
    "nvidia_smi": listed(),
    "modes": output("nvidia-smi", MODES, "--format=csv,noheader").splitlines(),
    "pynvml": placed(),
}
print(json.dumps(said))
