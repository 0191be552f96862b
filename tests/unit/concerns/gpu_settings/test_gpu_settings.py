# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from typing import Any, Dict, List

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.assessment import assess
from ansible_collections.gpufleet.node.plugins.module_utils._core.change import Plan, Refuse
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Scope
from ansible_collections.gpufleet.node.plugins.module_utils._core.setting import BOOT, EFFECTIVE
from ansible_collections.gpufleet.node.plugins.module_utils._core.value import replace
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.driver import Identity
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_settings import locks
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_settings.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_settings.driver import GpuReading
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_settings.plan import NoPersistence, SetGpus
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_settings.spec import (
    GRAPHICS_CLOCKS,
    GpuSettingsDeclaration,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_settings.state import (
    GpuSettingsState,
    SettingsGpu,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.gpu_settings.gpu_settings_machine import (
    DECLARED,
    changes_of,
    params,
    ready,
    run,
    settings_of,
)
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import GpuMachine, MakeMachine
from ansible_collections.gpufleet.node.tests.unit.support import Killed, snapshot
from hypothesis import given
from hypothesis import strategies as st

pytestmark = pytest.mark.once

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

ALL: Dict[str, Any] = {
    "compute_mode": "exclusive_process",
    "power_limit_watts": 500,
    "locked_memory_clocks": "1593",
    "locked_graphics_clocks": "1200-1500",
    "ecc": "disabled",
}
AS_MADE = {
    "compute_mode": 0,
    "power_limit": 700000,
    "locked_memory_min": None,
    "locked_memory_max": None,
    "locked_graphics_min": None,
    "locked_graphics_max": None,
    "ecc": 1,
    "ecc_pending": 1,
}
AS_DECLARED = {
    "compute_mode": 3,
    "power_limit": 500000,
    "locked_memory_min": 1593,
    "locked_memory_max": 1593,
    "locked_graphics_min": 1200,
    "locked_graphics_max": 1500,
    "ecc": 1,
    "ecc_pending": 0,
}
UNLOCKED = {"locked_graphics_clocks": "default"}
LOCKED = {"locked_graphics_clocks": "1200-1500"}
DAEMON = locks.DAEMON


def locked(machine: GpuMachine, index: int = 0) -> Any:
    gpu = machine.gpu(index)
    return gpu["locked_graphics_min"], gpu["locked_graphics_max"]


def changing(machine: GpuMachine) -> List[str]:
    """The calls that change something, since ``forget``."""
    return [symbol for symbol, _result in machine.log()]


def plan_of(machine: GpuMachine, *gpus: Dict[str, Any], **shared: Any) -> Plan:
    machine.connect()
    plan = assess(CONCERN, params(*gpus, **shared), machine.host)[1]
    machine.host.nvml.close()
    return plan


def test_one_call_brings_every_setting_of_every_gpu(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine)
    outcome = run(machine, ALL)
    assert (outcome.error, outcome.status) == (None, "drifted")
    assert [settings_of(machine, index) for index in range(8)] == [AS_DECLARED] * 8


def test_a_second_run_calls_nothing_that_changes_and_writes_nothing(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine)
    run(machine, {**ALL, "ecc": "enabled"})
    machine.clear_logs()
    outcome = run(machine, {**ALL, "ecc": "enabled"})
    assert (outcome.status, outcome.changes) == ("in_sync", ())
    assert (machine.log(), machine.host.files.log) == ([], [])


def test_check_mode_predicts_what_a_run_then_does(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine)
    before = snapshot(machine.root)
    predicted = run(machine, ALL, check_mode=True)
    assert (snapshot(machine.root), settings_of(machine), machine.log()) == (before, AS_MADE, [])
    assert predicted.changes == run(machine, ALL).changes
    assert ("gpu7", "power_limit_watts", 700, 500, EFFECTIVE) in changes_of(predicted)
    assert ("gpu7", "power_limit_watts", 700, 500, BOOT) in changes_of(predicted)


def test_the_first_entry_that_matches_wins_and_what_is_not_declared_stays(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine)
    machine.sim("set", 2, "power_limit=650000", "compute_mode=2")
    run(
        machine,
        {"match": {"index": 0}},
        {"match": {"uuid": machine.gpu(1)["uuid"]}, "power_limit_watts": 400},
        {"match": {"pci_address": "00000000:52:00.0"}, "locked_graphics_clocks": 1410},
        {"match": {"model": "NVIDIA H100*"}, "power_limit_watts": 600},
    )
    assert [gpu["power_limit"] // 1000 for gpu in machine.describe()["gpus"]] == [700, 400, 650] + [600] * 5
    assert (locked(machine, 2), machine.gpu(2)["compute_mode"]) == ((1410, 1410), 2)


def test_default_gives_a_setting_back_to_the_driver(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine)
    run(machine, ALL)
    run(machine, dict.fromkeys(ALL, "default"))
    assert settings_of(machine) == AS_MADE
    machine.clear_logs()
    assert run(machine, dict.fromkeys(ALL, "default")).status == "in_sync"
    assert machine.log() == []


def test_a_lock_that_nobody_knows_of_is_reset_once_where_default_is_declared(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine)
    machine.sim("set", 0, "locked_graphics_min=1200", "locked_graphics_max=1500")
    assert plan_of(machine, UNLOCKED).status == "drifted"
    run(machine, UNLOCKED)
    assert locked(machine) == (None, None)
    machine.clear_logs()
    assert run(machine, UNLOCKED).status == "in_sync"
    assert machine.log() == []


def test_a_power_limit_of_half_a_watt_is_no_other_and_is_restored(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, "l40s-1")
    machine.sim("set", 0, "power_limit=250500")
    assert changes_of(run(machine, {"power_limit_watts": 250}))[0][2:4] == ("250.5", 250)
    run(machine, state="absent")
    assert machine.gpu(0)["power_limit"] == 250500


# --- ECC --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("event", ["reset", "reboot"])
def test_a_new_ecc_mode_is_pending_until_a_reset_or_a_reboot_and_every_run_says_so(
    gpu_machine: MakeMachine, event: str
) -> None:
    machine = ready(gpu_machine)
    first = run(machine, {"ecc": "disabled"})
    assert changes_of(first)[0] == ("gpu0", "ecc", "enabled", "disabled", BOOT)
    assert {change.takes_effect for change in first.changes if change.setting == "ecc"} == {"gpu_reset"}
    for _run in range(2):
        machine.clear_logs()
        outcome = run(machine, {"ecc": "disabled"})
        assert (outcome.status, outcome.remaining.needs, machine.log()) == ("pending", ("gpu_reset",), [])
        assert (outcome.as_dict()["reboot_required"], outcome.as_dict()["changed"]) == (False, False)
    machine.sim(event)
    outcome = run(machine, {"ecc": "disabled"})
    assert (outcome.status, outcome.remaining.needs, machine.gpu(0)["ecc"]) == ("in_sync", (), 0)


def test_ecc_needs_neither_persistence_mode_nor_the_boot_service(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, persistence=False, boot_service=False)
    assert run(machine, {"ecc": "disabled", "power_limit_watts": "default"}).error is None
    assert machine.gpu(7)["ecc_pending"] == 0


def test_a_pending_mode_that_somebody_else_set_is_taken_back(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, "l40s-1")
    run(machine, {"ecc": "enabled"})
    machine.sim("set", 0, "ecc_pending=0")
    outcome = run(machine, {"ecc": "enabled"})
    assert (outcome.status, outcome.remaining.status, machine.gpu(0)["ecc_pending"]) == ("drifted", "in_sync", 1)


# --- the next boot ----------------------------------------------------------------------------------------------------


def test_the_boot_service_brings_the_values_back(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, "l40s-1")
    wanted = {"power_limit_watts": 250, "compute_mode": "prohibited"}
    assert run(machine, wanted).boot == {"gpus": {"gpu0": {"power_limit_watts": 250, "compute_mode": "prohibited"}}}
    document = json.loads(machine.host.files.read(DECLARED))
    assert document["apply_at_boot"] is True
    machine.reboot()
    machine.sim("set", 0, "persistence=1")
    assert machine.gpu(0)["power_limit"] == machine.gpu(0)["power_limit_default"]
    assert plan_of(machine, wanted).status == "drifted"
    # What the boot service does: a run with the declaration that it finds.
    run(machine, *document["declaration"]["gpus"])
    assert (machine.gpu(0)["power_limit"], machine.gpu(0)["compute_mode"]) == (250000, 2)
    assert plan_of(machine, wanted).status == "in_sync"


def test_without_a_declaration_the_next_boot_brings_the_defaults(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, "l40s-1", boot_service=False)
    outcome = run(machine, {"power_limit_watts": 250}, permanent=False)
    assert (outcome.error, outcome.boot) == (None, {"gpus": {"gpu0": {"power_limit_watts": 350}}})
    assert (machine.gpu(0)["power_limit"], machine.host.files.exists(DECLARED)) == (250000, False)


def test_what_is_declared_only_for_the_next_boot_is_not_set_now(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, "l40s-1", persistence=False)
    outcome = run(machine, {"power_limit_watts": 250}, immediate=False)
    assert changes_of(outcome)[0] == ("gpu0", "power_limit_watts", 350, 250, BOOT)
    assert (outcome.remaining.status, changing(machine)) == ("in_sync", [])
    assert machine.host.files.exists(DECLARED)


def test_another_declaration_on_the_node_says_nothing_of_the_next_boot(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, "l40s-1")
    run(machine, {"power_limit_watts": 250})
    plan = plan_of(machine, {"power_limit_watts": "default"})
    assert [(change.before, change.after, change.scope) for change in plan.changes[:2]] == [
        (250, 350, EFFECTIVE),
        (None, 350, BOOT),
    ]


# --- locks, which nobody can read back --------------------------------------------------------------------------------


READING = GpuReading(
    gpu=Identity(index=0, uuid="GPU-0"),
    values={},
    defaults={},
    lacking={},
    persistence=True,
    clocks={GRAPHICS_CLOCKS: 1300},
    reasons=0,
    load=7,
    millijoules=5000,
)


@pytest.mark.parametrize("value", ["x", "", None, [], {"a": 1}, "1-2-3", "9" * 5000])
def test_a_lock_of_a_value_that_nobody_keeps_is_not_believed(value: Any) -> None:
    assert believed(READING, value=value) == locks.UNKNOWN


def believed(now: GpuReading, holder: str = "12:34", value: str = "1200-1500") -> Any:
    """What a lock that was recorded during ``READING`` counts for."""
    record = {"GPU-0": {GRAPHICS_CLOCKS: dict(locks.entry_of(READING, value, "12:34"))}}
    return locks.in_effect(record, now, GRAPHICS_CLOCKS, holder)


def at(clock: int, reasons: Any = 0) -> GpuReading:
    return replace(READING, clocks={GRAPHICS_CLOCKS: clock}, reasons=reasons)


@pytest.mark.parametrize(
    ("now", "holder"),
    [
        pytest.param(READING, "12:34", id="nothing has changed"),
        pytest.param(replace(READING, millijoules=6000), "12:34", id="energy was used"),
        pytest.param(replace(READING, millijoules=None), "12:34", id="the GPU does not count energy"),
        pytest.param(replace(READING, persistence=None), "12:34", id="the GPU has no persistence mode"),
        pytest.param(at(1200), "12:34", id="the lowest clock"),
        pytest.param(at(1500), "12:34", id="the highest clock"),
        pytest.param(at(1515), "12:34", id="the step that the driver rounds to"),
        pytest.param(at(345, reasons=1), "12:34", id="idle"),
        pytest.param(at(900, reasons=4), "12:34", id="capped by its power limit"),
        pytest.param(at(900, reasons=None), "12:34", id="the driver gives no reasons"),
        pytest.param(replace(READING, clocks={GRAPHICS_CLOCKS: None}), "12:34", id="the driver tells no clock"),
    ],
)
def test_a_lock_is_believed_while_nothing_speaks_against_it(now: GpuReading, holder: str) -> None:
    assert believed(now, holder) == "1200-1500"


@pytest.mark.parametrize(
    ("now", "holder"),
    [
        pytest.param(replace(READING, load=8), "12:34", id="the kernel module was loaded again"),
        pytest.param(READING, "12:99", id="nvidia-persistenced was started again"),
        pytest.param(READING, "", id="nvidia-persistenced has ended"),
        pytest.param(replace(READING, millijoules=10), "12:34", id="the energy count began anew"),
        pytest.param(replace(READING, persistence=False), "12:34", id="persistence mode is off"),
        pytest.param(at(1980), "12:34", id="a clock above"),
        pytest.param(at(345), "12:34", id="a clock below without a reason"),
        pytest.param(at(345, reasons=2), "12:34", id="a clock below that somebody asked for"),
    ],
)
def test_a_lock_is_unknown_once_something_speaks_against_it(now: GpuReading, holder: str) -> None:
    assert believed(now, holder) == locks.UNKNOWN
    assert believed(now, holder, value="default") == "default"


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "7", '{"schema": 2, "gpus": {}}', '{"schema": 1}', '{"schema": 1, "gpus": {"a": 1}}']
)
def test_a_damaged_record_is_none(gpu_machine: MakeMachine, text: str) -> None:
    machine = ready(gpu_machine, "l40s-1", files={locks.RECORD: text})
    assert run(machine, LOCKED).error is None
    assert (locked(machine), run(machine, LOCKED).status) == ((1200, 1500), "in_sync")


@pytest.mark.parametrize("entry", [7, {}, {"value": 5}, {"value": None}, {"value": "1200-1500", "load": []}])
def test_a_damaged_entry_of_the_record_is_not_believed(gpu_machine: MakeMachine, entry: Any) -> None:
    machine = ready(gpu_machine, "l40s-1")
    record = {"schema": 1, "gpus": {machine.gpu(0)["uuid"]: {GRAPHICS_CLOCKS: entry}}}
    machine.host.files.replace(locks.RECORD, json.dumps(record))
    run(machine, LOCKED)
    assert (locked(machine), run(machine, LOCKED).status) == ((1200, 1500), "in_sync")


def test_clocks_that_the_driver_does_not_list_are_tried(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, "l40s-1")
    machine.sim("fail", "nvmlDeviceGetSupportedMemoryClocks", "NVML_ERROR_NOT_SUPPORTED", 0)
    assert run(machine, LOCKED).error is None
    assert locked(machine) == (1200, 1500)
    error = run(machine, {"locked_graphics_clocks": "1200-9000"}).error
    assert "the driver returned invalid argument (2) (wanted 1200-9000)" in str(error)


def test_a_lock_that_somebody_took_away_is_found_by_the_clock_of_a_working_gpu(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine)
    run(machine, LOCKED)
    machine.sim("set", 3, "locked_graphics_min=none", "locked_graphics_max=none")
    machine.sim("add-client", 3)
    machine.clear_logs()
    outcome = run(machine, LOCKED)
    assert changes_of(outcome) == [("gpu3", GRAPHICS_CLOCKS, "unknown", "1200-1500", EFFECTIVE)]
    assert (locked(machine, 3), changing(machine)) == ((1200, 1500), ["nvmlDeviceSetGpuLockedClocks"])


def test_locks_are_set_again_after_the_driver_was_loaded_again(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, "l40s-1")
    run(machine, LOCKED)
    machine.sim("reload-driver")
    machine.sim("set", 0, "persistence=1", "energy=1000")
    assert run(machine, LOCKED).status == "drifted"
    assert locked(machine) == (1200, 1500)


def test_locks_are_set_again_after_the_daemon_that_kept_them_was_restarted(gpu_machine: MakeMachine) -> None:
    start = "4242 (nvidia-persiste) S " + " ".join(str(field) for field in range(4, 22)) + " {} 0\n"
    machine = ready(gpu_machine, "l40s-1", files={DAEMON: "4242\n", "/proc/4242/stat": start.format(1000)})
    run(machine, LOCKED)
    assert run(machine, LOCKED).status == "in_sync"
    (machine.root / "proc/4242/stat").write_text(start.format(2000))
    machine.sim("set", 0, "locked_graphics_min=none", "locked_graphics_max=none")
    assert run(machine, LOCKED).status == "drifted"
    assert locked(machine) == (1200, 1500)


def test_a_run_that_is_killed_leaves_no_lock_that_is_believed_and_not_there(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, "l40s-1")
    run(machine, LOCKED)
    ends = 0
    for point in range(1, 50):
        machine.host.files.log.clear()
        machine.host.files.kill_at = point
        try:
            run(machine, {"locked_graphics_clocks": "1300-1400", "power_limit_watts": 250})
        except Killed:
            ends += 1
        machine.host.files.kill_at = None
        # Back to the first declaration: what it then says is in effect must be.
        outcome = run(machine, {**LOCKED, "power_limit_watts": 300})
        assert (outcome.error, locked(machine), machine.gpu(0)["power_limit"]) == (None, (1200, 1500), 300000), point
        assert run(machine, {**LOCKED, "power_limit_watts": 300}).status == "in_sync"
        if ends < point:
            break
    assert ends >= 6


# --- giving back ------------------------------------------------------------------------------------------------------


def test_absent_restores_what_was_found_and_leaves_no_file(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine)
    machine.sim("set", 0, "power_limit=650000", "compute_mode=2")
    original, before = snapshot(machine.root, leave_out=()), settings_of(machine)
    run(machine, ALL)
    run(machine, {**ALL, "power_limit_watts": 300})
    outcome = run(machine, state="absent")
    assert (outcome.error, outcome.remaining.status) == (None, "in_sync")
    assert [settings_of(machine, index) for index in (0, 7)] == [before, AS_MADE]
    left = snapshot(machine.root, leave_out=())
    assert {path for path in left if path not in original} <= {"run", "run/gpufleet", "run/gpufleet/lock"}
    assert {path: left[path] for path in original} == original
    machine.clear_logs()
    assert (run(machine, state="absent").changes, machine.log()) == ((), [])


def test_absent_leaves_a_lock_alone_that_is_none_of_ours(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, "l40s-1")
    run(machine, {"power_limit_watts": 250})
    machine.sim("set", 0, "locked_graphics_min=1200", "locked_graphics_max=1500")
    run(machine, state="absent")
    assert (locked(machine), machine.gpu(0)["power_limit"]) == ((1200, 1500), 350000)


def test_absent_without_a_change_before_asks_no_driver(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, "l40s-1")
    assert run(machine, state="absent").status == "in_sync"
    assert machine.log(changes=False) == []


def test_what_was_changed_on_a_gpu_that_is_gone_is_said(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, "l40s-1")
    run(machine, {"power_limit_watts": 250})
    uuid = machine.gpu(0)["uuid"]
    machine.sim("set", 0, "uuid=GPU-11111111-2222-3333-4444-555555555555")
    outcome = run(machine, state="absent")
    assert (outcome.error, outcome.as_dict()["unmanaged"]) == (
        None,
        [{"object": uuid, "setting": "power_limit_watts", "reason": "the GPU is missing"}],
    )


def test_what_was_found_on_a_gpu_that_is_lost_is_kept_until_it_is_back(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine)
    run(machine, {"power_limit_watts": 500})
    machine.sim("lose", 5)
    assert "Cannot converge on gpu5: the GPU is lost" in str(run(machine, state="absent").error)
    assert [gpu["power_limit"] // 1000 for gpu in machine.describe()["gpus"]] == [700] * 5 + [500] + [700] * 2
    machine.sim("find", 5)
    assert (run(machine, state="absent").error, machine.gpu(5)["power_limit"]) == (None, 700000)
    assert machine.host.files.names("/var/lib/gpufleet") == ("program",)


# --- what does not end well -------------------------------------------------------------------------------------------


def test_a_value_that_one_gpu_refuses_does_not_keep_the_others_from_theirs(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine)
    machine.sim("fail", "nvmlDeviceSetComputeMode", "NVML_ERROR_UNKNOWN", 1)
    outcome = run(machine, {**ALL, "ecc": "enabled"})
    assert str(outcome.error) == (
        "Cannot set compute_mode on gpu0: the driver returned unknown error (999) (wanted exclusive_process). Every "
        "other value is set, and what the next boot brings is as before; give this GPU an entry of its own, or declare "
        "what it takes."
    )
    assert settings_of(machine, 0) == {**AS_DECLARED, "compute_mode": 0, "ecc_pending": 1}
    assert settings_of(machine, 7) == {**AS_DECLARED, "ecc_pending": 1}
    assert not machine.host.files.exists(DECLARED)
    assert ("gpu0", "compute_mode") not in {(change.object, change.setting) for change in outcome.changes}
    assert run(machine, {**ALL, "ecc": "enabled"}).error is None
    assert (settings_of(machine, 0)["compute_mode"], machine.host.files.exists(DECLARED)) == (3, True)


def test_a_refused_lock_is_what_it_was(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, "l40s-1")
    run(machine, LOCKED)
    machine.sim("fail", "nvmlDeviceSetGpuLockedClocks", "NVML_ERROR_NOT_SUPPORTED", 1)
    outcome = run(machine, {"locked_graphics_clocks": "1300-1400"})
    assert "not supported by this GPU (wanted 1300-1400)" in str(outcome.error)
    assert (locked(machine), run(machine, LOCKED).changes) == ((1200, 1500), ())


def test_a_gpu_that_is_lost_does_not_keep_the_others_and_the_run_names_it(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine)
    uuid = machine.gpu(2)["uuid"]
    machine.sim("lose", 2)
    for _run in range(2):
        outcome = run(machine, {"match": {"uuid": uuid}, "power_limit_watts": 300}, {"power_limit_watts": 500})
        assert str(outcome.error) == (
            "Cannot converge on gpu2: the GPU is lost: it has fallen off the bus or does not respond. Check the "
            "kernel log for its Xid; a reset, a reboot or a power cycle may bring it back."
        )
        assert [gpu["power_limit"] // 1000 for gpu in machine.describe()["gpus"]] == [500, 500, 700] + [500] * 5
        assert machine.host.files.exists(DECLARED)
    assert [row["object"] for row in [s.row() for s in outcome.remaining.settings] if row["status"] != "in_sync"] == [
        "gpu2"
    ]
    machine.sim("find", 2)
    assert run(machine, {"match": {"uuid": uuid}, "power_limit_watts": 300}, {"power_limit_watts": 500}).error is None
    assert machine.gpu(2)["power_limit"] == 300000


def test_values_that_went_with_our_connection_did_not_take(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, "l40s-1", persistence=False)
    # A driver that does not say that it will not keep the GPU.
    machine.sim("fail", "nvmlDeviceGetPersistenceMode", "NVML_ERROR_NOT_SUPPORTED", 0)
    outcome = run(machine, {"power_limit_watts": 250})
    assert "nvmlDeviceSetPowerManagementLimit" in changing(machine)
    assert str(outcome.error) == (
        "Cannot apply power_limit_watts on gpu0: the machine reports another value than the one written "
        "(found 350, wanted 250). Check conflicts in the result for another owner of the setting."
    )
    assert machine.gpu(0)["power_limit"] == 350000


def test_an_mig_gpu_that_refuses_a_compute_mode_is_called_one(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine)
    machine.sim("set", 1, "mig=1", "mig_pending=1")
    machine.sim("fail", "nvmlDeviceSetComputeMode", "NVML_ERROR_NOT_SUPPORTED", 0)
    error = str(run(machine, {"match": {"index": 1}, "compute_mode": "prohibited"}).error)
    assert "Cannot set compute_mode on gpu1: not supported by this GPU; MIG mode is on (wanted prohibited)." in error


# --- the plan alone ---------------------------------------------------------------------------------------------------

VALUES: Dict[str, Any] = {
    "compute_mode": st.sampled_from(["default", "exclusive_process", "prohibited"]),
    "power_limit_watts": st.sampled_from([300, 500, 700]),
    "locked_memory_clocks": st.sampled_from(["default", "1593", "1593-2619"]),
    "locked_graphics_clocks": st.sampled_from(["default", "1200-1500", "1980"]),
    "ecc": st.sampled_from(["enabled", "disabled"]),
}
DEFAULTS: Dict[str, Any] = {
    "compute_mode": "default",
    "power_limit_watts": 700,
    "locked_memory_clocks": "default",
    "locked_graphics_clocks": "default",
    "ecc": "enabled",
}


@st.composite
def a_gpu(draw: Any, index: int) -> SettingsGpu:
    effective = draw(st.fixed_dictionaries(VALUES))
    boot = draw(st.fixed_dictionaries(VALUES))
    wanted = draw(st.none() | st.fixed_dictionaries({}, optional=VALUES))
    lost = draw(st.sampled_from(["", "", "", "gone"]))
    reading = GpuReading(
        gpu=Identity(index=index, uuid=f"GPU-{index}", lost=lost),
        values={},
        defaults=DEFAULTS,
        lacking={},
        persistence=draw(st.booleans()),
    )
    return SettingsGpu(reading, None, {}, {}) if lost else SettingsGpu(reading, wanted, effective, boot)


@given(st.tuples(a_gpu(0), a_gpu(1), a_gpu(2)), st.booleans(), st.booleans())
def test_a_plan_sets_what_differs_and_nothing_else_and_once_it_is_taken_there_is_no_other(
    gpus: Any, immediate: bool, permanent: bool
) -> None:
    nothing = GpuSettingsDeclaration((), frozenset())
    scope = Scope(immediate, permanent)
    state = GpuSettingsState(gpus)
    plan = CONCERN.plan(state, CONCERN.resolve(nothing, state), scope)
    taken = []
    actions = [step.action for step in plan.steps if isinstance(step.action, SetGpus)]
    values = {gpu.uuid: dict(gpu.values) for action in actions for gpu in action.gpus}
    not_retained = [error for error in plan.refusals if isinstance(error, NoPersistence)]
    for gpu in gpus:
        wanted, made = gpu.wanted or {}, values.get(gpu.reading.gpu.uuid, {})
        assert made == {
            setting: value
            for setting, value in wanted.items()
            if (gpu.boot[setting] != value if setting == "ecc" else immediate and gpu.effective[setting] != value)
        }
        lasts = all(value == DEFAULTS[setting] for setting, value in made.items() if setting != "ecc")
        assert (gpu.name in [name for error in not_retained for name in error.object.split(", ")]) == (
            not gpu.reading.persistence and not lasts
        )
        volatile = {setting: value for setting, value in made.items() if setting != "ecc"}
        boot = {**gpu.boot, **(wanted if permanent else {}), **({"ecc": made["ecc"]} if "ecc" in made else {})}
        taken.append(replace(gpu, effective={**gpu.effective, **volatile}, boot=boot))
    state = GpuSettingsState(tuple(taken))
    again = CONCERN.plan(state, CONCERN.resolve(nothing, state), scope)
    assert again.changes == ()
    lost = [gpu.name for gpu in gpus if gpu.reading.gpu.lost]
    refused = [step.action.error for step in again.steps if isinstance(step.action, Refuse)]
    assert [error.object for error in refused if error] == ([", ".join(lost)] if lost and immediate else [])
    assert len(refused) == len(again.steps)
    pending = {setting.object for setting in again.pending}
    differs = {gpu.name for gpu in taken if "ecc" in (gpu.wanted or {}) and gpu.wanted["ecc"] != gpu.effective["ecc"]}
    assert pending == (differs if immediate else set())


# --- machines ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["hgx-a100-80gb-8", "a30-4", "gb200-4", "l40s-1", "mixed"])
def test_every_kind_of_gpu_goes_there_and_back(gpu_machine: MakeMachine, kind: str) -> None:
    machine = ready(gpu_machine, kind)
    before = machine.describe()
    wanted = {"compute_mode": "prohibited", "ecc": "disabled", "locked_graphics_clocks": "900-1200"}
    assert run(machine, wanted).error is None
    gpus = machine.describe()["gpus"]
    assert {(gpu["compute_mode"], gpu["ecc_pending"], gpu["locked_graphics_max"]) for gpu in gpus} == {(2, 0, 1200)}
    run(machine, state="absent")
    assert machine.describe()["gpus"] == before["gpus"]


def test_a_look_at_eight_gpus_takes_few_calls(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine)
    run(machine, {**ALL, "ecc": "enabled"})
    machine.clear_logs()
    run(machine, {**ALL, "ecc": "enabled"})
    assert len(machine.log(changes=False)) <= 8 * 24
