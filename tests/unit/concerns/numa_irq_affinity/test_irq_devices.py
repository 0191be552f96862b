# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Reading CPUs, devices and interrupts: what the kernel's files say is what comes out, and nothing else is read."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._linux.numa import read_distances
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity import devices
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity.model import (
    IrqDevice,
    Processors,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity.processors import read_processors
from ansible_collections.gpufleet.node.tests.nodes import nodetree
from ansible_collections.gpufleet.node.tests.nodes.nodetree import FILE, Entry
from ansible_collections.gpufleet.node.tests.unit.concerns.numa_irq_affinity import irq_trees as trees
from ansible_collections.gpufleet.node.tests.unit.concerns.numa_irq_affinity.irq_trees import irq
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost

TWO_NODES = trees.cpus("0-7", nodes={0: "0-3", 1: "4-7"}, distances={0: "10 21", 1: "21 10"})
ADDRESS = "0000:17:00.0"


def found(host: FakeHost, *, others: bool = False) -> Tuple[IrqDevice, ...]:
    processors = read_processors(host.files)
    return devices.complete(host.files, devices.find(host.files, processors, others=others))


def only(root: Path, *more: nodetree.Tree, **function: Any) -> IrqDevice:
    """The one device of a machine with two nodes of four CPUs."""
    code, irqs = function.pop("code", trees.NETWORK), function.pop("irqs", ())
    host = trees.machine(root, TWO_NODES, trees.function(ADDRESS, code, *irqs, **function), *more)
    (device,) = found(host)
    return device


# CPUs


def test_cpus_are_read_with_their_cores_and_nodes(tmp_path: Path) -> None:
    host = trees.machine(tmp_path, trees.two_sockets())
    processors = read_processors(host.files)
    assert processors.online == processors.possible == frozenset(range(16))
    assert processors.isolated == frozenset()
    assert processors.siblings == tuple(frozenset((core, core + 8)) for core in range(8))
    assert processors.nodes == (
        (0, frozenset((0, 1, 2, 3, 8, 9, 10, 11))),
        (1, frozenset((4, 5, 6, 7, 12, 13, 14, 15))),
    )
    assert read_distances(host.files, 1) == {0: 21, 1: 10}


def test_offline_cpus_are_possible_and_in_no_core_or_node(tmp_path: Path) -> None:
    tree = trees.cpus("0,2-3", possible="0-3", nodes={0: "0-3"}, siblings=[(0, 1), (2, 3)])
    processors = read_processors(trees.machine(tmp_path, tree).files)
    assert processors == Processors(
        online=frozenset((0, 2, 3)),
        possible=frozenset(range(4)),
        isolated=frozenset(),
        siblings=(frozenset((0,)), frozenset((2, 3))),
        nodes=((0, frozenset((0, 2, 3))),),
    )


@pytest.mark.parametrize(
    ("isolated", "nohz_full", "expected"),
    [("", "(null)", set()), ("2-3", "(null)", {2, 3}), ("", "3", {3}), ("2", "3,5-6", {2, 3, 5, 6})],
)
def test_cpus_without_a_scheduler_or_a_tick_are_isolated(
    tmp_path: Path, isolated: str, nohz_full: str, expected: set
) -> None:
    host = trees.machine(tmp_path, trees.cpus(isolated=isolated, nohz_full=nohz_full))
    assert read_processors(host.files).isolated == expected


def test_without_smt_no_core_is_asked_and_with_it_one_thread_of_each(tmp_path: Path) -> None:
    without = trees.machine(tmp_path / "without", trees.cpus("0-99"))
    assert read_processors(without.files).siblings == tuple(frozenset((cpu,)) for cpu in range(100))
    assert not any("topology" in path for path in without.files.reads)
    having = trees.machine(tmp_path / "with", trees.two_sockets())
    read_processors(having.files)
    assert len([path for path in having.files.reads if "topology" in path]) == 8


def test_a_kernel_that_tells_little_has_cores_of_one_thread_and_no_nodes(tmp_path: Path) -> None:
    host = trees.machine(tmp_path, {f"{trees.CPU}/online": Entry(FILE, "0-1\n")})
    assert read_processors(host.files) == Processors(
        online=frozenset((0, 1)),
        possible=frozenset((0, 1)),
        isolated=frozenset(),
        siblings=(frozenset((0,)), frozenset((1,))),
        nodes=(),
    )
    assert read_distances(host.files, 0) == {}


# Classes


@pytest.mark.parametrize(
    ("code", "vendor", "kind"),
    [
        (trees.GPU, trees.NVIDIA, "gpu"),
        (trees.VGA, trees.NVIDIA, "gpu"),
        (trees.VGA, "0x1a03", "other"),
        ("0x068000", trees.NVIDIA, "other"),
        (trees.NETWORK, trees.MELLANOX, "network"),
        (trees.WIRELESS, trees.MELLANOX, "network"),
        (trees.INFINIBAND, trees.MELLANOX, "infiniband"),
        (trees.NVME, trees.OTHER_VENDOR, "nvme"),
        ("0x010801", trees.OTHER_VENDOR, "storage"),
        (trees.SATA, trees.OTHER_VENDOR, "storage"),
        (trees.SCSI, "0x1af4", "storage"),
        (trees.USB, trees.OTHER_VENDOR, "other"),
        (trees.BRIDGE, trees.OTHER_VENDOR, "other"),
    ],
)
def test_a_device_is_called_by_its_pci_class(tmp_path: Path, code: str, vendor: str, kind: str) -> None:
    host = trees.machine(tmp_path, TWO_NODES, trees.function(ADDRESS, code, vendor=vendor))
    assert [device.kind for device in found(host, others=True)] == [kind]
    assert [device.kind for device in found(host)] == ([kind] if kind != "other" else [])


def test_devices_come_by_address_with_driver_and_interfaces(tmp_path: Path) -> None:
    host = trees.machine(tmp_path, trees.two_sockets())
    assert [(device.address, device.kind, device.driver, device.name, device.node) for device in found(host)] == [
        ("0000:02:00.0", "gpu", "nvidia", "0000:02:00.0", 0),
        ("0000:03:00.0", "infiniband", "mlx5_core", "ib0", 0),
        ("0000:04:00.0", "network", "ice", "eth0", 0),
        ("0000:05:00.0", "nvme", "nvme", "0000:05:00.0", 0),
        ("0001:02:00.0", "gpu", "nvidia", "0001:02:00.0", 1),
        ("0001:03:00.0", "infiniband", "mlx5_core", "ib1", 1),
        ("0001:04:00.0", "network", "ice", "eth1", 1),
        ("0001:05:00.0", "nvme", "nvme", "0001:05:00.0", 1),
    ]


def test_a_card_without_a_driver_has_neither_driver_nor_interrupts(tmp_path: Path) -> None:
    device = only(tmp_path)
    assert (device.driver, device.interfaces, device.interrupts) == ("", (), ())


def test_the_interface_of_a_virtio_card_is_found_below_its_virtio_device(tmp_path: Path) -> None:
    irqs = (irq(30, "virtio3-config"), irq(31, "virtio3-input.0"), irq(32, "virtio3-output.0"))
    device = only(tmp_path, driver="virtio-pci", below={"virtio3": ["ens3"]}, irqs=irqs)
    assert device.name == "ens3"
    assert [interrupt.name for interrupt in device.interrupts] == [
        "virtio3-config",
        "virtio3-input.0",
        "virtio3-output.0",
    ]


def test_the_interface_of_a_scalable_function_is_one_of_the_function_above_it(tmp_path: Path) -> None:
    device = only(tmp_path, driver="mlx5_core", net=["eth0"], below={"mlx5_core.sf.4": ["eth0s88"]})
    assert device.interfaces == ("eth0", "eth0s88")
    assert device.name == ADDRESS


def test_a_function_that_vanishes_while_it_is_read_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = trees.machine(tmp_path, TWO_NODES, trees.function(ADDRESS, trees.NETWORK))
    listed = host.files.names

    def with_a_ghost(path: str) -> Tuple[str, ...]:
        return (*listed(path), "0000:99:00.0") if path == trees.PCI else listed(path)

    monkeypatch.setattr(host.files, "names", with_a_ghost)
    assert [device.address for device in found(host)] == [ADDRESS]


def test_a_function_that_is_there_and_cannot_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = trees.machine(tmp_path, TWO_NODES, trees.function(ADDRESS, trees.NETWORK))
    read = host.files.read

    def refuses(path: str) -> str:
        if path.endswith("/class"):
            raise PermissionError(13, "Permission denied", path)
        return read(path)

    monkeypatch.setattr(host.files, "read", refuses)
    with pytest.raises(PermissionError):
        found(host)


# Places

MEMORY_NODE = trees.cpus("0-7", nodes={0: "0-3", 1: "4-7", 2: ""}, distances={2: "80 40 10"})
NO_CPUS_ON_ONE = trees.cpus("0-3", possible="0-7", nodes={0: "0-3", 1: ""}, distances={1: "21 10"})
UNKNOWN_DISTANCE = trees.cpus("0-7", nodes={0: "0-7", 1: ""})
NO_NUMA = trees.cpus("0-7")


@pytest.mark.parametrize(
    ("machine", "node", "local", "expected"),
    [
        pytest.param(TWO_NODES, 1, "4-7", (1, {4, 5, 6, 7}), id="the node that the firmware tells"),
        pytest.param(TWO_NODES, 1, "", (1, {4, 5, 6, 7}), id="without the list of CPUs"),
        pytest.param(TWO_NODES, None, "4-7", (1, {4, 5, 6, 7}), id="by the list of CPUs"),
        pytest.param(TWO_NODES, None, "0,4-6", (1, {4, 5, 6, 7}), id="by most of its CPUs"),
        pytest.param(TWO_NODES, None, "0-7", (None, set(range(8))), id="nobody tells"),
        pytest.param(TWO_NODES, 9, "0-7", (None, set(range(8))), id="a node that there is not"),
        pytest.param(NO_NUMA, None, "0-7", (None, set(range(8))), id="no NUMA"),
        pytest.param(MEMORY_NODE, 2, "", (2, {4, 5, 6, 7}), id="a node of memory alone"),
        pytest.param(NO_CPUS_ON_ONE, 1, "", (1, {0, 1, 2, 3}), id="a node whose CPUs are offline"),
        pytest.param(UNKNOWN_DISTANCE, 1, "", (1, set(range(8))), id="a node of memory and no distance"),
    ],
)
def test_a_device_is_next_to_the_cpus_of_its_node(
    tmp_path: Path, machine: nodetree.Tree, node: int, local: str, expected: Tuple[object, set]
) -> None:
    host = trees.machine(tmp_path, machine, trees.function(ADDRESS, trees.NETWORK, node=node, local=local))
    (device,) = found(host)
    assert (device.node, device.local) == expected


# Interrupts


def interrupts(device: IrqDevice) -> Dict[str, Tuple[int, str]]:
    return {interrupt.name: (interrupt.number, interrupt.managed) for interrupt in device.interrupts}


def test_vectors_that_nobody_requested_are_left_out(tmp_path: Path) -> None:
    device = only(tmp_path, irqs=(irq(40, "eth0-TxRx-0", cpus="2"), irq(41)), line=11)
    assert interrupts(device) == {"eth0-TxRx-0": (40, "")}
    assert device.interrupts[0].cpus == {2}


def test_vectors_that_the_kernel_has_no_folder_for_are_left_out(tmp_path: Path) -> None:
    path = f"/sys/devices/pci0000:00/{ADDRESS}/msi_irqs/77"
    device = only(tmp_path, {path: Entry(FILE, "msix\n")}, irqs=(irq(40, "eth0"),))
    assert interrupts(device) == {"eth0": (40, "")}


def test_handlers_of_the_same_name_are_told_apart_by_their_order(tmp_path: Path) -> None:
    irqs = (irq(100, "nvidia", cpus="1"), irq(99, "nvidia", cpus="0"), irq(101, "nvidia", cpus="2"))
    device = only(tmp_path, code=trees.GPU, vendor=trees.NVIDIA, irqs=irqs)
    assert interrupts(device) == {"nvidia": (99, ""), "nvidia#2": (100, ""), "nvidia#3": (101, "")}


def test_a_device_without_vectors_has_its_line(tmp_path: Path) -> None:
    assert interrupts(only(tmp_path, irqs=(irq(11, "uhci"),), line=11)) == {"uhci": (11, "")}


def test_a_line_that_nobody_requested_is_none(tmp_path: Path) -> None:
    assert interrupts(only(tmp_path / "no", irqs=(irq(11),), line=11)) == {}
    assert interrupts(only(tmp_path / "zero", line=0)) == {}


def test_a_line_of_several_drivers_is_left_where_it_is(tmp_path: Path) -> None:
    device = only(tmp_path, irqs=(irq(11, "ahci", "i801_smbus"),), line=11)
    assert interrupts(device) == {"ahci, i801_smbus": (11, "several drivers share its line")}


def test_a_line_that_two_devices_have_by_one_name_is_left_where_it_is(tmp_path: Path) -> None:
    tree = trees.function(ADDRESS, trees.SATA, irq(11, "ahci"), line=11)
    other = trees.function("0000:18:00.0", trees.SATA, irq(11, "ahci"), line=11)
    for device in found(trees.machine(tmp_path, TWO_NODES, tree, other)):
        assert interrupts(device) == {"ahci": (11, "several drivers share its line")}


def test_a_vector_with_two_handlers_of_one_device_can_be_moved(tmp_path: Path) -> None:
    device = only(tmp_path, code=trees.NVME, irqs=(irq(40, "nvme0q0", "nvme0q1"),))
    assert interrupts(device) == {"nvme0q0, nvme0q1": (40, "")}


@pytest.mark.parametrize("driver", ["vfio-pci", "mlx5_vfio_pci", "nvgrace-gpu-vfio-pci"])
def test_a_device_that_is_lent_to_a_virtual_machine_has_no_interrupts_of_ours(tmp_path: Path, driver: str) -> None:
    device = only(tmp_path, driver=driver, irqs=(irq(40, f"vfio-msix[0]({ADDRESS})"),))
    assert (device.driver, device.interrupts) == (driver, ())


READ_ONLY = "it cannot be moved: its smp_affinity_list is read-only"
QUEUE = "the kernel places the interrupts of NVMe queues itself"


@pytest.mark.parametrize(
    ("handler", "mode", "reason"),
    [
        ("nvme0q0", 0o644, ""),
        ("nvme0q1", 0o644, QUEUE),
        ("nvme12q34", 0o644, QUEUE),
        ("nvme12q34", 0o444, READ_ONLY),
        ("virtio1-req.0", 0o444, READ_ONLY),
        ("virtio1-req.0", 0o644, ""),
        ("nvme0q1x", 0o644, ""),
        ("mlx5_comp0@pci:0000:17:00.0", 0o644, ""),
    ],
)
def test_an_interrupt_that_the_kernel_places_says_so(tmp_path: Path, handler: str, mode: int, reason: str) -> None:
    device = only(tmp_path, code=trees.NVME, irqs=(irq(40, handler, mode=mode),))
    assert interrupts(device) == {handler: (40, reason)}


def test_an_interrupt_that_the_kernel_refused_to_move_is_known_by_address_and_name(tmp_path: Path) -> None:
    text = devices.note_text({(ADDRESS, "interrupt virtio1-req.0"): "no", (ADDRESS, "rps rx-0"): "neither"})
    note = {devices.NOTE: Entry(FILE, text)}
    function = trees.function(ADDRESS, trees.SCSI, irq(40, "virtio1-config"), irq(41, "virtio1-req.0"))
    other = trees.function("0000:18:00.0", trees.SCSI, irq(50, "virtio1-req.0"))
    host = trees.machine(tmp_path, TWO_NODES, function, other, note)
    assert [interrupts(device) for device in found(host)] == [
        {"virtio1-config": (40, ""), "virtio1-req.0": (41, "no")},
        {"virtio1-req.0": (50, "")},
    ]
    assert devices.noted(host.files) == {
        (ADDRESS, "interrupt virtio1-req.0"): "no",
        (ADDRESS, "rps rx-0"): "neither",
    }


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", "null", "3", '{"a": 1}', "[1]", '[["a", "b"]]', '["ab"]', 100_000 * "["]
)
def test_a_note_that_cannot_be_understood_says_nothing(tmp_path: Path, text: str) -> None:
    host = trees.machine(tmp_path, {devices.NOTE: Entry(FILE, text)})
    assert devices.noted(host.files) == {}


@pytest.mark.parametrize("number", [errno.ENOENT, errno.EIO])
def test_an_interrupt_that_is_released_while_it_is_read_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    host = trees.machine(tmp_path, TWO_NODES, trees.function(ADDRESS, trees.NETWORK, irq(40, "a"), irq(41, "b")))
    read = host.files.read

    def gone(path: str) -> str:
        if path == "/proc/irq/40/smp_affinity_list":
            shutil.rmtree(tmp_path / "proc/irq/40")
            raise OSError(number, os.strerror(number), path)
        return read(path)

    monkeypatch.setattr(host.files, "read", gone)
    (device,) = found(host)
    assert interrupts(device) == {"b": (41, "")}


def test_an_interrupt_costs_three_looks_and_those_of_other_devices_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = trees.machine(tmp_path, trees.two_sockets())
    processors = read_processors(host.files)
    cards = [device for device in devices.find(host.files, processors) if device.kind == "network"]
    looks: List[str] = []
    for name in ("names", "mode", "read"):
        original = getattr(host.files, name)
        monkeypatch.setattr(host.files, name, lambda path, original=original: (looks.append(path), original(path))[1])
    complete = devices.complete(host.files, cards)
    assert [interrupt.number for device in complete for interrupt in device.interrupts] == [120, 121, 220, 221]
    assert len([path for path in looks if path.startswith("/proc/irq")]) == 3 * 4
    assert {path.split("/")[3] for path in looks if path.startswith("/proc/irq")} == {"120", "121", "220", "221"}
