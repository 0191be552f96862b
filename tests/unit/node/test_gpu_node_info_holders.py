# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who holds a device: processes by their open files, with the unit and the container that they belong to."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._machine import processes
from ansible_collections.gpufleet.node.plugins.module_utils._node.facts import collect
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia import holders
from ansible_collections.gpufleet.node.tests.unit.node.facts_machine import quiet_host
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build

ID = "9c1f" * 16
POD = "kubepods-burstable-pod1b2c3d4e_5f60_4a7b_8c9d_0e1f2a3b4c5d.slice"


@pytest.mark.parametrize(
    ("text", "unit", "container"),
    [
        ("0::/system.slice/nvidia-persistenced.service\n", "nvidia-persistenced.service", ""),
        (f"0::/system.slice/docker-{ID}.scope\n", f"docker-{ID}.scope", ID),
        (f"0::/kubepods.slice/kubepods-burstable.slice/{POD}/cri-containerd-{ID}.scope\n",
         f"cri-containerd-{ID}.scope", ID),
        (f"0::/kubepods/burstable/pod1b2c3d4e-5f60-4a7b-8c9d-0e1f2a3b4c5d/{ID}\n", "", ID),
        (f"0::/machine.slice/libpod-{ID}.scope/container\n", f"libpod-{ID}.scope", ID),
        (f"0::/system.slice/docker-{ID}.scope/system.slice/worker.service\n", f"docker-{ID}.scope", ID),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/train.service\n", "user@1000.service", ""),
        ("0::/user.slice/user-1000.slice/session-3.scope\n", "session-3.scope", ""),
        ("0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0\n", "slurmstepd.scope", ""),
        ("12:devices:/x\n1:name=systemd:/system.slice/dcgm.service\n0::/\n", "dcgm.service", ""),
        ("0::/\n", "", ""),
        ("", "", ""),
    ],
)  # fmt: skip
def test_the_control_group_tells_the_unit_and_the_container(text: str, unit: str, container: str) -> None:
    assert processes.parse_cgroup(text) == (unit, container)


def machine(root: Path) -> FakeHost:
    """Three processes: one with two GPUs in a container, one of another user, one that has no device open."""
    return build(
        root,
        {
            "/dev/nvidia0": "",
            "/dev/nvidia1": "",
            "/dev/nvidiactl": "",
            "/etc/passwd": "",
            "/proc/900/comm": "python3\n",
            "/proc/900/cgroup": f"0::/system.slice/docker-{ID}.scope\n",
            "/proc/77/comm": "dcgm-exporter\n",
            "/proc/77/cgroup": "0::/system.slice/dcgm-exporter.service\n",
            "/proc/1/comm": "systemd\n",
            "/proc/1/cgroup": "0::/init.scope\n",
            "/proc/self/comm": "python3\n",
            "/proc/driver/nvidia/gpus/0000:1b:00.0/information": "Model: \t\t X\nDevice Minor: \t 0\n",
            "/proc/driver/nvidia/gpus/0000:43:00.0/information": "Device Minor: \t 1\n",
        },
        {
            "/proc/900/fd/0": "/etc/passwd",
            "/proc/900/fd/7": "/dev/nvidiactl",
            "/proc/900/fd/8": "/dev/nvidia1",
            "/proc/900/fd/9": "/dev/nvidia0",
            "/proc/900/fd/10": "/dev/nvidia0",
            "/proc/900/fd/11": "socket:[4711]",
            "/proc/77/fd/3": "/dev/nvidia0",
            "/proc/77/fd/4": "/dev/nvidia-uvm (deleted)",
            "/proc/1/fd/0": "/etc/passwd",
        },
    )


def test_processes_are_found_by_their_open_files(tmp_path: Path) -> None:
    found = holders.find(machine(tmp_path).files)
    assert [(holder.pid, holder.command, holder.devices) for holder in found.holders] == [
        (77, "dcgm-exporter", ("/dev/nvidia-uvm", "/dev/nvidia0")),
        (900, "python3", ("/dev/nvidia0", "/dev/nvidia1", "/dev/nvidiactl")),
    ]
    assert found.hidden == 0
    assert [holder.name for holder in found.holders] == [
        "dcgm-exporter (pid 77, dcgm-exporter.service)",
        f"python3 (pid 900, container {ID[:12]})",
    ]


@pytest.mark.parametrize(("device", "pids"), [("/dev/nvidia0", (77, 900)), ("/dev/nvidia1", (900,)), ("/dev/x", ())])
def test_a_device_knows_who_holds_it(tmp_path: Path, device: str, pids: Tuple[int, ...]) -> None:
    found = holders.find(machine(tmp_path).files)
    assert tuple(holder.pid for holder in found.holders if device in holder.devices) == pids


@pytest.mark.parametrize(("number", "hidden"), [(errno.EACCES, 1), (errno.ENOENT, 0), (errno.ESRCH, 0)])
def test_who_may_not_be_looked_into_is_counted_and_who_has_ended_is_not(
    tmp_path: Path, number: int, hidden: int
) -> None:
    host = machine(tmp_path)
    names = host.files.names

    def guarded(path: str) -> Tuple[str, ...]:
        if path == "/proc/900/fd":
            raise OSError(number, "no", path)
        return names(path)

    host.files.names = guarded  # type: ignore[method-assign]
    found = holders.find(host.files)
    assert [holder.pid for holder in found.holders] == [77]
    assert found.hidden == hidden


def test_the_facts_name_the_gpus_that_a_process_holds(tmp_path: Path) -> None:
    machine(tmp_path)
    processes = collect.gather(quiet_host(tmp_path), ("holders",))["holders"]["processes"]
    assert [(one["pid"], one["unit"], one["gpus"]) for one in processes] == [
        (77, "dcgm-exporter.service", ["0000:1b:00.0"]),
        (900, f"docker-{ID}.scope", ["0000:1b:00.0", "0000:43:00.0"]),
    ]
    assert processes[0]["unavailable"] == {"container": "it is in no container"}
