# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Ports of network cards in the facts, what is wrong with them, and how the growth of their counters is kept."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._machine.boot_id import BOOT_ID as BOOT_ID_FILE
from ansible_collections.gpufleet.node.plugins.module_utils._node import verdict
from ansible_collections.gpufleet.node.plugins.module_utils._node.facts import collect, port_record, ports
from ansible_collections.gpufleet.node.plugins.module_utils._node.port_health import ENDS, LIMITS, problems_of
from ansible_collections.gpufleet.node.tests.unit.node.facts_machine import Trees, quiet_host
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build

ROOT = "/sys/devices/pci0000:15/0000:15:01.0"
BOOT_ID = "3b2f9f0c-6f0e-4a4e-8c0f-1d9c2a7e5b61"
G4, G5 = "16.0 GT/s PCIe", "32.0 GT/s PCIe"


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Trees:
    return Trees(tmp_path_factory.mktemp("trees"))


def card(number: int, **changes: Any) -> Dict[str, str]:
    """The files of an RDMA card with one port and one interface; ``changes`` are of files, by what they are called."""
    address, device, interface = f"0000:{number:02x}:00.0", f"mlx5_{number}", f"ib{number}"
    path, net = f"{ROOT}/{address}", f"/sys/class/net/{interface}"
    port = f"{path}/infiniband/{device}/ports/1"
    said = {
        "link_layer": "InfiniBand",
        "state": "4: ACTIVE",
        "phys_state": "5: LinkUp",
        "rate": "400 Gb/sec (4X NDR)",
        "width": "16",
        "speed": G5,
        "flags": "0x1003",
        "up_count": "1",
        "physfn": "",
        "counters": {},
        **changes,
    }
    files = {
        f"{path}/class": "0x020700",
        f"{path}/vendor": "0x15b3",
        f"{path}/device": "0x1021",
        f"{path}/subsystem_vendor": "0x15b3",
        f"{path}/subsystem_device": "0x0041",
        f"{path}/current_link_speed": said["speed"],
        f"{path}/current_link_width": said["width"],
        f"{path}/max_link_speed": G5,
        f"{path}/max_link_width": "16",
        f"{path}/net/{interface}/type": "32",
        **{f"{port}/{name}": said[name] for name in ("link_layer", "state", "phys_state", "rate")},
        f"{port}/counters/symbol_error": "0",
        f"{port}/hw_counters/out_of_sequence": "0",
        f"{net}/flags": said["flags"],
        f"{net}/carrier_up_count": said["up_count"],
        f"{net}/statistics/rx_crc_errors": "0",
    }
    for name, count in said["counters"].items():
        folder = "hw_counters" if name in ports.HARDWARE_COUNTERS else "counters"
        files[f"{port}/{folder}/{name}"] = str(count)
    return {name: f"{text}\n" for name, text in files.items()}


def machine(root: Path, *cards: Mapping[str, str], uptime: float = 86400.0, boot_id: str = BOOT_ID) -> FakeHost:
    files = {
        f"{ROOT}/max_link_speed": f"{G5}\n",
        f"{ROOT}/max_link_width": "16\n",
        "/proc/uptime": f"{uptime} 1.0\n",
        BOOT_ID_FILE: f"{boot_id}\n",
    }
    for one in cards:
        files.update(one)
    addresses = {path.split("/")[5] for path in files if path.startswith(f"{ROOT}/0000:")}
    links = {f"/sys/bus/pci/devices/{address}": f"{ROOT}/{address}" for address in addresses}
    present = {path: target for path, target in links.items() if not (root / path.lstrip("/")).is_symlink()}
    return build(root, files, present)


def network(host: FakeHost) -> Dict[str, Any]:
    facts = collect.gather(host, ("network",))
    assert facts["network"] is not None, facts["unavailable"]
    found: Dict[str, Any] = facts["network"]
    return found


def set_counter(root: Path, number: int, name: str, count: int) -> None:
    folder = "hw_counters" if name in ports.HARDWARE_COUNTERS else "counters"
    path = f"{ROOT}/0000:{number:02x}:00.0/infiniband/mlx5_{number}/ports/1/{folder}/{name}"
    build(root, {path: f"{count}\n"})


def at(root: Path, uptime: float) -> None:
    build(root, {"/proc/uptime": f"{uptime} 1.0\n"})


# --- what is read -----------------------------------------------------------------------------------------------------


def test_every_port_of_a_node_is_there_with_its_link_and_what_it_could_be(trees: Trees) -> None:
    found = network(quiet_host(trees("hgx-2socket")))["ports"]
    kinds = [(port["name"], port["kind"], port["interfaces"], port["rate_gbps"]) for port in found]
    assert kinds[0] == ("mlx5_0/1", "infiniband", ["ibp24s0"], 400.0)
    assert ("mlx5_8/1", "roce", ["enp41s0f0np0"], 200.0) in kinds
    assert len(found) == 12
    first = found[0]
    assert (first["state"], first["physical_state"]) == ("active", "link_up")
    assert (first["peers"], first["peers_active"]) == (7, 7)
    # 32 GT/s on 16 lanes with 128b/130b.
    assert (first["pci_gbps"], first["best_pci_gbps"]) == (504.1, 504.1)
    assert [port["name"] for port in found if not port["healthy"]] == []
    # A second port of a card has its like on the other card, not beside it.
    assert {port["peers"] for port in found if port["kind"] == "roce"} == {1}


def test_a_port_that_was_never_cabled_and_has_no_like_is_well(trees: Trees) -> None:
    first, second = network(quiet_host(trees("single-socket")))["ports"]
    assert (first["kind"], first["state"], first["rate_gbps"]) == ("ethernet", "active", 10.0)
    assert (second["state"], second["was_active"], second["rate_gbps"]) == ("down", False, None)
    assert second["healthy"] is True
    # The slot is narrow, and the link as wide as that.
    assert first["pci_gbps"] == first["best_pci_gbps"] < 63


def test_an_interface_that_says_no_speed_has_none(trees: Trees) -> None:
    (only,) = network(quiet_host(trees("vm-without-numa")))["ports"]
    assert (only["state"], only["rate_gbps"], only["pci_gbps"]) == ("active", None, None)
    assert only["unavailable"]["rate_gbps"] == "/sys/class/net/ens3/speed says '-1'"


def test_reading_ports_asks_no_driver_and_runs_nothing(trees: Trees) -> None:
    host = quiet_host(trees("hgx-2socket"))
    facts = collect.gather(host, ("network",))
    assert list(facts) == ["system", "network", "unavailable"]
    assert (host.commands.calls, host.files.log) == ([], [])


def test_virtual_functions_and_what_stands_for_them_are_no_ports(tmp_path: Path) -> None:
    path = f"{ROOT}/0000:01:00.0"
    representor = {f"{path}/net/eth7/type": "1\n", "/sys/class/net/eth7/phys_port_name": "pf0vf3\n"}
    host = machine(tmp_path, card(1), card(2), representor)
    build(tmp_path, {}, {f"{ROOT}/0000:02:00.0/physfn": path})
    assert [(port["name"], port["interfaces"]) for port in network(host)["ports"]] == [("mlx5_1/1", ["ib1"])]


def test_a_counter_that_fails_once_to_be_read_does_not_count_as_0(tmp_path: Path) -> None:
    host = machine(tmp_path, card(1, counters={"symbol_error": 5}))
    failed = fail(host, "symbol_error", times=1)
    (port,) = network(host)["ports"]
    assert len(failed) == 1
    assert [error["total"] for error in port["errors"]] == [5]


def fail(host: FakeHost, counter: str, *, times: int, number: int = errno.EIO) -> List[str]:
    """Let a counter fail to be read so many times; the answer is the paths that have failed."""
    read, failed = host.files.read, []

    def busy(path: str) -> str:
        if path.endswith(f"/{counter}") and len(failed) < times:
            failed.append(path)
            raise OSError(number, os.strerror(number), path)
        return read(path)

    host.files.read = busy  # type: ignore[method-assign]
    return failed


def test_a_counter_that_cannot_be_read_is_null_and_does_not_make_the_port_sick(tmp_path: Path) -> None:
    host = machine(tmp_path, card(1, counters={"symbol_error": 0xFFFF}))
    fail(host, "symbol_error", times=2)
    (port,) = network(host)["ports"]
    (error,) = port["errors"]
    path = f"{ROOT}/0000:01:00.0/infiniband/mlx5_1/ports/1/counters/symbol_error"
    why = f"{path}: input/output error"
    unavailable = {"total": why, "growth": why}
    assert error == {"counter": "symbol_error", "total": None, "growth": None, "unavailable": unavailable}
    assert (port["healthy"], port["counters_complete"]) == (True, True)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_counter_that_the_driver_does_not_count_is_0(tmp_path: Path, number: int) -> None:
    host = machine(tmp_path, card(1))
    fail(host, "symbol_error", times=9, number=number)
    assert network(host)["ports"][0]["errors"] == []
    # What older kernels say of them.
    build(tmp_path, {f"{ROOT}/0000:01:00.0/infiniband/mlx5_1/ports/1/counters/symbol_error": "N/A (no PMA)\n"})
    assert network(machine(tmp_path))["ports"][0]["errors"] == []


def test_counters_that_cannot_be_read_in_time_are_left_out_and_make_the_port_sick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = machine(tmp_path, card(1, counters={"symbol_error": 5}))
    monkeypatch.setattr(ports, "BUDGET_SECONDS", -1.0)
    (port,) = network(host)["ports"]
    assert (port["counters_complete"], port["errors"], port["healthy"]) == (False, [], False)
    assert port["problems"] == ["its counters cannot be read in time: its firmware may hang"]
    # Else they would seem to have grown by all that they have, and a port that is well would be sick.
    keep(host)
    assert host.files.log == []


# --- what is wrong ----------------------------------------------------------------------------------------------------

DOWN = {"state": "1: DOWN", "phys_state": "2: Polling", "up_count": "0"}


@pytest.mark.parametrize(
    ("changes", "problems"),
    [
        ({}, []),
        ({**DOWN, "up_count": "2"}, ["it has lost its link (polling)"]),
        ({**DOWN, "counters": {"link_downed": 1}}, ["it has lost its link (polling)"]),
        # It never had one since the boot, but the others do.
        (DOWN, ["it has no link (polling), but 3 other ports like it have one"]),
        ({"state": "2: INIT"}, ["it is in the state init, waiting for a subnet manager"]),
        ({"phys_state": "6: LinkErrorRecovery"}, ["its link is in link error recovery"]),
        ({"rate": "200 Gb/sec (2X NDR)"}, ["its rate is 200 Gb/s, but a port like it has 400"]),
        ({"width": "8"}, ["its PCI Express link carries 252.1 Gb/s, but card and slot support 504.1"]),
        ({"speed": G4}, ["its PCI Express link carries 252.1 Gb/s, but card and slot support 504.1"]),
        (
            {"counters": {"symbol_error": 120 * 24 + 1}},
            ["symbol_error has grown by 2881 in 24.0 hours; the limit is 120 an hour"],
        ),
        ({"counters": {"symbol_error": 120 * 24}}, []),
        (
            {"counters": {"symbol_error": 0xFFFF}},
            ["symbol_error has reached its maximum, 65535: clear it with perfquery -R"],
        ),
        # Programs and routes bring these about.
        ({"counters": {"out_of_sequence": 10**9, "rnr_nak_retry_err": 10**6}}, []),
    ],
)
def test_a_port_is_sick_for_a_reason(tmp_path: Path, changes: Dict[str, Any], problems: List[str]) -> None:
    host = machine(tmp_path, card(1), card(2), card(3, **changes), card(4))
    found = {port["name"]: port["problems"] for port in network(host)["ports"]}
    assert found == {"mlx5_1/1": [], "mlx5_2/1": [], "mlx5_3/1": problems, "mlx5_4/1": []}


@pytest.mark.parametrize(("cards", "sick"), [(2, False), (3, True)])
def test_one_of_two_may_be_meant_to_have_no_link(tmp_path: Path, cards: int, sick: bool) -> None:
    host = machine(tmp_path, *(card(number) for number in range(1, cards)), card(cards, **DOWN))
    assert bool(network(host)["ports"][-1]["problems"]) is sick


def test_what_was_switched_off_is_not_sick(tmp_path: Path) -> None:
    off = {"state": "1: DOWN", "phys_state": "3: Disabled", "link_layer": "Ethernet", "up_count": "1"}
    host = machine(tmp_path, card(1, **off), *(card(number, link_layer="Ethernet") for number in (2, 3, 4)))
    assert [port["problems"] for port in network(host)["ports"]] == [[], [], [], []]


def test_within_an_hour_a_counter_may_grow_by_as_much_as_in_an_hour(tmp_path: Path) -> None:
    host = machine(tmp_path, card(1, counters={"symbol_error": 120, "link_downed": 3}), uptime=60.0)
    assert network(host)["ports"][0]["problems"] == []


def test_without_a_clock_no_growth_is_judged(tmp_path: Path) -> None:
    host = machine(tmp_path, card(1, counters={"symbol_error": 60000}))
    host.files.remove("/proc/uptime")
    found = network(host)
    assert (found["seconds"], found["ports"][0]["problems"]) == (None, [])
    assert found["unavailable"] == {"seconds": "there is no /proc/uptime"}


def test_limits_are_of_counters_that_are_read() -> None:
    assert set(LIMITS) <= {*ports.PORT_COUNTERS, *ports.HARDWARE_COUNTERS, *ports.STATISTICS, "carrier_changes"}
    assert set(ENDS) <= set(LIMITS)


def test_another_limit_is_kept_to_and_minus_one_is_none() -> None:
    port = {"state": "active", "errors": [{"counter": "symbol_error", "total": 50, "growth": 50}]}
    assert problems_of(port, 3600.0) == []
    assert problems_of(port, 3600.0, {"symbol_error": 49}) == [
        "symbol_error has grown by 50 in 1.0 hours; the limit is 49 an hour"
    ]
    assert problems_of(port, 3600.0, {"symbol_error": -1}) == []


# --- what a fleet asks for --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({}, []),
        ({"required": ["mlx5_*"]}, ["port mlx5_2/1 (ib2): it is down (polling), but must be active"]),
        ({"required": ["ib2"], "ignored": ["0000:02:00.0"]}, []),
        ({"required": ["mlx5_1", "mlx5_9"]}, ["port mlx5_9: there is no such port"]),
        ({"rate_gbps": 400}, []),
        ({"rate_gbps": 800}, ["port mlx5_1/1 (ib1): its rate is 400 Gb/s, but must be 800"]),
        # Only those that are named must have it.
        ({"rate_gbps": 800, "required": ["eth*"]}, ["port eth*: there is no such port"]),
    ],
)
def test_a_fleet_says_which_ports_it_needs(tmp_path: Path, asked: Dict[str, Any], found: List[str]) -> None:
    host = machine(tmp_path, card(1), card(2, **DOWN))
    assert verdict.sick_ports({"network": network(host)}, **asked) == found


@pytest.mark.parametrize("node", [{}, {"network": None}])
def test_a_node_whose_ports_could_not_be_read_has_no_sick_one(node: Dict[str, Any]) -> None:
    assert verdict.sick_ports(node, required=["mlx5_0"]) == []


# --- growth -----------------------------------------------------------------------------------------------------------


def growth(host: FakeHost, counter: str = "symbol_error") -> Optional[int]:
    errors = network(host)["ports"][0]["errors"]
    return next((int(error["growth"]) for error in errors if error["counter"] == counter), None)


def keep(host: FakeHost) -> None:
    port_record.keep(host.files, network(host))


def test_growth_is_counted_from_what_was_kept_an_hour_or_two_ago(tmp_path: Path) -> None:
    host = machine(tmp_path, card(1, counters={"symbol_error": 1000}), uptime=100.0)
    assert (network(host)["since"], growth(host)) == ("boot", 1000)
    keep(host)
    assert (network(host)["since"], growth(host)) == ("record", 0)
    steps = [(1800.0, 1010, 10), (3800.0, 1030, 30), (5000.0, 1040, 40), (7500.0, 1050, 20), (11200.0, 1051, 1)]
    for uptime, total, _grown in steps:
        at(tmp_path, uptime)
        set_counter(tmp_path, 1, "symbol_error", total)
        keep(host)
        document = json.loads(host.files.read(port_record.PATH))
        assert len(document["samples"]) <= 2
    # At 11200 s the samples are those of 7500 and 11200.
    assert (growth(host), network(host)["seconds"]) == (1, 3700)


def test_a_sick_port_recovers_when_its_counter_stands_still(tmp_path: Path) -> None:
    host = machine(tmp_path, card(1, counters={"symbol_error": 60000}), uptime=7200.0)
    assert network(host)["ports"][0]["healthy"] is False
    keep(host)
    at(tmp_path, 9000.0)
    assert network(host)["ports"][0]["healthy"] is True


def test_a_counter_that_could_not_be_read_when_it_was_kept_has_not_grown_by_all_it_has(tmp_path: Path) -> None:
    host = machine(tmp_path, card(1, counters={"symbol_error": 60000}), uptime=100.0)
    fail(host, "symbol_error", times=2)
    keep(host)
    at(tmp_path, 5000.0)
    (port,) = network(host)["ports"]
    why = "it could not be read when the counters were saved"
    (error,) = port["errors"]
    assert error == {"counter": "symbol_error", "total": 60000, "growth": None, "unavailable": {"growth": why}}
    assert port["healthy"] is True
    # The samples that are kept later have it.
    keep(host)
    at(tmp_path, 9000.0)
    set_counter(tmp_path, 1, "symbol_error", 60001)
    keep(host)
    assert growth(host) == 1


@pytest.mark.parametrize("text", ["", "garbage\n", "-1\n", "1 2\n"])
def test_what_is_no_number_is_not_known_and_no_0_to_grow_from(tmp_path: Path, text: str) -> None:
    host = machine(tmp_path, card(1, counters={"symbol_error": 60000}), uptime=100.0)
    path = f"{ROOT}/0000:01:00.0/infiniband/mlx5_1/ports/1/counters/symbol_error"
    build(tmp_path, {path: text})
    (error,) = network(host)["ports"][0]["errors"]
    assert (error["total"], error["growth"]) == (None, None)
    assert error["unavailable"]["total"].endswith(f"/symbol_error reads {text.strip()!r}")
    keep(host)
    at(tmp_path, 5000.0)
    set_counter(tmp_path, 1, "symbol_error", 60000)
    (port,) = network(host)["ports"]
    assert (port["errors"][0]["growth"], port["problems"]) == (None, [])


def test_a_port_that_was_not_there_when_counters_were_kept_has_not_grown_by_all_it_has(tmp_path: Path) -> None:
    host = machine(tmp_path, card(1), uptime=100.0)
    keep(host)
    host = machine(tmp_path, card(1), card(2, counters={"symbol_error": 60000}), uptime=5000.0)
    _known, other = network(host)["ports"]
    assert (other["errors"][0]["total"], other["errors"][0]["growth"], other["problems"]) == (60000, None, [])
    # From then on it is counted.
    keep(host)
    at(tmp_path, 9000.0)
    keep(host)
    set_counter(tmp_path, 2, "symbol_error", 60002)
    (error,) = network(host)["ports"][1]["errors"]
    assert error["growth"] == 2


def test_a_counter_that_began_anew_has_grown_by_all_of_it(tmp_path: Path) -> None:
    host = machine(tmp_path, card(1, counters={"symbol_error": 1000}))
    keep(host)
    set_counter(tmp_path, 1, "symbol_error", 7)
    assert growth(host) == 7


def test_what_was_kept_before_the_boot_is_not_compared_with(tmp_path: Path) -> None:
    host = machine(tmp_path, card(1, counters={"symbol_error": 1000}))
    keep(host)
    build(tmp_path, {BOOT_ID_FILE: "another\n", "/proc/uptime": "60.0 1.0\n"})
    assert (network(host)["since"], growth(host)) == ("boot", 1000)
    keep(host)
    assert len(json.loads(host.files.read(port_record.PATH))["samples"]) == 1


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"schema": 2}', '{"schema": 1, "boot_id": "x", "samples": []}', '{"schema": 1, "samples": 3}'],
)
def test_a_damaged_record_is_named_not_believed_and_replaced(tmp_path: Path, text: str) -> None:
    host = machine(tmp_path, card(1, counters={"symbol_error": 1000}))
    build(tmp_path, {port_record.PATH: text})
    found = network(host)
    assert (found["since"], growth(host)) == ("boot", 1000)
    assert "is damaged" in found["note"]
    keep(host)
    assert (network(host)["note"], growth(host)) == ("", 0)


def test_of_two_that_keep_counters_at_once_one_does_and_the_other_goes_on(tmp_path: Path) -> None:
    host = machine(tmp_path, card(1, counters={"symbol_error": 1000}))
    found = network(host)
    with host.files.lock(port_record.LOCK, 0.0):
        port_record.keep(FakeHost(tmp_path).files, found)
    assert not host.files.exists(port_record.PATH)


def test_a_look_keeps_nothing(tmp_path: Path) -> None:
    host = machine(tmp_path, card(1, counters={"symbol_error": 1000}))
    collect.gather(host, collect.DEFAULT_PARTS)
    assert host.files.log == []
