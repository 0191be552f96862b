# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``mig_layout``: what a declaration makes of simulated GPUs, what it leaves alone, and who may stop it."""

from __future__ import annotations

import json
from typing import Any, Dict, List, Mapping

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core import convergence
from ansible_collections.gpufleet.node.plugins.module_utils._core.assessment import assess
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    CannotLook,
    DeclarationError,
    InUse,
    Refused,
)
from ansible_collections.gpufleet.node.plugins.module_utils._kinds.units import YIELDS
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.records import INTERRUPTED_RUN, NOTIFIED
from ansible_collections.gpufleet.node.tests.unit.concerns.gpu_settings import gpu_settings_machine as settings_machine
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_layout_machine import (
    DECLARED,
    RECORD,
    boot,
    changes_of,
    declared,
    devices,
    params,
    ready,
    run,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_machine import (
    A100,
    ALL_SMALL,
    H100,
    LINKED_A100,
    MIXED,
    ONE,
    THREE,
    TWO,
    Instance,
    layout_of,
    mode_of,
    numbers_of,
    whole,
)
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import FABRIC_MANAGER, GpuMachine, MakeMachine
from ansible_collections.gpufleet.node.tests.unit.support import STATUS_OF_ROOT, build

pytestmark = pytest.mark.once

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

SMALL: Dict[str, Any] = {"match": {"index": 0}, "layout": "all-1g"}
DIVIDED: Dict[str, Any] = {"match": {"index": 0}, "instances": ["3g.40gb", "2g.20gb", {"profile": "1g", "count": 2}]}


def record_of(machine: GpuMachine) -> Mapping[str, str]:
    found: Mapping[str, str] = json.loads(machine.host.files.read(RECORD))["gpus"]
    return found


def calls(machine: GpuMachine, *symbols: str) -> List[str]:
    """The calls of these functions that changed something, in order."""
    return [symbol for symbol, result in machine.log() if symbol in symbols and result == 0]


TEXT = "2g.20gb@0 1g.10gb@2-3 3g.40gb@4"
DIVIDED_ON_EMPTY = (whole(0, TWO), whole(2, ONE), whole(3, ONE), whole(4, THREE))


# --- to what is declared, and no further ------------------------------------------------------------------------------


def test_a_gpu_gets_its_mode_and_its_instances_and_the_others_nothing(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine)
    predicted = run(machine, DIVIDED, check_mode=True)
    assert (mode_of(machine), machine.log()) == ((False, False), [])
    outcome = run(machine, DIVIDED)
    assert outcome.error is None
    assert changes_of(outcome) == changes_of(predicted)
    assert ("gpu0", "mig", "disabled", "enabled", "effective") in changes_of(outcome)
    assert ("gpu0", "instances", "none", TEXT, "effective") in changes_of(outcome)
    assert devices(machine) == [["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"], *[[]] * 7]
    assert [mode_of(machine, index) for index in range(8)] == [(True, True)] + [(False, False)] * 7


def test_a_second_run_finds_nothing_to_do_and_asks_the_driver_for_no_change(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine)
    others = {**SMALL, "match": {"index": [1, 2]}}
    run(machine, DIVIDED, others, {"mig": "disabled"})
    machine.clear_logs()
    outcome = run(machine, DIVIDED, others, {"mig": "disabled"})
    assert (outcome.status, outcome.changes, outcome.error) == ("in_sync", (), None)
    assert (machine.log(), machine.host.files.log, machine.host.commands.calls) == ([], [], [])


def test_only_the_instances_that_differ_are_touched(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, layouts={0: ALL_SMALL, 1: ALL_SMALL})
    kept = numbers_of(machine)
    outcome = run(machine, DIVIDED)
    assert outcome.error is None
    assert layout_of(machine) == DIVIDED_ON_EMPTY
    assert layout_of(machine, 1) == ALL_SMALL
    assert {place: number for place, number in numbers_of(machine).items() if place in kept} == {
        place: number for place, number in kept.items() if place in ((2, ONE), (3, ONE))
    }
    assert len(calls(machine, "nvmlGpuInstanceDestroy", "nvmlDeviceCreateGpuInstanceWithPlacement")) == 5 + 2


def test_a_job_on_an_instance_that_stays_keeps_running_while_its_neighbours_change(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, layouts={0: ALL_SMALL})
    with machine.simulated.job(0, "--gi", numbers_of(machine)[1, ONE], "--ci", 0) as job:
        outcome = run(machine, DIVIDED)
        assert outcome.error is None
        assert job.poll() is None
        clients = machine.describe()["clients"]
    # It stays where the job is, and so the others lie elsewhere.
    assert (1, ONE) in numbers_of(machine)
    assert devices(machine)[0] == ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]
    assert [client["pid"] for client in clients if client["gpu_instance"] is not None] == [job.pid]


def test_an_instance_without_a_compute_instance_is_seen_and_gets_one(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, layouts={0: (Instance(0, THREE, ()), Instance(4, THREE, ()))})
    found = numbers_of(machine)
    predicted = run(machine, {"match": {"index": 0}, "instances": ["3g.40gb"]}, check_mode=True)
    assert ("gpu0", "instances", "3g.40gb@0,4[]", "3g.40gb@0", "effective") in changes_of(predicted)
    outcome = run(machine, {"match": {"index": 0}, "instances": ["3g.40gb"]})
    assert outcome.error is None
    assert layout_of(machine) == (whole(0, THREE),)
    assert numbers_of(machine)[0, THREE] == found[0, THREE]


def test_instances_are_divided_into_compute_instances(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, layouts={0: (whole(0, THREE), whole(4, THREE))})
    found = numbers_of(machine)
    entry = {"profile": "3g.40gb", "compute_instances": ["1c", "2c.3g.40gb"]}
    outcome = run(machine, {"match": {"index": 0}, "instances": [entry, "1c.3g.40gb"]})
    assert outcome.error is None
    assert numbers_of(machine) == found
    assert devices(machine)[0] == ["1c.3g.40gb", "1c.3g.40gb", "2c.3g.40gb"]


def test_one_line_divides_a_mixed_fleet(gpu_machine: MakeMachine) -> None:
    for kind, expected in (
        (H100, ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]),
        (A100, ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]),
        ("a30-4", ["1g.6gb", "1g.6gb", "2g.12gb"]),
        ("hgx-b200-8", ["1g.23gb", "1g.23gb", "2g.45gb", "3g.90gb"]),
    ):
        machine = ready(gpu_machine, kind)
        assert run(machine, {"layout": "balanced"}).error is None
        assert set(map(tuple, devices(machine))) == {tuple(expected)}, kind


def test_mode_alone_can_be_declared_and_instances_are_left_alone_then(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, layouts={0: MIXED})
    outcome = run(machine, {"match": {"index": [0, 1]}})
    assert outcome.error is None
    assert (layout_of(machine), layout_of(machine, 1)) == (MIXED, ())
    assert (mode_of(machine), mode_of(machine, 1)) == ((True, True), (True, True))


def test_mig_is_switched_off_with_all_instances(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, layouts={0: MIXED})
    outcome = run(machine, {"mig": "disabled"})
    assert outcome.error is None
    assert ("gpu0", "instances", "1g.10gb@0-1 2g.20gb@2 3g.40gb@4", "none", "effective") in changes_of(outcome)
    assert (mode_of(machine), devices(machine)) == ((False, False), [[]] * 8)


def test_a_gpu_without_mig_is_as_declared_where_mig_is_disabled(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, "l40s-1")
    outcome = run(machine, {"mig": "disabled"})
    assert outcome.error is None
    assert machine.log() == []
    assert outcome.as_dict()["effective"]["gpus"] == {}


# --- GPUs that are reset for their mode -------------------------------------------------------------------------------


def test_only_the_gpu_whose_mode_changes_is_reset_and_its_persistence_comes_back(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, A100, layouts={1: MIXED}, files=FABRIC_MANAGER)
    outcome = run(machine, SMALL)
    assert outcome.error is None
    assert devices(machine) == [["1g.10gb"] * 7, ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"], *[[]] * 6]
    assert [gpu["persistence"] for gpu in machine.describe()["gpus"]] == [1] * 8


def test_gpus_that_nvlink_connects_are_reset_together_and_their_neighbours_have_all_back(
    gpu_machine: MakeMachine,
) -> None:
    machine = ready(gpu_machine, LINKED_A100, layouts={1: MIXED})
    outcome = run(machine, SMALL)
    assert outcome.error is None, outcome.error
    assert devices(machine)[0] == ["1g.5gb"] * 7
    assert layout_of(machine, 1) == MIXED
    assert [gpu["persistence"] for gpu in machine.describe()["gpus"]] == [1] * 4


def test_who_holds_a_gpu_that_must_be_reset_is_named_and_nothing_is_changed(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, A100, files=FABRIC_MANAGER)
    machine.sim("add-client", 0, "--name", "trainer", "--pid", 4242)
    machine.clear_logs()
    predicted = run(machine, SMALL, check_mode=True)
    with pytest.raises(InUse) as caught:
        run(machine, SMALL)
    assert str(predicted.error) == str(caught.value)
    assert str(caught.value) == (
        "Cannot change the MIG layout on gpu0: trainer (pid 4242) uses gpu0. Nothing was changed; drain the node or "
        "stop these, or set when_busy: wait or skip, or list in stop_services what may be stopped for a reset."
    )
    assert (machine.log(), mode_of(machine), declared(machine)) == ([], (False, False), None)


ALL_EIGHT = {"match": {"index": list(range(8))}, "layout": "balanced"}
WITHOUT_MANAGER = (
    "NVSwitches connect gpu0, gpu1, gpu2, gpu3, gpu4, gpu5, gpu6, gpu7, and no fabric manager runs, so they are all"
    " reset together"
)
START_IT = "start nvidia-fabricmanager, so that each GPU is reset alone"


def test_who_holds_one_gpu_behind_switches_blocks_all_only_without_a_fabric_manager_and_the_reason_is_said_once(
    gpu_machine: MakeMachine,
) -> None:
    machine = ready(gpu_machine, A100)
    machine.sim("add-client", 3, "--name", "trainer", "--pid", 4242)
    machine.clear_logs()
    with pytest.raises(InUse) as caught:
        run(machine, ALL_EIGHT)
    assert str(caught.value) == (
        "Cannot change the MIG layout on gpu0, gpu1, gpu2, gpu3, gpu4, gpu5, gpu6, gpu7: trainer (pid 4242) uses gpu3;"
        f" {WITHOUT_MANAGER}. Nothing was changed; {START_IT}, or drain the node or stop these, or set when_busy: wait"
        " or skip, or list in stop_services what may be stopped for a reset."
    )
    assert machine.log() == []


def test_who_holds_the_only_gpu_that_changes_is_in_the_way_with_a_fabric_manager_too(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, A100)
    machine.sim("add-client", 0, "--name", "trainer", "--pid", 4242)
    with pytest.raises(InUse) as caught:
        run(machine, SMALL)
    assert "fabric manager" not in str(caught.value)


def test_gpus_that_are_skipped_say_that_a_fabric_manager_is_missing(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, A100)
    machine.sim("add-client", 3, "--name", "trainer", "--pid", 4242)
    machine.connect()
    _state, plan = assess(CONCERN, params(SMALL, when_busy="skip"), machine.host)
    assert {setting.pending for setting in plan.pending} == {f"trainer (pid 4242) uses gpu3; {WITHOUT_MANAGER}"}


def test_gpus_that_nvlink_connects_directly_have_no_fabric_manager_to_start(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, LINKED_A100)
    machine.sim("add-client", 3, "--name", "trainer", "--pid", 4242)
    with pytest.raises(InUse) as caught:
        run(machine, SMALL)
    assert str(caught.value).startswith("Cannot change the MIG layout on gpu0: trainer (pid 4242) uses gpu3. Nothing")


def test_without_a_fabric_manager_all_are_reset_once_and_the_change_says_why(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, A100)
    outcome = run(machine, SMALL)
    assert outcome.error is None, outcome.error
    resets = [change.after for change in outcome.changes if change.setting == "reset"]
    assert resets == ["for the mode of gpu0", *["for the mode of gpu0, as no fabric manager runs"] * 7]
    assert devices(machine)[0] == ["1g.10gb"] * 7


def test_kernel_modules_that_keep_a_gpu_from_its_reset_are_named(gpu_machine: MakeMachine) -> None:
    machine = ready(
        gpu_machine,
        A100,
        files={**FABRIC_MANAGER, "/sys/module/nvidia_drm/parameters/modeset": "Y\n"},
    )
    with pytest.raises(InUse, match="the kernel module nvidia_drm with modeset=Y"):
        run(machine, SMALL)
    assert machine.log() == []


def test_services_that_may_be_stopped_stand_still_during_the_reset_and_run_again(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, A100, units=["nvidia-dcgm.service"], files=FABRIC_MANAGER)
    outcome = run(machine, SMALL, stop_services=["nvidia-dcgm.service", "not-here.service"])
    assert outcome.error is None
    systemctl: Any = machine.host.commands.programs["systemctl"]
    assert systemctl.done == [("stop", "nvidia-dcgm.service"), ("start", "nvidia-dcgm.service")]


@pytest.mark.parametrize(("open_too", "stopped"), [("/dev/nvidiactl", True), ("/dev/nvidia1", False)])
def test_a_service_of_ours_that_yields_stands_still_unless_it_has_another_gpu_open(
    gpu_machine: MakeMachine, open_too: str, stopped: bool
) -> None:
    unit = "gpufleet-mps.service"
    files = {
        **FABRIC_MANAGER,
        f"/etc/systemd/system/{unit}": f"[Unit]\n{YIELDS}\n",
        "/etc/systemd/system/gpufleet-other.service": "[Unit]\nDescription=one\n",
        "/proc/9000/comm": "nvidia-cuda-mps\n",
        "/proc/9000/cgroup": f"0::/system.slice/{unit}\n",
    }
    machine = ready(gpu_machine, A100, units=[unit, "gpufleet-other.service"], files=files)
    build(machine.root, {}, {"/proc/9000/fd/3": open_too, "/proc/9000/fd/4": "/dev/nvidia0"})
    systemctl: Any = machine.host.commands.programs["systemctl"]
    if stopped:
        assert run(machine, SMALL).error is None
        assert systemctl.done == [("stop", unit), ("start", unit)]
    else:
        with pytest.raises(InUse, match=f"nvidia-cuda-mps .pid 9000, {unit}. uses gpu0"):
            run(machine, SMALL)
        assert systemctl.done == []


def test_a_gpu_of_a_virtual_machine_keeps_its_mode_pending_until_that_is_started_anew(
    gpu_machine: MakeMachine,
) -> None:
    machine = ready(gpu_machine, A100, files=FABRIC_MANAGER)
    machine.sim("set", 0, "passthrough=1")
    outcome = run(machine, SMALL)
    assert outcome.error is None, outcome.error
    assert outcome.as_dict()["needs"] == ["reboot"]
    assert mode_of(machine) == (False, True)
    again = run(machine, SMALL)
    assert (again.status, again.changes, again.as_dict()["needs"]) == ("pending", (), ["reboot"])
    machine.sim("set", 0, "passthrough=1")
    assert boot(machine, SMALL).error is None
    assert devices(machine)[0] == ["1g.10gb"] * 7


# --- who is in the way ------------------------------------------------------------------------------------------------


def test_an_instance_in_use_that_is_not_declared_stops_the_run_and_is_named(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, layouts={0: ALL_SMALL})
    with machine.simulated.job(0, "--gi", numbers_of(machine)[2, ONE], "--ci", 0) as job:
        machine.clear_logs()
        with pytest.raises(InUse) as caught:
            run(machine, {"match": {"index": 0}, "instances": ["7g"]})
        assert f"(pid {job.pid}" in str(caught.value)
        assert "uses 1g.10gb@2, which is not declared" in str(caught.value)
    assert (layout_of(machine), machine.log()) == (ALL_SMALL, [])


def test_an_instance_in_use_that_would_have_to_move_is_named_with_what_it_is_in_the_way_of(
    gpu_machine: MakeMachine,
) -> None:
    machine = ready(gpu_machine, layouts={0: (whole(2, ONE), whole(6, ONE))})
    entry = {"match": {"index": 0}, "instances": ["4g.40gb", "1g", "1g"]}
    with machine.simulated.job(0, "--gi", numbers_of(machine)[2, ONE], "--ci", 0), pytest.raises(InUse) as caught:
        run(machine, entry)
    assert "uses 1g.10gb@2, which blocks 4g.40gb@0" in str(caught.value)


def test_a_monitor_is_in_nobodys_way_where_nothing_is_reset(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, layouts={0: ALL_SMALL})
    machine.sim("add-client", 0, "--name", "dcgm", "--kind", "monitor")
    assert run(machine, DIVIDED, {**SMALL, "match": {"index": 1}}).error is None
    assert layout_of(machine) == DIVIDED_ON_EMPTY


def test_a_gpu_in_use_can_be_skipped_while_the_others_are_changed(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, layouts={0: ALL_SMALL})
    with machine.simulated.job(0, "--gi", numbers_of(machine)[2, ONE], "--ci", 0):
        entry = {"match": {"index": [0, 1]}, "instances": ["7g"]}
        outcome = run(machine, entry, when_busy="skip")
        assert outcome.error is None
        assert (layout_of(machine), devices(machine)[1]) == (ALL_SMALL, ["7g.80gb"])
        assert outcome.as_dict()["needs"] == ["idle_gpu"]
        assert run(machine, entry, when_busy="skip").status == "pending"
    # The job has ended.
    assert run(machine, entry, when_busy="skip").error is None
    assert devices(machine)[0] == ["7g.80gb"]


def test_a_run_can_wait_until_the_job_has_ended(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, layouts={0: ALL_SMALL})
    with (
        machine.simulated.job(0, "--gi", numbers_of(machine)[2, ONE], "--ci", 0) as job,
        pytest.MonkeyPatch.context() as patch,
    ):

        def sleep(seconds: float) -> None:
            patch.undo()
            job.terminate()
            job.wait(timeout=20)

        patch.setattr(convergence.time, "sleep", sleep)
        outcome = run(machine, {"match": {"index": 0}, "instances": ["7g"]}, when_busy="wait", busy_timeout=60)
    assert outcome.error is None
    assert devices(machine)[0] == ["7g.80gb"]


# --- across the boot --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [H100, A100])
def test_a_boot_makes_the_same_instances_at_the_same_places(gpu_machine: MakeMachine, kind: str) -> None:
    machine = ready(gpu_machine, kind, layouts={0: (whole(3, ONE),)})
    entry = {"match": {"index": 0}, "instances": ["1g", "3g"]}
    assert run(machine, entry).error is None
    found = layout_of(machine)
    assert found == (whole(3, ONE), whole(4, THREE))
    assert record_of(machine)[machine.gpu(0)["uuid"]] == "1g.10gb@3 3g.40gb@4"
    # The node has no persistence mode when the boot service begins to work.
    outcome = boot(machine, entry)
    assert outcome.error is None, outcome.error
    assert layout_of(machine) == found
    again = run(machine, entry)
    assert (again.status, again.changes) == ("in_sync", ())


def test_what_the_boot_brings_of_another_declaration_is_known_from_what_was_recorded_with_it(
    gpu_machine: MakeMachine,
) -> None:
    machine = ready(gpu_machine)
    others = {**SMALL, "match": {"index": 1}}
    assert run(machine, SMALL, others).error is None
    predicted = run(machine, DIVIDED, others, check_mode=True)
    assert [change[:4] for change in changes_of(predicted) if change[4] == "boot"] == [
        ("gpu0", "instances", "1g.10gb@0-6", TEXT),
        (DECLARED, "declaration", "gpus[0].instances: not set; gpus[0].layout: all-1g", "as declared"),
    ]


def test_nothing_is_written_for_the_boot_when_the_layout_cannot_be_made(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, layouts={0: ALL_SMALL})
    assert run(machine, SMALL).error is None
    before, known = declared(machine), record_of(machine)
    machine.sim("fail", "nvmlDeviceCreateGpuInstanceWithPlacement", "NVML_ERROR_INSUFFICIENT_RESOURCES", 1)
    outcome = run(machine, DIVIDED)
    assert outcome.error is not None
    assert "gpu0 has its previous layout again: 1g.10gb@0-6" in str(outcome.error)
    assert layout_of(machine) == ALL_SMALL
    assert (declared(machine), record_of(machine)) == (before, known)
    assert run(machine, SMALL).status == "in_sync"


def test_without_the_boot_service_nothing_is_changed_unless_it_is_for_now_only(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, boot_service=False)
    outcome = run(machine, SMALL)
    assert isinstance(outcome.error, Refused)
    assert "the boot service is not installed. Run the role node_tools first" in str(outcome.error)
    assert (machine.log(), mode_of(machine)) == ([], (False, False))
    assert run(machine, SMALL, permanent=False).error is None
    assert (devices(machine)[0], declared(machine)) == (["1g.10gb"] * 7, None)


def test_the_next_boot_alone_can_be_declared(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, layouts={0: ALL_SMALL})
    outcome = run(machine, DIVIDED, immediate=False)
    assert outcome.error is None
    assert (layout_of(machine), machine.log()) == (ALL_SMALL, [])
    assert boot(machine, DIVIDED).error is None
    assert devices(machine)[0] == ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]


# --- given back -------------------------------------------------------------------------------------------------------


def test_everything_is_restored_placement_for_placement(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, layouts={0: MIXED, 1: (Instance(0, THREE, ()),)})
    assert run(machine, {"match": {"index": [0, 1, 2]}, "layout": "all-1g"}).error is None
    assert run(machine, {"match": {"index": [0, 1, 2]}, "instances": ["7g"]}).error is None
    outcome = run(machine, state="absent")
    assert outcome.error is None, outcome.error
    assert [layout_of(machine, index) for index in range(3)] == [MIXED, (Instance(0, THREE, ()),), ()]
    assert [mode_of(machine, index) for index in range(3)] == [(True, True), (True, True), (False, False)]
    assert declared(machine) is None
    assert machine.host.files.names("/var/lib/gpufleet") == ("program",)
    assert run(machine, state="absent").changes == ()


# --- a run that was killed --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nth", [1, 4, 8, 12])
def test_a_run_that_was_killed_is_finished_by_the_next(gpu_machine: MakeMachine, nth: int) -> None:
    machine = ready(gpu_machine, layouts={0: ALL_SMALL})
    machine.sim("kill-at-change", nth)
    killed = run(machine, DIVIDED)
    assert killed.error is not None
    outcome = run(machine, DIVIDED)
    assert outcome.error is None, outcome.error
    assert devices(machine)[0] == ["1g.10gb", "1g.10gb", "2g.20gb", "3g.40gb"]
    assert not machine.host.files.exists(INTERRUPTED_RUN)


# --- who must hear of it ----------------------------------------------------------------------------------------------


def test_who_listed_the_instances_before_must_hear_of_the_change_until_it_is_started_again(
    gpu_machine: MakeMachine,
) -> None:
    stat = "31 (dcgm-exporter) S 1 " + "0 " * 17 + "4711 0\n"
    machine = ready(
        gpu_machine,
        files={
            "/proc/31/comm": "dcgm-exporter\n",
            "/proc/31/status": STATUS_OF_ROOT,
            "/proc/31/stat": stat,
            "/proc/31/cgroup": "0::/system.slice/dcgm-exporter.service\n",
        },
    )
    outcome = run(machine, SMALL)
    assert outcome.as_dict()["needs"] == ["dcgm_exporter"]
    assert outcome.as_dict()["effective"]["consumers"]["dcgm_exporter"]["units"] == ["dcgm-exporter.service"]
    again = run(machine, SMALL)
    assert (again.status, again.changes, again.as_dict()["needs"]) == ("pending", (), ["dcgm_exporter"])
    machine.host.files.write_attribute("/proc/31/stat", stat.replace("4711", "9999"))
    assert run(machine, SMALL).status == "in_sync"


def test_nobody_must_hear_of_a_run_that_changed_nothing(gpu_machine: MakeMachine) -> None:
    machine = ready(
        gpu_machine,
        layouts={0: ALL_SMALL},
        files={"/proc/31/comm": "dcgm-exporter\n", "/proc/31/status": STATUS_OF_ROOT},
    )
    assert run(machine, SMALL).as_dict()["needs"] == []
    assert not machine.host.files.exists(NOTIFIED)


# --- what a second pair of eyes found ---------------------------------------------------------------------------------


def test_a_neighbour_whose_instances_are_left_alone_has_them_again_after_a_reset(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, LINKED_A100, layouts={1: MIXED})
    machine.sim("set", 1, "mig_pending=0")
    outcome = run(machine, SMALL, {"match": {"index": 1}})
    assert outcome.error is None, outcome.error
    assert (layout_of(machine, 1), mode_of(machine, 1)) == (MIXED, (True, True))


def test_what_is_reset_is_among_the_changes_and_its_neighbours_too(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, LINKED_A100)
    predicted = run(machine, SMALL, check_mode=True)
    resets = [(change[0], change[3]) for change in changes_of(predicted) if change[1] == "reset"]
    assert resets == [(f"gpu{index}", "for the mode of gpu0") for index in range(4)]


def test_a_neighbour_that_does_not_answer_is_in_the_way_of_a_reset(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, LINKED_A100)
    machine.sim("fail", "nvmlDeviceGetMigMode", "NVML_ERROR_UNKNOWN", 1, "--after", 3)
    predicted = run(machine, SMALL, check_mode=True)
    assert "gpu3, which has to be reset with gpu0, does not respond" in str(predicted.error)


def test_gpus_that_have_to_be_reset_together_take_nvidia_smi(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, LINKED_A100)
    del machine.host.commands.programs["nvidia-smi"]
    with pytest.raises(Refused, match="there is none on this node"):
        run(machine, SMALL)
    assert machine.log() == []


def test_the_record_of_a_gpu_that_is_skipped_does_not_follow_its_jobs(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, layouts={0: ALL_SMALL})
    entry = {"match": {"index": 0}, "instances": ["4g", "1g", "1g"]}
    records = []
    for start in (6, 2, 1):
        with (
            machine.simulated.job(0, "--gi", numbers_of(machine)[start, ONE], "--ci", 0),
            machine.simulated.job(0, "--gi", numbers_of(machine)[3, ONE], "--ci", 0),
        ):
            assert run(machine, entry, when_busy="skip").error is None
            records.append(machine.host.files.read(RECORD))
    assert len(set(records)) == 1


def test_the_record_of_a_gpu_that_does_not_answer_is_kept(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine)
    both = {"match": {"index": [0, 1]}, "layout": "all-1g"}
    assert run(machine, both).error is None
    kept = machine.gpu(1)["uuid"]
    machine.sim("fail", "nvmlDeviceGetMigMode", "NVML_ERROR_UNKNOWN", 0, "--after", 1)
    run(machine, {"match": {"index": 0}, "layout": "all-2g"})
    machine.sim("heal")
    assert record_of(machine)[kept] == "1g.10gb@0-6"


def test_restoring_ends_although_somebody_must_still_hear_of_it(gpu_machine: MakeMachine) -> None:
    stat = "31 (nvidia-device-p) S 1 " + "0 " * 17 + "4711 0\n"
    files = {
        "/proc/31/comm": "nvidia-device-p\n",
        "/proc/31/stat": stat,
        "/proc/31/status": STATUS_OF_ROOT,
        "/proc/31/cgroup": "0::/kubepods\n",
    }
    machine = ready(gpu_machine, layouts={0: MIXED}, files=files)
    assert run(machine, SMALL).error is None
    outcome = run(machine, state="absent")
    assert (outcome.error, outcome.as_dict()["needs"]) == (None, ["device_plugin"])
    assert not machine.host.files.exists("/var/lib/gpufleet/baseline/mig_layout.json")


def test_a_layout_of_before_that_this_driver_does_not_have_is_not_given_up_silently(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, layouts={0: MIXED})
    assert run(machine, SMALL).error is None
    path = "/var/lib/gpufleet/baseline/mig_layout.json"
    text = machine.host.files.read(path)
    machine.host.files.replace(path, text.replace("3g.40gb@4", "3g.99gb@4"))
    with pytest.raises(CannotLook, match=r"this driver has no such layout: 1g\.10gb@0-1 2g\.20gb@2 3g\.99gb@4"):
        run(machine, state="absent")
    assert machine.host.files.exists(path)


def test_a_service_that_is_stopped_for_one_gpu_still_holds_the_others(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, A100, layouts={1: ALL_SMALL}, files=FABRIC_MANAGER)
    with machine.simulated.job(1, "--gi", numbers_of(machine, 1)[2, ONE], "--ci", 0) as job:
        unit = machine.root / "proc" / str(job.pid) / "cgroup"
        unit.parent.mkdir(parents=True)
        unit.write_text("0::/system.slice/nvidia-dcgm.service\n")
        (unit.parent / "comm").write_text("dcgm\n")
        entries = (SMALL, {"match": {"index": 1}, "instances": ["7g"]})
        outcome = run(machine, *entries, when_busy="skip", stop_services=["nvidia-dcgm.service"])
        assert outcome.error is None, outcome.error
    assert (devices(machine)[0], layout_of(machine, 1)) == (["1g.10gb"] * 7, ALL_SMALL)
    assert outcome.as_dict()["needs"] == ["idle_gpu"]


def test_what_a_killed_run_left_is_finished_also_where_nothing_is_declared_any_more(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, units=[])
    record = {"schema": 1, "boot": "", "gpus": {}, "stopped": ["nvidia-dcgm.service"]}
    machine.host.files.replace(INTERRUPTED_RUN, json.dumps(record))
    predicted = run(machine, check_mode=True)
    assert (INTERRUPTED_RUN, "run", "interrupted", "finished", "effective") in changes_of(predicted)
    assert run(machine).error is None
    systemctl: Any = machine.host.commands.programs["systemctl"]
    assert systemctl.active == {"nvidia-dcgm.service"}
    assert not machine.host.files.exists(INTERRUPTED_RUN)


def test_a_gpu_without_mig_is_an_error_only_where_strict_is_asked_for(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, "l40s-1")
    assert [entry["object"] for entry in run(machine, {"mig": "disabled"}).as_dict()["unmanaged"]] == ["gpu0"]
    with pytest.raises(DeclarationError, match="the GPU has no MIG"):
        run(machine, {"mig": "disabled"}, strict=True)


def test_what_a_killed_run_stopped_runs_again_although_somebody_is_in_the_way(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, layouts={0: ALL_SMALL})
    machine.host.files.replace(
        INTERRUPTED_RUN, json.dumps({"schema": 1, "boot": "", "gpus": {}, "stopped": ["nvidia-dcgm.service"]})
    )
    with machine.simulated.job(0, "--gi", numbers_of(machine)[2, ONE], "--ci", 0), pytest.raises(InUse):
        run(machine, {"match": {"index": 0}, "instances": ["7g"]})
    systemctl: Any = machine.host.commands.programs["systemctl"]
    assert systemctl.active == {"nvidia-dcgm.service"}
    assert (machine.host.files.exists(INTERRUPTED_RUN), layout_of(machine)) == (False, ALL_SMALL)


def test_a_gpu_that_a_killed_run_left_half_done_has_its_old_layout_again_where_nobody_declares_it(
    gpu_machine: MakeMachine,
) -> None:
    machine = ready(gpu_machine, layouts={0: MIXED})
    uuid = machine.gpu(0)["uuid"]
    gpus = {uuid: {"mig": True, "instances": "19@0-6[1c@0]", "persistence": True}}
    machine.host.files.replace(INTERRUPTED_RUN, json.dumps({"schema": 1, "boot": "", "gpus": gpus, "stopped": []}))
    assert run(machine, {**SMALL, "match": {"index": 1}}).error is None
    assert layout_of(machine) == ALL_SMALL
    assert not machine.host.files.exists(INTERRUPTED_RUN)


def test_clocks_that_a_reset_took_along_are_missed_by_the_next_look(gpu_machine: MakeMachine) -> None:
    files = FABRIC_MANAGER
    machine = ready(gpu_machine, A100, files=files)
    clocks = {"match": {"index": [0, 1]}, "locked_graphics_clocks": "900-1200"}
    assert settings_machine.run(machine, clocks).error is None
    assert run(machine, SMALL).error is None
    assert machine.gpu(0)["locked_graphics_min"] is None
    found = settings_machine.run(machine, clocks)
    assert [(change[0], change[2]) for change in settings_machine.changes_of(found)] == [("gpu0", "unknown")]
    assert machine.gpu(0)["locked_graphics_min"] == 900
