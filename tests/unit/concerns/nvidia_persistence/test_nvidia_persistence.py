# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core import declared
from ansible_collections.gpufleet.node.plugins.module_utils._core.change import Conflict
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook, Refused
from ansible_collections.gpufleet.node.plugins.module_utils._linux import systemd
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvidia_persistence.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvidia_persistence.daemon import line_for, mode_of
from ansible_collections.gpufleet.node.tests.unit.concerns.nvidia_persistence.persistence_machine import (
    BOOT_SERVICE,
    DROP_IN,
    LINK,
    RULE,
    UBUNTU,
    UNIT,
    UPSTREAM,
    VENDOR,
    MakePersistenceMachine,
    PersistenceMachine,
)
from ansible_collections.gpufleet.node.tests.unit.support import Killed, snapshot

pytestmark = pytest.mark.once

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.concerns.nvidia_persistence.persistence_machine",)

MARKER = "/run/gpufleet/daemon-reload"
RECORD = "/var/lib/gpufleet/baseline/nvidia_persistence.json"
DECLARATION = "/etc/gpufleet/declared.d/nvidia_persistence.json"
SET = "nvmlDeviceSetPersistenceMode"
MIXED: List[Dict[str, Any]] = [{"match": {"index": 0}, "enabled": False}, {"enabled": True}]


def exec_start(machine: PersistenceMachine) -> str:
    """The command line that the next boot starts, as our drop-in has it."""
    lines = machine.host.files.read(DROP_IN).splitlines()
    assert lines[lines.index("[Service]") + 1] == "ExecStart="
    return lines[-1]


def systemctl(machine: PersistenceMachine) -> List[str]:
    """What was asked of systemd that changes something, in order."""
    verbs = [next(word for word in call[1:] if not word.startswith("-")) for call in machine.host.commands.calls]
    return [verb for verb in verbs if verb != "show"]


def scopes(outcome: Any, scope: str) -> Dict[Tuple[str, str], Any]:
    return {(change.object, change.setting): change.after for change in outcome.changes if change.scope == scope}


# --- through the daemon -----------------------------------------------------------------------------------------------


def test_ubuntus_daemon_that_holds_nothing_is_told_so_by_the_driver_and_stays_running(
    persistence_machine: MakePersistenceMachine,
) -> None:
    machine = persistence_machine()
    daemon = machine.systemd.daemon
    outcome = machine.run(enabled=True)
    assert (outcome.status, outcome.effective["through"], outcome.boot["through"]) == ("drifted", "daemon", "daemon")
    assert machine.modes() == ["on"] * 8
    assert systemctl(machine) == ["daemon-reload"]
    assert machine.systemd.daemon == daemon
    assert not any(gpu["persistence"] for gpu in machine.machine.describe()["gpus"])


def test_our_drop_in_takes_the_flag_away_and_keeps_every_other_argument(
    persistence_machine: MakePersistenceMachine,
) -> None:
    machine = persistence_machine()
    machine.run(enabled=True)
    assert exec_start(machine) == "ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --verbose"


def test_our_drop_in_lets_systemd_no_longer_stop_a_daemon_that_nothing_wants(
    persistence_machine: MakePersistenceMachine,
) -> None:
    machine = persistence_machine()
    machine.run(enabled=True)
    assert "[Unit]\nStopWhenUnneeded=no\n" in machine.host.files.read(DROP_IN)


@pytest.mark.parametrize("unit", [UBUNTU, UPSTREAM, None], ids=["ubuntu", "upstream", "no daemon"])
def test_every_gpu_is_on_after_a_reboot(persistence_machine: MakePersistenceMachine, unit: Any) -> None:
    machine = persistence_machine(unit=unit, files=BOOT_SERVICE, running=False)
    machine.run(enabled=True)
    assert machine.modes() == ["on"] * 8
    machine.reboot()
    assert machine.modes() == ["on"] * 8
    assert machine.run(enabled=True).changes == ()


def test_a_second_run_calls_nothing_that_changes_and_no_program(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine()
    machine.run(enabled=True)
    machine.machine.clear_logs()
    outcome = machine.run(enabled=True)
    assert (outcome.status, outcome.changes) == ("in_sync", ())
    assert machine.machine.log() == []
    assert (machine.host.files.log, machine.host.commands.calls) == ([], [])


def test_a_run_that_has_nothing_to_do_reads_few_files(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine()
    machine.run(enabled=True)
    machine.machine.clear_logs()
    machine.run(enabled=True)
    assert len(machine.host.files.reads) <= 10, machine.host.files.reads


def test_only_the_gpus_that_differ_are_switched(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine(unit=UPSTREAM, enabled=True)
    machine.run(enabled=True)
    machine.machine.simulated.elsewhere("nvmlDeviceSetPersistenceMode(gpu[3], 0)")
    machine.machine.clear_logs()
    outcome = machine.run(enabled=True)
    assert scopes(outcome, "effective") == {("gpu3", "persistence_mode"): "on"}
    assert machine.machine.log() == [(SET, 0)]


def test_a_daemon_that_is_not_enabled_is_enabled_and_started(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine(unit=UPSTREAM, running=False)
    outcome = machine.run(enabled=True)
    assert systemctl(machine) == ["enable", "daemon-reload", "start"]
    assert scopes(outcome, "boot")[(UNIT, "start at boot")] == "enabled"
    assert not machine.host.files.exists(DROP_IN)
    # The daemon itself does it: we need not say it of any GPU.
    assert machine.machine.log() == []
    assert machine.modes() == ["on"] * 8


def test_a_static_unit_that_nothing_starts_gets_the_link_that_it_does_not_ask_for(
    persistence_machine: MakePersistenceMachine,
) -> None:
    machine = persistence_machine(running=False)
    Path(machine.host.files.locate(RULE)).unlink()
    outcome = machine.run(enabled=True)
    assert ("systemctl", "--no-reload", "add-wants", "multi-user.target", UNIT) in machine.host.commands.calls
    change = next(change for change in outcome.changes if change.setting == "start at boot")
    assert (change.before, change.after) == ("static", "enabled")
    machine.reboot()
    assert machine.modes() == ["on"] * 8


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        (f'# ENV{{SYSTEMD_WANTS}}="{UNIT}"\n', False),
        (f'ENV{{SYSTEMD_WANTS}}=="{UNIT}", TAG+="a"\n', False),
        (f'ENV{{SYSTEMD_WANTS}}="{UNIT}"\n', True),
        (f'TAG+="systemd", ENV{{SYSTEMD_WANTS}}+="a.service \\\n  {UNIT}"\n', True),
    ],
    ids=["in a comment", "as a condition", "as an assignment", "as one that goes on in the next line"],
)
def test_what_a_rule_starts_is_what_it_assigns(
    persistence_machine: MakePersistenceMachine, text: str, starts: bool
) -> None:
    machine = persistence_machine(files={RULE: text}, running=False)
    machine.run(enabled=True)
    assert machine.host.files.exists(LINK) is not starts


def test_a_gpu_that_the_daemon_does_not_know_makes_it_restart(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine(unit=UPSTREAM, enabled=True)
    machine.machine.simulated.elsewhere("nvmlDeviceSetPersistenceMode(gpu[3], 0)")
    machine.machine.sim("fail", SET, "NVML_ERROR_NOT_FOUND", 1)
    machine.run(enabled=True)
    assert systemctl(machine) == ["restart"]
    assert machine.modes() == ["on"] * 8


def test_gpus_that_nothing_is_declared_of_keep_their_mode_when_the_daemon_is_restarted(
    persistence_machine: MakePersistenceMachine,
) -> None:
    machine = persistence_machine(files=BOOT_SERVICE)
    machine.machine.simulated.elsewhere("nvmlDeviceSetPersistenceMode(gpu[7], 1)")
    machine.machine.sim("fail", SET, "NVML_ERROR_NOT_FOUND", 1)
    machine.run(gpus=[{"match": {"index": 0}, "enabled": True}])
    assert systemctl(machine) == ["restart"]
    assert machine.modes() == ["on", *["off"] * 6, "on"]


def test_the_daemon_is_not_restarted_for_a_gpu_that_does_not_go_off(
    persistence_machine: MakePersistenceMachine,
) -> None:
    machine = persistence_machine(unit=UPSTREAM, enabled=True)
    machine.machine.sim("fail", SET, "NVML_ERROR_UNKNOWN", 1)
    outcome = machine.try_to_run(enabled=False, permanent=False)
    assert str(outcome.error) == ("Cannot disable persistence_mode on gpu0: the driver returned unknown error (999).")
    assert (systemctl(machine), machine.modes()) == ([], ["on"] + ["off"] * 7)


def test_check_mode_predicts_what_a_run_then_does(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine(running=False)
    before = snapshot(machine.root)
    predicted = machine.run(enabled=True, check_mode=True)
    assert (snapshot(machine.root), machine.machine.log(), systemctl(machine)) == (before, [], [])
    assert predicted.changes == machine.run(enabled=True).changes


def test_a_package_that_brings_another_command_line_gets_another_drop_in(
    persistence_machine: MakePersistenceMachine,
) -> None:
    machine = persistence_machine()
    machine.run(enabled=True)
    newer = UBUNTU.replace("--verbose", "--uvm-persistence-mode")
    Path(machine.host.files.locate(VENDOR)).write_text(newer)
    machine.run(enabled=True)
    assert exec_start(machine).endswith("--user nvidia-persistenced --uvm-persistence-mode")
    Path(machine.host.files.locate(VENDOR)).write_text(UPSTREAM)
    machine.run(enabled=True)
    assert not machine.host.files.exists(DROP_IN)


@pytest.mark.parametrize(
    ("name", "line", "reported"),
    [
        ("10-site.conf", "/usr/bin/nvidia-persistenced --no-persistence-mode", True),
        ("override.conf", "/usr/bin/nvidia-persistenced --persistence-mode", False),
    ],
)
def test_a_drop_in_of_somebody_else_is_taken_into_account_and_reported_where_it_says_something_else(
    persistence_machine: MakePersistenceMachine, name: str, line: str, *, reported: bool
) -> None:
    path = f"/etc/systemd/system/{UNIT}.d/{name}"
    machine = persistence_machine(
        unit=UPSTREAM, enabled=True, files={path: f"[Service]\nExecStart=\nExecStart={line}\n"}
    )
    outcome = machine.run(enabled=True)
    conflict = Conflict("systemd drop-in", path, None, UNIT, "ExecStart", line, "us")
    assert outcome.remaining.conflicts == ((conflict,) if reported else ())
    machine.reboot()
    assert machine.modes() == ["on"] * 8


@pytest.mark.parametrize(
    ("line", "mode"),
    [
        ("/usr/bin/nvidia-persistenced", "on"),
        ("/usr/bin/nvidia-persistenced --no-persistence-mode", "off"),
        ("/usr/bin/nvidia-persistenced -no-persistence-mode -V", "off"),
        ("/usr/bin/nvidia-persistenced --no-persistence-mode --persistence-mode", "on"),
        ("/usr/bin/nvidia-persistenced --persistence-mode --no-persistence-mode", "off"),
        ("/usr/bin/nvidia-persistenced --no-uvm-persistence-mode", "on"),
    ],
)
def test_the_last_flag_of_a_command_line_counts_and_is_all_that_is_taken_away(line: str, mode: str) -> None:
    assert mode_of(line) == mode
    assert mode_of(line_for(line, "on")) == "on"
    assert mode_of(line_for(line, "off")) == "off"
    assert "no-persistence-mode" not in line_for(line, "on")
    assert line_for(f"{line} --user 'a  b'", "on").endswith(" --user 'a  b'")


# --- containers -------------------------------------------------------------------------------------------------------


def with_a_container(machine: PersistenceMachine) -> None:
    scope = "docker-1.scope"
    process = {
        "/proc/77/cgroup": f"0::/system.slice/{scope}\n",
        "/proc/77/root/dev/nvidiactl": "",
    }
    for path, text in process.items():
        target = Path(machine.root, path.lstrip("/"))
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    machine.systemd.scopes[scope] = f"Id={scope}\nDevicePolicy=strict\nDeviceAllow=/dev/null rwm\n"


def test_where_containers_would_lose_their_gpus_the_driver_is_told_and_the_reload_stays_due(
    persistence_machine: MakePersistenceMachine,
) -> None:
    machine = persistence_machine()
    with_a_container(machine)
    outcome = machine.run(enabled=True)
    assert systemctl(machine) == []
    assert machine.modes() == ["on"] * 8
    assert outcome.remaining.needs == ("daemon-reload",)
    again = machine.run(enabled=True)
    assert (again.status, again.remaining.needs, again.changes) == ("pending", ("daemon-reload",), ())
    assert not again.as_dict()["reboot_required"]


def test_the_reload_is_made_up_for_when_the_containers_are_gone(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine()
    with_a_container(machine)
    machine.run(enabled=True)
    machine.systemd.scopes["docker-1.scope"] = "Id=docker-1.scope\nDevicePolicy=auto\nDeviceAllow=\n"
    outcome = machine.run(enabled=True)
    assert systemctl(machine) == ["daemon-reload"]
    assert (outcome.remaining.needs, len(outcome.changes)) == ((), 1)
    assert not machine.host.files.exists(MARKER)


# --- without the daemon, and not all alike ----------------------------------------------------------------------------


def test_without_a_daemon_the_drivers_own_flag_is_set_and_the_boot_service_brings_it_back(
    persistence_machine: MakePersistenceMachine,
) -> None:
    machine = persistence_machine(unit=None, files=BOOT_SERVICE)
    outcome = machine.run(enabled=True)
    assert (outcome.effective["through"], outcome.boot["through"]) == ("legacy", "legacy")
    assert all(gpu["persistence"] for gpu in machine.machine.describe()["gpus"])
    assert outcome.boot["gpus"]["gpu7"] == {"persistence_mode": "on"}
    assert machine.run(enabled=True).changes == ()


def test_a_daemon_that_is_listening_is_named_whoever_started_it(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine(unit=None, files={"/run/nvidia-persistenced/socket": ""})
    outcome = machine.run(enabled=True, permanent=False)
    assert (outcome.effective["through"], outcome.boot["through"]) == ("daemon", "legacy")


@pytest.mark.parametrize("unit", [UBUNTU, UPSTREAM, None], ids=["ubuntu", "upstream", "no daemon"])
def test_gpus_that_are_not_wanted_alike_get_their_modes_from_the_boot_service(
    persistence_machine: MakePersistenceMachine, unit: Any
) -> None:
    machine = persistence_machine(unit=unit, files=BOOT_SERVICE, enabled=unit == UPSTREAM)
    outcome = machine.run(gpus=MIXED)
    assert machine.modes() == ["off"] + ["on"] * 7
    assert not machine.host.files.exists(DROP_IN)
    assert outcome.boot["gpus"]["gpu0"] == {"persistence_mode": "off"}
    assert outcome.boot["gpus"]["gpu1"] == {"persistence_mode": "on"}
    assert machine.run(gpus=MIXED).changes == ()
    machine.reboot()
    assert machine.modes() == ["off"] + ["on"] * 7


def test_the_gpus_that_no_entry_is_for_keep_what_the_daemon_gives_them(
    persistence_machine: MakePersistenceMachine,
) -> None:
    machine = persistence_machine(files=BOOT_SERVICE)
    machine.run(gpus=[{"match": {"index": [2, 3]}, "enabled": True}])
    assert machine.modes() == ["off", "off", "on", "on", "off", "off", "off", "off"]
    machine.reboot()
    assert machine.modes() == ["off", "off", "on", "on", "off", "off", "off", "off"]


def test_what_was_declared_of_all_gpus_is_no_more_when_it_is_declared_of_some(
    persistence_machine: MakePersistenceMachine,
) -> None:
    machine = persistence_machine(files=BOOT_SERVICE)
    machine.run(enabled=True)
    machine.run(gpus=[{"match": {"index": 0}, "enabled": True}])
    assert not machine.host.files.exists(DROP_IN)
    assert machine.modes() == ["on"] * 8
    machine.reboot()
    assert machine.modes() == ["on"] + ["off"] * 7


def test_the_drop_in_stays_where_nothing_would_bring_what_it_brings(
    persistence_machine: MakePersistenceMachine,
) -> None:
    machine = persistence_machine()
    machine.run(enabled=True)
    before = snapshot(machine.root)
    with pytest.raises(Refused, match="the boot service is not installed"):
        machine.run(gpus=[{"match": {"index": 0}, "enabled": True}])
    assert snapshot(machine.root) == before


def test_a_gpu_that_shall_be_off_is_off_at_boot_by_the_unit_itself(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine()
    machine.run(enabled=True)
    outcome = machine.run(gpus=[{"match": {"index": 0}, "enabled": False}])
    assert scopes(outcome, "boot")[("gpu0", "persistence_mode")] == "off"
    machine.reboot()
    assert machine.modes() == ["off"] * 8


def test_a_list_that_says_the_same_of_all_gpus_is_left_to_the_daemon(
    persistence_machine: MakePersistenceMachine,
) -> None:
    machine = persistence_machine()
    machine.run(gpus=[{"match": {"model": "*H100*"}, "enabled": True}])
    assert machine.host.files.exists(DROP_IN)


def test_an_entry_without_a_mode_leaves_its_gpus_alone(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine(files=BOOT_SERVICE)
    machine.run(gpus=[{"match": {"index": 0}}, {"enabled": True}])
    assert machine.modes() == ["off"] + ["on"] * 7


def test_a_mixed_machine_is_told_apart_by_model(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine("mixed", unit=None, files=BOOT_SERVICE)
    outcome = machine.run(gpus=[{"match": {"model": "*A100*"}, "enabled": True}])
    on = {name for name, gpu in outcome.effective["gpus"].items() if gpu["persistence_mode"] == "on"}
    models = {f"gpu{gpu['index']}" for gpu in machine.machine.describe()["gpus"] if "A100" in gpu["name"]}
    assert on == models != set(outcome.effective["gpus"])


def test_another_declaration_on_the_node_does_not_bring_this_one(
    persistence_machine: MakePersistenceMachine,
) -> None:
    machine = persistence_machine(unit=None, files=BOOT_SERVICE)
    machine.run(enabled=True)
    path = Path(machine.host.files.locate(DECLARATION))
    path.write_text(path.read_text().replace('"enabled": true', '"enabled": false'))
    outcome = machine.run(enabled=True, check_mode=True)
    assert scopes(outcome, "boot")[("gpu0", "persistence_mode")] == "on"
    assert outcome.boot["gpus"]["gpu0"] == {"persistence_mode": "off"}


# --- off --------------------------------------------------------------------------------------------------------------


def test_off_lets_the_daemon_start_with_the_flag_and_does_not_stop_it(
    persistence_machine: MakePersistenceMachine,
) -> None:
    machine = persistence_machine(unit=UPSTREAM, enabled=True)
    machine.run(enabled=False)
    assert machine.modes() == ["off"] * 8
    assert exec_start(machine) == "ExecStart=/usr/bin/nvidia-persistenced --user nvpd --no-persistence-mode"
    assert systemctl(machine) == ["daemon-reload"]
    assert machine.systemd.daemon
    machine.reboot()
    assert (machine.modes(), bool(machine.systemd.daemon)) == (["off"] * 8, True)


def test_off_is_right_where_nothing_starts_the_daemon(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine(unit=UPSTREAM, running=False)
    outcome = machine.run(enabled=False)
    assert [change.object for change in outcome.changes] == [DECLARATION]
    assert machine.run(enabled=False).status == "in_sync"


def test_a_coherent_gpu_goes_off_with_force(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine("gb200-4", unit=UPSTREAM, enabled=True)
    machine.run(enabled=False, force=True)
    assert machine.modes() == ["off"] * 4
    # Its handles end with it, so the look that proves the mode opened the driver anew.
    symbols = [symbol for symbol, _result in machine.machine.log(changes=False)]
    assert (
        "nvmlShutdown"
        in symbols[symbols.index(SET) : len(symbols) - symbols[::-1].index("nvmlDeviceGetAddressingMode")]
    )


# --- immediate and permanent ------------------------------------------------------------------------------------------


def test_only_the_next_boot_when_it_is_not_immediate(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine()
    outcome = machine.run(enabled=True, immediate=False)
    assert scopes(outcome, "effective") == {}
    assert (machine.modes(), machine.machine.log()) == (["off"] * 8, [])
    machine.reboot()
    assert machine.modes() == ["on"] * 8


def test_only_the_running_system_when_it_is_not_permanent(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine(unit=None)
    outcome = machine.run(enabled=True, permanent=False)
    assert scopes(outcome, "boot") == {}
    assert machine.modes() == ["on"] * 8
    assert not machine.host.files.exists(DECLARATION)


# --- what cannot be set -----------------------------------------------------------------------------------------------


def test_a_gpu_without_persistence_mode_is_unmanaged_with_the_reason(
    persistence_machine: MakePersistenceMachine,
) -> None:
    machine = persistence_machine(unit=UPSTREAM, enabled=True)
    machine.machine.sim("fail", "nvmlDeviceGetPersistenceMode", "NVML_ERROR_NOT_SUPPORTED", 0)
    outcome = machine.run(enabled=True)
    assert {(entry.object, entry.reason) for entry in outcome.remaining.unmanaged} == {
        (f"gpu{index}", "not supported by this GPU") for index in range(8)
    }
    assert outcome.effective["gpus"]["gpu0"] == {"persistence_mode": None}
    assert machine.machine.log() == []


def test_a_lost_gpu_fails_the_run_at_its_end_and_the_others_are_converged(
    persistence_machine: MakePersistenceMachine,
) -> None:
    machine = persistence_machine()
    machine.machine.sim("lose", 3)
    outcome = machine.try_to_run(enabled=True)
    assert isinstance(outcome.error, CannotLook)
    assert outcome.error.object == "gpu3"
    machine.machine.sim("find", 3)
    assert [mode for index, mode in enumerate(machine.modes()) if index != 3] == ["on"] * 7
    again = machine.run(enabled=True)
    assert scopes(again, "effective") == {("gpu3", "persistence_mode"): "on"}


def test_what_the_next_boot_brings_stays_when_the_last_gpu_is_lost(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine()
    machine.run(enabled=True)
    before = snapshot(machine.root)
    for index in range(8):
        machine.machine.sim("lose", index)
    outcome = machine.try_to_run(enabled=True)
    assert isinstance(outcome.error, CannotLook)
    assert snapshot(machine.root) == before


def test_the_declaration_is_left_on_a_node_with_a_lost_gpu(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine(unit=UPSTREAM, enabled=True)
    machine.systemd.start()
    machine.machine.sim("lose", 3)
    assert isinstance(machine.try_to_run(enabled=True).error, CannotLook)
    assert CONCERN.name in declared.names(machine.host.files)


def test_a_gpu_that_gets_lost_while_it_is_asked_is_lost_too(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine(unit=UPSTREAM, enabled=True)
    machine.machine.sim("fail", "nvmlDeviceGetPersistenceMode", "NVML_ERROR_GPU_IS_LOST", 0)
    outcome = machine.try_to_run(enabled=True, check_mode=True)
    assert {(row.object, row.effective) for row in outcome.remaining.settings if row.setting == "driver"} == {
        (f"gpu{index}", "lost") for index in range(8)
    }
    assert outcome.remaining.unmanaged == ()


def test_a_gpu_that_refuses_does_not_keep_the_others_from_their_mode(
    persistence_machine: MakePersistenceMachine,
) -> None:
    machine = persistence_machine(unit=None, files=BOOT_SERVICE)
    machine.machine.sim("fail", SET, "NVML_ERROR_UNKNOWN", 2)
    outcome = machine.try_to_run(enabled=True)
    assert str(outcome.error) == (
        "Cannot enable persistence_mode on gpu0: the driver returned unknown error (999). The same happened to gpu1."
    )
    assert machine.modes() == ["off", "off"] + ["on"] * 6
    effective = {change.object for change in outcome.changes if change.scope == "effective"}
    assert effective == {f"gpu{index}" for index in range(2, 8)}


def test_a_host_without_gpus_has_nothing_to_do(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine(unit=None)
    machine.machine.sim("unload-driver")
    for declaration in ({"enabled": True}, {"gpus": [{"enabled": True, "optional": True}]}):
        outcome = machine.run(**declaration)
        assert [change.object for change in outcome.changes] == [DECLARATION]
        assert machine.run(**declaration).status == "in_sync"


# --- absent -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unit", "enabled", "running"),
    [
        (UBUNTU, False, True),
        (UPSTREAM, True, True),
        (UPSTREAM, False, False),
        (None, False, False),
    ],
)
@pytest.mark.parametrize("declaration", [{"enabled": True}, {"enabled": False}, {"gpus": MIXED}], ids=str)
def test_absent_restores_the_modes_and_every_file(
    persistence_machine: MakePersistenceMachine, unit: Any, enabled: bool, running: bool, declaration: Any
) -> None:
    machine = persistence_machine("a30-4", unit=unit, enabled=enabled, running=running, files=BOOT_SERVICE)
    before, modes, daemon = snapshot(machine.root), machine.modes(), bool(machine.systemd.daemon)
    machine.run(**declaration)
    machine.run(state="absent")
    assert (machine.modes(), bool(machine.systemd.daemon)) == (modes, daemon)
    assert snapshot(machine.root) == before
    assert machine.run(state="absent").changes == ()


def test_absent_takes_a_link_of_ours_away(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine(running=False)
    Path(machine.host.files.locate(RULE)).unlink()
    before = snapshot(machine.root)
    machine.run(enabled=True)
    assert machine.host.files.exists(LINK)
    machine.run(state="absent")
    assert snapshot(machine.root) == before


def test_absent_leaves_memory_of_the_machine_online_until_the_reboot(
    persistence_machine: MakePersistenceMachine,
) -> None:
    machine = persistence_machine("gb200-4", unit=UPSTREAM, running=False)
    machine.run(enabled=True)
    outcome = machine.run(state="absent")
    assert machine.modes() == ["on"] * 4
    assert (outcome.remaining.needs, outcome.as_dict()["reboot_required"]) == (("reboot",), True)
    assert machine.host.files.exists(RECORD)
    machine.reboot()
    assert machine.run(state="absent").remaining.needs == ()
    assert (machine.modes(), machine.host.files.exists(RECORD)) == (["off"] * 4, False)


def test_absent_says_which_gpu_is_not_there_any_more(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine(unit=None, files=BOOT_SERVICE)
    machine.run(enabled=True)
    record = Path(machine.host.files.locate(RECORD))
    uuid = machine.machine.gpu(5)["uuid"]
    record.write_text(record.read_text().replace(uuid, "GPU-of-another-day"))
    outcome = machine.run(state="absent", check_mode=True)
    assert [(entry.object, entry.reason) for entry in outcome.remaining.unmanaged] == [
        ("GPU-of-another-day", "the GPU is missing")
    ]


def test_absent_keeps_what_it_knows_of_a_gpu_that_is_lost(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine(unit=None, files=BOOT_SERVICE)
    machine.run(enabled=True)
    machine.machine.sim("lose", 5)
    assert machine.try_to_run(state="absent").error is not None
    machine.machine.sim("find", 5)
    machine.run(state="absent")
    assert (machine.modes(), machine.host.files.exists(RECORD)) == (["off"] * 8, False)


# --- killed -----------------------------------------------------------------------------------------------------------


def test_a_run_without_a_daemon_that_was_killed_anywhere_is_finished_by_the_next_one(
    persistence_machine: MakePersistenceMachine,
) -> None:
    machine = persistence_machine("a30-4", unit=None, files=BOOT_SERVICE)
    before = snapshot(machine.root)
    machine.run(enabled=True)
    effects = len(machine.host.files.log)
    machine.run(state="absent")
    for point in range(1, effects + 1):
        machine.host.files.log.clear()
        machine.host.files.kill_at = point
        with pytest.raises(Killed):
            machine.run(enabled=True)
        machine.host.files.kill_at = None
        machine.run(enabled=True)
        assert machine.modes() == ["on"] * 4, point
        assert not systemd.reload_due(machine.host, UNIT), point
        machine.run(state="absent")
        assert machine.modes() == ["off"] * 4, point
        assert snapshot(machine.root) == before, point
