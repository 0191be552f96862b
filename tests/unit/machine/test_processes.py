# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Processes as the kernel tells them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Optional

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook
from ansible_collections.gpufleet.node.plugins.module_utils._machine import processes
from ansible_collections.gpufleet.node.plugins.module_utils._machine.processes import Process
from ansible_collections.gpufleet.node.tests.unit.support import STATUS_OF_USER, FakeHost, build

REST = "1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 9 10 11"


@pytest.fixture
def real() -> FakeHost:
    return FakeHost(Path("/"))


@pytest.mark.parametrize(
    ("stat", "expected"),
    [
        (f"7 (python3) S 41 {REST}\n", Process(7, parent=41, start=4711)),
        (f"7 (a) b (c) D) R 41 {REST}\n", Process(7, parent=41, start=4711)),
        (f"7 (python3) Z 41 {REST}\n", None),
        (f"7 (python3) X 41 {REST}\n", None),
        ("7 (python3) S 41\n", None),
        ("", None),
    ],
)
def test_a_process_is_known_by_its_number_and_its_start(tmp_path: Path, stat: str, expected: Optional[Process]) -> None:
    assert processes.read(build(tmp_path, {"/proc/7/stat": stat}).files, 7) == expected


@pytest.mark.parametrize(
    "slice_of_it",
    [
        "/sys/fs/cgroup/system.slice",
        "/sys/fs/cgroup/systemd/system.slice",
        "/sys/fs/cgroup/housekeeping.slice",
        "/sys/fs/cgroup/system.slice/system-gpu.slice",
    ],
)
def test_the_processes_of_a_service_are_found_in_whatever_slice_it_is(tmp_path: Path, slice_of_it: str) -> None:
    files = {
        "/sys/fs/cgroup/system.slice/b.service/cgroup.procs": "6\n",
        "/sys/fs/cgroup/user.slice/a.service/cgroup.procs": "5\n",
        f"{slice_of_it}/a.service/cgroup.procs": "7\n8\n",
    }
    assert [*processes.of_service(build(tmp_path, files).files, "a.service")] == ["7", "8"]


def test_one_that_is_not_there_is_none(tmp_path: Path) -> None:
    assert processes.read(build(tmp_path, {}).files, 7) is None


def test_the_kernel_writes_it_so(real: FakeHost) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = processes.read(real.files, child.pid)
        own = processes.read(real.files, os.getpid())
        child.kill()
    assert found is not None
    assert own is not None
    assert found.parent == own.pid == os.getpid()
    assert found.identity == f"{child.pid}:{found.start}"
    assert found.start >= own.start > 0
    assert processes.read(real.files, child.pid) is None


def test_a_command_is_cut_as_the_kernel_cuts_it(real: FakeHost, tmp_path: Path) -> None:
    program = tmp_path / "nvidia-device-plugin"
    program.symlink_to("/bin/cat")
    with subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        # Once it answers, it is the program that it was to become.
        child.stdin.write(b"\n")
        child.stdin.flush()
        child.stdout.readline()
        comm = real.files.read(f"/proc/{child.pid}/comm").strip()
        child.kill()
    assert comm == processes.comm(program.name) == "nvidia-device-p"


@pytest.mark.parametrize("field", [1, 19])
def test_a_number_that_the_kernel_never_has_names_the_file(tmp_path: Path, field: int) -> None:
    fields = ["S", *["1"] * 20]
    fields[field] = "many"
    build(tmp_path, {"/proc/7/stat": f"7 (a) {' '.join(fields)}\n"})
    with pytest.raises(CannotLook, match="read /proc/7/stat: 'many' is not a whole number"):
        processes.read(FakeHost(tmp_path).files, 7)


@pytest.mark.parametrize(
    ("user_ids", "user"),
    [("0\t0\t0\t0", "0"), ("1000\t1000\t1000\t1000", "1000"), ("1000\t0\t0\t0", ""), ("0\t1000\t1000\t1000", "")],
)
def test_a_process_is_the_users_of_whom_it_has_all_ids(tmp_path: Path, user_ids: str, user: str) -> None:
    files = build(tmp_path, {"/proc/7/status": f"Name:\tUid:\t0\t0\t0\t0\nUid:\t{user_ids}\nGid:\t0\t0\t0\t0\n"}).files
    assert processes.user_of(files, "7") == user
    assert processes.is_of_root(files, "7") is (user == "0")


def test_the_kernel_writes_the_user_so(real: FakeHost) -> None:
    assert processes.user_of(real.files, str(os.getpid())) == str(os.getuid())
    assert processes.user_of(real.files, "4194305") == ""


def test_a_daemon_is_known_by_its_unit_whoever_runs_it(tmp_path: Path) -> None:
    files = {
        f"/proc/{pid}/{name}": text
        for pid, group in ((7, "system.slice/dcgm-exporter.service"), (8, "user.slice/user-1000.slice/dcgm.scope"))
        for name, text in (("comm", "dcgm-exporter\n"), ("cgroup", f"0::/{group}\n"), ("status", STATUS_OF_USER))
    }
    found = processes.daemons(build(tmp_path, files).files, ("dcgm-exporter",), ("dcgm*.service",))
    assert list(found) == [("7", "dcgm-exporter")]
