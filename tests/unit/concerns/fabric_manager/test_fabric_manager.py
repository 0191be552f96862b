# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The Fabric Manager, by a stand-in: where it is needed, its version, its file, and when it may be started."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Dict

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._node.assessment import assess_node
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.fabric import FabricReading
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.fabric_manager import hardware, notes
from ansible_collections.gpufleet.node.tests.unit.concerns.fabric_manager.fabric_machine import (
    B200,
    CFG,
    CFG_TEXT,
    DGX_H100,
    DPKG,
    DRIVER,
    FM_UNIT,
    GB200,
    GROUPS,
    H100,
    LOCKS,
    NEW_DRIVER,
    PACKAGES,
    PCIE,
    WANTS,
    FabricMachine,
    dpkg_status,
)
from ansible_collections.gpufleet.node.tests.unit.support import STATUS_OF_USER, build

IN_SYNC, DRIFTED, PENDING = "in_sync", "drifted", "pending"


@pytest.mark.parametrize(
    ("kind", "words", "fabric_manager", "imex"),
    [
        (H100, "4 NVSwitches", True, False),
        (DGX_H100, "4 NVSwitches", True, False),
        (B200, "2 management ports of NVSwitches", True, False),
        (GB200, "a compute node of an NVL72 rack", False, True),
        (PCIE, "no NVSwitch", False, False),
    ],
    ids=["h100", "dgx-h100", "b200", "gb200", "pcie"],
)
def test_what_a_machine_needs_is_read_from_sysfs(
    tmp_path: Path, kind: str, words: str, fabric_manager: bool, imex: bool
) -> None:
    machine = FabricMachine(tmp_path, kind, running=False)
    found = hardware.read(machine.host, {})
    assert (found.words, found.needs_fabric_manager, found.needs_imex) == (words, fabric_manager, imex)


def test_the_vital_product_data_is_read_once_and_only_where_it_can_tell(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path / "b200", B200)
    machine.run(service="if_needed")
    reads = machine.asked("grep")
    assert reads > 0
    assert machine.run(service="if_needed").status == IN_SYNC
    assert (machine.asked("grep"), machine.asked("nv-fabricmanager")) == (reads, machine.asked("nv-fabricmanager"))
    other = FabricMachine(tmp_path / "pcie", PCIE, running=False, enabled=False)
    other.run(service="if_needed")
    assert other.asked("grep") == 0


def test_vital_product_data_that_does_not_come_makes_the_node_unknown_and_names_the_devices(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path, B200)
    machine.host.commands.programs["grep"] = lambda argv: Completed(124, "", "")
    assert machine.refused(service="if_needed") == (
        "Cannot read the vital product data of the ConnectX bridges: 0000:05:00.0, 0000:06:00.0, 0000:1b:00.0, "
        "0000:2c:00.0 did not respond within 10 s. Check the firmware of these devices with mlxfwmanager, and the "
        "kernel log for VPD."
    )


def test_it_is_enabled_started_and_held_where_it_is_needed_and_a_second_run_changes_nothing(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path, running=False, enabled=False)
    outcome = machine.run(service="required")
    assert outcome.status == DRIFTED
    assert machine.systemd.running(FM_UNIT)
    assert machine.path(f"{WANTS}/{FM_UNIT}").is_symlink()
    # Those of the daemon, and of the driver in its version; the toolkit and IMEX have other ones.
    assert machine.holds() == ["libnvidia-compute-570", "libnvsdm", "nvidia-fabricmanager-570", "nvidia-imex-570"]
    again = machine.run(service="required")
    assert (again.status, again.changes) == (IN_SYNC, ())


def test_a_converged_node_is_looked_at_without_a_program(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path)
    machine.run(service="if_needed", config={"LOG_LEVEL": 4})
    machine.host.commands.calls.clear()
    assert machine.run(service="if_needed", config={"LOG_LEVEL": 4}).status == IN_SYNC
    assert machine.host.commands.calls == []
    # Another file is another program.
    machine.install_daemon(DRIVER)
    machine.run(service="if_needed", config={"LOG_LEVEL": 4})
    assert machine.host.commands.calls == [("/usr/bin/nv-fabricmanager", "--version")]


@pytest.mark.parametrize("kind", [PCIE, GB200], ids=["pcie", "gb200"])
def test_it_is_out_of_the_way_where_the_hardware_needs_none(tmp_path: Path, kind: str) -> None:
    machine = FabricMachine(tmp_path, kind, running=False, enabled=False)
    machine.systemd._enable(FM_UNIT)
    machine.systemd.run(FM_UNIT)
    outcome = machine.run(service="if_needed")
    assert outcome.status == DRIFTED
    assert not machine.path(f"{WANTS}/{FM_UNIT}").is_symlink()
    assert machine.systemd.running(FM_UNIT) is None
    assert machine.driver.asked == 0
    machine.run(state="absent")
    assert machine.path(f"{WANTS}/{FM_UNIT}").is_symlink()
    assert machine.systemd.running(FM_UNIT)


def test_a_node_that_needs_nothing_is_unmanaged_also_with_strict(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path, PCIE, installed=(), running=False)
    outcome = machine.run(service="if_needed", config={"LOG_LEVEL": 3}, strict=True)
    assert [entry.as_dict() for entry in outcome.remaining.unmanaged] == [
        {"object": "NVSwitch", "setting": "Fabric Manager", "reason": "this machine has no NVSwitch"}
    ]


# --- the version ---


SKEWS = {
    "driver and daemon upgraded": (
        *(DRIVER, NEW_DRIVER, NEW_DRIVER),
        f"but that of the driver is {DRIVER}, and the next boot loads {NEW_DRIVER}",
        "the next restart fails, the next boot works",
        True,
    ),
    "driver upgraded alone": (
        *(DRIVER, NEW_DRIVER, DRIVER),
        f"that of the loaded driver, but the next boot loads {NEW_DRIVER}",
        "the next restart works, the next boot fails",
        False,
    ),
    "daemon upgraded alone": (
        *(DRIVER, DRIVER, NEW_DRIVER),
        f"but that of the driver is {DRIVER}",
        "the next restart fails, and so does the next boot",
        False,
    ),
}


@pytest.mark.parametrize(("loaded", "installed", "daemon", "skew", "fate", "reboots"), SKEWS.values(), ids=SKEWS)
def test_another_version_than_the_drivers_is_drift_that_says_what_fails(
    tmp_path: Path, loaded: str, installed: str, daemon: str, skew: str, fate: str, reboots: bool
) -> None:
    machine = FabricMachine(tmp_path)
    machine.run(service="if_needed")
    machine.load_driver(loaded)
    machine.install_driver(installed)
    machine.install_daemon(daemon)
    message = machine_message(machine)
    assert f"its version is {daemon}, {skew}: {fate}. " in message
    assert (f"nstall nvidia-fabricmanager-570 in version {installed}" in message) is not reboots
    result = look(machine)
    assert result["status"] == DRIFTED
    assert result["msg"] == message
    assert result["failure"]["object"] == "nv-fabricmanager"
    assert result["reboot_required"] is reboots
    assert {(row["setting"], row["wanted"], row["effective"] or row["boot"]) for row in result["settings"]} <= {
        ("version", loaded, daemon),
        ("version at boot", installed, daemon),
    }
    assert result["settings"]
    # It is not touched, for it would not come back.
    assert machine.systemd.started == []


def machine_message(machine: FabricMachine) -> str:
    machine.systemd.started.clear()
    return machine.refused(service="if_needed")


def look(machine: FabricMachine) -> Dict[str, Any]:
    params = machine.params(service="if_needed")
    answer = assess_node({"fabric_manager": {}}, machine.host, validate=lambda _concern, _given: params, full=False)
    found: Dict[str, Any] = answer["concerns"]["fabric_manager"]
    return found


def test_absent_gives_everything_back_also_while_the_versions_differ(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path)
    machine.run(service="if_needed", config={"LOG_LEVEL": 2})
    machine.install_daemon(NEW_DRIVER)
    machine.run(state="absent")
    assert machine.read(CFG) == CFG_TEXT
    assert machine.holds() == []


@pytest.mark.parametrize("said", ["", "segmentation fault"])
def test_a_program_that_does_not_say_its_version_makes_the_node_unknown(tmp_path: Path, said: str) -> None:
    machine = FabricMachine(tmp_path)
    machine.host.commands.programs["nv-fabricmanager"] = lambda argv: Completed(1, "", said)
    assert machine.refused(service="if_needed") == (
        f"Cannot find the version of /usr/bin/nv-fabricmanager: exit status 1: {said or 'no output'}."
    )


# --- the file ---


def test_values_are_changed_in_their_place_and_pending_until_the_daemon_is_started_anew(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path)
    machine.run(service="if_needed")
    declared = {"service": "if_needed", "config": {"ABORT_CUDA_JOBS_ON_FM_EXIT": False, "LOG_USE_SYSLOG": 1}}
    outcome = machine.run(**declared)
    text = machine.read(CFG)
    assert text == CFG_TEXT.replace("ON_FM_EXIT=1", "ON_FM_EXIT=0") + "LOG_USE_SYSLOG=1\n"
    assert outcome.remaining.status == PENDING
    assert outcome.remaining.needs == ("restart_fabric_manager",)
    assert machine.systemd.started == []
    assert machine.rows(**declared)[(CFG, "ABORT_CUDA_JOBS_ON_FM_EXIT")] == ("0", "1", "0", PENDING)
    assert outcome.effective["daemons"]["nv-fabricmanager"]["config"]["ABORT_CUDA_JOBS_ON_FM_EXIT"] == "1"
    machine.systemd._restart(FM_UNIT)
    assert machine.run(**declared).status == IN_SYNC
    machine.run(state="absent")
    assert machine.read(CFG) == CFG_TEXT


def test_a_value_that_is_changed_back_before_a_restart_is_in_effect_again(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path)
    machine.run(config={"LOG_LEVEL": 1})
    assert machine.run(config={"LOG_LEVEL": 1}).status == PENDING
    machine.run(config={"LOG_LEVEL": 4})
    assert machine.run(config={"LOG_LEVEL": 4}).status == IN_SYNC


def test_what_somebody_else_wrote_after_the_start_is_not_taken_for_read(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path)
    machine.run(config={"LOG_LEVEL": 4})
    machine.edit(CFG, "LOG_LEVEL=4", "LOG_LEVEL=3")
    rows = machine.rows(config={"LOG_LEVEL": 3})
    assert rows[(CFG, "LOG_LEVEL")] == ("3", "an older version", "3", PENDING)
    # What was written before it started has been read.
    machine.edit(CFG, "LOG_LEVEL=3", "LOG_LEVEL=2", at=time.time() - 4000)
    assert machine.rows(config={"LOG_LEVEL": 2})[(CFG, "LOG_LEVEL")] == ("2", "2", "2", IN_SYNC)


@pytest.mark.parametrize(
    ("options", "path"),
    [
        (("-c", "/etc/fabricmanager.cfg"), "/etc/fabricmanager.cfg"),
        (("--mode", "start", "--fm-config-file", "/opt/fm.cfg"), "/opt/fm.cfg"),
        (("--config=/opt/fm.cfg",), "/opt/fm.cfg"),
    ],
)
@pytest.mark.parametrize("running", [True, False])
def test_the_file_is_the_one_that_the_daemon_was_told(tmp_path: Path, options: Any, path: str, running: bool) -> None:
    machine = FabricMachine(tmp_path, options={FM_UNIT: options}, running=running)
    machine.write(path, CFG_TEXT)
    machine.run(config={"LOG_LEVEL": 0})
    assert "LOG_LEVEL=0\n" in machine.read(path)
    assert machine.read(CFG) == CFG_TEXT


def test_a_value_in_the_file_that_is_not_a_number_is_drift(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path)
    machine.edit(CFG, "LOG_LEVEL=4\n", "LOG_LEVEL=--4\n", at=1.0)
    assert machine.rows(config={"LOG_LEVEL": 4})[(CFG, "LOG_LEVEL")][2] == "--4"


def test_one_that_is_in_another_slice_runs(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path)
    machine.path(GROUPS).rename(machine.path("/sys/fs/cgroup/housekeeping.slice"))
    assert machine.rows(service="if_needed", hold=False)[(FM_UNIT, "service")][3] == "in_sync"


def test_a_default_that_the_file_does_not_have_is_no_difference(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path)
    machine.run(config={"FM_CMD_PORT_NUMBER": 6666, "LOG_LEVEL": "04"}, hold=False)
    assert machine.read(CFG) == CFG_TEXT


# --- jobs ---


def test_it_is_not_started_while_a_process_uses_a_gpu_and_the_process_is_named(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path, running=False)
    machine.client()
    machine.client(901, "nvidia-persistenced")
    outcome = machine.run(service="if_needed")
    assert machine.systemd.started == []
    assert outcome.remaining.needs == ("restart_fabric_manager",)
    (row,) = [row for row in outcome.remaining.settings if row.setting == "service"]
    assert row.pending == "GPUs are in use by python3 (pid 900); starting it would disturb them"
    machine.client_ends()
    machine.mps()
    (row,) = [row for row in machine.run(service="if_needed").remaining.settings if row.setting == "service"]
    assert row.pending.endswith(
        "a server of MPS stays after its last client: stop its control daemon (gpufleet-mps.service)"
    )
    machine.systemd.end("gpufleet-mps.service")
    machine.run(service="if_needed")
    assert machine.systemd.started == [("start", FM_UNIT)]


def test_a_job_with_the_name_of_a_daemon_is_a_job(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path, running=False)
    machine.client(901, "nvidia-persistenced", status=STATUS_OF_USER)
    (row,) = [row for row in machine.run(service="if_needed").remaining.settings if row.setting == "service"]
    assert row.pending.startswith("GPUs are in use by nvidia-persiste (pid 901)")


def test_one_that_was_started_here_is_not_stopped_under_a_job(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path, running=False)
    machine.run(service="if_needed")
    machine.client()
    assert machine.run(state="absent").remaining.needs == ("idle_gpu",)
    assert machine.systemd.running(FM_UNIT)
    machine.client_ends()
    machine.run(state="absent")
    assert machine.systemd.running(FM_UNIT) is None


# --- the fabric ---


@pytest.mark.parametrize(
    ("reading", "effective"),
    [
        (FabricReading(1, 0, bytes(16), 0), "not started"),
        (FabricReading(2, 0, bytes(16), 0), "in progress"),
        (FabricReading(3, 999, bytes(16), 0), "completed with NVML error 999"),
        (FabricReading(3, 0, bytes(16), 0, ("degraded bandwidth",)), "completed, degraded bandwidth"),
    ],
)
def test_a_fabric_that_is_not_complete_or_not_healthy_is_pending_for_each_gpu(
    tmp_path: Path, reading: FabricReading, effective: str
) -> None:
    machine = FabricMachine(tmp_path)
    machine.run(service="if_needed")
    machine.driver.reading = reading
    outcome = machine.run(service="if_needed")
    assert (outcome.status, outcome.remaining.needs) == (PENDING, ("fabric",))
    assert machine.rows(service="if_needed")[("gpu1", "fabric")] == ("completed", effective, None, PENDING)


def test_a_partitioned_fabric_in_progress_says_what_it_waits_for(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path)
    machine.edit(CFG, "FABRIC_MODE=0", "FABRIC_MODE=1", at=time.time() - 5000)
    machine.driver.reading = FabricReading(2, 0, bytes(16), 0)
    row = next(row for row in machine.run(service="if_needed").remaining.settings if row.setting == "fabric")
    assert row.pending == "with FABRIC_MODE=1 it completes when a partition with this GPU is activated"


def test_before_hopper_there_is_no_fabric_to_ask_for(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path)
    machine.driver.reading = None
    machine.run(service="if_needed")
    assert not [key for key in machine.rows(service="if_needed") if key[1] == "fabric"]


# --- holds ---


def test_what_was_held_before_stays_held_and_false_leaves_holds_alone(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path)
    machine.write(DPKG, dpkg_status(PACKAGES, held=("libnvsdm", "bash")))
    machine.run(service="if_needed", hold=False)
    assert machine.holds() == ["bash", "libnvsdm"]
    machine.run(service="if_needed")
    assert "nvidia-fabricmanager-570" in machine.holds()
    before = dpkg_status(PACKAGES, held=("libnvsdm", "bash"))
    machine.run(state="absent")
    assert machine.read(DPKG) == before


@pytest.mark.parametrize("more", ["", "nvidia-fabric-manager nvidia-fabric-manager-0:1-1.*\n"])
def test_dnf_locks_the_package_of_the_program_by_its_line(tmp_path: Path, more: str) -> None:
    """Also beside a dpkg without packages, and where an interrupted update left two versions."""
    machine = FabricMachine(tmp_path)
    if more:
        machine.write(DPKG, "")
    else:
        machine.path(DPKG).unlink()
    before = "# by us\nkernel-0:5.14.0-570.el9.*\n!nvidia-fabricmanager-0:999-1.*\n"
    machine.write(LOCKS, before)
    asked = []

    def rpm(argv: Any) -> Completed:
        asked.append(argv)
        name = "nvidia-fabric-manager"
        return Completed(0, f"{more}{name} {name}-0:{DRIVER}-1.*\n", "")

    machine.host.commands.programs["rpm"] = rpm
    machine.run(service="if_needed")
    assert machine.read(LOCKS) == f"{before}nvidia-fabric-manager-0:{DRIVER}-1.*\n"
    asked.clear()
    assert machine.run(service="if_needed").status == IN_SYNC
    assert asked == []
    machine.run(state="absent")
    assert machine.read(LOCKS) == before


def test_the_locks_of_dnf_5_are_read_and_what_they_lack_is_told(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path)
    machine.path(DPKG).unlink()
    # dnf 5 does not read the list of dnf 4.
    machine.write(LOCKS, "nvidia-fabric-manager-0:1-1.*\n")
    machine.write("/usr/bin/dnf5", "")
    machine.path("/usr/bin/dnf").symlink_to("dnf5")
    name = "nvidia-fabric-manager"
    machine.host.commands.programs["rpm"] = lambda _argv: Completed(0, f"{name} {name}-0:{DRIVER}-1.*\n", "")
    (entry,) = [one for one in machine.run(service="if_needed").remaining.unmanaged if one.setting == "hold"]
    assert (entry.object, entry.hint) == (name, f"run dnf versionlock add {name}, or set hold: false")
    machine.write(
        "/etc/dnf/versionlock.toml",
        f'version = "1.0"\n[[packages]]\nname = "{name}"\n'
        '[[packages.conditions]]\nkey = "evr"\ncomparator = "="\nvalue = "1"\n',
    )
    outcome = machine.run(service="if_needed", strict=True)
    assert (outcome.boot["held"], outcome.remaining.unmanaged) == ([name], ())
    machine.run(state="absent")
    assert machine.read(LOCKS) == "nvidia-fabric-manager-0:1-1.*\n"


def test_a_machine_that_can_hold_nothing_says_so_and_strict_refuses_it(tmp_path: Path) -> None:
    machine = FabricMachine(tmp_path)
    del machine.host.commands.programs["apt-mark"]
    assert [entry.setting for entry in machine.run(service="if_needed").remaining.unmanaged] == ["hold"]
    assert machine.run(service="if_needed", hold=False, strict=True).remaining.unmanaged == ()
    with pytest.raises(GpuFleetError, match="neither apt-mark nor the versionlock plugin of dnf is installed"):
        machine.run(service="if_needed", strict=True)


# --- notes ---


@pytest.mark.parametrize("text", ["", "{", '{"versions": 7}', '{"versions": {}, "started": {"x": {}}}'])
def test_a_note_that_is_lost_or_damaged_costs_only_time(tmp_path: Path, text: str) -> None:
    machine = FabricMachine(tmp_path)
    machine.run(service="if_needed", config={"LOG_LEVEL": 4})
    machine.write(notes.PATH, text)
    assert machine.run(service="if_needed", config={"LOG_LEVEL": 4}).status == IN_SYNC


def test_a_machine_without_a_pci_bus_needs_nothing(tmp_path: Path) -> None:
    host = build(tmp_path, {"/etc/os-release": "ID=debian\n"})
    assert hardware.read(host, {}).words == "no NVIDIA GPU"
