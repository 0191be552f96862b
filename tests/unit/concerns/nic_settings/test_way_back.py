# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The way back: a change that the connection passes is undone by the node unless a new connection confirms it."""

from __future__ import annotations

import contextlib
import fcntl
import subprocess
from pathlib import Path
from typing import Any, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    CannotLook,
    DeclarationError,
    GpuFleetError,
    NotInEffect,
    Refused,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nic_settings.way_back import Undo, WayBack, command
from ansible_collections.gpufleet.node.tests.unit.concerns.nic_settings.nic_machine import Machine, commands_of
from ansible_collections.gpufleet.node.tests.unit.support import Killed

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
        "--unit=gpufleet-nic-settings-way-back-1",
        "--collect",
        "--on-active=120",
        "--timer-property=AccuracySec=1s",
    ]
    assert machine.undoing == ["echo 1500 > /sys/class/net/eth0/mtu"]
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


def test_a_look_does_not_say_that_a_boot_makes_what_was_undone(machine: Machine) -> None:
    machine.run(JUMBO)
    machine.elapse()
    outcome = machine.over(40002).run(JUMBO, check_mode=True)
    assert {(row.setting, row.effective, row.boot) for row in outcome.remaining.settings if row.object == "eth0"} == {
        ("mtu", 1500, None)
    }
    with pytest.raises(Refused):
        machine.run(JUMBO)
    machine.run(JUMBO)
    assert machine.over(40003).run(JUMBO).remaining.status == "in_sync"


def test_a_reboot_before_the_confirmation_is_a_way_back_too(machine: Machine) -> None:
    machine.run(JUMBO)
    machine.lose_timers()
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


@pytest.mark.parametrize(
    ("client", "server"), [("::ffff:10.0.0.1", "::ffff:10.0.0.7"), ("fe80::1%eth0", "fe80::7%eth0")]
)
def test_the_address_of_the_connection_may_be_one_of_ipv6(tmp_path: Path, client: str, server: str) -> None:
    machine = Machine(tmp_path).over(40001, server=server, client=client)
    machine.routes = not client.startswith("fe80")
    assert needs(machine.run(JUMBO)) == ("confirmation",)
    assert needs(machine.run({"match": {"name": "eth1"}, "mtu": 9000})) == ("confirmation",)
    assert [one for one in machine.undoing if "eth1" in one] == []


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
        "a new connection has to confirm it, and this one does not pass bond0.100"
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
    assert machine.host.files.names("/var/lib/gpufleet") == ("program",)


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


# --- which connection is new ------------------------------------------------------------------------------------------


def test_a_connection_that_is_older_than_the_change_confirms_nothing(machine: Machine) -> None:
    """As one that ssh keeps for the tasks of another play, of another user, or of another controller."""
    before = machine.clock
    machine.later().run(JUMBO)
    outcome = machine.over(40002, since=before).run(JUMBO)
    assert {row.pending for row in outcome.remaining.pending} == {
        "a new connection has to confirm it, and this one is older than the change"
    }
    assert machine.timer
    # Neither does one that was made while the run was at work.
    machine.lose_timers()
    machine.put_mtu("eth0", 1500)
    with pytest.raises(Refused):
        machine.over(40003).run(JUMBO)
    during = machine.over(40004).clock + 50
    machine.host.files.rules.insert(0, (r"/sys/devices/.*/eth0/mtu", lambda *_write: late(machine)))
    machine.run(JUMBO)
    assert needs(machine.over(40005, since=during).run(JUMBO)) == ("confirmation",)
    assert needs(machine.over(40006).run(JUMBO)) == ()


def late(machine: Machine) -> None:
    machine.later()
    machine.put_mtu("eth0", 9000)


def test_a_process_whose_connection_cannot_be_told_the_age_of_confirms_nothing(machine: Machine) -> None:
    machine.run(JUMBO)
    machine.over(40002)
    # What is below a terminal multiplexer has the connection that began it, and no sshd above.
    (machine.root / "proc/812/stat").unlink()
    assert needs(machine.run(JUMBO)) == ("confirmation",)


def test_after_a_boot_every_connection_is_younger(machine: Machine) -> None:
    machine.run(JUMBO)
    machine.lose_timers()
    boot_id = machine.root / "proc/sys/kernel/random/boot_id"
    boot_id.parent.mkdir(parents=True, exist_ok=True)
    boot_id.write_text("7d8f0c3e-0000-4000-8000-000000000000\n")
    machine.clock = 300
    # It has the MTU all the same, as from who brings the interface up.
    assert needs(machine.over(40002).run(JUMBO)) == ()
    assert not machine.host.files.exists(RECORD)


# --- what carries the connection --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ovs0", "lo", "wg0"])
def test_where_no_card_carries_the_address_of_the_connection_every_change_has_a_way_back(
    tmp_path: Path, name: str
) -> None:
    """A switch of Open vSwitch, the loopback interface in a routed network or behind a tunnel, and WireGuard."""
    folder = f"/sys/devices/virtual/net/{name}"
    machine = Machine(tmp_path, {f"{folder}/mtu": "1500\n", f"{folder}/uevent": f"INTERFACE={name}\n"})
    if name != "lo":
        (machine.root / f"sys/class/net/{name}").symlink_to(folder)
    machine.addresses = {name: ("10.0.0.7",)}
    assert needs(machine.over(40001).run({"match": {"name": "eth1"}, "mtu": 9000})) == ("confirmation",)
    assert needs(machine.over(40002).run({"match": {"name": "eth1"}, "mtu": 9000})) == ()


def test_the_interface_that_packets_go_back_by_counts_too(machine: Machine) -> None:
    machine.route = "bond0.100"
    assert needs(machine.run({"match": {"name": "eth2"}, "rx_ring": "max"})) == ("confirmation",)
    assert needs(machine.run({"match": {"name": "eth1"}, "rx_ring": "max"})) == ("confirmation",)
    assert len(machine.undoing) == 1


def test_ports_of_a_bridge_that_software_makes_hide_no_card(tmp_path: Path) -> None:
    folder = "/sys/devices/virtual/net/tap0"
    machine = Machine(tmp_path, {f"{folder}/mtu": "1500\n", f"{folder}/uevent": "INTERFACE=tap0\n"})
    (machine.root / "sys/class/net/tap0").symlink_to(folder)
    (machine.root / "sys/devices/virtual/net/br0/lower_tap0").symlink_to(folder)
    machine.addresses = {"br0": ("10.0.0.7",)}
    machine.route = "br0"
    machine.over(40001)
    assert needs(machine.run({"match": {"name": "eth0"}, "mtu": 9000})) == ()
    assert needs(machine.run({"match": {"name": "eth1"}, "mtu": 9000})) == ("confirmation",)


# --- a second run while the first waits -------------------------------------------------------------------------------


def test_the_timer_that_waits_stays_where_systemd_refuses_another(machine: Machine) -> None:
    machine.run({**JUMBO, "mtu": 4000})
    record = machine.host.files.read(RECORD)
    machine.refuses_timers = True
    with pytest.raises(Refused, match="Connection timed out"):
        machine.run(JUMBO)
    assert (machine.host.files.read(RECORD), machine.mtu("eth0")) == (record, 4000)
    machine.elapse()
    assert machine.mtu("eth0") == 1500


def test_a_full_disk_leaves_the_timer_that_waits(tmp_path: Path) -> None:
    for point in range(1, 40):
        (tmp_path / str(point)).mkdir()
        machine = Machine(tmp_path / str(point)).over(40001)
        machine.run({**JUMBO, "mtu": 4000})
        before = len(machine.host.files.log)
        machine.host.files.fail_at = before + point
        try:
            machine.run(JUMBO)
        except GpuFleetError:
            pass
        else:
            assert point > 3
            return
        machine.host.files.fail_at = None
        for script in machine.timers:
            assert commands_of(script) == ["echo 1500 > /sys/class/net/eth0/mtu"]
        assert machine.timers, f"failed at {point}"
    pytest.fail("no run came to its end")


def test_a_second_run_that_is_killed_anywhere_is_undone_with_the_first(tmp_path: Path) -> None:
    for point in range(1, 60):
        (tmp_path / str(point)).mkdir()
        machine = Machine(tmp_path / str(point)).over(40001)
        machine.run({**JUMBO, "mtu": 4000})
        counted(machine)
        machine.host.files.kill_at = len(machine.host.files.log) + point
        with contextlib.suppress(Killed):
            machine.run({**JUMBO, "rx_ring": 512})
            assert point > 8
            return
        machine.host.files.kill_at = None
        assert machine.timers, f"killed at {point}"
        machine.elapse()
        assert (machine.mtu("eth0"), machine.hardware("eth0")["ring"]["RX"][0]) == (1500, 1024), f"killed at {point}"
        with contextlib.suppress(Refused):
            machine.over(40002).run({**JUMBO, "rx_ring": 512})
        for port in (40003, 40004):
            machine.over(port).run({**JUMBO, "rx_ring": 512})
        assert (machine.mtu("eth0"), machine.timers) == (9000, []), f"killed at {point}"
        assert not machine.host.files.exists(RECORD), f"killed at {point}"
    pytest.fail("no run came to its end")


def test_a_driver_that_keeps_another_value_takes_no_way_back_from_what_waits(machine: Machine) -> None:
    ethtool = machine.host.commands.programs["ethtool"]
    machine.host.commands.programs["ethtool"] = lambda argv: ethtool(
        ["2048" if word == "2000" else word for word in argv]
    )
    declared = {**JUMBO, "rx_ring": 2000}
    # Over the same connection, which may be the last that there is.
    for _run in range(3):
        with pytest.raises(NotInEffect):
            machine.run(declared)
    machine.elapse()
    assert (machine.mtu("eth0"), machine.hardware("eth0")["ring"]["RX"][0]) == (1500, 1024)


def test_a_confirmation_that_comes_as_the_time_is_up_keeps_nothing_that_is_gone(machine: Machine) -> None:
    machine.run(JUMBO)
    systemctl = machine.host.commands.programs["systemctl"]

    def up(argv: Any) -> Any:
        if argv[1] == "stop" and machine.timers:
            machine.elapse()
        return systemctl(argv)

    machine.host.commands.programs["systemctl"] = up
    with pytest.raises(Refused, match="the node has undone it"):
        machine.over(40002).run(JUMBO)
    # It was said, so the next run tries it again.
    assert needs(machine.over(40003).run(JUMBO)) == ("confirmation",)
    assert machine.mtu("eth0") == 9000


def test_a_timer_that_does_not_stop_confirms_nothing(machine: Machine) -> None:
    machine.run(JUMBO)
    systemctl = machine.host.commands.programs["systemctl"]
    machine.host.commands.programs["systemctl"] = lambda argv: (
        Completed(1, "", "Failed to stop it: Connection timed out\n") if argv[1] == "stop" else systemctl(argv)
    )
    with pytest.raises(Refused, match="Connection timed out"):
        machine.over(40002).run(JUMBO)
    assert machine.host.files.exists(RECORD)


# --- the undoing ------------------------------------------------------------------------------------------------------


def test_a_stack_that_was_made_smaller_grows_again_from_below(tmp_path: Path) -> None:
    bond = {"match": {"name": ["bond0", "bond0.100"]}, "mtu": 9000}
    machine = Machine(tmp_path)
    machine.run(bond)
    machine.over(40001, server="10.1.0.7").run({**bond, "mtu": 1500})
    assert [machine.mtu(name) for name in ("eth2", "eth3", "bond0", "bond0.100")] == [1500] * 4
    machine.elapse()
    assert [machine.mtu(name) for name in ("eth2", "eth3", "bond0", "bond0.100")] == [9000] * 4


def test_what_is_set_together_is_undone_together_and_channels_before_their_rings(machine: Machine) -> None:
    machine.run({**JUMBO, "rx_ring": 512, "tx_ring": 512, "combined_channels": 8, "rx_pause": False})
    assert machine.undoing == [
        "echo 1500 > /sys/class/net/eth0/mtu",
        "/usr/bin/ethtool -L eth0 combined 16",
        "/usr/bin/ethtool -G eth0 rx 1024 tx 1024",
        "/usr/bin/ethtool -A eth0 rx on",
    ]


@pytest.mark.parametrize("lock", ["free", "held", "missing"])
def test_the_shell_undoes_it_and_waits_only_for_a_run_at_work(tmp_path: Path, lock: str) -> None:
    known = WayBack((Undo("eth0", "0000:17:00.0", "mtu", 1500, 9000), Undo("gone", "gone", "mtu", 1500, 9000)))
    script = command(Machine(tmp_path / "machine").host, known, unit="a", seconds=30)[-1]
    (tmp_path / "eth0").mkdir()
    (tmp_path / "eth0/mtu").write_text("9000\n")
    if lock != "missing":
        (tmp_path / "lock").touch()
    place = tmp_path / ("nowhere/lock" if lock == "missing" else "lock")
    script = script.replace("/sys/class/net", str(tmp_path)).replace("/run/gpufleet/lock", str(place))
    with open(tmp_path / "eth0/mtu", encoding="ascii") as other:
        if lock == "held":
            script = script.replace("-w 60", "-w 0.1")
            held = open(tmp_path / "lock", encoding="ascii")  # noqa: SIM115
            fcntl.flock(held, fcntl.LOCK_EX)
        subprocess.run(["/bin/sh", "-c", script], check=False, stderr=subprocess.DEVNULL, timeout=30)
        assert other.read() == "1500\n"


def test_a_dollar_sign_in_the_name_of_an_interface_is_none_of_systemds_variables(tmp_path: Path) -> None:
    known = WayBack((Undo("eth${HOME}", "eth", "mtu", 1500, 9000),))
    script = command(Machine(tmp_path).host, known, unit="a", seconds=30)[-1]
    assert "echo 1500 > '/sys/class/net/eth$${HOME}/mtu'" in script


def test_what_was_undone_is_not_made_by_a_boot_under_another_name(machine: Machine) -> None:
    card = {"match": {"pci_address": "0000:17:00.0"}, "mtu": 9000}
    machine.run(card)
    machine.elapse()
    (machine.root / "sys/class/net/ens1").symlink_to(machine.host.files.link("/sys/class/net/eth0"))
    (machine.root / "sys/class/net/eth0").unlink()
    outcome = machine.over(None).run(card, permanent=False)
    assert (machine.mtu("ens1"), needs(outcome)) == (1500, ("confirmation",))


def test_a_record_that_others_may_write_is_not_believed(machine: Machine) -> None:
    machine.run(JUMBO)
    (machine.root / RECORD.lstrip("/")).chmod(0o666)
    with pytest.raises(CannotLook, match="is world-writable"):
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
