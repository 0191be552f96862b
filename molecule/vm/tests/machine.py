# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a node of the scenario says about itself, read without anything of the collection."""

from __future__ import annotations

import json
from typing import Any, Dict, List

HUGEPAGES = "/sys/devices/system/node/node{node}/hugepages/hugepages-{kb}kB/nr_hugepages"
EXCLUSIVE_PROCESS = 3
BALANCED = ["1g.10gb@2", "1g.10gb@3", "2g.20gb@0", "3g.40gb@4"]
MIG_DEVICES = {2: BALANCED, 3: BALANCED, 4: ["1g.10gb@4", "1g.10gb@5", "3g.40gb@0"]}
THP = "/sys/kernel/mm/transparent_hugepage"


def text(host: Any, path: str) -> str:
    return str(host.check_output("cat %s", path)).strip()


def chosen(host: Any, path: str) -> str:
    """The word in brackets."""
    return text(host, path).split("[", 1)[1].split("]", 1)[0]


def pages(host: Any, kb: int) -> Dict[int, int]:
    return {node: int(text(host, HUGEPAGES.format(node=node, kb=kb))) for node in (0, 1)}


def drive(host: Any, node: int) -> str:
    """The folder of the queue of the NVMe drive on a NUMA node, found by its serial number."""
    script = f"dirname $(grep -l -- '-{node} *$' /sys/class/nvme/nvme*/serial)"
    controller = str(host.check_output(script)).strip()
    name = str(host.check_output("ls %s | grep -E '^nvme[0-9]+n[0-9]+$'", controller)).strip()
    return f"/sys/block/{name}/queue"


def queue(host: Any, node: int, *names: str) -> Dict[str, str]:
    folder = drive(host, node)
    return {name: (chosen if name == "scheduler" else text)(host, f"{folder}/{name}") for name in names}


def gpus(host: Any) -> List[Dict[str, Any]]:
    """The GPUs as the simulated driver has them; power in milliwatts, clocks in MHz, modes as NVML numbers them."""
    described: List[Dict[str, Any]] = json.loads(host.check_output("nvml-sim describe --json"))["gpus"]
    return described


def assert_gpus_as_declared(host: Any, *, ecc: bool) -> None:
    """``ecc``: whether the GPU that shall have none was reset since it was told so."""
    found = gpus(host)
    assert all(gpu["daemon_pid"] for gpu in found)
    assert [gpu["power_limit"] for gpu in found] == [300_000, *[350_000] * 7]
    assert [gpu["compute_mode"] for gpu in found] == [EXCLUSIVE_PROCESS, *[0] * 7]
    assert [(gpu["locked_graphics_min"], gpu["locked_graphics_max"]) for gpu in found] == [
        (900, 1200),
        *[(None, None)] * 7,
    ]
    assert [gpu["ecc_pending"] for gpu in found] == [1, 1, 1, 1, 1, 0, 1, 1]
    assert found[5]["ecc"] == int(not ecc)


def assert_divided_as_declared(host: Any) -> None:
    """What two clients of the driver that know nothing of the collection list."""
    listed = json.loads(host.check_output("python3 /root/mig_devices.py"))
    assert {int(index): devices for index, devices in listed.items()} == MIG_DEVICES
    for index, devices in MIG_DEVICES.items():
        profiles = host.check_output(f"nvidia-smi -L -i {index} | awk '$1 == \"MIG\" {{print $2}}'").split()
        assert sorted(profiles) == [device.partition("@")[0] for device in devices]
    modes = host.check_output("nvidia-smi --query-gpu=mig.mode.current,mig.mode.pending --format=csv,noheader")
    enabled = [f"{mode}, {mode}" for mode in ("Disabled", "Enabled")]
    assert modes.splitlines() == [enabled[index in MIG_DEVICES] for index in range(8)]


def assert_interrupts_as_declared(host: Any) -> None:
    """On CPUs next to their devices, also of those that came a moment ago."""
    looked = host.run("python3 /root/interrupts.py right 4")
    assert looked.rc == 0, looked.stdout + looked.stderr


def assert_as_declared(host: Any) -> None:
    """Everything that ``inventory/fleet.yml`` declares and that needs no reboot."""
    assert pages(host, 2048) == {0: 48, 1: 16}
    assert chosen(host, f"{THP}/enabled") == "madvise"
    assert chosen(host, f"{THP}/defrag") == "defer+madvise"
    assert chosen(host, f"{THP}/shmem_enabled") == "advise"
    assert text(host, f"{THP}/khugepaged/pages_to_scan") == "2048"
    assert queue(host, 1, "scheduler", "read_ahead_kb", "nr_requests") == {
        "scheduler": "mq-deadline",
        "read_ahead_kb": "256",
        "nr_requests": "48",
    }
    assert queue(host, 0, "scheduler", "read_ahead_kb", "rq_affinity", "nomerges", "max_sectors_kb") == {
        "scheduler": "none",
        "read_ahead_kb": "4096",
        "rq_affinity": "2",
        "nomerges": "1",
        "max_sectors_kb": "128",
    }
