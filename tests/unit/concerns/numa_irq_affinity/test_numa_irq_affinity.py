# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import errno
import json
import os
import re
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._linux import cpulist
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity.hotplug import RULES, UNIT
from ansible_collections.gpufleet.node.tests.unit.concerns.numa_irq_affinity.irq_machine import (
    BEFORE,
    DECLARED,
    DRIVE0,
    ETH0,
    ETH1,
    GPU0,
    HOME,
    LOCAL,
    NOTE,
    Balancing,
    IrqMachine,
    changes_of,
    isolating,
    of_eth0,
    params,
    run,
    unmanaged_of,
    with_irqbalance,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.numa_irq_affinity.irq_trees import (
    NETWORK,
    PCI,
    function,
    irq,
    large,
    two_sockets,
)
from ansible_collections.gpufleet.node.tests.unit.support import KernelFiles, Killed, snapshot

ETH: Dict[str, Any] = {"match": {"interface": "eth0"}}
NVME_QUEUE = "it cannot be moved: its smp_affinity_list is read-only"
REFUSED = "the kernel refused to move it, and will until the next boot"


def absent(machine: IrqMachine, **options: Any) -> Any:
    return run(machine, state="absent", **options)


def cpus_of(machine: IrqMachine, *addresses: str) -> List[int]:
    """The one CPU of each interrupt of these devices."""
    return [int(cpus) for address in addresses for cpus in machine.of(address).values()]


# --- placing ----------------------------------------------------------------------------------------------------------


def test_one_call_sends_every_movable_interrupt_to_a_cpu_of_its_own_next_to_its_device(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    run(machine, LOCAL)
    for node in (0, 1):
        movable = [100, 110, 111, 112, 113, 120, 121, 130]
        used = [machine.cpus(number + 100 * node) for number in movable]
        assert {int(cpu) for cpu in used} == HOME[node]


def test_the_first_entry_that_matches_says_where_to(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    run(machine, {**ETH, "cpus": "6,7"}, {"match": {"class": "network"}, "numa_node": 0}, reserved_cpus="0")
    assert set(machine.of(ETH0).values()) == {"6", "7"}
    assert set(cpus_of(machine, ETH1)) < HOME[0] - {0}
    assert machine.of(GPU0) == {"nvidia": "0-15"}


def test_spread_all_gives_every_interrupt_all_cpus_and_is_compared_as_a_set(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    entry = {**ETH, "cpus": "0-2,9", "spread": "all"}
    run(machine, entry)
    assert machine.of(ETH0) == {"eth0": "0-2,9", "eth0-TxRx-0": "0-2,9"}
    (tmp_path / "proc/irq/120/smp_affinity_list").write_text("0,1,2,9\n")
    machine.writes()
    assert (run(machine, entry).changes, machine.writes()) == ((), [])


def test_a_device_that_is_added_moves_no_interrupt_that_is_there(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    run(machine, LOCAL, reserved_cpus="0")
    machine.writes()
    machine.add(
        function("0000:06:00.0", NETWORK, irq(400, "new-0", cpus="0-15"), node=0, local="0-3,8-11", net=["eth9"])
    )
    outcome = run(machine, LOCAL, reserved_cpus="0")
    assert [path for path, _text in machine.writes()] == ["/proc/irq/400/smp_affinity_list"]
    assert [change[:2] for change in changes_of(outcome)] == [("eth9", "interrupt new-0")]


def test_interrupts_that_were_moved_away_come_back(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    run(machine, LOCAL)
    home = machine.of(ETH0)
    (tmp_path / "proc/irq/120/smp_affinity_list").write_text("7\n")
    outcome = run(machine, LOCAL)
    assert machine.of(ETH0) == home
    assert changes_of(outcome) == [("eth0", "interrupt eth0", "7", home["eth0"])]


def test_after_the_driver_requested_its_interrupts_anew_they_are_placed_again(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    run(machine, LOCAL)
    machine.renumber(ETH0)
    machine.writes()
    run(machine, LOCAL)
    assert {path for path, _text in machine.writes()} == {f"/proc/irq/{n}/smp_affinity_list" for n in (620, 621)}
    assert set(cpus_of(machine, ETH0)) < HOME[0]


def test_the_report_says_where_each_interrupt_is_where_it_belongs_and_why_it_cannot_go_there(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    before = run(machine, {"match": {"class": "nvme"}, "cpus": "3"}, check_mode=True)
    place = {"pci_address": DRIVE0, "numa_node": 0}
    managed = {"cpus": "0-3,8-11", "wanted": None, "managed": NVME_QUEUE}
    admin = {"cpus": "0-15", "wanted": "3", "managed": ""}
    assert before.effective["devices"][DRIVE0] == {**place, "interrupts": {"nvme0q0": admin, "nvme0q1": managed}}
    assert before.boot["devices"][DRIVE0]["interrupts"]["nvme0q0"]["cpus"] is None
    after = run(machine, {"match": {"class": "nvme"}, "cpus": "3"})
    for scope in (after.effective, after.boot):
        assert scope["devices"][DRIVE0]["interrupts"]["nvme0q0"] == {"cpus": "3", "wanted": "3", "managed": ""}


# --- interrupts that the kernel places --------------------------------------------------------------------------------


def test_an_interrupt_that_says_so_is_unmanaged_and_never_written(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    outcome = run(machine, {"match": {"class": "nvme"}})
    assert unmanaged_of(outcome) == {
        ("0000:05:00.0", "interrupt nvme0q1"): NVME_QUEUE,
        ("0001:05:00.0", "interrupt nvme1q1"): NVME_QUEUE,
    }
    assert {path for path, _text in machine.writes()} == {f"/proc/irq/{n}/smp_affinity_list" for n in (130, 230)}


@pytest.mark.parametrize("number", [errno.EIO, errno.EPERM, errno.EACCES])
def test_an_interrupt_that_only_the_write_tells_of_is_no_failure_no_change_and_tried_once_a_boot(
    tmp_path: Path, number: int
) -> None:
    machine = IrqMachine(tmp_path)
    machine.refuses[121] = number
    outcome = run(machine, ETH)
    assert unmanaged_of(outcome) == {("eth0", "interrupt eth0-TxRx-0"): REFUSED}
    assert [change[1] for change in changes_of(outcome)] == ["interrupt eth0"]
    assert [change[1] for change in changes_of(outcome, "boot")] == ["interrupt eth0"]
    assert [line for line in machine.host.journal_lines if "TxRx" in line] == []
    assert json.loads(machine.host.files.read(NOTE)) == [[ETH0, "interrupt eth0-TxRx-0", REFUSED]]
    assert machine.of(ETH0)["eth0-TxRx-0"] == "0-15"
    machine.writes()
    again = run(machine, ETH)
    assert (again.status, again.changes, machine.host.files.log) == ("in_sync", (), [])
    assert unmanaged_of(again) == {("eth0", "interrupt eth0-TxRx-0"): REFUSED}
    machine.reboot()
    run(machine, ETH)
    assert [path for path, _text in machine.writes() if "121" in path] == ["/proc/irq/121/smp_affinity_list"]


def test_what_was_noted_earlier_stays_noted(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    machine.refuses.update({121: errno.EIO, 221: errno.EIO})
    run(machine, ETH)
    run(machine, {"match": {"interface": "eth*"}})
    assert {address for address, _setting, _reason in json.loads(machine.host.files.read(NOTE))} == {ETH0, ETH1}


def test_where_some_cannot_be_moved_the_others_are_dealt_out_anew_in_the_same_run(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    entry = {"match": {"class": ["infiniband", "network"]}, "cpus": "2,3"}
    # Three lie well as long as the others can be moved beside them.
    for number, cpu in ((110, 7), (111, 3), (112, 7), (113, 3), (120, 7), (121, 3)):
        (tmp_path / f"proc/irq/{number}/smp_affinity_list").write_text(f"{cpu}\n")
    machine.refuses.update(dict.fromkeys((110, 112, 120, 210, 211, 212, 213, 220, 221), errno.EIO))
    before = {number: machine.cpus(number) for number in (111, 113, 121)}
    assert set(before.values()) == {"3"}
    # As at boot: a plan that also brings the next boot has recorded every interrupt anyhow.
    outcome = run(machine, entry, permanent=False)
    now = {number: machine.cpus(number) for number in (111, 113, 121)}
    assert sorted(now.values()) in (["2", "2", "3"], ["2", "3", "3"])
    moved = {(c[2], c[3]) for c in changes_of(outcome)}
    assert moved == {("3", "2")}
    assert len(changes_of(outcome)) == len([n for n in now if now[n] != before[n]])
    machine.writes()
    assert (run(machine, entry, permanent=False).changes, machine.writes()) == ((), [])
    absent(machine)
    assert {number: machine.cpus(number) for number in (111, 113, 121)} == before


# --- what changes between the look and the write ----------------------------------------------------------------------


def between(machine: IrqMachine, event: Callable[[], None]) -> None:
    """Let something happen after the look of the run and before its first write into an interrupt."""
    files = machine.host.files
    original = files.replace

    def replace(path: str, text: str, mode: int = 0o644) -> None:
        original(path, text, mode)
        if path == BEFORE and not happened:
            happened.append(path)
            event()

    happened: List[str] = []
    files.replace = replace  # type: ignore[method-assign]


def test_the_number_of_an_interrupt_is_looked_up_again_before_it_is_written(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    between(machine, lambda: machine.renumber(ETH0))
    run(machine, ETH)
    assert set(cpus_of(machine, ETH0)) < HOME[0]
    assert {path for path, _text in machine.writes()} == {f"/proc/irq/{n}/smp_affinity_list" for n in (620, 621)}


def test_a_number_that_another_device_has_by_now_is_not_written(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)

    def exchange() -> None:
        machine.renumber(ETH0)
        machine.renumber(ETH1, by=-100)

    between(machine, exchange)
    run(machine, ETH)
    assert set(cpus_of(machine, ETH0)) < HOME[0]
    assert set(machine.of(ETH1).values()) == {"0-15"}


def test_an_interrupt_that_has_gone_meanwhile_is_no_failure_and_no_change(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    between(machine, lambda: machine.renumber(ETH0, without=["eth0-TxRx-0"]))
    outcome = run(machine, ETH)
    assert [change[1] for change in changes_of(outcome)] == ["interrupt eth0"]
    assert [change[1] for change in changes_of(outcome, "boot")] == ["interrupt eth0"]
    assert list(machine.of(ETH0)) == ["eth0"]


def test_an_interrupt_that_is_freed_at_the_very_write_is_looked_up_once_more(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    files = machine.host.files
    original = files.write_attribute
    tried: List[str] = []

    def write_attribute(path: str, value: str) -> None:
        tried.append(path)
        if len(tried) == 1:
            machine.renumber(ETH0)
            raise OSError(errno.ENOENT, "gone", path)
        original(path, value)

    files.write_attribute = write_attribute  # type: ignore[method-assign]
    run(machine, ETH)
    assert tried == [f"/proc/irq/{number}/smp_affinity_list" for number in (120, 620, 621)]
    assert set(cpus_of(machine, ETH0)) < HOME[0]


def test_an_interrupt_that_is_freed_while_it_is_written_is_not_noted_as_one_of_the_kernel(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)

    def freed(files: KernelFiles, match: re.Match[str], value: str) -> None:
        machine.renumber(ETH0)
        raise OSError(errno.EIO, "gone", match[0])

    machine.host.files.rules.insert(0, (r"/proc/irq/120/smp_affinity_list", freed))
    assert unmanaged_of(run(machine, ETH)) == {}
    assert not machine.host.files.exists(NOTE)
    assert set(cpus_of(machine, ETH0)) < HOME[0]


def test_what_keeps_the_kernel_busy_for_a_moment_is_tried_again(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    machine.busy[120] = 3
    run(machine, ETH)
    assert set(cpus_of(machine, ETH0)) < HOME[0]


# --- queues -----------------------------------------------------------------------------------------------------------


def steered(tmp_path: Path, *trees: Any, **queues: int) -> IrqMachine:
    return IrqMachine(tmp_path, two_sockets(), of_eth0(**queues), *trees)


def test_receive_queues_go_to_all_cpus_of_the_entry_and_transmit_queues_share_them_out(tmp_path: Path) -> None:
    machine = steered(tmp_path, rx=2, tx=3)
    outcome = run(machine, {**ETH, "cpus": "0-3,8", "rps": True, "xps": True})
    assert [machine.queue("eth0", f"rx-{number}") for number in range(2)] == ["0-3,8"] * 2
    assert [machine.queue("eth0", f"tx-{number}") for number in range(3)] == ["0,3", "1,8", "2"]
    assert ("eth0", "rps rx-0", "none", "0-3,8") in changes_of(outcome)
    machine.writes()
    assert (run(machine, {**ETH, "cpus": "0-3,8", "rps": True, "xps": True}).changes, machine.writes()) == ((), [])


def test_queues_are_left_alone_unless_they_are_declared_and_false_takes_the_steering_off(tmp_path: Path) -> None:
    machine = steered(tmp_path)
    for queue in ("rx-0/rps_cpus", "tx-0/xps_cpus"):
        (tmp_path / "sys/class/net/eth0/queues" / queue).write_text("0000000f\n")
    run(machine, ETH)
    assert (machine.queue("eth0", "rx-0"), machine.queue("eth0", "tx-0")) == ("0-3", "0-3")
    outcome = run(machine, {**ETH, "rps": False})
    assert (machine.queue("eth0", "rx-0"), machine.queue("eth0", "tx-0")) == ("", "0-3")
    assert changes_of(outcome) == [("eth0", "rps rx-0", "0-3", "none")]


def test_ten_queues_are_taken_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    machine = steered(tmp_path, rx=1, tx=11)
    run(machine, {**ETH, "cpus": "0-3,8-11", "xps": True})
    cpus = [machine.queue("eth0", f"tx-{number}") for number in range(11)]
    assert cpus == ["0", "1", "2", "3", "8", "9", "10", "11", "", "", ""]


def test_masks_of_many_cpus_are_compared_as_sets(tmp_path: Path) -> None:
    machine = steered(tmp_path)
    (tmp_path / "sys/class/net/eth0/queues/rx-0/rps_cpus").write_text("00000000,00000000,0000000c\n")
    run(machine, {**ETH, "cpus": "2,3", "rps": True})
    assert [path for path, _text in machine.writes() if "rx-0" in path] == []


def test_packets_are_not_handed_to_isolated_cpus_though_the_entry_names_them(tmp_path: Path) -> None:
    machine = steered(tmp_path, isolating("2,3"))
    entry = {**ETH, "cpus": "1-3", "rps": True}
    run(machine, entry)
    assert machine.queue("eth0", "rx-0") == "1"
    assert run(machine, entry).changes == ()
    alone = run(machine, {**ETH, "cpus": "2-3", "rps": True})
    assert unmanaged_of(alone)["eth0", "rps rx-0"].startswith("the kernel hands no packets to isolated CPUs")
    assert machine.queue("eth0", "rx-0") == "1"


def test_a_queue_that_cannot_be_steered_is_unmanaged(tmp_path: Path) -> None:
    machine = steered(tmp_path, rx=1, tx=1)
    assert unmanaged_of(run(machine, {**ETH, "xps": True})) == {
        ("eth0", "xps tx-0"): "the kernel does not steer it, as it does not steer the only queue of an interface"
    }


def test_a_queue_that_the_kernel_does_not_tell_of_is_unmanaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = steered(tmp_path)
    read = machine.host.files.read

    def of_no_class(path: str) -> str:
        if path.endswith("tx-1/xps_cpus"):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), path)
        return read(path)

    monkeypatch.setattr(machine.host.files, "read", of_no_class)
    reason = "the kernel does not steer it, as it is of no traffic class"
    assert unmanaged_of(run(machine, {**ETH, "xps": True})) == {("eth0", "xps tx-1"): reason}
    assert machine.queue("eth0", "tx-0")


def test_a_device_without_an_interface_has_nothing_to_steer(tmp_path: Path) -> None:
    outcome = run(IrqMachine(tmp_path), {"match": {"class": "gpu"}, "rps": True, "xps": False})
    assert unmanaged_of(outcome) == {
        (address, "rps"): "it has no network interface" for address in ("0000:02:00.0", "0001:02:00.0")
    }


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EOPNOTSUPP, errno.ENOENT])
def test_a_queue_whose_write_is_refused_is_unmanaged_and_tried_once_a_boot(tmp_path: Path, number: int) -> None:
    machine = steered(tmp_path)
    place = machine.host.files.resolve("/sys/class/net/eth0/queues/tx-1/xps_cpus")
    machine.refuses[place] = number
    outcome = run(machine, {**ETH, "xps": True})
    reason = "the kernel refused to steer it, and is not asked again until the next boot"
    assert unmanaged_of(outcome) == {("eth0", "xps tx-1"): reason}
    assert machine.queue("eth0", "tx-1") == ""
    machine.writes()
    assert (run(machine, {**ETH, "xps": True}).changes, machine.writes()) == ((), [])


# --- with irqbalance, and devices that come later ---------------------------------------------------------------------


def balanced(tmp_path: Path) -> Tuple[IrqMachine, Balancing]:
    machine = IrqMachine(tmp_path, two_sockets(), with_irqbalance())
    return machine, Balancing(machine)


def test_irqbalance_keeps_its_hands_off_what_is_declared_and_balances_the_rest(tmp_path: Path) -> None:
    machine, daemon = balanced(tmp_path)
    run(machine, ETH)
    daemon.scan()
    assert daemon.banned == {ETH0}
    assert set(cpus_of(machine, ETH0)) < HOME[0]
    assert set(machine.of(ETH1).values()) == {"15"}
    daemon.restart()
    assert set(cpus_of(machine, ETH0)) < HOME[0]


def test_a_second_run_beside_irqbalance_changes_nothing_and_does_not_start_it_anew(tmp_path: Path) -> None:
    machine, daemon = balanced(tmp_path)
    run(machine, ETH)
    starts = daemon.starts
    machine.writes()
    outcome = run(machine, ETH)
    assert (outcome.status, outcome.changes, outcome.remaining.conflicts) == ("in_sync", (), ())
    assert (machine.host.files.log, daemon.starts) == ([], starts)
    assert outcome.effective["irqbalance"]["devices_left_alone"] == [ETH0]


def test_irqbalance_is_told_before_the_first_interrupt_is_placed(tmp_path: Path) -> None:
    machine, daemon = balanced(tmp_path)
    placed_at: List[int] = []
    original = machine.host.files.write_attribute

    def write_attribute(path: str, value: str) -> None:
        placed_at.append(daemon.starts)
        original(path, value)

    machine.host.files.write_attribute = write_attribute  # type: ignore[method-assign]
    run(machine, ETH)
    assert placed_at == [daemon.starts] * 2
    assert daemon.banned == {ETH0}


@pytest.mark.parametrize("mode", ["cooperate", "disable"])
def test_what_irqbalance_moves_before_it_hears_of_us_is_placed_though_it_was_right(tmp_path: Path, mode: str) -> None:
    alone = IrqMachine(tmp_path / "alone", two_sockets())
    run(alone, ETH)
    machine, daemon = balanced(tmp_path / "balanced")
    for number in machine.host.files.names(f"{PCI}/{ETH0}/msi_irqs"):
        (machine.root / f"proc/irq/{number}/smp_affinity_list").write_text(f"{alone.cpus(int(number))}\n")
    stop = daemon.stop

    def last_scan() -> None:
        daemon.scan()
        stop()

    daemon.stop = last_scan  # type: ignore[method-assign]
    run(machine, ETH, irqbalance=mode)
    assert machine.of(ETH0) == alone.of(ETH0)
    assert run(machine, ETH, irqbalance=mode).changes == ()


def test_irqbalance_can_be_switched_off_and_comes_back_with_absent(tmp_path: Path) -> None:
    machine, daemon = balanced(tmp_path)
    found = snapshot(tmp_path, leave_out=("run", "proc", "sys"))
    run(machine, ETH, irqbalance="disable")
    assert daemon.pid == 0
    assert run(machine, ETH, irqbalance="disable").changes == ()
    absent(machine)
    assert daemon.pid != 0
    assert snapshot(tmp_path, leave_out=("run", "proc", "sys")) == found


def test_an_irqbalance_that_is_ignored_is_a_conflict(tmp_path: Path) -> None:
    machine, _daemon = balanced(tmp_path)
    outcome = run(machine, ETH, irqbalance="ignore")
    assert [(conflict.owner, conflict.wins) for conflict in outcome.remaining.conflicts] == [("irqbalance", "them")]


def test_without_entries_there_is_nothing_that_irqbalance_or_udev_must_know(tmp_path: Path) -> None:
    machine, daemon = balanced(tmp_path)
    found = snapshot(tmp_path, leave_out=("run", "proc", "sys", "var"))
    run(machine, ETH)
    assert daemon.banned == {ETH0}
    outcome = run(machine)
    assert (daemon.banned, outcome.remaining.conflicts) == (set(), ())
    left = snapshot(tmp_path, leave_out=("run", "proc", "sys", "var"))
    assert {path for path in left if path not in found and left[path] != ("folder",)} == {DECLARED[1:]}


def test_absent_restores_all_files_and_what_irqbalance_was_told(tmp_path: Path) -> None:
    machine, daemon = balanced(tmp_path)
    found = snapshot(tmp_path, leave_out=("run", "proc"))
    run(machine, LOCAL)
    assert daemon.banned == {*machine.host.files.names(PCI)}
    absent(machine)
    assert snapshot(tmp_path, leave_out=("run", "proc")) == found
    assert daemon.banned == set()
    assert absent(machine).changes == ()


@pytest.mark.parametrize("mode", ["cooperate", "disable"])
def test_absent_leaves_interrupts_to_an_irqbalance_that_has_them_again_and_moves_them_at_once(
    tmp_path: Path, mode: str
) -> None:
    machine, daemon = balanced(tmp_path)
    run(machine, ETH, irqbalance=mode)
    original = machine.host.files.write_attribute

    def write_attribute(path: str, value: str) -> None:
        original(path, value)
        (tmp_path / "proc/irq/120/smp_affinity_list").write_text("14\n")

    machine.host.files.write_attribute = write_attribute  # type: ignore[method-assign]
    outcome = absent(machine)
    assert (outcome.error, daemon.banned) == (None, set())
    assert unmanaged_of(outcome)[("eth0", "interrupt eth0")] == "irqbalance is running, and places it"
    assert not machine.host.files.exists(BEFORE)
    assert absent(machine).changes == ()


def test_devices_that_come_later_are_placed_by_a_unit_that_udev_starts(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    run(machine, ETH)
    assert "boot --concern numa_irq_affinity" in machine.host.files.read(f"/etc/systemd/system/{UNIT}")
    rules = machine.host.files.read(RULES)
    assert 'ENV{SYSTEMD_WANTS}+="gpufleet-interrupts.service"' in rules
    assert "RUN" not in rules


# --- now and at boot --------------------------------------------------------------------------------------------------


def test_without_immediate_no_interrupt_is_moved_and_the_next_boot_places_them(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    outcome = run(machine, ETH, immediate=False)
    assert set(machine.of(ETH0).values()) == {"0-15"}
    assert changes_of(outcome) == []
    assert len(changes_of(outcome, "boot")) == 2
    assert run(machine, ETH, immediate=False).changes == ()


def test_what_the_boot_service_does_writes_nothing_that_outlives_the_boot(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    run(machine, LOCAL)
    placed = machine.of(ETH0)
    machine.reboot()
    kept = snapshot(tmp_path, leave_out=("run", "proc"))
    run(machine, LOCAL, permanent=False)
    assert snapshot(tmp_path, leave_out=("run", "proc")) == kept
    assert machine.of(ETH0) == placed


def test_after_a_reboot_what_differs_is_what_is_in_effect(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    run(machine, ETH)
    machine.reboot()
    outcome = run(machine, ETH, check_mode=True)
    assert (outcome.status, len(changes_of(outcome)), changes_of(outcome, "boot")) == ("drifted", 2, [])


def test_another_declaration_on_the_node_says_nothing_of_the_next_boot(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    run(machine, {**ETH, "cpus": "1,2"})
    outcome = run(machine, {**ETH, "cpus": "2,3"}, check_mode=True)
    assert [change[2] for change in changes_of(outcome, "boot")] == [None, None]


# --- giving back ------------------------------------------------------------------------------------------------------


def test_absent_restores_interrupts_queues_and_files_as_they_were(tmp_path: Path) -> None:
    machine = steered(tmp_path)
    (tmp_path / "proc/irq/110/smp_affinity_list").write_text("5-6\n")
    (tmp_path / "sys/class/net/eth0/queues/rx-1/rps_cpus").write_text("00000030\n")
    found = snapshot(tmp_path)
    run(machine, {**ETH, "rps": True, "xps": True}, LOCAL)
    run(machine, {**ETH, "cpus": "1-3", "rps": True, "xps": False}, LOCAL)
    assert snapshot(tmp_path) != found
    assert absent(machine).status == "drifted"
    assert snapshot(tmp_path) == found
    machine.writes()
    assert (absent(machine).changes, machine.host.files.log) == ((), [])


def test_absent_knows_interrupts_by_their_names_and_leaves_out_what_is_not_there(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    (tmp_path / "proc/irq/120/smp_affinity_list").write_text("5-6\n")
    run(machine, {"match": {"class": "network"}})
    machine.renumber(ETH0, without=["eth0-TxRx-0"])
    outcome = absent(machine)
    assert machine.of(ETH0) == {"eth0": "5-6"}
    gone = "it is not present, and what was changed went with it"
    assert unmanaged_of(outcome) == {(ETH0, "interrupt eth0-TxRx-0"): gone}
    assert not machine.host.files.exists(BEFORE)


def test_absent_does_not_fail_on_what_the_kernel_took_for_itself(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    run(machine, ETH)
    machine.refuses[120] = errno.EIO
    assert unmanaged_of(absent(machine)) == {("eth0", "interrupt eth0"): REFUSED}
    assert machine.of(ETH0)["eth0-TxRx-0"] == "0-15"
    assert not machine.host.files.exists(BEFORE)


def test_absent_restores_what_is_left_of_the_cpus(tmp_path: Path) -> None:
    machine = steered(tmp_path)
    (tmp_path / "proc/irq/120/smp_affinity_list").write_text("12,14\n")
    (tmp_path / "sys/class/net/eth0/queues/rx-0/rps_cpus").write_text("0000ff00\n")
    (tmp_path / "sys/class/net/eth0/queues/rx-1/rps_cpus").write_text("00001000\n")
    run(machine, {**ETH, "rps": True})
    (tmp_path / "sys/devices/system/cpu/online").write_text("0-11\n")
    (tmp_path / "sys/devices/system/cpu/possible").write_text("0-13\n")
    outcome = absent(machine)
    assert unmanaged_of(outcome) == {
        ("eth0", "interrupt eth0"): "the CPUs from before the first change are offline",
        ("eth0", "rps rx-1"): "the CPUs from before the first change are offline",
    }
    assert machine.of(ETH0)["eth0-TxRx-0"] == "0-13"
    assert machine.queue("eth0", "rx-0") == "8-11"
    assert absent(machine).changes == ()
    assert not machine.host.files.exists(BEFORE)


def test_absent_on_a_machine_that_was_never_changed_does_nothing(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    outcome = absent(machine)
    assert (outcome.status, outcome.changes, machine.host.files.log) == ("in_sync", (), [])


# --- robust and fast --------------------------------------------------------------------------------------------------


@pytest.mark.once
def test_a_run_that_is_killed_anywhere_beside_irqbalance_is_finished_by_the_next(tmp_path: Path) -> None:
    first, _daemon = balanced(tmp_path / "first")
    run(first, ETH)
    effects = len(first.host.files.log)
    for number in range(1, effects + 1):
        root = tmp_path / str(number)
        machine, daemon = balanced(root)
        found = snapshot(root, leave_out=("run", "proc"))
        machine.host.files.kill_at = number
        with pytest.raises(Killed):
            run(machine, ETH)
        machine.host.files.kill_at = None
        run(machine, ETH)
        assert daemon.banned == {ETH0}, number
        assert set(cpus_of(machine, ETH0)) < HOME[0], number
        assert run(machine, ETH).changes == (), number
        absent(machine)
        assert snapshot(root, leave_out=("run", "proc")) == found, number


def test_a_look_at_512_interrupts_is_fast_and_reads_no_more_than_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = IrqMachine(tmp_path, large())
    run(machine, LOCAL)
    files, declaration = machine.host.files, params(LOCAL)
    # As a machine finds its files: a recorded tree follows every link by itself, which costs more than the look.
    monkeypatch.setattr(files, "locate", lambda path: f"{tmp_path}{path}")
    files.log.clear()
    seconds = []
    for _attempt in range(5):
        files.reads.clear()
        started = time.process_time()
        outcome = converge(CONCERN, declaration, machine.host, check_mode=False)
        seconds.append(time.process_time() - started)
        assert (outcome.status, outcome.changes, files.log) == ("in_sync", (), [])
    # A tenth of a second, and three times that for a slow machine.
    assert min(seconds) < 0.3
    of_interrupts = [path for path in files.reads if path.startswith("/proc/irq/")]
    assert len(of_interrupts) == len(set(of_interrupts)) == 512
    # A few of each device, one of each core and each node, and some of the machine.
    assert len(files.reads) - 512 < 5 * 64 + 128 + 8 + 40


def test_the_files_for_the_boot_hold_no_number_of_an_interrupt(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    run(machine, ETH)
    declaration = json.loads(machine.host.files.read(DECLARED))
    assert declaration["declaration"] == {
        "interrupts": [{"match": {"interface": "eth0"}, "optional": False, "spread": "one_per_irq"}]
    }
    assert cpulist.parse(machine.of(ETH0)["eth0"]) < HOME[0]
