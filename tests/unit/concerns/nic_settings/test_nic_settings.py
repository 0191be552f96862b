# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Interfaces: what is refused, who else sets the MTU, what peers answer, and the order in which the kernel takes it."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any, Mapping

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    DeclarationError,
    GpuFleetError,
    InUse,
    OwnedByAnother,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.tests.unit.concerns.nic_settings.nic_machine import HARDWARE, NET, Machine, place
from ansible_collections.gpufleet.node.tests.unit.support import KernelFiles

ETH0 = {"match": {"name": "eth0"}}
BOND = {"match": {"name": ["bond0", "bond0.100"]}, "mtu": 9000}
NETWORKD_FILE = "/etc/systemd/network/10-gpu.network"
PROFILE = "/etc/NetworkManager/system-connections/gpu.nmconnection"


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def refusal(machine: Machine, *interfaces: Mapping[str, Any], **more: Any) -> GpuFleetError:
    machine.host.files.log.clear()
    with pytest.raises(GpuFleetError) as caught:
        machine.run(*interfaces, **more)
    assert machine.host.files.log == []
    return caught.value


# --- what no machine could have ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "cause"),
    [
        ({"mtu": 1279}, "below 1280 the kernel removes IPv6 from the interface"),
        ({"mtu": 65537}, "no interface takes more than 65536"),
        ({"rx_ring": "many"}, "it must be a number of at least 1, or max"),
        ({"rx_ring": 0}, "it must be a number of at least 1, or max"),
        ({"rx_ring": True}, "it must be a number of at least 1, or max"),
        ({"tx_ring": "-1"}, "it must be a number of at least 1, or max"),
        ({"rx_usecs": -1}, "it must not be negative"),
        ({"offloads": {"gro": "maybe"}}, "it is neither true nor false"),
        ({"offloads": {"GRO!": True}}, "is not the name of a feature"),
        ({"offloads": {"mtu": True}}, "is not the name of a feature"),
        ({"offloads": {"gro": True, "generic-receive-offload": False}}, "are the same feature"),
        ({"virtual_functions": -1}, "it must be 0 or more"),
        ({"mtu": 9000, "peers": ["storage1"]}, "it is not an IP address"),
        ({"mtu": 9000, "peers": ["10.0.0.256"]}, "it is not an IP address"),
        ({}, "it declares nothing"),
        ({"match": {"name": 'eth0"'}, "mtu": 9000}, "is not the name of an interface"),
        ({"match": {"name": "a:b"}, "mtu": 9000}, "is not the name of an interface"),
        ({"match": {"link_layer": ["ethernet", "ib"]}, "mtu": 9000}, "'ib' is not a link layer"),
    ],
)
def test_what_no_machine_could_have_is_refused_with_the_reason(
    machine: Machine, declared: Mapping[str, Any], cause: str
) -> None:
    error = refusal(machine, {**ETH0, **declared})
    assert isinstance(error, DeclarationError)
    assert cause in str(error)


@pytest.mark.parametrize(
    ("interfaces", "more", "cause"),
    [
        ((), {}, "no interface is declared"),
        (({**ETH0, "mtu": 9000},), {"confirm_timeout": 29}, "it must be from 30 to 3600 seconds"),
        (({"match": {"nam": "eth0"}, "mtu": 9000},), {}, "there is no key nam"),
        (({"match": {"name": "eth9"}, "mtu": 9000},), {}, "it matches no device; there is "),
        # What software makes must be named: a pod's interface is none of the fleet's.
        (({"match": {"name": "*.100"}, "mtu": 9000},), {}, "it matches no device"),
    ],
)
def test_a_declaration_that_makes_no_sense_is_refused(
    machine: Machine, interfaces: Any, more: Mapping[str, Any], cause: str
) -> None:
    assert cause in str(refusal(machine, *interfaces, **more))


# --- what this machine cannot have ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interface", "cause"),
    [
        ({**ETH0, "mtu": 9979}, "its driver takes up to 9978"),
        ({**ETH0, "rx_ring": 8193}, "the driver takes up to 8192"),
        ({**ETH0, "combined_channels": "64"}, "the driver takes up to 63"),
        ({**ETH0, "offloads": {"generic-receive-offlaod": True}}, "this kernel has no such feature"),
        ({"match": {"name": "eth2"}, "mtu": 9000}, "it is a port of bond0, which has 1500"),
        ({"match": {"name": "bond0.100"}, "mtu": 9000}, "it is on top of bond0, which has 1500"),
        ({"match": {"name": "eth2"}, "virtual_functions": 9}, "the card has at most 8"),
    ],
)
def test_what_the_machine_cannot_have_is_refused_before_anything_changes(
    machine: Machine, interface: Mapping[str, Any], cause: str
) -> None:
    assert cause in str(refusal(machine, interface, {"match": {"name": "eth1"}, "mtu": 4200}))


def test_a_vlan_that_is_not_declared_is_not_cut(machine: Machine) -> None:
    machine.run(BOND)
    error = refusal(machine, {"match": {"name": "bond0"}, "mtu": 1500})
    assert "the kernel would reduce the MTU of bond0.100, which is on top of it and has 9000" in str(error)


def test_what_a_driver_lacks_is_unmanaged_with_the_reason_and_strict_an_error(machine: Machine) -> None:
    declared = {**ETH0, "rx_channels": "max", "tx_frames": 4, "virtual_functions": 2, "offloads": {"highdma": False}}
    outcome = machine.run({**declared, "mtu": 4200})
    assert {(entry.setting, entry.reason) for entry in outcome.remaining.unmanaged} == {
        ("rx_channels", "its driver does not have it"),
        ("tx_frames", "its driver does not have it"),
        ("virtual_functions", "the card has no virtual functions, or its firmware has them off"),
        ("highdma", "its driver has it fixed to on"),
    }
    assert machine.mtu("eth0") == 4200
    assert "Cannot set rx_channels" in str(refusal(machine, declared, strict=True))


def test_without_ethtool_only_what_needs_it_is_refused(machine: Machine) -> None:
    del machine.host.commands.programs["ethtool"]
    assert "ethtool is not installed" in str(refusal(machine, {**ETH0, "rx_ring": "max"}))
    machine.run({**ETH0, "mtu": 4200})
    assert machine.mtu("eth0") == 4200


def test_functions_that_are_used_do_not_go_away(machine: Machine) -> None:
    eth2 = {"match": {"name": "eth2"}}
    machine.run({**eth2, "virtual_functions": 2})
    device = machine.root / place("eth2").lstrip("/") / ".." / ".."
    function = machine.root / "sys/devices/pci0000:15/0000:3b:01.0"
    function.mkdir()
    (device / "virtfn0").symlink_to("../0000:3b:01.0")
    (function / "driver").symlink_to("/sys/bus/pci/drivers/vfio-pci")
    error = refusal(machine, {**eth2, "virtual_functions": 4})
    assert isinstance(error, InUse)
    assert "0000:3b:01.0 is given to a virtual machine or a program (vfio-pci)" in str(error)
    for driver in ("mlx5_vfio_pci", "igb_uio"):
        (function / "driver").unlink()
        (function / "driver").symlink_to(f"/sys/bus/pci/drivers/{driver}")
        assert f"program ({driver})" in str(refusal(machine, {**eth2, "virtual_functions": 0}))
    (function / "driver").unlink()
    (function / "driver").symlink_to("/sys/bus/pci/drivers/iavf")
    (function / "net").mkdir()
    assert "0000:3b:01.0 is in the network of a container" in str(refusal(machine, {**eth2, "virtual_functions": 0}))
    (function / "net/eth1").mkdir()
    assert "eth1 (0000:3b:01.0) is up" in str(refusal(machine, {**eth2, "virtual_functions": 0}))
    (machine.root / place("eth1").lstrip("/") / "flags").write_text("0x1002\n")
    machine.run({**eth2, "virtual_functions": 4})
    assert machine.host.files.read(f"{NET}/eth2/device/sriov_numvfs") == "4\n"


def test_a_card_that_does_not_take_a_number_of_functions_has_as_many_as_before(machine: Machine) -> None:
    eth2 = {"match": {"name": "eth2"}}
    machine.run({**eth2, "virtual_functions": 2})

    def full(kernel: KernelFiles, path: Any, value: str) -> None:
        if value == "4":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path[0])
        kernel.store(path[0], value)

    machine.host.files.rules.insert(0, (r"/sys/devices/.*/sriov_numvfs", full))
    with pytest.raises(GpuFleetError, match="No space left on device"):
        machine.run({**eth2, "virtual_functions": 4})
    assert machine.host.files.read(f"{NET}/eth2/device/sriov_numvfs").strip() == "2"


@pytest.mark.parametrize(
    ("said", "lacks"),
    [
        ("Cannot get device ring settings: Operation not supported\n", True),
        ("netlink error: Operation not supported\n", True),
        ("Cannot get device ring settings: Device or resource busy\n", False),
    ],
)
def test_only_what_a_driver_does_not_support_is_what_it_lacks(machine: Machine, said: str, lacks: bool) -> None:
    machine.host.commands.programs["ethtool"] = lambda argv: Completed(75, "", said)
    if lacks:
        outcome = machine.run({**ETH0, "rx_ring": 512})
        assert [entry.setting for entry in outcome.remaining.unmanaged] == ["rx_ring"]
    else:
        assert refusal(machine, {**ETH0, "rx_ring": 512}).code == "cannot_look"


# --- what is set, and in which order ----------------------------------------------------------------------------------


def test_all_that_is_declared_is_set_and_a_second_run_changes_nothing(machine: Machine) -> None:
    declared = {
        "match": {"driver": "mlx5_core", "name": "eth0"},
        "mtu": 9000,
        "rx_ring": "max",
        "tx_ring": 4096,
        "combined_channels": 32,
        "adaptive_rx": False,
        "rx_usecs": 3,
        "rx_pause": False,
        "offloads": {"lro": True, "gro": False},
    }
    outcome = machine.run(declared)
    state = machine.hardware("eth0")
    assert state["ring"] == {"RX": [8192, 8192], "TX": [4096, 8192]}
    assert state["channel"]["Combined"] == [32, 63]
    assert (state["coalescing"]["Adaptive RX"], state["coalescing"]["rx-usecs"]) == ("off", 3)
    assert state["pause"] == {"Autonegotiate": "off", "RX": "off", "TX": "on"}
    assert (state["offload"]["large-receive-offload"], state["offload"]["generic-receive-offload"]) == ("on", "off")
    assert machine.mtu("eth0") == 9000
    assert outcome.effective["interfaces"]["eth0"]["rx_ring"] == 8192
    # One call for what is set together, channels before the rings that they bring.
    calls = [call[1] for call in machine.host.commands.calls if call[0] == "ethtool" and call[1].isupper()]
    assert calls == ["-L", "-G", "-C", "-A", "-K"]
    assert not machine.run(declared).changes


def test_a_stack_grows_from_below_and_shrinks_from_above(machine: Machine) -> None:
    machine.run(BOND)
    assert [machine.mtu(name) for name in ("eth2", "eth3", "bond0", "bond0.100")] == [9000] * 4
    machine.run({**BOND, "mtu": 4000})
    assert [machine.mtu(name) for name in ("eth2", "eth3", "bond0", "bond0.100")] == [4000] * 4
    machine.run(state="absent")
    assert [machine.mtu(name) for name in ("eth2", "eth3", "bond0", "bond0.100")] == [1500] * 4


def test_a_port_that_somebody_changed_gets_the_mtu_of_its_bond_again(machine: Machine) -> None:
    machine.run(BOND)
    machine.put_mtu("eth3", 1500)
    outcome = machine.run(BOND)
    assert [(change.object, change.before, change.after) for change in outcome.changes] == [("eth3", 1500, 9000)]
    assert machine.mtu("eth3") == 9000


def test_check_mode_predicts_and_changes_nothing(machine: Machine) -> None:
    machine.host.files.log.clear()
    predicted = machine.run({**ETH0, "mtu": 9000, "rx_ring": "max"}, check_mode=True)
    assert machine.host.files.log == []
    assert machine.mtu("eth0") == 1500
    made = machine.run({**ETH0, "mtu": 9000, "rx_ring": "max"})
    assert [change.as_dict() for change in predicted.changes] == [change.as_dict() for change in made.changes]


def test_what_comes_later_is_set_by_a_unit_that_a_rule_starts(machine: Machine) -> None:
    machine.run(BOND, {"match": {"driver": "mlx5_core"}, "rx_ring": "max"})
    rules = machine.host.files.read("/etc/udev/rules.d/99-gpufleet-nic_settings.rules")
    assert 'ACTION=="add|move", SUBSYSTEMS=="pci", RUN+=' in rules
    assert 'ACTION=="add|move", KERNEL=="bond0|bond0.100", RUN+=' in rules
    unit = machine.host.files.read("/etc/systemd/system/gpufleet-nics.service")
    assert "boot --concern nic_settings --again 2" in unit


def test_a_feature_may_have_an_underscore_as_those_of_tunnels_have(machine: Machine) -> None:
    state = machine.hardware("eth0")
    state["offload"]["tx-udp_tnl-segmentation"] = "on"
    (machine.root / HARDWARE.lstrip("/") / "eth0").write_text(json.dumps(state))
    machine.run({**ETH0, "offloads": {"tx-udp_tnl-segmentation": False}})
    assert machine.hardware("eth0")["offload"]["tx-udp_tnl-segmentation"] == "off"


def test_parts_of_a_card_must_be_named_and_keep_their_own_values(machine: Machine) -> None:
    """What stands for a virtual function in the switch of the card has the PCI address of the card."""
    card = os.path.dirname(place("eth0"))
    for name, file, text in (("eth0_0", "phys_port_name", "pf0vf0\n"), ("ib0.8001", "parent", "ib0\n")):
        folder = machine.root / f"{card}/{name}".lstrip("/")
        folder.mkdir()
        (folder / "mtu").write_text("1500\n")
        (folder / file).write_text(text)
        (folder / "device").symlink_to("../../../0000:17:00.0")
        (machine.root / f"{NET}/{name}".lstrip("/")).symlink_to(f"{card}/{name}")
    (machine.root / place("eth0").lstrip("/") / "phys_port_name").write_text("p0\n")
    machine.run({"match": {"driver": "mlx5_core"}, "mtu": 4200})
    assert [machine.mtu(name) for name in ("eth0", "eth1", "eth0_0", "ib0.8001")] == [4200, 4200, 1500, 1500]
    (machine.root / f"{card}/eth0_0/mtu".lstrip("/")).write_text("2000\n")
    machine.run(state="absent")
    assert [machine.mtu(name) for name in ("eth0", "eth0_0", "ib0.8001")] == [1500, 2000, 1500]


def test_ports_of_one_driver_are_told_apart_by_their_link_layer(machine: Machine) -> None:
    """IPoIB ports of mlx5_core take an MTU of their own; one whose layer cannot be read is matched by neither."""
    for name, kind in (("eth0", "1\n"), ("eth1", "32\n")):
        (machine.root / f"{place(name)}/type".lstrip("/")).write_text(kind)
    machine.run(
        {"match": {"driver": "mlx5_core", "link_layer": "Ethernet"}, "mtu": 9000},
        {"match": {"driver": "mlx5_core", "link_layer": "infiniband"}, "mtu": 4092},
    )
    assert [machine.mtu(name) for name in ("eth0", "eth1")] == [9000, 4092]
    (machine.root / f"{place('eth0')}/type".lstrip("/")).unlink()
    error = refusal(machine, {"match": {"driver": "mlx5_core", "link_layer": "ethernet"}, "mtu": 9000})
    assert "it matches no device" in str(error)


def test_absent_names_what_is_not_there_any_more(machine: Machine) -> None:
    machine.run({**ETH0, "rx_ring": 512}, {"match": {"name": "eth1"}, "rx_ring": 512})
    (machine.root / f"{NET}/eth0".lstrip("/")).unlink()
    outcome = machine.run(state="absent")
    assert machine.hardware("eth1")["ring"]["RX"] == [1024, 8192]
    assert [(entry.object, entry.setting, entry.reason) for entry in outcome.remaining.unmanaged] == [
        ("0000:17:00.0", "rx_ring", "the interface is missing, and so are its values")
    ]
    assert machine.host.files.names("/var/lib/gpufleet") == ("program",)


# --- who else sets the MTU --------------------------------------------------------------------------------------------

OWNERS: Mapping[str, Mapping[str, str]] = {
    "systemd-networkd": {
        "/run/systemd/netif/links/1": f"ADMIN_STATE=configured\nNETWORK_FILE={NETWORKD_FILE}\n",
        NETWORKD_FILE: "[Match]\nName=eth*\n\n[Link]\nMTUBytes=9000\n",
        f"{NETWORKD_FILE}.d/50-mtu.conf": "[Link]\n# of the switch\nMTUBytes=2K\n",
    },
    "netplan": {
        "/run/systemd/netif/links/1": "NETWORK_FILE=/run/systemd/network/10-netplan-eth0.network\n",
        "/run/systemd/network/10-netplan-eth0.network": "[Match]\nName=eth0\n[Link]\nMTUBytes=2048\n",
    },
    "NetworkManager": {
        "/run/NetworkManager/devices/1": "[device]\nmanaged=1\nconnection-uuid=6f1d-aa\n",
        PROFILE: "[connection]\nuuid=6f1d-aa\n\n[ethernet]\nmtu=2048\n",
        "/etc/NetworkManager/system-connections/other.nmconnection": "[connection]\nuuid=1\n[ethernet]\nmtu=1400\n",
    },
    "NetworkManager with ifcfg": {
        "/run/NetworkManager/devices/1": "[device]\nconnection-uuid=6f1d-aa\n",
        "/etc/sysconfig/network-scripts/ifcfg-eth0": 'DEVICE="eth0"\nUUID="6f1d-aa"\nMTU="2048"\n',
    },
    "NetworkManager by default": {
        "/run/NetworkManager/devices/1": "[device]\nconnection-uuid=6f1d-aa\n[dhcp4]\ndhcp4.interface_mtu=1400\n",
        PROFILE: "[connection]\nuuid=6f1d-aa\n[ethernet]\n",
        "/etc/NetworkManager/NetworkManager.conf": "[main]\nplugins=keyfile\n[connection]\nethernet.mtu=1400\n",
        "/etc/NetworkManager/conf.d/20-mtu.conf": "# of all\n[connection]\nethernet.mtu=2048\n",
        "/etc/NetworkManager/conf.d/30-storage.conf": "[connection]\nmatch-device=eth9\nethernet.mtu=1300\n",
    },
    "ifupdown": {
        "/run/network/ifstate": "lo=lo\neth0=eth0\n",
        "/etc/network/interfaces": "iface lo inet loopback\n  mtu 1\n",
        "/etc/network/interfaces.d/gpu": "auto eth0\niface eth0 inet static\n  address 10.0.0.7/24\n  mtu 2048\n",
    },
    "wicked": {"/run/wicked/x": "", "/etc/sysconfig/network/ifcfg-eth0": "STARTMODE=auto\nMTU='2048'\n"},
    # As netplan writes it, and as NetworkManager and dhclient were seen to, with a lease from before.
    "DHCP, by netplan": {
        "/run/systemd/netif/links/1": "NETWORK_FILE=/run/systemd/network/10-netplan-eth0.network\n",
        "/run/systemd/network/10-netplan-eth0.network": "[Network]\nDHCP=ipv4\n[DHCP]\nRouteMetric=100\nUseMTU=true\n",
        "/run/systemd/netif/leases/1": "# This is private data. Do not parse.\nADDRESS=10.0.0.7\nMTU=2048\n",
    },
    "DHCP, by systemd-networkd": {
        "/run/systemd/netif/links/1": f"ADMIN_STATE=configured\nNETWORK_FILE={NETWORKD_FILE}\n",
        NETWORKD_FILE: "[Match]\nName=eth*\n[DHCPv4]\nUseMTU=no\n",
        f"{NETWORKD_FILE}.d/50-mtu.conf": "[DHCPv4]\nUseMTU=yes\n",
        "/run/systemd/netif/leases/1": "MTU=2048\n",
    },
    "DHCP, by NetworkManager": {
        "/run/NetworkManager/devices/1": "[device]\nconnection-uuid=6f1d-aa\n\n[dhcp4]\ndhcp4.interface_mtu=2048\n",
        PROFILE: "[connection]\nuuid=6f1d-aa\n[ethernet]\n\n[ipv4]\nmethod=auto\n",
    },
    "DHCP, by dhclient": {
        "/run/network/ifstate": "eth0=eth0\n",
        "/etc/network/interfaces": "auto eth0\niface eth0 inet dhcp\n",
        "/var/lib/dhcp/dhclient.eth0.leases": "lease {\n  option interface-mtu 1400;\n}\n"
        "lease {\n  fixed-address 10.0.0.7;\n  option interface-mtu 2048;\n}\n",
    },
}
PLACES = {
    "systemd-networkd": f"{NETWORKD_FILE}.d/50-mtu.conf:3",
    "netplan": "/run/systemd/network/10-netplan-eth0.network:4",
    "NetworkManager": f"{PROFILE}:5",
    "NetworkManager with ifcfg": "/etc/sysconfig/network-scripts/ifcfg-eth0:3",
    "NetworkManager by default": "/etc/NetworkManager/conf.d/20-mtu.conf:3",
    "ifupdown": "/etc/network/interfaces.d/gpu:4",
    "wicked": "/etc/sysconfig/network/ifcfg-eth0:2",
    "DHCP, by netplan": "/run/systemd/netif/leases/1:3 (found 2048, wanted 9000). Set mtu 9000 on the DHCP server, or "
    "set use-mtu: false in /etc/netplan, ",
    "DHCP, by systemd-networkd": f"/run/systemd/netif/leases/1:1 (found 2048, wanted 9000). Set mtu 9000 on the DHCP "
    f"server, or set UseMTU=no in {NETWORKD_FILE}, ",
    "DHCP, by NetworkManager": "/run/NetworkManager/devices/1:5",
    "DHCP, by dhclient": "/var/lib/dhcp/dhclient.eth0.leases:6",
}


def test_other_owners_of_the_mtu_of_several_interfaces_are_all_named(tmp_path: Path) -> None:
    of_eth1 = {"/etc/network/interfaces.d/two": "auto eth1\niface eth1 inet manual\n  mtu 1280\n"}
    states = {"/run/network/ifstate": "eth0=eth0\neth1=eth1\n"}
    machine = Machine(tmp_path, {**OWNERS["ifupdown"], **of_eth1, **states})
    error = refusal(machine, {"match": {"name": ["eth0", "eth1"]}, "mtu": 9000})
    assert all(place in str(error) for place in (PLACES["ifupdown"], "/etc/network/interfaces.d/two:3"))


@pytest.mark.parametrize("owner", OWNERS)
def test_another_owner_of_the_mtu_is_named_with_file_and_line(tmp_path: Path, owner: str) -> None:
    machine = Machine(tmp_path, OWNERS[owner])
    error = refusal(machine, {**ETH0, "mtu": 9000})
    assert isinstance(error, OwnedByAnother)
    assert PLACES[owner] in str(error)
    assert ("/etc/netplan" in str(error)) is ("netplan" in owner)
    assert ("what the DHCP server says" in str(error)) is owner.startswith("DHCP")
    # It does not keep it from the value that it states itself, nor from one for now.
    machine.run({**ETH0, "mtu": 2048})
    assert machine.mtu("eth0") == 2048
    machine.run({**ETH0, "mtu": 9000}, permanent=False)
    assert machine.mtu("eth0") == 9000


@pytest.mark.parametrize(
    "files",
    [
        {
            "/run/systemd/netif/links/1": f"ADMIN_STATE=unmanaged\nNETWORK_FILE={NETWORKD_FILE}\n",
            NETWORKD_FILE: "[Link]\nMTUBytes=2048\n",
        },
        {"/run/systemd/netif/links/2": f"NETWORK_FILE={NETWORKD_FILE}\n", NETWORKD_FILE: "[Link]\nMTUBytes=2048\n"},
        {
            "/run/NetworkManager/devices/1": "connection-uuid=6f1d-aa\n",
            PROFILE: "[connection]\nuuid=6f1d-aa\n[ethernet]\nmtu=0\n",
        },
        {"/etc/network/interfaces": "iface eth0 inet static\n  mtu 2048\n"},
        {"/etc/sysconfig/network/ifcfg-eth0": "STARTMODE=auto\nMTU='2048'\n"},
        {
            "/run/systemd/netif/links/1": f"NETWORK_FILE={NETWORKD_FILE}\n",
            NETWORKD_FILE: "[Network]\nDHCP=yes\n",
            "/run/systemd/netif/leases/1": "MTU=2048\n",
        },
        {
            "/run/systemd/netif/links/1": f"NETWORK_FILE={NETWORKD_FILE}\n",
            NETWORKD_FILE: "[Link]\nMTUBytes=9000\n[DHCPv4]\nUseMTU=yes\n",
            "/run/systemd/netif/leases/1": "MTU=2048\n",
        },
        {
            "/run/NetworkManager/devices/1": "[device]\nconnection-uuid=6f1d-aa\n[dhcp4]\ndhcp4.interface_mtu=2048\n",
            PROFILE: "[connection]\nuuid=6f1d-aa\n[ethernet]\nmtu=9000\n",
        },
        {
            "/run/network/ifstate": "eth0=eth0\n",
            "/etc/network/interfaces": "iface eth0 inet dhcp\n",
            "/var/lib/dhcp/dhclient.eth0.leases": "lease {\n  option interface-mtu 2048;\n}\nlease {\n}\n",
        },
        {
            "/run/network/ifstate": "eth0=eth0\n",
            "/etc/network/interfaces": "iface eth0 inet static\n",
            "/var/lib/dhcp/dhclient.eth0.leases": "lease {\n  option interface-mtu 2048;\n}\n",
        },
    ],
    ids=[
        "unmanaged",
        "another-interface",
        "automatic",
        "not-brought-up-by-ifupdown",
        "without-wicked",
        "leased-and-not-taken",
        "leased-and-stated",
        "leased-and-in-the-profile",
        "not-in-the-last-lease",
        "leased-before-it-was-static",
    ],
)
def test_who_says_nothing_of_the_mtu_is_no_owner_of_it(tmp_path: Path, files: Mapping[str, str]) -> None:
    machine = Machine(tmp_path, files)
    machine.run({**ETH0, "mtu": 9000})
    assert machine.mtu("eth0") == 9000


@pytest.mark.parametrize("command", ["mtu jumbo", "mtu", f"mtu {'9' * 5000}"])
def test_an_mtu_that_ip_refuses_is_no_number_to_hold_on_to(tmp_path: Path, command: str) -> None:
    interfaces = f"iface eth0 inet static\n  up ip link set dev eth0 {command}\n"
    machine = Machine(tmp_path, {"/run/network/ifstate": "eth0=eth0\n", "/etc/network/interfaces": interfaces})
    machine.run({**ETH0, "mtu": 9000}, permanent=False)
    assert machine.mtu("eth0") == 9000


def test_a_lease_with_a_number_of_any_length_states_no_mtu(tmp_path: Path) -> None:
    lease = f"[device]\nconnection-uuid=6f1d-aa\n[dhcp4]\ndhcp4.interface_mtu={'9' * 5000}\n"
    machine = Machine(tmp_path, {"/run/NetworkManager/devices/1": lease})
    machine.run({**ETH0, "mtu": 9000})
    assert machine.mtu("eth0") == 9000


def test_folders_beside_the_files_of_networks_are_left_alone(tmp_path: Path) -> None:
    files = {
        "/run/network/ifstate": "eth0=eth0\n",
        "/etc/network/interfaces": "iface eth0 inet dhcp\n",
        "/etc/network/interfaces.d/old/gpu": "iface eth0 inet static\n  mtu 1400\n",
        "/run/systemd/netif/links/1": f"NETWORK_FILE={NETWORKD_FILE}\n",
        NETWORKD_FILE: "[Match]\nName=eth*\n",
        f"{NETWORKD_FILE}.d/old.conf/mtu": "",
        "/run/NetworkManager/devices/1": "[device]\nconnection-uuid=6f1d-aa\n",
        "/etc/NetworkManager/dispatcher.d/no-wait.d/.keep": "",
    }
    machine = Machine(tmp_path, files)
    machine.run({**ETH0, "mtu": 9000})
    assert machine.mtu("eth0") == 9000


# --- peers ------------------------------------------------------------------------------------------------------------


def test_an_mtu_is_in_sync_only_when_its_peers_answer_packets_of_that_size(machine: Machine) -> None:
    declared = {**ETH0, "mtu": 9000, "peers": ["10.0.0.2", "fd00::2"]}
    machine.peers = {"10.0.0.2": 9000, "fd00::2": 1500}
    outcome = machine.run(declared)
    assert machine.mtu("eth0") == 9000
    assert outcome.remaining.status == "pending"
    assert outcome.remaining.needs == ("peer",)
    reason = "packets of this size do not reach the peer and come back"
    assert outcome.as_dict()["pending_reasons"] == [f"eth0 path to fd00::2 is 1500 bytes, wanted 9000 bytes: {reason}"]
    paths = {row.setting: row.effective for row in outcome.remaining.settings if row.setting.startswith("path")}
    assert paths == {"path to 10.0.0.2": "9000 bytes", "path to fd00::2": "1500 bytes"}
    del machine.peers["fd00::2"]
    paths = {row.setting: row.effective for row in machine.run(declared).remaining.settings}
    assert paths["path to fd00::2"] == "no answer"
    machine.peers["fd00::2"] = 9000
    outcome = machine.run(declared)
    assert (outcome.remaining.status, outcome.remaining.needs, outcome.changes) == ("in_sync", (), ())


def test_a_router_that_says_which_packets_it_takes_is_heard(machine: Machine) -> None:
    said = "From 10.0.0.254 icmp_seq=1 Frag needed and DF set (mtu = 4000)\n"
    # As iputils: in quiet mode it tells nobody.
    machine.host.commands.programs["ping"] = lambda argv: Completed(1, "" if "-q" in argv else said, "")
    outcome = machine.run({**ETH0, "mtu": 9000, "peers": ["10.0.0.2"]})
    assert [row.effective for row in outcome.remaining.settings if row.setting.startswith("path")] == ["4000 bytes"]


def test_without_ping_the_peers_are_unmanaged(machine: Machine) -> None:
    del machine.host.commands.programs["ping"]
    outcome = machine.run({**ETH0, "mtu": 9000, "peers": ["10.0.0.2"]})
    assert [entry.reason for entry in outcome.remaining.unmanaged] == [
        "ping is not installed; install iputils-ping (Debian, Ubuntu) or iputils"
    ]


def test_a_driver_that_takes_a_value_and_keeps_another_is_not_in_effect(machine: Machine) -> None:
    ethtool = machine.host.commands.programs["ethtool"]

    def rounding(argv: Any) -> Any:
        rounded = ["2048" if word == "2000" else word for word in argv]
        return ethtool(rounded)

    machine.host.commands.programs["ethtool"] = rounding
    with pytest.raises(GpuFleetError) as caught:
        machine.run({**ETH0, "rx_ring": 2000})
    assert caught.value.code == "not_in_effect"
    assert (caught.value.found, caught.value.wanted) == (2048, 2000)
    assert machine.host.files.exists(f"{HARDWARE}/eth0")
