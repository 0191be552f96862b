# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Other software that sets interfaces at boot: whose value stays, and which arguments mean a declared setting."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Mapping, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Scope
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import OwnedByAnother
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nic_settings import foreign
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nic_settings.ethtool import Shown
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nic_settings.links import Link
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nic_settings.spec import SETTINGS
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nic_settings.state import Interface
from ansible_collections.gpufleet.node.tests.nodes import nodetree
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedHost
from ansible_collections.gpufleet.node.tests.unit.concerns.nic_settings.nic_machine import Machine
from ansible_collections.gpufleet.node.tests.unit.support import build

WANTS = "/etc/systemd/system/multi-user.target.wants"
UNIT, SCRIPT = "/etc/systemd/system/tune.service", "/opt/tune"
PROFILE = "/etc/NetworkManager/system-connections/gpu.nmconnection"
LINK = "/etc/systemd/network/10-nic.link"
IFCFG = "/etc/sysconfig/network-scripts/ifcfg-eth0"
ETH0: Dict[str, Any] = {"match": {"name": "eth0"}, "rx_ring": 4096}
LIMITS = Shown({"rx_ring": 1024}, {"rx_ring": 8192})
TREES = sorted((Path(nodetree.__file__).parent / "stock").glob("*.tree"))


def service(script: str, order: str = "") -> Dict[str, str]:
    unit = f"[Unit]\n{order}\n[Service]\nType=oneshot\nExecStart={SCRIPT}\n[Install]\nWantedBy=multi-user.target\n"
    return {UNIT: unit, f"{WANTS}/tune.service": unit, SCRIPT: f"#!/bin/sh\n{script}\n"}


def interface(**declared: Any) -> Interface:
    link = Link("eth0", "0000:17:00.0", "", 1500)
    return Interface(link, declared, declared, LIMITS)


def said(root: Path, script: str, **declared: Any) -> List[Tuple[str, Any, str]]:
    files = build(root, service(script, "After=multi-user.target")).files
    found = foreign.read(files, [interface(**declared)], Scope(True, True))
    return [(one.setting, one.value, one.wins) for one in found]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("ethtool -G eth0 rx 512 tx 256", [("rx_ring", "512", "them")]),
        ("ethtool --set-ring eth0 tx 256 rx 512", [("rx_ring", "512", "them")]),
        ("for nic in eth1 eth0; do ethtool -G $nic rx 512; done", [("rx_ring", "512", "them")]),
        ("ethtool -G eth0 rx 512\nethtool -G eth0 rx 256", [("rx_ring", "256", "them")]),
        ("ethtool -K eth0 gro off lro on", [("generic-receive-offload", "off", "them")]),
        ("ethtool --offload eth0 generic-receive-offload off", [("generic-receive-offload", "off", "them")]),
        ("ip link set eth0 up mtu 9000", [("mtu", "9000", "them")]),
        ("/sbin/ip l s dev eth0 mtu 9000", [("mtu", "9000", "them")]),
        ("ip link set dev eth0 mtu jumbo", [("mtu", None, "unknown")]),
        ("echo 9000 > /sys/class/net/eth0/mtu", [("mtu", "9000", "them")]),
        ("echo 4 > /sys/class/net/eth0/device/sriov_numvfs", [("virtual_functions", "4", "them")]),
        ("echo 4 > /sys/bus/pci/devices/0000:17:00.0/sriov_numvfs", [("virtual_functions", "4", "them")]),
        ('ethtool -G "$NIC" rx 512', [("rx_ring", "512", "unknown")]),
        ("ethtool -G eth0 rx $RING", [("rx_ring", None, "unknown")]),
        ("ethtool -G eth0 $RINGS 512", [("rx_ring", None, "unknown")]),
        ("ethtool -G eth1 rx 512; ethtool -g eth0; ethtool -i eth0; ethtool eth0; ethtool -s eth0 autoneg off", []),
        ("ethtool -L eth0 combined 8; ethtool -A eth0 rx off; ethtool -C eth0 rx-usecs 8", []),
        ("ip link set eth1 mtu 9000; ip link show eth0; ip addr add 10.0.0.1/8 dev eth0; ip link set eth0 up", []),
        ("ip -n pod link set eth0 mtu 9000; ip link set group default mtu 9000; ip link add eth0 mtu 9000", []),
        ("echo 9000 > /sys/class/net/eth1/mtu", []),
    ],
)  # fmt: skip
def test_the_lines_that_are_about_a_declared_setting(
    tmp_path: Path, script: str, expected: List[Tuple[str, Any, str]]
) -> None:
    declared = {"rx_ring": 4096, "generic-receive-offload": "on", "mtu": 1500, "virtual_functions": 2}
    assert said(tmp_path, script, **declared) == expected


ORDERS = {
    "After=gpufleet-boot.service": "them",
    "After=multi-user.target": "them",
    "Before=gpufleet-boot.service": "us",
    "": "unknown",
}


@pytest.mark.parametrize("order", ORDERS)
def test_whose_value_stays_goes_by_the_order_of_the_units(tmp_path: Path, order: str) -> None:
    machine = Machine(tmp_path, service("ethtool -G eth0 rx 512", order))
    if ORDERS[order] == "them":
        with pytest.raises(OwnedByAnother, match=r"Cannot set rx_ring on eth0: tune.service .*/opt/tune:2"):
            machine.run(ETH0)
        return
    outcome = machine.run(ETH0)
    assert [(one.object, one.setting, one.value, one.wins) for one in outcome.remaining.conflicts] == [
        ("eth0", "rx_ring", "512", ORDERS[order])
    ]
    assert machine.run(ETH0).status == ("in_sync" if ORDERS[order] == "us" else "unknown")


MANAGED = {"/run/NetworkManager/devices/1": "[device]\nmanaged=1\nconnection-uuid=6f1d-aa\n"}
LASTING: Mapping[str, Mapping[str, str]] = {
    f"{PROFILE}:4": {**MANAGED, PROFILE: "[connection]\nuuid=6f1d-aa\n[ethtool]\nring-rx=512\n"},
    f"{IFCFG}:2": {**MANAGED, IFCFG: 'UUID=6f1d-aa\nETHTOOL_OPTS="-G ${DEVICE} rx 512"\n'},
    "/etc/network/interfaces:3": {
        "/run/network/ifstate": "eth0=eth0\n",
        "/etc/network/interfaces": "auto eth0\niface eth0 inet dhcp\n  post-up ethtool -G $IFACE rx 512\n",
    },
    "/etc/sysconfig/network/ifcfg-eth0:1": {
        "/run/wicked/x": "",
        "/etc/sysconfig/network/ifcfg-eth0": "ETHTOOL_OPTIONS='-G iface rx 512'\n",
    },
    "/etc/tuned/gpu/tuned.conf:2": {
        "/etc/tuned/active_profile": "gpu\n",
        f"{WANTS}/tuned.service": "",
        "/etc/tuned/gpu/tuned.conf": "[net]\nring=rx 512\n",
    },
}


@pytest.mark.parametrize("place", LASTING)
def test_who_brings_interfaces_up_is_refused_with_file_and_line(tmp_path: Path, place: str) -> None:
    machine = Machine(tmp_path, LASTING[place])
    with pytest.raises(OwnedByAnother) as caught:
        machine.run(ETH0)
    assert str(caught.value).startswith("Cannot set rx_ring on eth0: ")
    assert f"({place})" in str(caught.value)
    assert machine.hardware("eth0")["ring"]["RX"][0] == 1024
    # For now alone, and with the same value, it is not in the way.
    outcome = machine.run(ETH0, permanent=False)
    assert [(one.setting, one.value, one.wins) for one in outcome.remaining.conflicts] == [("rx_ring", "512", "them")]
    assert machine.run({**ETH0, "rx_ring": 512}).remaining.conflicts == ()


def test_udev_comes_first_so_that_the_boot_service_wins(tmp_path: Path) -> None:
    files = {
        "/run/udev/data/n1": f"E:ID_NET_LINK_FILE={LINK}\n",
        LINK: "[Match]\nDriver=mlx5_core\n[Link]\nRxBufferSize=max\n",
    }
    machine = Machine(tmp_path, files)
    outcome = machine.run(ETH0)
    assert [(one.owner, one.line, one.value, one.wins) for one in outcome.remaining.conflicts] == [
        ("systemd.link", 4, "8192", "us")
    ]
    assert machine.run(ETH0).status == "in_sync"


def test_without_a_declaration_that_stays_udev_has_the_last_word(tmp_path: Path) -> None:
    files = {"/run/udev/data/n1": f"E:ID_NET_LINK_FILE={LINK}\n", LINK: "[Link]\nRxBufferSize=512\n"}
    outcome = Machine(tmp_path, files).run(ETH0, permanent=False)
    assert [(one.owner, one.wins) for one in outcome.remaining.conflicts] == [("systemd.link", "them")]


def test_a_leased_mtu_is_named_where_the_declared_one_is_for_now(tmp_path: Path) -> None:
    files = {
        "/run/NetworkManager/devices/1": "[device]\nconnection-uuid=6f1d-aa\n[dhcp4]\ndhcp4.interface_mtu=2048\n",
        PROFILE: "[connection]\nuuid=6f1d-aa\n[ethernet]\n",
    }
    outcome = Machine(tmp_path, files).run({"match": {"name": "eth0"}, "mtu": 9000}, permanent=False)
    assert [(one.owner, one.setting, one.value, one.wins) for one in outcome.remaining.conflicts] == [
        ("NetworkManager", "mtu", "2048", "them")
    ]


def test_absent_finds_no_owner(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.run(ETH0)
    for path, text in LASTING[f"{PROFILE}:4"].items():
        (machine.root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (machine.root / path.lstrip("/")).write_text(text)
    assert machine.run(state="absent").remaining.conflicts == ()
    assert machine.hardware("eth0")["ring"]["RX"][0] == 1024


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: str(tree.stem))
def test_a_stock_system_sets_nothing_of_an_interface(tree: Path, tmp_path: Path) -> None:
    root = nodetree.expand(nodetree.parse(tree.read_text(encoding="utf-8")), tmp_path / "root")
    declared: Dict[str, Any] = {**dict.fromkeys(SETTINGS, 1), "generic-receive-offload": "on"}
    assert foreign.read(RecordedHost(str(root)).files, [interface(**declared)], Scope(True, True)) == ()
