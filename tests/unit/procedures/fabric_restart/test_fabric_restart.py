# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``fabric_manager_restart``: only what needs it, only while no job runs, and what is said where it does not come back.

The daemons are stand-ins that fail as NVIDIA documents it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Dict

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core import baseline
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._core.procedure import run_through
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.fabric_restart import procedure
from ansible_collections.gpufleet.node.tests.unit.concerns.fabric_manager.fabric_machine import (
    CFG,
    FM_UNIT,
    GB200,
    IMEX_UNIT,
    MPS_UNIT,
    NEW_DRIVER,
    NODES_CFG,
    FabricMachine,
)


def restart(machine: FabricMachine, *, check_mode: bool = False, **options: Any) -> Dict[str, Any]:
    given = {"daemon": "fabric_manager", "when_busy": "fail", "busy_timeout": 0, "start_timeout": 5, **options}
    return run_through(procedure.PROCEDURE, given, machine.host, check_mode=check_mode)


def changed(root: Path) -> FabricMachine:
    """A machine whose daemon has not read its file."""
    machine = FabricMachine(root)
    machine.run(config={"LOG_LEVEL": 2})
    assert machine.systemd.started == []
    return machine


def test_it_restarts_what_has_not_read_its_file_and_then_nothing_more(tmp_path: Path) -> None:
    machine = changed(tmp_path)
    done = restart(machine)
    assert (done["changed"], done["done"], done["needs"]) == (True, "restart", [])
    assert done["why"] == f"{CFG} has changed since it started"
    assert machine.systemd.started == [("restart", FM_UNIT)]
    assert machine.run(config={"LOG_LEVEL": 2}).status == "in_sync"
    assert restart(machine)["changed"] is False
    assert machine.systemd.started == [("restart", FM_UNIT)]


def test_it_starts_one_that_is_enabled_and_does_not_run(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path, running=False)
    assert restart(machine)["done"] == "start"
    assert machine.systemd.running(FM_UNIT)
    stopped = FabricMachine(tmp_path / "disabled", running=False, enabled=False)
    assert restart(stopped)["done"] is None


def test_it_restarts_imex_for_other_nodes(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path, GB200)
    machine.run(imex_nodes=["192.0.2.12"])
    done = restart(machine, daemon="imex")
    assert (done["unit"], done["why"]) == (IMEX_UNIT, f"{NODES_CFG} has changed since it started")


def test_jobs_are_named_waited_for_or_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = changed(tmp_path)
    machine.client()
    with pytest.raises(GpuFleetError) as refused:
        restart(machine)
    assert str(refused.value) == (
        f"Cannot restart the Fabric Manager ({FM_UNIT}): GPUs are in use by python3 (pid 900), whose CUDA jobs would "
        f"end; the restart is needed because {CFG} has changed since it started. Wait until they end, or set "
        "when_busy to wait or skip."
    )
    skipped = restart(machine, when_busy="skip")
    assert (skipped["changed"], skipped["needs"], skipped["clients"]) == (
        False,
        ["restart_fabric_manager"],
        ["python3 (pid 900)"],
    )
    with pytest.raises(GpuFleetError, match="GPUs are in use"):
        restart(machine, when_busy="wait")
    assert machine.systemd.started == []
    pauses = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        machine.client_ends()

    monkeypatch.setattr(time, "sleep", pause)
    assert restart(machine, when_busy="wait", busy_timeout=600)["done"] == "restart"
    assert len(pauses) == 1


def test_a_server_of_mps_without_clients_is_stopped_and_its_daemon_started_again(tmp_path: Path) -> None:
    machine = changed(tmp_path)
    machine.mps()
    predicted = restart(machine, check_mode=True)
    assert machine.systemd.started == []
    done = restart(machine)
    assert (done["done"], done["clients"], done["stopped_services"]) == ("restart", [], [MPS_UNIT])
    assert done == predicted
    assert machine.systemd.started == [("stop", MPS_UNIT), ("restart", FM_UNIT), ("start", MPS_UNIT)]


def test_a_client_of_mps_that_has_no_gpu_open_itself_is_a_client(tmp_path: Path) -> None:
    machine = changed(tmp_path)
    machine.mps(clients=[960])
    machine.write("/proc/960/comm", "train\n")
    skipped = restart(machine, when_busy="skip")
    assert (skipped["done"], skipped["stopped_services"]) == (None, [])
    assert [name.partition(",")[0] for name in skipped["clients"]] == ["train (pid 960"]
    assert machine.systemd.started == []


def test_a_server_of_mps_of_somebody_else_is_named_with_what_to_do(tmp_path: Path) -> None:
    machine = changed(tmp_path)
    machine.client(950, "nvidia-cuda-mps-server", unit="site-mps.service")
    with pytest.raises(GpuFleetError) as refused:
        restart(machine, when_busy="wait")
    assert "GPUs are in use by nvidia-cuda-mps (pid 950, site-mps.service)" in str(refused.value)
    assert str(refused.value).endswith(
        "; a server of MPS stays after its last client: stop its control daemon (site-mps.service)."
    )


def test_mps_runs_again_also_where_the_fabric_does_not(tmp_path: Path) -> None:
    machine = changed(tmp_path)
    machine.mps()
    start = machine.systemd._start

    def start_other(unit: str) -> Any:
        return start(unit) if unit == MPS_UNIT else f"Job for {unit} failed."

    machine.systemd._start = start_other  # type: ignore[method-assign]
    done = restart(machine)
    assert done["failed"]
    assert machine.systemd.started[-1] == ("start", MPS_UNIT)


def test_the_fabric_is_left_alone_where_mps_does_not_stop(tmp_path: Path) -> None:
    machine = changed(tmp_path)
    machine.mps()
    machine.systemd._stop = lambda unit: f"Job for {unit} timed out."  # type: ignore[method-assign]
    done = restart(machine)
    assert (done["failed"], done["changed"]) == (True, False)
    assert done["msg"] == (f"Cannot stop {MPS_UNIT}: Job for {MPS_UNIT} timed out. See journalctl -u {MPS_UNIT}.")
    assert ("restart", FM_UNIT) not in machine.systemd.started


def test_one_of_another_version_is_not_restarted_for_it_would_not_come_back(tmp_path: Path) -> None:
    machine = changed(tmp_path)
    machine.install_daemon(NEW_DRIVER)
    with pytest.raises(GpuFleetError, match="its version is not that of the loaded driver"):
        restart(machine)
    assert machine.systemd.running(FM_UNIT)


def test_what_it_says_when_it_fails_to_start_is_in_the_message(tmp_path: Path) -> None:
    machine = changed(tmp_path)
    text = "request to query NVSwitch device information failed: WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]"
    machine.host.commands.programs["journalctl"] = lambda argv: Completed(0, f"{text}\n", "")
    machine.systemd._start = lambda unit: f"Job for {unit} failed."  # type: ignore[method-assign]
    done = restart(machine)
    assert done["failed"]
    assert done["msg"] == (
        f"Cannot restart the Fabric Manager ({FM_UNIT}): Job for {FM_UNIT} failed; its log: {text}. See journalctl -u "
        f"{FM_UNIT}."
    )


def test_the_record_goes_with_the_last_daemon_that_had_what_absent_took_away(tmp_path: Path) -> None:
    machine = changed(tmp_path)
    restart(machine)
    machine.run(state="absent")
    record = machine.path(baseline.path_of("fabric_manager"))
    assert record.exists()
    restart(machine)
    assert not record.exists()


def test_check_mode_restarts_nothing_and_says_the_same(tmp_path: Path) -> None:
    machine = changed(tmp_path)
    predicted = restart(machine, check_mode=True)
    assert machine.systemd.started == []
    assert predicted == restart(machine)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"busy_timeout": -1}, "Cannot use busy_timeout: it must be at least 0 s (found -1)."),
        ({"start_timeout": 0}, "Cannot use start_timeout: it must be at least 1 s (found 0)."),
    ],
)
def test_senseless_times_are_refused(tmp_path: Path, options: Any, message: str) -> None:
    with pytest.raises(GpuFleetError) as refused:
        restart(FabricMachine(tmp_path), **options)
    assert str(refused.value) == message


def test_one_that_is_not_installed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GpuFleetError, match="it is not installed"):
        restart(FabricMachine(tmp_path, installed=(), running=False))
