# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Entries become CPUs for devices: who wins what, what is left of the CPUs, and what a machine cannot have."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError
from ansible_collections.gpufleet.node.plugins.module_utils._linux import cpulist
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity.model import IrqTarget
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity.processors import read_processors
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity.resolve import targets
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity.spec import parse
from ansible_collections.gpufleet.node.tests.nodes import nodetree
from ansible_collections.gpufleet.node.tests.nodes.nodetree import Tree
from ansible_collections.gpufleet.node.tests.unit.concerns.numa_irq_affinity import irq_trees as trees
from ansible_collections.gpufleet.node.tests.unit.concerns.numa_irq_affinity.irq_trees import irq
from ansible_collections.gpufleet.node.tests.unit.support import PATIENCE, FakeHost, quickest

# What is promised.
SECONDS = 0.060


def resolved(host: FakeHost, *entries: Dict[str, Any], **options: Any) -> Tuple[IrqTarget, ...]:
    return targets(host.files, parse(trees.params(*entries, **options)), read_processors(host.files))


def eligible(host: FakeHost, *entries: Dict[str, Any], **options: Any) -> Dict[str, str]:
    """The CPUs of each device that was won, by its name."""
    return {target.device.name: cpulist.render(target.eligible) for target in resolved(host, *entries, **options)}


@pytest.fixture
def two_sockets(tmp_path: Path) -> FakeHost:
    return trees.machine(tmp_path, trees.two_sockets())


ZERO, ONE = "0-3,8-11", "4-7,12-15"


# Who wins what


def test_an_entry_without_a_match_wins_the_devices_of_all_classes_and_no_others(tmp_path: Path) -> None:
    usb = trees.function("0000:00:14.0", trees.USB, irq(60, "xhci_hcd"), driver="xhci_hcd", node=0)
    host = trees.machine(tmp_path, trees.two_sockets(), usb)
    found = eligible(host, {})
    assert found == {
        "0000:02:00.0": ZERO,
        "ib0": ZERO,
        "eth0": ZERO,
        "0000:05:00.0": ZERO,
        "0001:02:00.0": ONE,
        "ib1": ONE,
        "eth1": ONE,
        "0001:05:00.0": ONE,
    }
    assert eligible(host, {"match": {"driver": "xhci_hcd"}}) == {"0000:00:14.0": ZERO}
    assert eligible(host, {"match": {"pci_address": "00:14.0"}}, {}) == {"0000:00:14.0": ZERO, **found}
    named = {"match": {"driver": "xhci_hcd"}, "cpus": "1"}
    for all_classes in ({}, {"match": {"class": "*"}}):
        assert eligible(host, all_classes, named) == {**found, "0000:00:14.0": "1"}


@pytest.mark.parametrize(
    ("match", "names"),
    [
        ({"class": "gpu"}, ["0000:02:00.0", "0001:02:00.0"]),
        ({"class": ["network", "infiniband"]}, ["ib0", "eth0", "ib1", "eth1"]),
        (
            {"class": "*"},
            ["0000:02:00.0", "ib0", "eth0", "0000:05:00.0", "0001:02:00.0", "ib1", "eth1", "0001:05:00.0"],
        ),
        ({"driver": "mlx5_core"}, ["ib0", "ib1"]),
        ({"interface": "*1"}, ["ib1", "eth1"]),
        ({"interface": "*", "class": "network"}, ["eth0", "eth1"]),
        ({"pci_address": "0001:*:*"}, ["0001:02:00.0", "ib1", "eth1", "0001:05:00.0"]),
    ],
)
def test_an_entry_wins_what_agrees_with_all_its_keys(
    two_sockets: FakeHost, match: Dict[str, Any], names: List[str]
) -> None:
    assert list(eligible(two_sockets, {"match": match})) == names


def test_the_first_entry_that_matches_wins(two_sockets: FakeHost) -> None:
    found = resolved(
        two_sockets,
        {"match": {"interface": "eth0"}, "cpus": "1", "spread": "all", "rps": True, "xps": False},
        {"match": {"class": "network"}},
    )
    assert [(target.device.name, target.spread, target.rps, target.xps) for target in found] == [
        ("eth0", "all", True, False),
        ("eth1", "one_per_irq", None, None),
    ]
    assert found[0].eligible == {1}


def test_a_device_is_won_that_has_no_interrupts_yet(tmp_path: Path) -> None:
    down = trees.function("0000:17:00.0", trees.NETWORK, irq(40), net=["eth0"], node=0)
    lent = trees.function("0000:18:00.0", trees.NETWORK, irq(41, "vfio-msix[0](x)"), driver="vfio-pci", node=1)
    host = trees.machine(tmp_path, trees.cpus(nodes={0: "0-3", 1: "4-7"}), down, lent)
    found = resolved(host, {"match": {"interface": "eth0"}}, {"match": {"driver": "vfio-pci"}})
    assert [(target.device.address, target.device.interrupts) for target in found] == [
        ("0000:17:00.0", ()),
        ("0000:18:00.0", ()),
    ]


def test_the_winners_have_their_interrupts_and_those_of_nobody_else_are_read(two_sockets: FakeHost) -> None:
    (target,) = resolved(two_sockets, {"match": {"interface": "eth1"}})
    assert [(one.name, one.number, one.managed) for one in target.device.interrupts] == [
        ("eth1", 220, ""),
        ("eth1-TxRx-0", 221, ""),
    ]
    read = {path for path in two_sockets.files.reads if path.startswith("/proc/irq")}
    assert read == {"/proc/irq/220/smp_affinity_list", "/proc/irq/221/smp_affinity_list"}


def test_without_entries_the_bus_is_not_looked_at(two_sockets: FakeHost) -> None:
    assert resolved(two_sockets, reserved_cpus="0") == ()
    assert not [path for path in two_sockets.files.reads if path.startswith(trees.PCI)]


# Which CPUs


@pytest.mark.parametrize(
    ("entry", "options", "zero", "one"),
    [
        ({"cpus": "local"}, {}, ZERO, ONE),
        ({"cpus": "local"}, {"reserved_cpus": "0,4,8,12"}, "1-3,9-11", "5-7,13-15"),
        ({"numa_node": 1}, {}, ONE, ONE),
        ({"numa_node": 1}, {"reserved_cpus": "0-5"}, "6-7,12-15", "6-7,12-15"),
        ({"near": "gpu"}, {}, ZERO, ONE),
        ({"cpus": "2,6-7"}, {}, "2,6-7", "2,6-7"),
        ({"cpus": "2,6-7"}, {"reserved_cpus": "6"}, "2,7", "2,7"),
        pytest.param({"cpus": "8-9"}, {"reserved_cpus": "0-1"}, "8-9", "8-9", id="siblings that are named"),
    ],
)
def test_interrupts_may_use_what_is_declared_without_what_is_reserved(
    two_sockets: FakeHost, entry: Dict[str, Any], options: Dict[str, str], zero: str, one: str
) -> None:
    assert eligible(two_sockets, {"match": {"class": "network"}, **entry}, **options) == {"eth0": zero, "eth1": one}


@pytest.mark.parametrize(
    ("entry", "cpus"),
    [({}, "0-1"), ({"numa_node": 0}, "0-1"), ({"near": "gpu"}, "0-1"), ({"cpus": "2-5"}, "2-5")],
)
def test_isolated_cpus_are_left_alone_unless_they_are_named(tmp_path: Path, entry: Dict[str, Any], cpus: str) -> None:
    host = trees.machine(
        tmp_path,
        trees.cpus(nodes={0: "0-3", 1: "4-7"}, isolated="2", nohz_full="3"),
        trees.function("0000:17:00.0", trees.GPU, vendor=trees.NVIDIA, node=0),
    )
    assert eligible(host, {"match": {"class": "gpu"}, **entry}) == {"0000:17:00.0": cpus}


def test_a_device_of_a_node_without_cpus_uses_the_nearest_that_has_some(tmp_path: Path) -> None:
    machine = trees.cpus(nodes={0: "0-3", 1: "4-7", 2: ""}, distances={2: "80 40 10"})
    host = trees.machine(tmp_path, machine, trees.function("0000:17:00.0", trees.GPU, vendor=trees.NVIDIA, node=2))
    assert eligible(host, {}) == {"0000:17:00.0": "4-7"}


def test_a_machine_without_numa_uses_all_cpus(tmp_path: Path) -> None:
    host = trees.machine(tmp_path, trees.cpus(), trees.function("0000:17:00.0", trees.NVME))
    assert eligible(host, {}, reserved_cpus="0") == {"0000:17:00.0": "1-7"}


def gpu(address: str, node: int, under: str) -> Tree:
    return trees.function(address, trees.GPU, vendor=trees.NVIDIA, node=node, under=under)


def card(under: str, node: int = 0) -> Tree:
    return trees.function("0000:50:00.0", trees.NETWORK, node=node, net=["eth0"], under=under)


SWITCH = "pci0000:10/0000:10:01.0/0000:11:00.0"
FOUR_NODES = trees.cpus(nodes={0: "0-1", 1: "2-3", 2: "4-5", 3: "6-7"})


@pytest.mark.parametrize(
    ("gpus", "under", "cpus"),
    [
        pytest.param(
            [gpu("0000:01:00.0", 1, "pci0000:10/0000:10:02.0"), gpu("0000:12:00.0", 2, f"{SWITCH}/0000:12:04.0")],
            f"{SWITCH}/0000:12:00.0",
            "4-5",
            id="behind the same switch before the same host bridge",
        ),
        pytest.param(
            [gpu("0000:01:00.0", 0, "pci0000:20/0000:20:01.0"), gpu("0000:61:00.0", 3, "pci0000:10/0000:10:02.0")],
            f"{SWITCH}/0000:12:00.0",
            "6-7",
            id="below the same host bridge before the same node",
        ),
        pytest.param(
            [gpu("0000:01:00.0", 1, "pci0000:20/0000:20:01.0"), gpu("0000:61:00.0", 0, "pci0000:60/0000:60:01.0")],
            "pci0000:10/0000:10:02.0",
            "0-1",
            id="of the same node before another",
        ),
        pytest.param(
            [gpu("0000:61:00.0", 3, "pci0000:60/0000:60:01.0"), gpu("0000:01:00.0", 2, "pci0000:20/0000:20:01.0")],
            "pci0000:10/0000:10:02.0",
            "4-5",
            id="the lower address of those that are as far",
        ),
    ],
)
def test_near_a_gpu_are_the_cpus_of_the_nearest_on_the_bus(
    tmp_path: Path, gpus: List[Tree], under: str, cpus: str
) -> None:
    host = trees.machine(tmp_path, FOUR_NODES, card(under), *gpus)
    assert eligible(host, {"match": {"interface": "eth0"}, "near": "gpu"}) == {"eth0": cpus}


# Recorded machines


@pytest.mark.parametrize(
    ("name", "entry", "expected"),
    [
        (
            "hgx-2socket",
            {"match": {"class": ["gpu", "infiniband", "network"]}},
            {"gpu": 16, "infiniband": 40, "network": 12},
        ),
        ("single-socket", {}, {"gpu": 1, "network": 4}),
        ("vm-without-numa", {"match": {"class": "network"}}, {"network": 3}),
        ("grace", {"match": {"class": ["gpu", "infiniband"]}}, {"gpu": 2, "infiniband": 4}),
    ],
)
def test_a_recorded_machine_has_its_interrupts_next_to_their_devices(
    tmp_path: Path, name: str, entry: Dict[str, Any], expected: Dict[str, int]
) -> None:
    host = FakeHost(nodetree.expand(name, tmp_path / "root"))
    found = resolved(host, entry)
    counts = Counter(target.device.kind for target in found for _interrupt in target.device.interrupts)
    assert counts == expected
    nodes = dict(read_processors(host.files).nodes)
    for target in found:
        own = nodes.get(target.device.node)
        assert target.eligible == (own or target.device.local)
        assert target.eligible


def test_the_gpus_of_a_grace_machine_are_next_to_the_cpus_of_their_socket(tmp_path: Path) -> None:
    host = FakeHost(nodetree.expand("grace", tmp_path / "root"))
    found = {
        target.device.node: cpulist.render(target.eligible) for target in resolved(host, {"match": {"class": "gpu"}})
    }
    nodes = dict(read_processors(host.files).nodes)
    assert found == {2: "0-71", 10: "72-143"}
    assert not any(nodes[node] for node in found)


def test_of_a_recorded_drive_only_the_admin_queue_can_be_moved(tmp_path: Path) -> None:
    host = FakeHost(nodetree.expand("hgx-2socket", tmp_path / "root"))
    drives = [target.device for target in resolved(host, {"match": {"class": "nvme", "driver": "nvme"}})]
    movable = [one.name for drive in drives for one in drive.interrupts if not one.managed]
    assert sorted(movable) == [f"nvme{number}q0" for number in range(8)]
    assert sum(len(drive.interrupts) for drive in drives) == 72


# What a machine cannot have

BOND = trees.virtual_interface("bond0", "eth0", "eth1", devtype="bond", marks=("bonding",))
VLAN = trees.virtual_interface("eth0.7", "eth0", devtype="vlan")
BRIDGE = trees.virtual_interface("br0", "bond0", devtype="bridge", marks=("bridge",))
TEAM = trees.virtual_interface("team0", "eth0", "eth1")
LOOPBACK = trees.virtual_interface("lo")
STICK = trees.virtual_interface("usb0", device="/sys/devices/pci0000:00/0000:00:14.0/usb1/1-1")
VIRTUAL = (BOND, VLAN, BRIDGE, TEAM, LOOPBACK, STICK)

PARTLY_OFFLINE = trees.cpus("0-5", possible="0-7", nodes={0: "0-3", 1: "4-5", 2: ""})
CARD = trees.function("0000:17:00.0", trees.NETWORK, irq(40, "eth0", cpus="0-5"), node=1, net=["eth0"])
ISOLATED = trees.cpus(nodes={0: "0-3", 1: "4-7"}, isolated="4-6")
NO_NUMA = trees.cpus()
EVERYTHING = "interrupts[0] (which matches everything)"


def case(name: str, message: str, *entries: Dict[str, Any], machine: Tuple[Tree, ...] = (), **options: Any) -> Any:
    return pytest.param(entries, options, machine or (trees.two_sockets(), *VIRTUAL), message, id=name)


@pytest.mark.parametrize(
    ("entries", "options", "machine", "message"),
    [
        case(
            "an entry that wins nothing",
            "Cannot apply interrupts[0] (interface: ens*): it matches no device; there is 0000:02:00.0, "
            "ib0, eth0, 0000:05:00.0, 0001:02:00.0, ib1, eth1, 0001:05:00.0. Correct the match, or set optional: "
            "true.",
            {"match": {"interface": "ens*"}},
        ),
        case(
            "an entry whose devices were taken",
            "Cannot apply interrupts[1] (interface: eth0): eth0 matched earlier interrupts[0] (class: "
            "network). Put the entry before them, or set optional: true.",
            {"match": {"class": "network"}},
            {"match": {"interface": "eth0"}},
        ),
        case(
            "a bond",
            "Cannot use interrupts[0] (interface: bond0): bond0 is a bond, and has no interrupts of its "
            "own. Match its ports: eth0, eth1.",
            {"match": {"interface": "bond0"}},
        ),
        case(
            "a bond in an entry that may win nothing",
            "Cannot use interrupts[0] (interface: eth0, bond0): bond0 is a bond, and has no interrupts of "
            "its own. Match its ports: eth0, eth1.",
            {"match": {"interface": ["eth0", "bond0"]}, "optional": True},
        ),
        case(
            "a VLAN",
            "Cannot use interrupts[0] (interface: eth0.7): eth0.7 is a VLAN, and has no interrupts of its "
            "own. Match what it runs on: eth0.",
            {"match": {"interface": "eth0.7"}},
        ),
        case(
            "a bridge",
            "Cannot use interrupts[0] (interface: br0): br0 is a bridge, and has no interrupts of its "
            "own. Match its ports: eth0, eth1.",
            {"match": {"interface": "br0"}},
        ),
        case(
            "a team",
            "Cannot use interrupts[0] (interface: team0): team0 is a team or another virtual interface, "
            "and has no interrupts of its own. Match its ports: eth0, eth1.",
            {"match": {"interface": "team0"}},
        ),
        case(
            "the loopback",
            "Cannot use interrupts[0] (interface: lo): lo is a team or another virtual interface, and has "
            "no interrupts of its own.",
            {"match": {"interface": "lo"}},
        ),
        case(
            "a network stick",
            "Cannot use interrupts[0] (interface: usb0): usb0 is no PCI device, and has no interrupts of its own.",
            {"match": {"interface": "usb0"}},
        ),
        case(
            "near a GPU where there is none",
            "Cannot place interrupts near a GPU on interrupts[0] (which matches everything): this machine has no "
            "NVIDIA GPU, but the entry matches eth0. Set cpus: local for this machine.",
            {"near": "gpu"},
            machine=(PARTLY_OFFLINE, CARD),
        ),
        case(
            "CPUs that do not exist",
            f"Cannot place interrupts on {EVERYTHING}: there is no CPU 8-9; this machine has 0-7.",
            {"cpus": "0-9"},
            machine=(PARTLY_OFFLINE, CARD),
        ),
        case(
            "CPUs that are offline",
            f"Cannot place interrupts on {EVERYTHING}: CPUs 6-7 are offline. Bring them online, or leave them out.",
            {"cpus": "0-7"},
            machine=(PARTLY_OFFLINE, CARD),
        ),
        case(
            "one CPU that is offline",
            f"Cannot place interrupts on {EVERYTHING}: CPU 6 is offline. Bring it online, or leave it out.",
            {"cpus": "6"},
            machine=(PARTLY_OFFLINE, CARD),
        ),
        case(
            "CPUs that are all reserved",
            f"Cannot place interrupts on {EVERYTHING}: CPUs 1-2 are reserved. Name others in cpus, or remove some of "
            "them from reserved_cpus.",
            {"cpus": "1-2"},
            reserved_cpus="0-3",
        ),
        case(
            "a node that there is not",
            f"Cannot place interrupts on {EVERYTHING}: there is no NUMA node 3; there is 0-2.",
            {"numa_node": 3},
            machine=(PARTLY_OFFLINE, CARD),
        ),
        case(
            "a node of a kernel without NUMA",
            f"Cannot place interrupts on {EVERYTHING}: there is no NUMA node 0; this kernel has no NUMA nodes.",
            {"numa_node": 0},
            machine=(NO_NUMA, CARD),
        ),
        case(
            "a node without CPUs",
            f"Cannot place interrupts on {EVERYTHING}: NUMA node 2 has no online CPUs. Those with CPUs: 0-1.",
            {"numa_node": 2},
            machine=(PARTLY_OFFLINE, CARD),
        ),
        case(
            "reserved CPUs that leave the node of a device empty",
            "Cannot place interrupts on eth1: all CPUs next to it (4-7,12-15) are reserved. Leave some of them to "
            "interrupts, or name CPUs in cpus.",
            {"match": {"class": "network"}},
            reserved_cpus="4-7,12-15",
        ),
        case(
            "reserved CPUs that leave a declared node empty",
            f"Cannot place interrupts on {EVERYTHING}: all CPUs of NUMA node 1 (4-7,12-15) are reserved. Leave some of "
            "them to interrupts, or name CPUs in cpus.",
            {"numa_node": 1},
            reserved_cpus="4-7,12-15",
        ),
        case(
            "reserved CPUs that leave the node of the GPU empty",
            "Cannot place interrupts on ib1: all CPUs next to its GPU 0001:02:00.0 (4-7,12-15) are reserved. Leave "
            "some of them to interrupts, or name CPUs in cpus.",
            {"match": {"interface": "ib1"}, "near": "gpu"},
            reserved_cpus="4-7,12-15",
        ),
        case(
            "reserved and isolated CPUs that leave a node empty",
            "Cannot place interrupts on eth0: all CPUs next to it (4-7) are reserved or isolated. Leave some of them "
            "to interrupts, or name CPUs in cpus.",
            {},
            machine=(ISOLATED, CARD),
            reserved_cpus="7",
        ),
        case(
            "reserved CPUs that leave only siblings of reserved cores",
            "Cannot place interrupts on eth0: of the CPUs next to it only 8-11 are left, which are siblings of "
            "reserved cores. Leave whole cores out of reserved_cpus, or name CPUs in cpus.",
            {"match": {"interface": "eth0"}},
            reserved_cpus="0-3",
        ),
        case(
            "reserved CPUs that leave one sibling",
            "Cannot place interrupts on eth0: of the CPUs next to it only 8 is left, which is a sibling of a reserved "
            "core. Leave whole cores out of reserved_cpus, or name CPUs in cpus.",
            {"match": {"interface": "eth0"}},
            reserved_cpus="0-3,9-11",
        ),
        case(
            "reserved CPUs that do not exist",
            "Cannot use reserved_cpus: there is no CPU 16,99; this machine has 0-15.",
            {},
            reserved_cpus="0,16,99",
        ),
        case(
            "reserved CPUs that leave none",
            "Cannot use reserved_cpus: it leaves no online CPU (0-15).",
            {},
            reserved_cpus="0-15",
        ),
    ],
)
def test_what_this_machine_cannot_have_is_refused(
    tmp_path: Path,
    entries: Tuple[Dict[str, Any], ...],
    options: Dict[str, Any],
    machine: Tuple[Tree, ...],
    message: str,
) -> None:
    host = trees.machine(tmp_path, *machine)
    with pytest.raises(DeclarationError) as caught:
        resolved(host, *entries, **options)
    assert str(caught.value) == message


def test_an_optional_entry_that_wins_nothing_may_ask_for_what_this_machine_has_not(tmp_path: Path) -> None:
    host = trees.machine(tmp_path, PARTLY_OFFLINE, CARD)
    none = {"match": {"class": "infiniband"}, "optional": True}
    for place in ({"cpus": "999"}, {"numa_node": 9}, {"near": "gpu"}):
        assert resolved(host, {**none, **place}) == ()


def test_siblings_of_reserved_cores_may_be_among_others(two_sockets: FakeHost) -> None:
    entry = {"match": {"interface": "eth0"}}
    assert eligible(two_sockets, entry, reserved_cpus="0-2") == {"eth0": "3,8-11"}


def test_512_interrupts_of_64_devices_are_resolved_in_time_and_with_few_reads(tmp_path: Path) -> None:
    host = trees.machine(tmp_path, trees.large())
    found: List[IrqTarget] = []

    def resolve() -> None:
        host.files.reads.clear()
        found[:] = resolved(host, {"match": {"class": ["network", "nvme"]}}, reserved_cpus="0,128")

    seconds = quickest(resolve)
    assert sum(len(target.device.interrupts) for target in found) == 512
    # One read an interrupt, one a core, a few a device.
    assert len(host.files.reads) <= 512 + 128 + 64 * 4 + 20
    assert seconds < SECONDS * PATIENCE
