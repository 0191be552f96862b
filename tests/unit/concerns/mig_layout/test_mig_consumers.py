# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who must hear of a change of MIG devices, and services that stand still around a reset."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook, Refused
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout import consumers, services
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.consumers import Consumer
from ansible_collections.gpufleet.node.tests.unit.support import STATUS_OF_ROOT, STATUS_OF_USER, FakeHost, build

ID = "9c1f" * 16
POD = f"/kubepods.slice/kubepods-besteffort.slice/cri-containerd-{ID}.scope"
RECORD = "/run/gpufleet/mig_layout.notified"
ETC_CDI, RUN_CDI = "/etc/cdi/nvidia.yaml", "/run/cdi/nvidia.yaml"
REFRESH = "nvidia-cdi-refresh.service"
REFRESH_UNIT = f"/usr/lib/systemd/system/{REFRESH}"
REFRESH_SETTINGS = "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
OUTPUT = "NVIDIA_CTK_CDI_OUTPUT_FILE_PATH"


class Machine:
    """A tree in which processes start and end, and files are written."""

    def __init__(self, root: Path) -> None:
        self.host: FakeHost = build(root, {})
        self.clock = 1000

    def path(self, name: str) -> Path:
        return Path(self.host.files.locate(name))

    def write(self, name: str, text: str) -> None:
        path = self.path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def start(self, pid: int, command: str, cgroup: str = "/", state: str = "S", status: str = STATUS_OF_ROOT) -> None:
        self.clock += 1
        self.write(f"/proc/{pid}/comm", f"{command[:15]}\n")
        self.write(f"/proc/{pid}/status", status)
        self.write(f"/proc/{pid}/cgroup", f"0::{cgroup}\n")
        self.write(f"/proc/{pid}/stat", f"{pid} ({command[:15]}) {state} 1 {' '.join(['0'] * 17)} {self.clock} 0\n")

    def end(self, pid: int) -> None:
        for name in ("comm", "cgroup", "stat", "status"):
            self.path(f"/proc/{pid}/{name}").unlink()
        self.path(f"/proc/{pid}").rmdir()

    def record(self) -> None:
        consumers.record(self.host)

    def stale(self) -> Dict[str, Tuple[Any, ...]]:
        """By need: units, pids and files."""
        found = consumers.stale_consumers(self.host)
        assert len({one.need for one in found}) == len(found)
        return {one.need: (one.units, one.pids, one.files) for one in found}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


# Processes


def test_without_a_change_nobody_has_to_hear_and_one_read_tells_so(machine: Machine) -> None:
    machine.start(100, "slurmd")
    machine.write(RUN_CDI, "x")
    assert machine.stale() == {}
    assert machine.host.files.reads == [RECORD]


@pytest.mark.parametrize(
    ("command", "need", "name"),
    [
        ("nvidia-device-plugin", "device_plugin", "the device plugin"),
        ("gpu-feature-discovery", "gpu_feature_discovery", "GPU feature discovery"),
        ("gpu-kubelet-plugin", "dra_driver", "the DRA driver"),
        ("nv-hostengine", "dcgm", "DCGM"),
        ("dcgm-exporter", "dcgm_exporter", "the DCGM exporter"),
        ("slurmd", "slurm", "slurmd"),
    ],
)
def test_a_program_that_lists_devices_when_it_starts_must_hear(
    machine: Machine, command: str, need: str, name: str
) -> None:
    machine.start(100, command)
    machine.start(101, f"{command[:3]}ing")
    machine.record()
    assert consumers.stale_consumers(machine.host) == (Consumer(name, need, pids=(100,)),)


def test_processes_of_a_user_hear_nothing_whatever_their_names(machine: Machine) -> None:
    for number, (_name, command) in enumerate(consumers.PROGRAMS.values()):
        machine.start(100 + number, command, "/user.slice/user-1000.slice/session-3.scope", status=STATUS_OF_USER)
    machine.record()
    assert not machine.host.files.exists(RECORD)


def test_on_a_machine_without_consumers_a_change_leaves_no_record(machine: Machine) -> None:
    machine.start(1, "systemd")
    machine.start(200, "slurmstepd")
    machine.record()
    assert machine.stale() == {}
    assert not machine.host.files.exists(RECORD)


def test_who_started_anew_or_ended_has_nothing_to_hear(machine: Machine) -> None:
    machine.start(100, "slurmd")
    machine.start(101, "dcgm-exporter")
    machine.start(102, "nv-hostengine")
    machine.record()
    assert sorted(machine.stale()) == ["dcgm", "dcgm_exporter", "slurm"]
    machine.end(100)
    assert sorted(machine.stale()) == ["dcgm", "dcgm_exporter"]
    # The same number, and another process.
    machine.start(101, "dcgm-exporter")
    assert sorted(machine.stale()) == ["dcgm"]


def test_a_dead_process_that_nobody_has_taken_notice_of_hears_no_more(machine: Machine) -> None:
    machine.start(102, "nv-hostengine")
    machine.record()
    stat = machine.path("/proc/102/stat").read_text()
    machine.write("/proc/102/stat", stat.replace(" S ", " R "))
    assert sorted(machine.stale()) == ["dcgm"]
    machine.write("/proc/102/stat", stat.replace(" S ", " Z "))
    assert machine.stale() == {}


def test_who_came_after_the_change_knows_it_already(machine: Machine) -> None:
    machine.start(100, "slurmd")
    machine.record()
    machine.start(101, "nvidia-device-plugin")
    assert sorted(machine.stale()) == ["slurm"]


def test_a_second_change_before_anybody_heard_loses_nobody(machine: Machine) -> None:
    machine.start(100, "slurmd")
    machine.start(101, "dcgm-exporter")
    machine.write(RUN_CDI, "x")
    machine.record()
    machine.start(101, "dcgm-exporter")
    machine.record()
    assert sorted(machine.stale()) == ["cdi", "dcgm_exporter", "slurm"]


def test_units_are_those_of_the_host_and_pids_what_has_none(machine: Machine) -> None:
    machine.start(100, "slurmd", cgroup="/system.slice/slurmd.service")
    machine.start(101, "nvidia-device-plugin", cgroup=POD)
    machine.start(102, "dcgm-exporter", cgroup="/system.slice/dcgm-exporter.service")
    machine.start(103, "dcgm-exporter", cgroup=f"/system.slice/docker-{ID}.scope")
    machine.start(104, "dcgm-exporter", cgroup="/system.slice/dcgm-exporter.service")
    machine.start(105, "nv-hostengine", cgroup="/user.slice/user-1000.slice/user@1000.service/app.slice/x.service")
    machine.start(106, "nv-hostengine", cgroup="/user.slice/user-1000.slice/session-3.scope")
    # Kubernetes of k3s runs its pods inside its own service.
    machine.start(107, "gpu-feature-discovery", cgroup=f"/system.slice/k3s.service/kubepods/besteffort/pod1/{ID}")
    machine.record()
    assert machine.stale() == {
        "gpu_feature_discovery": ((), (107,), ()),
        "slurm": (("slurmd.service",), (), ()),
        "device_plugin": ((), (101,), ()),
        "dcgm_exporter": (("dcgm-exporter.service",), (103,), ()),
        "dcgm": ((), (105, 106), ()),
    }


# Specifications


def test_a_specification_is_old_until_it_is_written_again_also_with_the_same_text(machine: Machine) -> None:
    machine.write(RUN_CDI, "devices: []\n")
    machine.record()
    assert machine.stale() == {"cdi": ((), (), (RUN_CDI,))}
    machine.host.files.replace(RUN_CDI, "devices: []\n")
    assert machine.stale() == {}


def test_a_specification_that_is_written_over_or_gone_is_old_no_longer(machine: Machine) -> None:
    for path in (ETC_CDI, "/etc/cdi/nvidia.json", "/etc/cdi/vendor.yaml"):
        machine.write(path, "x")
    machine.record()
    assert machine.stale() == {"cdi": ((), (), ("/etc/cdi/nvidia.json", ETC_CDI))}
    machine.path("/etc/cdi/nvidia.json").unlink()
    assert machine.stale() == {"cdi": ((), (), (ETC_CDI,))}
    before = machine.path(ETC_CDI).stat()
    machine.write(ETC_CDI, "y")
    os.utime(machine.path(ETC_CDI), ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert machine.stale() == {}


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("- path: /dev/nvidia0\n- path: /dev/nvidia-caps/nvidia-cap12\n- path: /dev/nvidiactl\n", True),
        ('{"path": "/dev/nvidia0"}, {"path": "/dev/nvidia-caps/nvidia-cap12"}, {"path": "/dev/nvidia-uvm"}', True),
        ("- path: /dev/nvidia0\n- path: /dev/nvidia-caps/nvidia-cap121\n", False),
        ("- path: /dev/nvidia0\n- path: /dev/nvidia-caps/nvidia-cap12\n- path: /dev/nvidia1\n", False),
        ("- path: /dev/nvidia0\n", False),
        ("x", False),
    ],
)
def test_a_specification_that_names_exactly_what_is_there_is_right(machine: Machine, text: str, right: bool) -> None:
    machine.write(ETC_CDI, text)
    consumers.record(machine.host, frozenset({"/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap12"}))
    assert machine.stale() == ({} if right else {"cdi": ((), (), (ETC_CDI,))})
    # Where nobody can tell what is there, it may be wrong.
    consumers.record(machine.host)
    assert machine.stale() == {"cdi": ((), (), (ETC_CDI,))}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, ((), (), (ETC_CDI, RUN_CDI))),
        ({REFRESH_UNIT: "[Service]\n"}, ((REFRESH,), (), (ETC_CDI,))),
        ({REFRESH_UNIT: ""}, ((), (), (ETC_CDI, RUN_CDI))),
        (
            {REFRESH_UNIT: "[Service]\n", REFRESH_SETTINGS: f"A=1\n{OUTPUT}=/etc/cdi/nvidia.yaml\n"},
            ((REFRESH,), (), (RUN_CDI,)),
        ),
        (
            {REFRESH_UNIT: "[Service]\n", REFRESH_SETTINGS: f'{OUTPUT}="/var/run/cdi/nvidia.yaml"\n'},
            ((REFRESH,), (), (ETC_CDI,)),
        ),
        (
            {REFRESH_UNIT: "[Service]\n", REFRESH_SETTINGS: f"#{OUTPUT}=/etc/cdi/nvidia.yaml\n"},
            ((REFRESH,), (), (ETC_CDI,)),
        ),
        (
            {REFRESH_UNIT: "[Service]\n", REFRESH_SETTINGS: f"{OUTPUT}=/etc/cdi/other.yaml\n"},
            ((), (), (ETC_CDI, RUN_CDI)),
        ),
    ],
)  # fmt: skip
def test_the_service_of_the_toolkit_writes_one_of_them(
    machine: Machine, files: Dict[str, str], expected: Tuple[Any, ...]
) -> None:
    for path, text in {**files, ETC_CDI: "x", RUN_CDI: "x"}.items():
        machine.write(path, text)
    machine.record()
    assert machine.stale() == {"cdi": expected}


# The record


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        json.dumps({"schema": 2, "specifications": {RUN_CDI: "x"}, "processes": {}}),
        json.dumps({"schema": 1, "specifications": [], "processes": {}}),
        json.dumps({"schema": 1, "processes": {"slurm": ["100:1001"]}}),
        json.dumps({"schema": 1, "specifications": {}, "processes": {"slurm": 7}}),
        json.dumps({"schema": 1, "specifications": {}, "processes": {"slurm": ["x:1", ":", ""]}}),
        json.dumps({"schema": 1, "specifications": {}, "processes": {"later": ["100:1001"]}}),
    ],
)
def test_a_damaged_record_or_one_of_another_release_is_none(machine: Machine, text: str) -> None:
    machine.start(100, "slurmd")
    machine.write(RECORD, text)
    assert machine.stale() == {}
    machine.record()
    assert sorted(machine.stale()) == ["slurm"]


def test_the_look_at_a_record_changes_nothing(machine: Machine) -> None:
    machine.start(100, "slurmd")
    machine.record()
    machine.host.files.log.clear()
    machine.stale()
    machine.end(100)
    machine.stale()
    assert machine.host.files.log == []


# Services around a reset


class Systemctl:
    """``systemctl`` of some units by their state. ``aliases`` are further names, ``stuck`` and ``broken`` those that do
    not stop and do not start."""

    def __init__(self, host: FakeHost, states: Dict[str, str]) -> None:
        self.states = states
        self.aliases: Dict[str, str] = {}
        self.stuck: Sequence[str] = ()
        self.broken: Sequence[str] = ()
        self.fails: Optional[Completed] = None
        self.changes: List[Tuple[str, str]] = []
        host.commands.programs["systemctl"] = self

    def __call__(self, argv: Sequence[str]) -> Completed:
        if argv[1] == "show":
            return self.fails or Completed(0, self.show(argv[argv.index("--") + 1 :]), "")
        verb, unit = argv[1:]
        if verb == "reset-failed":
            return Completed(0, "", "")
        self.changes.append((verb, unit))
        if unit in (self.stuck if verb == "stop" else self.broken):
            return Completed(1, "", f'Job for {unit} failed.\nSee "systemctl status {unit}" for details.\n')
        self.states[unit] = "inactive" if verb == "stop" else "active"
        return Completed(0, "", "")

    def show(self, units: Sequence[str]) -> str:
        names = [self.aliases.get(unit, unit) for unit in units]
        blocks = (f"Id={name}\nLoadState=loaded\nActiveState={self.states.get(name, 'inactive')}\n" for name in names)
        return "\n".join(blocks)


@pytest.fixture
def systemctl(machine: Machine) -> Systemctl:
    machine.write("/run/systemd/system/.keep", "")
    return Systemctl(machine.host, {"a.service": "active", "b.service": "activating", "c.service": "failed"})


def test_what_runs_is_stopped_and_what_does_not_run_or_exist_is_left_alone(
    machine: Machine, systemctl: Systemctl
) -> None:
    services.stop(machine.host, ["c.service", "a.service", "none.service", "b.service"])
    assert systemctl.states == {"a.service": "inactive", "b.service": "inactive", "c.service": "failed"}
    services.start(machine.host, ["a.service", "b.service"])
    assert systemctl.states == {"a.service": "active", "b.service": "active", "c.service": "failed"}
    # A unit that was started too often starts as well.
    starts = ["reset-failed", "start"] * 2
    assert [call[1] for call in machine.host.commands.calls] == ["show", "stop", "stop", *starts]


def test_a_unit_with_two_names_is_stopped_once_under_its_own(machine: Machine, systemctl: Systemctl) -> None:
    systemctl.aliases["alias.service"] = "a.service"
    assert services.running(machine.host, ["alias.service", "a.service"]) == ("a.service",)
    services.stop(machine.host, ["alias.service", "a.service"])
    assert systemctl.changes == [("stop", "a.service")]


def test_when_one_does_not_stop_those_before_it_run_again(machine: Machine, systemctl: Systemctl) -> None:
    systemctl.stuck = ("b.service",)
    systemctl.states["d.service"] = "active"
    with pytest.raises(Refused) as caught:
        services.stop(machine.host, ["a.service", "b.service", "d.service"])
    assert str(caught.value) == "Cannot stop b.service: Job for b.service failed. See journalctl -u b.service."
    assert systemctl.states["a.service"] == systemctl.states["d.service"] == "active"
    assert systemctl.changes == [(verb, unit) for verb in ("stop", "start") for unit in ("a.service", "b.service")]


def test_when_those_do_not_start_again_either_both_are_said(machine: Machine, systemctl: Systemctl) -> None:
    systemctl.stuck = ("b.service",)
    systemctl.broken = ("a.service",)
    with pytest.raises(Refused) as caught:
        services.stop(machine.host, ["a.service", "b.service"])
    assert str(caught.value) == (
        "Cannot stop b.service: Job for b.service failed. See journalctl -u b.service. "
        "Cannot start a.service: Job for a.service failed. See journalctl -u a.service."
    )


def test_every_service_gets_its_start_and_the_error_names_all_that_did_not(
    machine: Machine, systemctl: Systemctl
) -> None:
    systemctl.broken = ("a.service", "x.service")
    with pytest.raises(Refused) as caught:
        services.start(machine.host, ["a.service", "c.service", "x.service", "d.service"])
    assert str(caught.value) == (
        "Cannot start a.service: Job for a.service failed. See journalctl -u a.service. "
        "Cannot start x.service: Job for x.service failed. See journalctl -u x.service."
    )
    assert systemctl.states["c.service"] == systemctl.states["d.service"] == "active"


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (Completed(124, "", ""), "it took longer than 120 s"),
        (Completed(5, "", ""), "systemctl start failed with exit status 5"),
        (None, "systemctl: No such file or directory"),
    ],
)
def test_a_start_that_fails_without_a_word_is_told_too(
    machine: Machine, systemctl: Systemctl, answer: Optional[Completed], cause: str
) -> None:
    if answer is None:
        del machine.host.commands.programs["systemctl"]
    else:
        machine.host.commands.programs["systemctl"] = lambda argv: answer
    with pytest.raises(Refused) as caught:
        services.start(machine.host, ["a.service"])
    assert str(caught.value) == f"Cannot start a.service: {cause}. See journalctl -u a.service."


def test_when_systemd_does_not_answer_nothing_is_stopped(machine: Machine, systemctl: Systemctl) -> None:
    systemctl.fails = Completed(1, "", "Failed to connect to bus\n")
    with pytest.raises(CannotLook) as caught:
        services.stop(machine.host, ["a.service"])
    assert str(caught.value) == ("Cannot query systemd on systemctl show: exit status 1: Failed to connect to bus.")
    assert systemctl.changes == []


def test_where_systemd_does_not_run_there_is_nothing_to_stop_or_start(machine: Machine) -> None:
    services.stop(machine.host, ["a.service"])
    services.start(machine.host, ["a.service"])
    assert machine.host.commands.calls == []


def test_without_units_nobody_is_asked(machine: Machine, systemctl: Systemctl) -> None:
    services.stop(machine.host, [])
    services.start(machine.host, [])
    assert machine.host.commands.calls == []
