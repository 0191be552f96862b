# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who is at work on a node, as control groups of both versions and open devices tell it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Dict, List

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._kinds import workload
from ansible_collections.gpufleet.node.tests.unit.support import STATUS_OF_ROOT, STATUS_OF_USER, FakeHost, build

GROUP = "/sys/fs/cgroup"
ID = "0123456789ab" * 5 + "0123"
POD = "8c2f1f1a-0000-4000-8000-000000000001"


def holder(
    root: Path, command: str, group: str = "", pid: int = 99, parent: int = 1, status: str = STATUS_OF_ROOT
) -> FakeHost:
    """A machine on which a process has a GPU open."""
    stat = f"{pid} ({command}) S {parent} " + " ".join(["0"] * 30)
    files = {f"/proc/{pid}/comm": f"{command}\n", f"/proc/{pid}/cgroup": f"0::{group}\n", f"/proc/{pid}/stat": stat}
    host = build(root, {**files, f"/proc/{pid}/status": status})
    fd = root / f"proc/{pid}/fd/3"
    fd.parent.mkdir()
    fd.symlink_to("/dev/nvidia0")
    return host


@pytest.mark.parametrize(
    ("folder", "number"),
    [
        ("system.slice/slurmstepd.scope/job_41", "41"),
        ("system.slice/gpu01_slurmstepd.scope/job_41", "41"),
        ("slurmstepd.scope/job_41", "41"),
        ("batch.slice/slurmstepd.scope/job_41", "41"),
        ("batch.slice/gpu01_slurmstepd.scope/sEKNKTV3WPV500", "sEKNKTV3WPV500"),
        ("system.slice/slurmstepd.scope/s0123456789XYZ", "s0123456789XYZ"),
        ("cpuset/slurm/uid_1000/job_7", "7"),
        ("cpuset/slurm_gpu01/uid_1000/job_7", "7"),
        ("cpuset/system.slice/slurm/uid_0/job_7", "7"),
    ],
)
def test_a_job_of_slurm_is_found_in_both_versions_of_control_groups(tmp_path: Path, folder: str, number: str) -> None:
    host = build(tmp_path, {f"{GROUP}/{folder}/cgroup.procs": "", f"{GROUP}/system.slice/.keep": ""})
    assert list(workload.jobs(host.files)) == [workload.Job(number, f"{GROUP}/{folder}")]


@pytest.mark.parametrize("name", ["system", "job_extern", "step_0", "system0000000", "sEKNKTV3WPV50", "sEKNKTV3WPV5UU"])
def test_what_slurm_has_beside_its_jobs_is_none(tmp_path: Path, name: str) -> None:
    host = build(tmp_path, {f"{GROUP}/system.slice/slurmstepd.scope/{name}/cgroup.procs": ""})
    assert list(workload.jobs(host.files)) == []
    assert list(workload.jobs_below(host.files, f"{GROUP}/system.slice")) == []


BATCH = "ConstrainCores=yes\nCgroupSlice=batch.slice # of the site\n"
CONF = {"/etc/slurm/slurm.conf": ""}
SLURMD = "/usr/lib/systemd/system/slurmd.service"


@pytest.mark.parametrize(
    ("files", "name"),
    [
        ({}, "system.slice"),
        ({**CONF, "/etc/slurm/cgroup.conf": "ConstrainCores=yes\n"}, "system.slice"),
        ({**CONF, "/etc/slurm/cgroup.conf": "#CgroupSlice=batch.slice\n"}, "system.slice"),
        ({**CONF, "/etc/slurm/cgroup.conf": BATCH}, "batch.slice"),
        ({**CONF, "/etc/slurm/cgroup.conf": 'cgroupslice="batch.slice"\n'}, "batch.slice"),
        # Without files of its own slurmd has those of the controller, and only then.
        ({"/run/slurm/conf/slurm.conf": "", "/run/slurm/conf/cgroup.conf": BATCH}, "batch.slice"),
        ({**CONF, "/run/slurm/conf/slurm.conf": "", "/run/slurm/conf/cgroup.conf": BATCH}, "system.slice"),
        (
            {
                **CONF,
                SLURMD: "[Service]\nExecStart=/usr/sbin/slurmd -D -f /opt/slurm/slurm.conf\n",
                "/opt/slurm/slurm.conf": "",
                "/opt/slurm/cgroup.conf": BATCH,
            },
            "batch.slice",
        ),
    ],
)
def test_the_slice_of_jobs_is_that_of_cgroup_conf(tmp_path: Path, files: Dict[str, str], name: str) -> None:
    assert workload.slice_of_jobs(build(tmp_path, files).files) == name


def test_a_job_is_found_in_a_slice_below_another_one(tmp_path: Path) -> None:
    folder = f"{GROUP}/site.slice/site-batch.slice/slurmstepd.scope/job_9"
    conf = {**CONF, "/etc/slurm/cgroup.conf": "CgroupSlice=site-batch.slice\n"}
    host = build(tmp_path, {**conf, f"{folder}/cgroup.procs": ""})
    assert list(workload.jobs(host.files)) == [workload.Job("9", folder)]


@pytest.mark.parametrize(
    ("group", "job"),
    [
        ("0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_0\n", "77"),
        ("0::/batch.slice/n1_slurmstepd.scope/sEKNKTV3WPV500/step_0/user/task_0\n", "sEKNKTV3WPV500"),
        ("5:cpuset:/slurm/uid_1000/job_7\n1:name=systemd:/system.slice/slurmd.service\n", "7"),
        ("0::/system.slice/sEKNKTV3WPV500\n", ""),
        ("0::/system.slice/slurmstepd.scope/system\n", ""),
    ],
)
def test_the_job_of_a_process_is_in_its_control_group(group: str, job: str) -> None:
    assert workload.job_in(group) == job


def test_jobs_and_containers_below_a_slice_are_those_of_that_slice(tmp_path: Path) -> None:
    populated: Dict[str, str] = {
        "system.slice/slurmstepd.scope/job_41": "populated 1",
        f"system.slice/docker-{ID}.scope": "populated 1",
        "system.slice/libpod-gone.scope": "populated 0",
        "system.slice/chrony.service": "populated 1",
        f"jobs.slice/cri-containerd-{ID}.scope": "populated 1",
    }
    host = build(tmp_path, {f"{GROUP}/{name}/cgroup.events": text for name, text in populated.items()})
    system, jobs = f"{GROUP}/system.slice", f"{GROUP}/jobs.slice"
    assert [job.number for job in workload.jobs_below(host.files, system)] == ["41"]
    assert list(workload.containers_below(host.files, system)) == [f"docker-{ID}.scope"]
    assert list(workload.containers_below(host.files, jobs)) == [f"cri-containerd-{ID}.scope"]
    assert list(workload.jobs_below(host.files, jobs)) == []


@pytest.mark.parametrize(
    "folder",
    [
        f"kubepods.slice/kubepods-pod{POD.replace('-', '_')}.slice",
        f"kubepods/pod{POD}",
        f"cpuset/kubepods/pod{POD}",
    ],
)
def test_a_pod_that_may_have_cpus_of_its_own_is_found(tmp_path: Path, folder: str) -> None:
    others = {f"{GROUP}/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD}.slice/cgroup.procs": ""}
    host = build(tmp_path, {**others, f"{GROUP}/{folder}/cgroup.procs": ""})
    assert list(workload.pods(host.files)) == [POD]


@pytest.mark.parametrize(
    ("command", "group"),
    [
        ("nv-hostengine", "/system.slice/hostengine-of-ours.service"),
        ("nvidia-persiste", ""),
        ("nvidia-smi", "/user.slice/user-0.slice/session-3.scope"),
        ("nvidia-cuda-mps", "/system.slice/mps.service"),
        ("dcgm-exporter", f"/system.slice/docker-{ID}.scope"),
        # Python, and known by the unit alone.
        ("python3", "/system.slice/nvsm-core.service"),
        ("python3", "/system.slice/gpufleet-boot.service"),
        ("python3", "/system.slice/dcgm-something.service"),
        ("agent", "/system.slice/nvidia-agent.service"),
    ],
)
def test_daemons_of_the_node_are_known_by_their_command_or_their_unit(tmp_path: Path, command: str, group: str) -> None:
    assert list(workload.on_gpus(holder(tmp_path, command, group).files)) == []


@pytest.mark.parametrize(
    ("command", "group"),
    [
        ("python3", "/system.slice/vllm.service"),
        ("train", ""),
        # What any user may call it says nothing: only units are known by a part of their name.
        ("dcgmproftester1", "/user.slice/user-1000.slice/session-3.scope"),
        ("nvidia-train", "/user.slice/user-1000.slice/user@1000.service/app.slice/nvidia-train.service"),
    ],
)
def test_whoever_else_has_a_gpu_open_is_at_work(tmp_path: Path, command: str, group: str) -> None:
    assert [one.command for one in workload.on_gpus(holder(tmp_path, command, group).files)] == [command]


@pytest.mark.parametrize("command", sorted(workload.COMMANDS))
def test_a_user_who_gives_a_job_the_name_of_a_daemon_is_at_work(tmp_path: Path, command: str) -> None:
    host = holder(tmp_path, command, "/user.slice/user-1000.slice/session-3.scope", status=STATUS_OF_USER)
    assert [one.command for one in workload.on_gpus(host.files)] == [command]


def test_a_server_of_mps_for_a_user_is_known_by_the_daemon_that_started_it(tmp_path: Path) -> None:
    host = holder(tmp_path, "nvidia-cuda-mps", "/system.slice/mps.service", parent=98, status=STATUS_OF_USER)
    for status, at_work in ((STATUS_OF_ROOT, 0), (STATUS_OF_USER, 1)):
        build(tmp_path, {"/proc/98/comm": "nvidia-cuda-mps\n", "/proc/98/status": status})
        assert len(list(workload.on_gpus(host.files))) == at_work


def test_who_asks_the_driver_for_us_is_not_at_work(tmp_path: Path) -> None:
    found: List[int] = []
    for number, (pid, parent) in enumerate([(os.getpid(), 1), (99, os.getpid()), (99, 1)]):
        files = holder(tmp_path / str(number), "python3", pid=pid, parent=parent).files
        found.append(len(list(workload.on_gpus(files))))
    assert found == [0, 0, 1]
