# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parts of gpu_node_info one by one: the tree of PCI, links, NUMA nodes, interrupts, services, health."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._linux import pci
from ansible_collections.gpufleet.node.plugins.module_utils._node.facts import driver as info_driver
from ansible_collections.gpufleet.node.plugins.module_utils._node.facts import gpus as info_gpus
from ansible_collections.gpufleet.node.plugins.module_utils._node.facts import health as info_health
from ansible_collections.gpufleet.node.plugins.module_utils._node.facts import interrupts, owners, services, topology
from ansible_collections.gpufleet.node.plugins.module_utils._node.facts import pci as info_pci
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity import devices as irq_devices
from ansible_collections.gpufleet.node.tests.unit.node.facts_machine import Trees, quiet_host
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build

ROOT = "/sys/devices/pci0000:15/0000:15:01.0"
SWITCH = f"{ROOT}/0000:16:00.0"
DEVICE = f"{SWITCH}/0000:17:00.0/0000:18:00.0"


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Trees:
    return Trees(tmp_path_factory.mktemp("trees"))


# --- the tree of PCI --------------------------------------------------------------------------------------------------


def test_the_chain_of_a_device_goes_from_the_host_bridge_through_every_bridge() -> None:
    assert pci.chain(f"{DEVICE}/net/eth0") == (
        "pci0000:15",
        "0000:15:01.0",
        "0000:16:00.0",
        "0000:17:00.0",
        "0000:18:00.0",
    )
    # Behind a volume management device there is a second host bridge.
    vmd = "/sys/devices/pci0000:97/0000:97:00.5/pci10000:80/10000:80:01.0/10000:81:00.0"
    assert pci.chain(vmd) == ("pci0000:97", "0000:97:00.5", "pci10000:80", "10000:80:01.0", "10000:81:00.0")


@pytest.mark.parametrize(
    ("other", "same_node", "level"),
    [
        (f"{SWITCH}/0000:17:00.0/0000:18:00.1", True, "PIX"),
        (f"{SWITCH}/0000:17:04.0/0000:1b:00.0", True, "PIX"),
        (f"{SWITCH}/0000:17:04.0/0000:1b:00.0/0000:1c:02.0/0000:1d:00.0", True, "PXB"),
        ("/sys/devices/pci0000:15/0000:15:05.0/0000:29:00.0", True, "PHB"),
        ("/sys/devices/pci0000:3d/0000:3d:01.0/0000:3e:00.0", True, "NODE"),
        ("/sys/devices/pci0000:97/0000:97:01.0/0000:98:00.0", False, "SYS"),
        ("/sys/devices/pci0000:97/0000:97:01.0/0000:98:00.0", None, None),
        ("/sys/devices/pci0000:15/0000:15:05.0/0000:29:00.0", None, "PHB"),
    ],
)
def test_the_distance_is_the_highest_thing_on_the_way(
    other: str, same_node: Optional[bool], level: Optional[str]
) -> None:
    for one, two in ((DEVICE, other), (other, DEVICE)):
        assert pci.distance(pci.chain(one), pci.chain(two), same_node=same_node) == level


def device(kind: str = info_pci.NVME, path: str = DEVICE) -> info_pci.PciDevice:
    return info_pci.PciDevice(kind, "0000:18:00.0", path, pci.chain(path), "0x10de", "0x2330", "driver", ())


def link_files(now: Tuple[str, str], most: Tuple[str, str], slot: Tuple[str, str]) -> Dict[str, str]:
    above = DEVICE.rpartition("/")[0]
    return {
        f"{DEVICE}/current_link_speed": now[0],
        f"{DEVICE}/current_link_width": now[1],
        f"{DEVICE}/max_link_speed": most[0],
        f"{DEVICE}/max_link_width": most[1],
        f"{above}/max_link_speed": slot[0],
        f"{above}/max_link_width": slot[1],
    }


G3, G4, G5, G6 = "8.0 GT/s PCIe\n", "16.0 GT/s PCIe\n", "32.0 GT/s PCIe\n", "64.0 GT/s PCIe\n"


@pytest.mark.parametrize(
    ("kind", "idle", "now", "most", "slot", "degraded", "causes"),
    [
        ("nvme", False, (G4, "4"), (G4, "4"), (G5, "4"), False, []),
        ("nvme", False, (G3, "4"), (G4, "4"), (G3, "4"), True, ["slow"]),
        ("nvme", False, (G4, "2"), (G4, "4"), (G4, "4"), True, ["narrow"]),
        ("nic", False, (G3, "8"), (G5, "16"), (G5, "8"), True, ["slow", "narrow"]),
        ("gpu", True, (G3, "16"), (G5, "16"), (G5, "16"), False, []),
        ("gpu", False, (G3, "16"), (G5, "16"), (G5, "16"), True, ["slow"]),
        ("gpu", True, (G3, "8"), (G5, "16"), (G5, "16"), True, ["narrow"]),
        ("gpu", False, (G5, "16"), (G6, "16"), (G5, "16"), False, []),
        ("nic", False, ("Unknown\n", "0"), (G5, "16"), (G5, "16"), None, []),
        ("nic", False, ("Unknown\n", "8"), (G5, "16"), (G5, "16"), True, ["narrow"]),
    ],
)
def test_a_link_is_degraded_when_it_could_be_better(
    tmp_path: Path,
    kind: str,
    idle: bool,
    now: Tuple[str, str],
    most: Tuple[str, str],
    slot: Tuple[str, str],
    degraded: Optional[bool],
    causes: List[str],
) -> None:
    host = build(tmp_path, link_files(now, most, slot))
    link = info_pci.read_link(host.files, device(kind), idle=idle)
    assert (link["degraded"], link["causes"]) == (degraded, causes)
    if now[0] == "Unknown\n":
        assert link["unavailable"]["speed_gts"] == f"{DEVICE}/current_link_speed says 'Unknown'"
    assert bool(link["note"]) == (idle and now[0] != most[0])


def test_a_screen_of_another_maker_is_no_gpu(trees: Trees) -> None:
    files = quiet_host(trees("hgx-2socket")).files
    devices = info_pci.read_devices(files)
    assert "0000:03:00.0" in files.names("/sys/bus/pci/devices")
    assert [entry.kind for entry in devices if entry.address == "0000:03:00.0"] == []
    assert [len([entry for entry in devices if entry.kind == kind]) for kind in ("gpu", "nic", "nvme")] == [8, 12, 8]


def test_lost_gpus_are_those_of_the_bus_that_nobody_else_claims() -> None:
    def answer(index: int, address: str = "") -> Dict[str, Any]:
        return {"index": index, "pci_address": address, "lost": "" if address else "gone"}

    bus = [info_pci.PciDevice("gpu", f"0000:0{n}:00.0", "", (), "", "", None, ()) for n in range(3)]
    found = info_gpus.by_address([answer(0, "0000:00:00.0"), answer(1), answer(2, "0000:02:00.0")], bus)
    assert found["0000:01:00.0"]["index"] == 1
    found = info_gpus.by_address([answer(0, "0000:00:00.0"), answer(1)], bus)
    assert sorted(found) == ["0000:00:00.0", "lost GPU 1"]


# --- NUMA nodes -------------------------------------------------------------------------------------------------------

LINKS: Dict[str, Dict[str, Any]] = {"0000:18:00.0": {}}
TWO_NODES = {
    "/sys/devices/system/node/node0/cpulist": "0-3\n",
    "/sys/devices/system/node/node0/distance": "10 21 40\n",
    "/sys/devices/system/node/node1/cpulist": "4-7\n",
    "/sys/devices/system/node/node1/distance": "21 10 80\n",
    "/sys/devices/system/node/node2/cpulist": "\n",
    "/sys/devices/system/node/node2/distance": "80 40 10\n",
}


@pytest.mark.parametrize(
    ("driver", "numa_node", "local", "expected"),
    [
        ({"numa_node": 2, "cpus": "0-3"}, 1, "4-7", (2, "nvml_numa_id", "0-3", "nvml_cpu_affinity", 0)),
        ({"numa_node": None, "cpus": "4-7"}, 0, "0-3", (1, "nvml_cpu_affinity", "4-7", "nvml_cpu_affinity", 1)),
        ({"numa_node": None, "cpus": "3-6"}, 0, "0-3", (1, "nvml_cpu_affinity", "3-6", "nvml_cpu_affinity", 1)),
        # The CPUs of all nodes together name none.
        ({"numa_node": None, "cpus": "0-7"}, 0, "0-3", (0, "sysfs_numa_node", "0-7", "nvml_cpu_affinity", 0)),
        ({"numa_node": 9, "cpus": ""}, 1, "4-7", (1, "sysfs_numa_node", "4-7", "sysfs_local_cpulist", 1)),
        ({}, 1, "4-7", (1, "sysfs_numa_node", "4-7", "sysfs_local_cpulist", 1)),
        ({}, -1, "4-7", (1, "sysfs_local_cpulist", "4-7", "sysfs_local_cpulist", 1)),
        # Memory alone: the CPUs are those of the nearest node that has any.
        ({}, 2, "", (2, "sysfs_numa_node", "4-7", "numa_node", 1)),
        ({}, -1, "0-7", (None, None, "0-7", "sysfs_local_cpulist", None)),
        ({}, -1, "", (None, None, None, None, None)),
    ],
)
def test_the_node_of_a_device_is_told_by_the_first_source_that_knows(
    tmp_path: Path,
    driver: Mapping[str, Any],
    numa_node: int,
    local: str,
    expected: Tuple[Optional[int], Optional[str], Optional[str], Optional[str], Optional[int]],
) -> None:
    own = {f"{DEVICE}/numa_node": f"{numa_node}\n", f"{DEVICE}/local_cpulist": f"{local}\n"}
    host = build(tmp_path, {**TWO_NODES, **own})
    facts = topology.gather(host.files, [device("gpu")], LINKS, {"0000:18:00.0": {"place": dict(driver)}})
    found = facts["devices"][0]
    assert tuple(found[key] for key in ("numa_node", "numa_source", "cpus", "cpus_source", "cpu_node")) == expected
    if expected[0] is None:
        assert found["unavailable"]["numa_node"] == "neither the driver nor the firmware reports its node"


def test_what_is_no_list_of_cpus_and_no_distance_is_null_with_its_reason(tmp_path: Path) -> None:
    folder = "/sys/devices/system/node/node0"
    garbage = {
        f"{folder}/cpulist": "no-such\n",
        f"{folder}/distance": "x\n",
        f"{DEVICE}/local_cpulist": "0-9999999999\n",
    }
    host = build(tmp_path, {**TWO_NODES, **garbage})
    facts = topology.gather(host.files, [device("gpu")], LINKS, {})
    first = facts["nodes"][0]
    assert (first["cpus"], first["distances"]) == (None, None)
    assert first["unavailable"] == {
        "cpus": f"{folder}/cpulist says 'no-such'",
        "distances": f"{folder}/distance says 'x'",
    }
    assert facts["nodes"][1]["cpus"] == "4-7"
    assert facts["devices"][0]["numa_node"] is None


def test_devices_below_different_host_bridges_of_an_unknown_node_have_no_distance(tmp_path: Path) -> None:
    other = "/sys/devices/pci0000:97/0000:97:01.0/0000:98:00.0"
    pair = [device("gpu"), device("nic", other)]
    distances = topology.gather(build(tmp_path / "two", TWO_NODES).files, pair, LINKS, {})["distances"]
    assert distances[0]["level"] is None
    assert distances[0]["unavailable"]["level"].endswith("the NUMA node of one is not known")
    # A kernel without nodes has one memory for all.
    assert topology.gather(build(tmp_path / "none", {}).files, pair, LINKS, {})["distances"][0]["level"] == "NODE"


# --- interrupts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "number", "name"),
    [
        ("  28:          0         14  IR-PCI-MSIX-0000:1b:00.0    0-edge      nvidia", 28, "nvidia"),
        (" 301:  904113  PCI-MSI 524289-edge      nvme0q1", 301, "nvme0q1"),
        ("  16:  3  0  IR-IO-APIC   16-fasteoi   ehci_hcd:usb1, snd", 16, "ehci_hcd:usb1, snd"),
        (" 171:   904113 ITS-PCI-MSIX-0000:01:00.0   1 Edge      mlx5_comp0@pci:0000:01:00.0", 171,
         "mlx5_comp0@pci:0000:01:00.0"),
        ("  11: 40112233 GICv3  27 Level     arch_timer", 11, "arch_timer"),
        ("  35:          0          7  PCI-MSIX-0000:00:02.0   0-edge", 35, None),
        ("  12:          9 GICv3  30 Level", 12, None),
    ],
)  # fmt: skip
def test_the_handler_stands_at_the_end_of_a_line(line: str, number: int, name: Optional[str]) -> None:
    text = f"           CPU0       CPU1\n{line}\n NMI:   1   2   Non-maskable interrupts\n ERR:          0\n"
    assert interrupts.parse_handlers(text) == {number: name}


def test_interrupts_are_read_once_and_only_those_of_the_devices(trees: Trees) -> None:
    files = quiet_host(trees("single-socket")).files
    devices = info_pci.read_devices(files)
    files.reads.clear()
    facts = interrupts.gather(files, devices)
    asked = [path for path in files.reads if path.startswith(("/proc/interrupts", "/proc/irq/"))]
    numbers = [irq["irq"] for entry in facts["devices"] for irq in entry["irqs"]]
    assert sorted(asked) == sorted(
        [
            "/proc/interrupts",
            "/proc/irq/default_smp_affinity",
            *(f"/proc/irq/{number}/smp_affinity_list" for number in numbers),
        ]
    )
    assert 8 not in numbers
    assert facts["total"] == 6


def test_a_device_with_a_line_of_its_own_has_that_interrupt(tmp_path: Path) -> None:
    host = build(
        tmp_path,
        {
            f"{DEVICE}/irq": "16\n",
            "/proc/interrupts": "  CPU0\n  16:  3  IO-APIC  16-fasteoi   nvme0q0\n",
            "/proc/irq/16/smp_affinity_list": "0-1\n",
        },
    )
    irqs = interrupts.gather(host.files, [device()])["devices"][0]["irqs"]
    assert [(irq["irq"], irq["name"], irq["cpus"], irq["managed"]) for irq in irqs] == [(16, "nvme0q0", "0-1", "")]


def test_an_interrupt_says_why_nobody_can_move_it(tmp_path: Path) -> None:
    names = {20: "nvme0q0", 21: "nvme0q1", 22: "virtio1-req.0", 23: "nvidia", 24: "nvidia", 25: None}
    lines = (f" {number}:  3  PCI-MSIX-0000:01:00.0   0-edge      {name or ''}" for number, name in names.items())
    tree = {"/proc/interrupts": "  CPU0\n" + "".join(f"{line.rstrip()}\n" for line in lines)}
    for number in names:
        tree[f"{DEVICE}/msi_irqs/{number}"] = "msix\n"
        tree[f"/proc/irq/{number}/smp_affinity_list"] = "0-1\n"
    refused = {(device().address, irq_devices.setting_of("nvidia#2")): irq_devices.REFUSED}
    host = build(tmp_path, {**tree, irq_devices.NOTE: irq_devices.note_text(refused)})
    (tmp_path / "proc/irq/22/smp_affinity_list").chmod(0o444)
    (tmp_path / "proc/irq/25/smp_affinity_list").unlink()
    irqs = interrupts.gather(host.files, [device()])["devices"][0]["irqs"]
    assert {irq["irq"]: irq["managed"] for irq in irqs} == {
        20: "",
        21: irq_devices.QUEUE,
        22: irq_devices.READ_ONLY,
        23: "",
        24: irq_devices.REFUSED,
        25: None,
    }
    assert irqs[5]["unavailable"]["managed"] == "there is no /proc/irq/25/smp_affinity_list"


def test_a_line_of_several_drivers_cannot_be_moved_for_one_of_them(tmp_path: Path) -> None:
    host = build(
        tmp_path,
        {
            f"{DEVICE}/irq": "16\n",
            "/proc/interrupts": "  CPU0\n  16:  3  IO-APIC  16-fasteoi   ehci_hcd:usb1, eth0\n",
            "/proc/irq/16/smp_affinity_list": "0-1\n",
        },
    )
    (irq,) = interrupts.gather(host.files, [device()])["devices"][0]["irqs"]
    assert irq["managed"] == irq_devices.SHARED


# --- driver, services, owners -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "fits"),
    [("580.65.06", 13), ("595.45.04", 13), ("550.54.15", 12), ("525.60.13", 12), ("470.57.02", 11), ("418.40", 10)],
)
def test_a_driver_runs_the_cuda_versions_of_its_branch(tmp_path: Path, version: str, fits: int) -> None:
    host = build(tmp_path, {"/sys/module/nvidia/version": f"{version}\n"})
    facts = info_driver.gather(host.files, {}, [], "the driver is silent")
    assert (facts["branch"], facts["cuda_fit"]) == (int(version.split(".")[0]), fits)


@pytest.mark.parametrize(
    ("text", "is_open"),
    [
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  (dvs-builder)\n", True),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\n", False),
    ],
)
def test_the_kernel_module_is_the_open_one_or_not(tmp_path: Path, text: str, is_open: bool) -> None:
    facts = info_driver.gather(build(tmp_path, {"/proc/driver/nvidia/version": text}).files, {}, [], "")
    assert (facts["kernel_module_version"], facts["kernel_module_open"]) == ("550.54.15", is_open)


CHECKPOINT = (
    *("/usr/local/bin/cuda-checkpoint", "/usr/sbin/criu", "/usr/lib/criu/cuda_plugin.so", "/usr/lib64/libcuda.so.1"),
    "/proc/driver/nvidia/gpus/0000:1b:00.0/information",
)
CRIU = "Package: criu\nStatus: install ok installed\nVersion: {}\n"


@pytest.mark.parametrize(
    ("version", "persistence", "removed", "criu", "lacking"),
    [
        ("570.86.10", [True, True], "", "4.1-1", []),
        ("555.42.06", [True], "", None, []),
        ("570.86.10", [True, False], "", "4.1-1", ["persistence mode"]),
        ("570.86.10", [], "", "4.1-1", ["persistence mode"]),
        # It has the toggle, and not the steps that CRIU takes.
        ("550.54.15", [True], "", "4.1-1", ["a driver from R555"]),
        ("570.86.10", [True], "/usr/sbin/criu", None, ["CRIU"]),
        ("570.86.10", [True], "/usr/local/bin/cuda-checkpoint", None, ["cuda-checkpoint"]),
        ("570.86.10", [True], "/usr/lib/criu/cuda_plugin.so", None, ["the plugin of CRIU for CUDA"]),
        ("570.86.10", [True], "/usr/lib64/libcuda.so.1", None, ["libcuda.so.1"]),
        ("570.86.10", [True], "/proc/driver/nvidia/gpus", None, ["a GPU in /proc/driver/nvidia/gpus"]),
        # That of Debian 12.
        ("570.86.10", [True], "", "3.17.1-2", ["CRIU 4.0 or newer"]),
    ],
)
def test_a_checkpoint_takes_what_cuda_checkpoint_and_criu_need(
    tmp_path: Path, version: str, persistence: List[bool], removed: str, criu: Optional[str], lacking: List[str]
) -> None:
    files = {path: "" for path in CHECKPOINT if not (removed and path.startswith(removed))}
    host = build(tmp_path, {**files, **({"/var/lib/dpkg/status": CRIU.format(criu)} if criu else {})})
    gpus = [{"persistence": on} for on in persistence]
    found = info_driver.gather(host.files, {"version": version}, gpus, "")["checkpoint"]
    assert (found["lacking"], found["ready"]) == (lacking, not lacking)
    assert found["criu_version"] == criu
    assert found["toggle"] is True
    assert found["nvml_programs"] is (version >= "570")


def test_a_masked_service_is_not_installed_and_without_control_groups_nobody_knows_what_runs(tmp_path: Path) -> None:
    host = build(
        tmp_path,
        {"/usr/lib/systemd/system/kubelet.service": "", "/dev/null": ""},
        {"/etc/systemd/system/kubelet.service": "/dev/null"},
    )
    facts = services.service(host.files, "kubelet")
    assert (facts["unit"], facts["running"]) == (None, None)
    assert facts["unavailable"]["running"] == "the control groups of the system are not visible from here"
    build(tmp_path, {"/sys/fs/cgroup/system.slice/kubelet.service/cgroup.procs": "12\n"})
    assert services.service(host.files, "kubelet")["running"] is True
    assert services.service(host.files, "slurmd")["running"] is False


PACKAGES = """Package: docker-ce-cli
Status: install ok installed
Version: 1

Package: docker-ce
Status: hold ok installed
Priority: optional
Version: 5:28.1.1-1

Package: containerd.io
Status: deinstall ok config-files
Version: 1.7.27-1
"""


def test_the_version_of_an_engine_is_that_of_its_installed_package(tmp_path: Path) -> None:
    binaries = dict.fromkeys(("/usr/bin/dockerd", "/usr/bin/containerd", "/usr/local/bin/k3s"), "")
    host = build(tmp_path, {**binaries, "/var/lib/dpkg/status": PACKAGES})
    found = {engine["name"]: engine for engine in services.engines(host.files)}
    assert {name: engine["version"] for name, engine in found.items()} == {
        "docker": "5:28.1.1-1",
        "containerd": None,
        "k3s": None,
    }
    assert found["k3s"]["binary"] == "/usr/local/bin/k3s"
    assert host.files.reads.count("/var/lib/dpkg/status") == 1


def owners_on(root: Path) -> List[Tuple[str, str, str]]:
    facts = owners.gather(quiet_host(root).files)
    return [(row["owner"], row["setting"], row["value"]) for row in facts]


def test_other_owners_are_named_with_what_they_set(trees: Trees) -> None:
    found = owners_on(trees("conflicts"))
    assert ("sysctl.d", "/proc/sys/vm/nr_hugepages", "2048") in found
    assert ("tmpfiles.d", "/sys/kernel/mm/transparent_hugepage/enabled", "always") in found
    assert ("udev", "scheduler", "kyber") in found
    assert ("kernel command line", "hugepages", "1024") in found


def test_a_tuned_that_runs_owns_what_its_profile_sets(trees: Trees) -> None:
    found = owners_on(trees("rhel9-bls"))
    assert found[:3] == [
        ("tuned", "profile", "gpu-node"),
        ("tuned", "vm transparent_hugepages", "always"),
        ("tuned", "sysctl vm.nr_hugepages", "512"),
    ]


def test_our_own_files_are_no_other_owner(tmp_path: Path) -> None:
    ours = {
        "/etc/tmpfiles.d/00-gpufleet-hugepages.conf": "w! /sys/kernel/mm/transparent_hugepage/enabled - - - - never\n",
        "/etc/udev/rules.d/99-gpufleet-nvme_scheduler.rules": 'ACTION=="add", ATTR{queue/scheduler}="none"\n',
    }
    assert owners.gather(build(tmp_path, ours).files) == []


# --- health -----------------------------------------------------------------------------------------------------------

GOOD: Dict[str, Any] = {
    "ecc_volatile_uncorrected": 0,
    "remapped_rows": {"correctable": 3, "uncorrectable": 1, "pending": False, "failure": False},
    "retired_pages_pending": False,
    "throttle_reasons": ["gpu_idle", "sw_power_cap"],
    "nvlinks": {"total": 18, "inactive": []},
    "fabric": {"state": "completed", "status": 0, "ready": True},
    "mig": False,
}
GPU = device("gpu")


def health(change: Mapping[str, Any], log: str = "", status: int = 0) -> Dict[str, Any]:
    host = FakeHost(Path("/nonexistent"))
    host.commands.programs["dmesg"] = lambda _argv: Completed(status, log, "")
    answers = {GPU.address: {"lost": "", "health": {**GOOD, **change}}}
    return info_health.gather(host.commands, host.files, [GPU], answers, "", root=True)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"ecc_volatile_uncorrected": 2}, "2 uncorrected memory errors since the driver was loaded"),
        ({"remapped_rows": {"failure": True}}, "a row of its memory could not be remapped"),
        ({"remapped_rows": {"pending": True}}, "a row of its memory is remapped at the next reset"),
        ({"retired_pages_pending": True}, "pages of its memory are retired at the next reset"),
        ({"nvlinks": {"total": 18, "inactive": [3, 7]}}, "NVLinks 3, 7 are inactive"),
        ({"fabric": {"state": "in_progress", "status": 0, "ready": False}}, "its fabric is in_progress, status 0"),
        ({"throttle_reasons": ["hw_thermal_slowdown"]}, "its clocks are throttled: hw_thermal_slowdown"),
    ],
)
def test_a_sick_gpu_says_what_is_wrong_with_it(change: Mapping[str, Any], problem: str) -> None:
    gpu = health(change)["gpus"][0]
    assert (gpu["healthy"], gpu["problems"]) == (False, [problem])


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"nvlinks": {"total": 18, "inactive": [3]}, "mig": True},
        {"nvlinks": {"total": 4, "inactive": [0, 1, 2, 3]}},
        {"nvlinks": None, "fabric": None, "remapped_rows": None, "retired_pages_pending": None},
    ],
)
def test_what_a_gpu_does_not_have_or_has_switched_off_is_no_problem(change: Mapping[str, Any]) -> None:
    gpu = health(change)["gpus"][0]
    assert (gpu["healthy"], gpu["problems"]) == (True, [])


LOG = """[    3.1] nvidia 0000:18:00.0: enabling device
[  812.4] NVRM: Xid (PCI:0000:18:00): 31, pid=4711, name=python3, Ch 00000008
[  900.0] NVRM: Xid (PCI:0000:18:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
[  900.1] NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.
[  901.0] NVRM: Xid (PCI:0000:2A:00): 48, DBE (double bit error) ECC Error
"""


def test_xid_errors_are_counted_and_those_that_mean_a_sick_gpu_are_a_problem_of_it() -> None:
    facts = health({}, LOG)
    assert [(xid["pci_address"], xid["xid"], xid["count"]) for xid in facts["xids"]] == [
        ("0000:18:00.0", 31, 1),
        ("0000:18:00.0", 79, 2),
        ("0000:2a:00.0", 48, 1),
    ]
    assert facts["xids"][1]["last"] == "GPU has fallen off the bus."
    assert facts["gpus"][0]["problems"] == ["Xid 79 since boot, 2 times"]


def test_a_log_that_cannot_be_read_is_no_log_without_errors() -> None:
    facts = health({}, status=1)
    assert facts["xids"] is None
    assert facts["unavailable"]["xids"] == "dmesg failed with status 1"
