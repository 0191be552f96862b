# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The way back: a change that the connection passes is undone by the node unless a new connection confirms it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook, DeclarationError, Refused
from nic_machine import TIMER, Machine
from support import Killed

RECORD = "/var/lib/gpufleet/nic_settings.way_back"
JUMBO = {"match": {"name": "eth0"}, "mtu": 9000}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path).over(40001)


def needs(outcome: Outcome) -> Tuple[str, ...]:
    return outcome.remaining.needs


def test_a_change_that_the_connection_passes_waits_for_another_connection(machine: Machine) -> None:
    outcome = machine.run(JUMBO)
    assert machine.mtu("eth0") == 9000
    assert needs(outcome) == ("confirmation",)
    assert machine.timer[:5] == [
        "systemd-run",
        "--unit=gpufleet-nic-settings-way-back",
        "--collect",
        "--on-active=120",
        "--timer-property=AccuracySec=1s",
    ]
    assert machine.timer[-1] == "echo 1500 > /sys/class/net/eth0/mtu"
    # The same connection proves nothing: its packets may be as small as before.
    assert needs(machine.run(JUMBO)) == ("confirmation",)
    confirmed = machine.over(40002).run(JUMBO)
    assert [(change.object, change.setting, change.after) for change in confirmed.changes] == [
        ("eth0", "connection", "confirmed")
    ]
    assert machine.timer == []
    assert not machine.host.files.exists(RECORD)
    again = machine.run(JUMBO)
    assert (again.changes, again.status, machine.mtu("eth0")) == ((), "in_sync", 9000)


def test_without_a_new_connection_the_node_undoes_it_and_says_so(machine: Machine) -> None:
    machine.run({**JUMBO, "rx_ring": "max", "offloads": {"gro": False}})
    machine.elapse()
    assert machine.mtu("eth0") == 1500
    assert machine.hardware("eth0")["ring"]["RX"] == [1024, 8192]
    assert machine.hardware("eth0")["offload"]["generic-receive-offload"] == "on"
    with pytest.raises(
        Refused, match="no connection confirmed the change in time, and the node has undone it"
    ) as caught:
        machine.over(40002).run(JUMBO)
    assert (caught.value.found, caught.value.wanted) == (1500, 9000)


def test_what_was_undone_is_not_made_again_by_a_boot(machine: Machine) -> None:
    machine.run(JUMBO)
    machine.elapse()
    machine.over(None)
    # Twice, as the boot service and the one for interfaces that come later; the first has something else to do.
    for _run in range(2):
        outcome = machine.run(JUMBO, {"match": {"name": "eth1"}, "mtu": 9000}, permanent=False)
        assert (machine.mtu("eth0"), machine.mtu("eth1")) == (1500, 9000)
        assert (outcome.remaining.status, needs(outcome)) == ("pending", ("confirmation",))


def test_what_was_undone_is_told_once_and_then_tried_again_with_a_way_back(machine: Machine) -> None:
    machine.run(JUMBO)
    machine.elapse()
    with pytest.raises(Refused):
        machine.over(40002).run(JUMBO)
    assert (machine.mtu("eth0"), machine.timer) == (1500, [])
    # It is declared for the next boot, which nobody may be able to reach.
    assert needs(machine.over(None).run(JUMBO, permanent=False)) == ("confirmation",)
    assert (machine.mtu("eth0"), machine.timer) == (1500, [])
    outcome = machine.over(40002).run(JUMBO)
    assert (machine.mtu("eth0"), needs(outcome)) == (9000, ("confirmation",))
    assert machine.timer
    machine.over(40003).run(JUMBO)
    assert (machine.mtu("eth0"), machine.timer) == (9000, [])


def test_a_reboot_before_the_confirmation_is_a_way_back_too(machine: Machine) -> None:
    machine.run(JUMBO)
    (machine.root / TIMER.lstrip("/")).unlink()
    machine.put_mtu("eth0", 1500)
    machine.over(None).run(JUMBO, permanent=False)
    assert machine.mtu("eth0") == 1500


def test_another_declaration_forgets_what_was_undone(machine: Machine) -> None:
    machine.run(JUMBO)
    machine.elapse()
    with pytest.raises(Refused):
        machine.over(40002).run(JUMBO)
    outcome = machine.run({**JUMBO, "mtu": 1500})
    assert [(change.object, change.before, change.after) for change in outcome.changes if change.scope != "boot"] == [
        ("eth0", "undone", None)
    ]
    assert not machine.host.files.exists(RECORD)


def test_a_bond_below_the_address_of_the_connection_counts(tmp_path: Path) -> None:
    machine = Machine(tmp_path).over(40001, server="10.1.0.7")
    outcome = machine.run({"match": {"name": ["bond0", "bond0.100"]}, "mtu": 9000})
    assert needs(outcome) == ("confirmation",)
    machine.elapse()
    assert [machine.mtu(name) for name in ("eth2", "eth3", "bond0", "bond0.100")] == [1500] * 4


@pytest.mark.parametrize("server", ["::ffff:10.0.0.7", "fe80::7%eth0"])
def test_the_address_of_the_connection_may_be_one_of_ipv6(tmp_path: Path, server: str) -> None:
    machine = Machine(tmp_path).over(40001, server=server)
    machine.routes = False
    assert needs(machine.run(JUMBO)) == ("confirmation",)
    assert needs(machine.run({"match": {"name": "eth1"}, "mtu": 9000})) == ("confirmation",)
    assert [one for one in machine.timer[-1].split("; ") if "eth1" in one] == []


def test_where_it_cannot_be_told_what_the_connection_passes_every_change_has_a_way_back(tmp_path: Path) -> None:
    machine = Machine(tmp_path).over(40001)
    del machine.host.commands.programs["ip"]
    assert needs(machine.run({"match": {"name": "eth1"}, "mtu": 9000})) == ("confirmation",)
    machine.elapse()
    assert machine.mtu("eth1") == 1500


def test_an_interface_that_the_connection_does_not_pass_is_simply_changed(machine: Machine) -> None:
    outcome = machine.run({"match": {"name": "eth1"}, "mtu": 9000}, {"match": {"name": "eth2"}, "virtual_functions": 2})
    assert (machine.mtu("eth1"), needs(outcome), machine.timer) == (9000, (), [])


def test_what_was_undone_is_made_again_by_who_comes_another_way(machine: Machine) -> None:
    bond = {"match": {"name": ["bond0", "bond0.100"]}, "mtu": 9000}
    machine.over(40001, server="10.1.0.7").run(bond)
    machine.elapse()
    with pytest.raises(Refused):
        machine.over(40002).run(bond)
    outcome = machine.run(bond)
    assert (machine.mtu("bond0"), needs(outcome), machine.timer) == (9000, (), [])
    assert not machine.host.files.exists(RECORD)


def test_a_connection_over_another_interface_confirms_nothing(machine: Machine) -> None:
    bond = {"match": {"name": ["bond0", "bond0.100"]}, "mtu": 9000}
    machine.over(40001, server="10.1.0.7").run(bond)
    outcome = machine.over(40002).run(bond)
    assert needs(outcome) == ("confirmation",)
    assert {row.pending for row in outcome.remaining.pending} == {
        "a new connection has to confirm it, and this one does not pass bond0"
    }


def test_nothing_is_changed_where_nothing_could_undo_it(machine: Machine) -> None:
    del machine.host.commands.programs["systemd-run"]
    machine.host.files.log.clear()
    with pytest.raises(DeclarationError, match="nothing could undo the change if it cut the node off: systemd-run is"):
        machine.run(JUMBO)
    assert (machine.host.files.log, machine.mtu("eth0")) == ([], 1500)
    # Over no connection it cuts nobody off.
    machine.over(None).run(JUMBO)
    assert machine.mtu("eth0") == 9000


def test_a_timer_that_systemd_refuses_leaves_everything_as_it_was(machine: Machine) -> None:
    machine.refuses_timers = True
    with pytest.raises(Refused, match="Connection timed out"):
        machine.run(JUMBO)
    assert machine.mtu("eth0") == 1500
    assert not machine.host.files.exists(RECORD)


def test_absent_has_a_way_back_too_and_leaves_nothing_once_it_is_confirmed(machine: Machine) -> None:
    machine.run(JUMBO)
    machine.over(40002).run(JUMBO)
    outcome = machine.run(state="absent")
    assert (machine.mtu("eth0"), needs(outcome)) == (1500, ("confirmation",))
    machine.over(40003).run(state="absent")
    assert machine.timer == []
    assert not machine.host.files.exists("/var/lib/gpufleet")


def test_two_changes_before_a_confirmation_go_back_to_what_was_before_both(machine: Machine) -> None:
    machine.run({**JUMBO, "mtu": 4000})
    machine.run(JUMBO)
    machine.elapse()
    assert machine.mtu("eth0") == 1500


def test_a_damaged_record_is_named_and_nothing_is_changed(machine: Machine) -> None:
    machine.run(JUMBO)
    (machine.root / RECORD.lstrip("/")).write_text('{"schema": 1, "changes": [{"interface": "../x"}]}')
    with pytest.raises(CannotLook, match="the file is damaged"):
        machine.over(40002).run(JUMBO)
    assert machine.timer


@pytest.mark.parametrize("cut", [False, True], ids=["reached", "cut-off"])
def test_a_run_that_is_killed_anywhere_leaves_a_node_that_can_be_reached(tmp_path: Path, cut: bool) -> None:
    for point in range(1, 40):
        (tmp_path / str(point)).mkdir()
        machine = Machine(tmp_path / str(point)).over(40001)
        counted(machine)
        machine.host.files.kill_at = point
        try:
            machine.run(JUMBO)
        except Killed:
            pass
        else:
            assert point > 6
            return
        machine.host.files.kill_at = None
        # Where it is changed there is a timer: nothing else brings back a node that is cut off.
        assert machine.mtu("eth0") == 1500 or machine.timer, f"killed at {point}"
        if cut:
            if machine.timer:
                machine.elapse()
            assert machine.mtu("eth0") == 1500, f"killed at {point}"
            machine.over(None).run(JUMBO, permanent=False)
            assert machine.mtu("eth0") == 1500 or not machine.host.files.exists(RECORD), f"killed at {point}"
            continue
        for port in (40002, 40003, 40004):
            # Between the record and the change it looks like one that was undone, and is told as such.
            with contextlib.suppress(Refused):
                machine.over(port).run(JUMBO)
        assert (machine.mtu("eth0"), machine.timer) == (9000, []), f"killed at {point}"
        assert not machine.host.files.exists(RECORD), f"killed at {point}"
    pytest.fail("no run came to its end")


def counted(machine: Machine) -> None:
    """Let programs that change something be points to be killed at."""
    for name in ("systemd-run", "systemctl"):
        machine.host.commands.programs[name] = _counted(machine, name)


def _counted(machine: Machine, name: str) -> Any:
    program = machine.host.commands.programs[name]

    def run(argv: Any) -> Any:
        machine.host.files.effect("run", name, " ".join(argv))
        return program(argv)

    return run
