# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""MPS: what the daemon and its servers have, who is never disturbed, what the next boot starts, and what comes back."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Sequence

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError, InUse
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._linux import systemd
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mps import apply
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mps.plan import RunDaemon
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_machine import ONE, divide, whole
from ansible_collections.gpufleet.node.tests.unit.concerns.mps.mps_machine import (
    ETC,
    PIPES,
    UNIT,
    environment_of,
    machine,
    run,
    systemd_of,
    uuid_of,
)
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import GpuMachine, MakeMachine
from ansible_collections.gpufleet.node.tests.unit.support import Killed, build, snapshot

pytestmark = pytest.mark.once

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

ALL: List[Dict[str, Any]] = [{"memory_limit": "10G"}]
BUSY = "python3 (pid 5003, user alice, s.scope)"


def settings(outcome: Any, scope: str = "effective") -> Dict[Any, Any]:
    return {(one.object, one.setting): (one.before, one.after) for one in outcome.changes if one.scope == scope}


def daemon(outcome: Any, unit: str = UNIT) -> Dict[str, Any]:
    found: Dict[str, Any] = outcome.effective["daemons"][unit]
    return found


# What is in effect


def test_all_gpus_have_one_daemon_with_its_limits_and_a_second_run_asks_it_once(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine, "a30-4")
    outcome = run(made, gpus=ALL, active_thread_percentage="40")
    assert daemon(outcome) == {
        "pipe_directory": PIPES,
        "gpus": ["gpu0", "gpu1", "gpu2", "gpu3"],
        "active_thread_percentage": "40",
        "memory_limits": {f"gpu{index}": "10G" for index in range(4)},
        "multi_user": False,
        "servers": {},
    }
    assert outcome.boot["daemons"][UNIT]["active_thread_percentage"] == "40"
    made.clear_logs()
    again = run(made, gpus=ALL, active_thread_percentage="40")
    assert (again.status, again.changes, again.remaining.needs) == ("in_sync", (), ())
    assert made.host.commands.calls == [("env", f"CUDA_MPS_PIPE_DIRECTORY={PIPES}", "nvidia-cuda-mps-control")]


def test_the_environment_has_the_gpus_by_uuid_the_limits_and_the_protocol(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine, "a30-4")
    run(made, gpus=[{"match": {"index": 2}, "memory_limit": "1536M"}, {"match": {"index": 0}}])
    # The driver's order, not that of the entries.
    assert environment_of(made.host.files.read(f"{ETC}/{UNIT}")) == {
        "CUDA_MPS_PIPE_DIRECTORY": "/run/nvidia-mps",
        "CUDA_MPS_LOG_DIRECTORY": "/var/log/nvidia-mps",
        "CUDA_MPS_PROTOCOL_VERSION": "2",
        "CUDA_VISIBLE_DEVICES": f"{uuid_of(made, 0)},{uuid_of(made, 2)}",
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"{uuid_of(made, 2)}=1536M",
    }


def test_it_is_there_after_a_boot_with_the_same_limits(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine)
    declared = {"gpus": ALL, "active_thread_percentage": "33.5"}
    run(made, **declared)
    systemd_of(made).boot()
    outcome = run(made, **declared)
    assert (outcome.status, outcome.changes) == ("in_sync", ())
    assert daemon(outcome)["active_thread_percentage"] == "33.5"


def test_a_default_that_somebody_set_by_hand_is_drift_and_goes(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine)
    run(made, gpus=[{}])
    systemd_of(made).daemons[UNIT].answer("set_default_active_thread_percentage 20")
    outcome = run(made, gpus=[{}])
    assert settings(outcome) == {(UNIT, "active thread percentage"): ("20", "100")}
    assert ("systemctl", "restart", UNIT) in made.host.commands.calls


def test_a_daemon_that_does_not_answer_is_restarted(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine)
    run(made, gpus=[{}])
    systemd_of(made).silent = True
    planned = run(made, gpus=[{}], check=True)
    assert settings(planned)[(UNIT, "service")] == ("not responding", "running")
    assert daemon(planned) == {"fault": f"no daemon listens in {PIPES}"}


def test_a_daemon_that_does_not_answer_is_not_stopped_under_who_may_compute_through_it(
    gpu_machine: MakeMachine,
) -> None:
    made = machine(gpu_machine)
    run(made, gpus=[{}])
    systemd = systemd_of(made)
    client = systemd.client()
    build(made.root, {}, {f"/proc/{client}/fd/7": "/dev/nvidia0"})
    # As when somebody has removed its sockets: server and clients go on.
    systemd.silent = True
    for declared in ({"gpus": [{}]}, {"state": "absent"}):
        with pytest.raises(InUse, match=re.escape(BUSY.replace("5003", str(client)))):
            run(made, **declared)
        outcome = run(made, when_busy="skip", **declared)
        assert {change.object for change in outcome.changes} <= {"/etc/gpufleet/declared.d/mps.json"}
        assert outcome.remaining.needs == ("idle_gpu",)
    with pytest.raises(InUse, match=re.escape(BUSY.replace("5003", str(client)))):
        apply.run_daemon(RunDaemon("restart", UNIT), made.host)
    assert UNIT in systemd.daemons
    systemd.end(client)
    run(made, gpus=[{}], check=True)


@pytest.mark.parametrize("number", ["../tmp/mine", "\0"])
def test_who_may_write_beside_the_pipes_is_no_daemon(gpu_machine: MakeMachine, number: str) -> None:
    made = machine(gpu_machine)
    mine = {"cgroup": f"0::/system.slice/{UNIT}\n", "cmdline": "nvidia-cuda-mps-control\0-f\0", "environ": ""}
    build(made.root, {f"/tmp/mine/{name}": text for name, text in mine.items()})
    build(made.root, {f"{PIPES}/nvidia-cuda-mps-control.pid": number, "/proc/.keep": ""})
    assert settings(run(made, gpus=[{}], check=True))[(UNIT, "service")] == ("stopped", "running")


def test_a_gpu_that_is_no_longer_declared_is_no_longer_served(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine, "a30-4")
    run(made, gpus=[{}])
    outcome = run(made, gpus=[{"match": {"index": [0, 1]}}])
    assert settings(outcome) == {(UNIT, "GPUs"): ("gpu0, gpu1, gpu2, gpu3", "gpu0, gpu1")}
    assert daemon(outcome)["gpus"] == ["gpu0", "gpu1"]


def test_a_server_that_starts_tells_nothing_yet_and_is_no_drift(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine)
    run(made, gpus=ALL)
    systemd = systemd_of(made)
    systemd.client()
    next(iter(systemd.daemons[UNIT].servers.values())).ready = False
    outcome = run(made, gpus=ALL)
    assert outcome.status == "in_sync"
    assert daemon(outcome)["servers"]["5002"]["active_thread_percentage"] is None


# Clients


def test_a_daemon_with_clients_is_not_restarted_and_they_are_named_with_user_and_job(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine)
    run(made, gpus=ALL)
    service = systemd_of(made)
    service.client(cgroup="/system.slice/slurmstepd.scope/job_77/step_0/user/task_0")
    service.client(user=4242, cgroup=f"/docker/{'ab' * 32}")
    before = snapshot(made.root)
    with pytest.raises(InUse) as caught:
        run(made, gpus=ALL, active_thread_percentage="50")
    assert str(caught.value) == (
        f"Cannot restart or stop {UNIT}: server 5002 is in use by python3 (pid 5003, user alice, job 77), python3 (pid "
        f"5004, user 4242, container abababababab). Nothing was changed; end these clients, or set when_busy: wait or "
        "skip."
    )
    assert snapshot(made.root) == before


def test_who_waits_plans_again_once_the_last_client_has_ended(
    gpu_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = machine(gpu_machine)
    run(made, gpus=ALL)
    service = systemd_of(made)
    clients = [service.client(), service.client()]
    waits: List[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        service.end(clients.pop())

    monkeypatch.setattr("time.sleep", sleep)
    outcome = run(made, gpus=ALL, active_thread_percentage="50", when_busy="wait", busy_timeout=60)
    assert len(waits) == 2
    assert daemon(outcome)["active_thread_percentage"] == "50"
    assert daemon(outcome)["servers"] == {}


def test_who_skips_tells_the_daemon_and_the_old_server_is_pending_until_its_clients_end(
    gpu_machine: MakeMachine,
) -> None:
    made = machine(gpu_machine)
    run(made, gpus=ALL)
    service = systemd_of(made)
    client = service.client()
    declared = {"gpus": [{"memory_limit": "8G"}], "active_thread_percentage": "50", "when_busy": "skip"}
    outcome = run(made, **declared)
    assert ("systemctl", "restart", UNIT) not in made.host.commands.calls
    assert daemon(outcome)["active_thread_percentage"] == "50"
    assert daemon(outcome)["servers"]["5002"]["active_thread_percentage"] == "100"
    rows = {(row.object, row.setting): row for row in outcome.remaining.settings}
    percentage, memory = rows[UNIT, "active thread percentage"], rows["gpu0", "memory limit"]
    assert (percentage.effective, percentage.status) == ("50; 100 in server 5002", "pending")
    assert (memory.effective, memory.boot) == ("8G; 10G in server 5002", "8G")
    assert percentage.pending == f"server 5002 keeps its old value until these clients end: {BUSY}"
    assert outcome.remaining.needs == ("idle_gpu",)
    # The same for who does not skip: nothing is left that a run could do.
    for when_busy in ("skip", "fail", "wait"):
        again = run(made, **{**declared, "when_busy": when_busy})
        assert (again.remaining.status, settings(again)) == ("pending", {})
    service.end(client)
    done = run(made, **declared)
    assert (daemon(done)["servers"], run(made, **declared).status) == ({}, "in_sync")


def test_other_gpus_are_for_the_next_start_while_a_client_computes(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine, "a30-4")
    run(made, gpus=[{}])
    service = systemd_of(made)
    client = service.client()
    declared = {"gpus": [{"match": {"index": 0}}], "when_busy": "skip"}
    outcome = run(made, **declared)
    assert outcome.boot["daemons"][UNIT]["gpus"] == ["gpu0"]
    assert outcome.remaining.status == "pending"
    assert run(made, **declared).changes == ()
    service.end(client)
    assert daemon(run(made, **declared))["gpus"] == ["gpu0"]


def test_a_limit_that_goes_cannot_be_told_and_waits_for_the_clients_too(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine)
    run(made, gpus=ALL)
    service = systemd_of(made)
    client = service.client()
    with pytest.raises(InUse, match="server 5002 is in use by python3"):
        run(made, gpus=[{}])
    skipped = run(made, gpus=[{}], when_busy="skip")
    assert skipped.remaining.status == "pending"
    assert daemon(skipped)["memory_limits"] == {"gpu0": "10G"}
    service.end(client)
    assert daemon(run(made, gpus=[{}], when_busy="skip"))["memory_limits"] == {}


def test_a_client_that_comes_after_the_look_keeps_its_daemon(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine)
    run(made, gpus=[{}])
    systemd_of(made).client()
    for verb in ("restart", "stop"):
        with pytest.raises(InUse, match=f"Cannot {verb} {UNIT}: it is in use by python3 .pid 5003, user alice"):
            apply.run_daemon(RunDaemon(verb, UNIT), made.host)


def test_skip_also_leaves_a_daemon_whose_client_came_after_the_look(
    gpu_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = machine(gpu_machine)
    run(made, gpus=ALL)
    service = systemd_of(made)
    run_daemon = apply.run_daemon
    clients: List[int] = []

    def client_comes(action: RunDaemon, host: Any) -> None:
        if not clients:
            clients.append(service.client())
        run_daemon(action, host)

    monkeypatch.setattr(apply, "run_daemon", client_comes)
    skipped = run(made, gpus=[{}], when_busy="skip")
    assert (skipped.error, skipped.remaining.status) == (None, "pending")
    assert daemon(skipped)["memory_limits"] == {"gpu0": "10G"}
    service.end(clients[0])
    assert daemon(run(made, gpus=[{}], when_busy="skip"))["memory_limits"] == {}


def test_nothing_is_given_back_under_a_client_unless_it_is_skipped(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine)
    untouched = snapshot(made.root)
    run(made, gpus=[{}])
    service = systemd_of(made)
    client = service.client()
    with pytest.raises(InUse, match="end these clients"):
        run(made, state="absent")
    skipped = run(made, state="absent", when_busy="skip")
    assert (skipped.remaining.needs, UNIT in service.daemons) == (("idle_gpu",), True)
    service.end(client)
    run(made, state="absent", when_busy="skip")
    assert (service.daemons, snapshot(made.root)) == ({}, untouched)


def test_what_it_logged_is_kept(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine)
    run(made, gpus=[{}])
    (made.root / "var/log/nvidia-mps/server.log").write_text("a line\n")
    run(made, state="absent")
    assert made.host.files.read("/var/log/nvidia-mps/server.log") == "a line\n"


def test_a_run_that_was_killed_when_the_daemon_had_stopped_leaves_no_folder(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine)
    untouched = snapshot(made.root)
    run(made, gpus=[{}])
    whole_program = made.host.commands.programs["systemctl"]

    def killed(argv: Sequence[str]) -> Completed:
        answer = whole_program(argv)
        if argv[1] == "stop":
            raise Killed
        return answer

    made.host.commands.programs["systemctl"] = killed
    with pytest.raises(Killed):
        run(made, state="absent")
    made.host.commands.programs["systemctl"] = whole_program
    run(made, state="absent")
    assert snapshot(made.root) == untouched


# MIG


def divided(make: MakeMachine, *instances: Any) -> GpuMachine:
    made = machine(make, "hgx-h100-80gb-8")
    divide(made, 0, instances)
    return made


def test_each_mig_device_has_a_daemon_of_its_own_and_whole_gpus_have_theirs(gpu_machine: MakeMachine) -> None:
    made = divided(gpu_machine, whole(0, ONE), whole(1, ONE))
    outcome = run(made, gpus=[{"match": {"index": [0, 1]}, "memory_limit": "4G"}])
    divided_units = sorted(set(outcome.effective["daemons"]) - {UNIT})
    assert [unit.partition("-gi")[0] for unit in divided_units] == ["gpufleet-mps-gpu0"] * 2
    for unit in divided_units:
        environment = environment_of(made.host.files.read(f"{ETC}/{unit}"))
        assert environment["CUDA_VISIBLE_DEVICES"].startswith("MIG-")
        assert environment["CUDA_MPS_PIPE_DIRECTORY"] == f"/run/nvidia-mps{unit[12:-8]}"
        assert "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT" not in environment
    assert daemon(outcome)["gpus"] == ["gpu1"]
    # A daemon of ours may have no limit there.
    assert ("gpu0", "memory limit") in [(one["object"], one["setting"]) for one in outcome.as_dict()["unmanaged"]]
    with pytest.raises(GpuFleetError, match="NVIDIA documents no limit for a MIG device"):
        run(made, gpus=[{"match": {"index": [0, 1]}, "memory_limit": "4G"}], strict=True)


def test_after_another_layout_the_daemons_are_those_of_its_devices(gpu_machine: MakeMachine) -> None:
    made = divided(gpu_machine, whole(0, ONE), whole(1, ONE))
    declared = {"gpus": [{"match": {"index": 0}}]}
    first = set(run(made, **declared).effective["daemons"])
    made.host.nvml.close()
    made.sim("set", 0, "mig=0", "mig_pending=0")
    assert set(run(made, **declared).effective["daemons"]) == {UNIT}
    assert first.isdisjoint(systemd_of(made).daemons)
    assert not [name for name in made.host.files.names(ETC) if name.startswith("gpufleet-mps-")]


def test_a_gpu_that_does_not_respond_changes_nothing_of_mps(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine, "a30-4")
    run(made, gpus=[{}])
    before = made.host.files.read(f"{ETC}/{UNIT}")
    made.host.nvml.close()
    made.sim("lose", 1)
    with pytest.raises(GpuFleetError):
        run(made, gpus=[{}])
    assert made.host.files.read(f"{ETC}/{UNIT}") == before
    assert UNIT in systemd_of(made).daemons


# One of the two


def test_with_immediate_false_only_the_next_boot_changes(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine)
    outcome = run(made, gpus=[{}], immediate=False)
    assert (outcome.effective["daemons"], list(outcome.boot["daemons"])) == ({}, [UNIT])
    systemd_of(made).boot()
    assert list(run(made, gpus=[{}], immediate=False).effective["daemons"]) == [UNIT]


def test_with_permanent_false_it_runs_and_does_not_start_at_boot(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine)
    outcome = run(made, gpus=[{}], permanent=False)
    assert (list(outcome.effective["daemons"]), outcome.boot["daemons"]) == ([UNIT], {})
    assert systemd.enabled(made.host.files, UNIT) == systemd.DISABLED
    run(made, state="absent")
    assert not made.host.files.exists(f"{ETC}/{UNIT}")
