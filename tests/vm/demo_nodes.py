# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the nodes of the demonstration say of themselves: the kernel, the simulated driver, the daemons, the disk."""

from __future__ import annotations

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence

from demo_tools import CACHE, Bed, expect

REPORT = CACHE / "vm" / "report"
# A node that nobody has touched, and those of the chapters, which run jobs in containers and by Slurm.
FIRST, TRAINING, INFERENCE = "gpu-01", "train-01", "infer-01"
GPUS = {FIRST: "hgx-h100-80gb-8", TRAINING: "hgx-h100-80gb-8", INFERENCE: "hgx-a100-80gb-8"}

# A line for each interrupt of the NICs and drives below the bridges of the NUMA nodes: its number, where it may go, the
# CPUs next to its device, and who handles it.
INTERRUPTS = """for device in /sys/bus/pci/devices/*; do
  case $(cat $device/class $device/numa_node | tr '\\n' ' ') in
    "0x0200"*" "[0-9]*|"0x010802 "[0-9]*) ;;
    *) continue ;;
  esac
  for entry in $device/msi_irqs/*; do
    irq=/proc/irq/${entry##*/}
    for handler in $irq/*/; do
      echo ${entry##*/} $(cat $irq/smp_affinity_list $device/local_cpulist) $(basename $handler)
    done
  done
done"""
# The queues of a drive are placed by the kernel.
KERNEL_PLACES = r"nvme\d+q[1-9]\d*"
BOOTS = "journalctl --list-boots --no-pager | wc -l"
HUGE_PAGES = "cat /sys/devices/system/node/node*/hugepages/hugepages-1048576kB/nr_hugepages"


class Interrupt(NamedTuple):
    """CPUs in the kernel's list format."""

    number: str
    cpus: str
    local: str
    handler: str


def plugged(*nodes: str) -> List[str]:
    """The arguments of `bed.py up` for these nodes."""
    return ["--nodes", ",".join(nodes), *(word for node in nodes for word in ("--gpus", f"{node}={GPUS[node]}"))]


def files_of_ours(bed: Bed, node: str) -> str:
    return bed.on(node, "find /etc /var/lib /usr/local -name '*gpufleet*'")


def driver(bed: Bed, node: str) -> Dict[str, Any]:
    """What the driver of a node has, as the simulator itself says it: no code of ours is asked."""
    described: Dict[str, Any] = json.loads(bed.on(node, "nvml-sim describe --json"))
    return described


def counted_boots(bed: Bed) -> Dict[str, int]:
    return {node: int(said) for node, said in bed.on_all(BOOTS).items()}


def persistent(gpu: Dict[str, Any]) -> bool:
    """By the daemon, or by the driver's own flag."""
    return bool(gpu["daemon_pid"] or gpu["persistence"])


def devices(bed: Bed, index: int) -> Sequence[str]:
    """The profiles of the MIG devices of a GPU of the training node, sorted, as any client of NVML lists them."""
    listed = bed.on(TRAINING, "nvidia-smi -L")
    of_gpu = re.split(r"^GPU \d+:", listed, flags=re.MULTILINE)[index + 1]
    return sorted(re.findall(r"^\s+MIG (\S+)", of_gpu, flags=re.MULTILINE))


def placed(bed: Bed, node: str) -> List[Interrupt]:
    """The interrupts of the NICs and drives of both NUMA nodes that are ours to place, as the kernel has them."""
    found = [Interrupt(*line.split()) for line in bed.on(node, INTERRUPTS).splitlines()]
    return [one for one in found if not re.fullmatch(KERNEL_PLACES, one.handler)]


def expect_local(bed: Bed, node: str) -> None:
    """One CPU each, next to the device, and not the first one, which is reserved."""
    found = placed(bed, node)
    astray = [one for one in found if one.cpus not in cpus_in(one.local) or one.cpus == "0"]
    expect(bool(found) and not astray, f"{node}: {len(found)} interrupts of NICs and drives are next to their devices")


def cpus_in(text: str) -> List[str]:
    parts = [part.partition("-") for part in text.split(",")]
    return [str(cpu) for first, _dash, last in parts for cpu in range(int(first), int(last or first) + 1)]


def expect_in_report(setting: str, node: str, found: object) -> None:
    """The finding is in the report for machines, and in the data of the page for people."""
    report = json.loads((REPORT / "gpufleet-report.json").read_text())
    named = [one for one in report["findings"] if (one["setting"], one["nodes"]) == (setting, [node])]
    packed = re.findall(r"H4sI[A-Za-z0-9+/]+=*", (REPORT / "gpufleet-report.html").read_text())
    page = "".join(gzip.decompress(base64.b64decode(data)).decode() for data in packed)
    expect(
        [one["effective"] for one in named] == [found] and f'"{setting}"' in page,
        f"the report and its page name {setting}, in effect {found}",
    )


def page() -> Path:
    return REPORT / "gpufleet-report.html"


def show_gpus(bed: Bed) -> None:
    """The GPUs of the fleet in a table, as their nodes tell them."""
    columns = "   {:<9} {:>3}  {:<21} {:<12} {:>4}  {:<11} {:>7}  {}"
    print(columns.format("NODE", "GPU", "MODEL", "PCI", "NUMA", "PERSISTENCE", "POWER", "COMPUTE MODE"))
    for node, said in bed.on_all("gpufleet facts gpus topology").items():
        facts = json.loads(said)
        places = {device["pci_address"]: device["numa_node"] for device in facts["topology"]["devices"]}
        for gpu in facts["gpus"]:
            where = (gpu["index"], gpu["model"], gpu["pci_address"], places.get(gpu["pci_address"], "-"))
            state = ("on" if gpu["persistence"] else "off", f"{gpu['power']['limit_watts']:.0f} W", gpu["compute_mode"])
            print(columns.format(node, *where, *state), flush=True)
