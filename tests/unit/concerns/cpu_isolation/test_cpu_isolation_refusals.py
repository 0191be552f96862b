# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What ``cpu_isolation`` refuses, with the message for it, and that nothing changed then."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Mapping

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.assessment import assess
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError, GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._linux import cpulist
from ansible_collections.gpufleet.node.plugins.module_utils._linux.cpu_topology import read_cpu_topology
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.cpu_isolation.concern import CONCERN
from ansible_collections.gpufleet.node.tests.nodes import nodetree
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedHost
from ansible_collections.gpufleet.node.tests.unit.concerns.cpu_isolation.cpu_isolation_machine import (
    CPU,
    ETC,
    GROUP,
    LIB,
    OURS,
    SERVICE,
    SYSTEM,
    machine,
    params,
    run,
)
from ansible_collections.gpufleet.node.tests.unit.support import snapshot

WRONG_LIST = "it is not a list of CPUs, and systemd would ignore it"
HINT = 'Write CPUs and ranges of them, such as housekeeping_cpus: "0-3,32-35".'
WRONG: Dict[str, Any] = {
    "nothing": (
        {"housekeeping_cpus": None},
        "Cannot declare housekeeping_cpus: no CPU is declared. Write CPUs and ranges of them, such as "
        'housekeeping_cpus: "0-3,32-35", or set state: absent.',
    ),
    "an empty list": (
        {"housekeeping_cpus": " "},
        f"Cannot declare housekeeping_cpus: the list is empty, and the system needs CPUs. {HINT}",
    ),
    "the last CPU by its letter": (
        {"housekeeping_cpus": "0-N"},
        f"Cannot declare housekeeping_cpus: {WRONG_LIST} (wanted 0-N). {HINT}",
    ),
    "a stride": (
        {"housekeeping_cpus": "0-7:1/2"},
        f"Cannot declare housekeeping_cpus: {WRONG_LIST} (wanted 0-7:1/2). {HINT}",
    ),
    "all": (
        {"housekeeping_cpus": "all"},
        f"Cannot declare housekeeping_cpus: {WRONG_LIST} (wanted all). {HINT}",
    ),
    "a range that goes backwards": (
        {"housekeeping_cpus": "3-1"},
        "Cannot declare housekeeping_cpus: 3-1 is a range that goes backwards, and systemd would drop it (wanted 3-1). "
        f"{HINT}",
    ),
    "a CPU beyond the machine": (
        {"housekeeping_cpus": "0-1,8-9,16"},
        "Cannot declare housekeeping_cpus: CPU 16 does not exist (wanted 0-1,8-9,16). List CPUs up to 15.",
    ),
    "half a core": (
        {"housekeeping_cpus": "0-2,8-9"},
        "Cannot declare housekeeping_cpus: CPUs 2-3 are one core, and it has only 2 (wanted 0-2,8-9). "
        "List all threads of a core or none.",
    ),
    "no CPU of a NUMA node": (
        {"housekeeping_cpus": "0-3"},
        "Cannot declare housekeeping_cpus: it has no CPU of node1, and what the system does for its devices and memory "
        "would be remote (wanted 0-3). Add a core of 8-15.",
    ),
    "the list of the jobs": (
        {"housekeeping_cpus": "2-7,10-15"},
        "Cannot declare housekeeping_cpus: it has 12 of 16 CPUs, which looks inverted (wanted 2-7,10-15). List the "
        "CPUs for the system, and not those for jobs, or set most_housekeeping: true.",
    ),
    "all of them": (
        {"housekeeping_cpus": "0-15", "most_housekeeping": True},
        "Cannot declare housekeeping_cpus: no CPU is left for jobs (wanted 0-15). List the CPUs for the system, and "
        "not those for jobs.",
    ),
    "the root slice": (
        {"slices": ["-.slice"]},
        "Cannot confine -.slice: it is not the name of a slice below the root slice. Write it as system.slice; the "
        "root slice has all CPUs, and slices have no instances.",
    ),
    "a slice with instances": (
        {"slices": ["gpu@0.slice"]},
        "Cannot confine gpu@0.slice: it is not the name of a slice below the root slice. Write it as system.slice; the "
        "root slice has all CPUs, and slices have no instances.",
    ),
    "the slice that is made": (
        {"slices": ["housekeeping.slice"]},
        "Cannot confine housekeeping.slice: it is made for daemons. List services in daemons.",
    ),
    "a slice twice": (
        {"slices": ["system.slice", "system.slice"]},
        "Cannot confine system.slice: it is declared twice. Remove one of them from slices.",
    ),
    "a service that is none": (
        {"daemons": [{"name": "chrony"}]},
        "Cannot confine chrony: it is not the name of a service. Write it as chrony.service.",
    ),
    "a service twice": (
        {"daemons": [{"name": "chrony.service"}, {"name": "chrony.service"}]},
        "Cannot confine chrony.service: it is declared twice. Remove one of them from daemons.",
    ),
    "a service that is not there": (
        {"daemons": [{"name": "ntpd.service"}]},
        "Cannot confine ntpd.service: this machine has no such unit. Leave it out, or set optional: true for it.",
    ),
    "a service that divides its control group": (
        {"daemons": [{"name": "kubelet.service"}]},
        "Cannot confine kubelet.service: it divides its control group itself (Delegate=), and what it starts there "
        "would be confined with it. Leave it out of daemons.",
    ),
    "the running system alone": (
        {"permanent": False},
        "Cannot confine the system to some CPUs: systemd has it from a drop-in, which counts at the next boot too, and "
        "permanent: false forbids that. Set permanent: true.",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_refused_before_anything_changes(tmp_path: Path, case: str) -> None:
    declared, message = WRONG[case]
    host = machine(tmp_path)
    before = snapshot(tmp_path, leave_out=())
    with pytest.raises(DeclarationError) as caught:
        run(host, **{"cpus": declared.get("housekeeping_cpus", "0-1,8-9"), **_others(declared)})
    assert str(caught.value) == message
    assert snapshot(tmp_path, leave_out=()) == before
    assert host.files.log == []


def _others(declared: Mapping[str, Any]) -> Dict[str, Any]:
    return {name: value for name, value in declared.items() if name != "housekeeping_cpus"}


def test_a_cpu_that_is_offline_is_named(tmp_path: Path) -> None:
    host = machine(tmp_path, {f"{CPU}/online": "0-7,10-15\n"})
    with pytest.raises(DeclarationError) as caught:
        run(host)
    assert str(caught.value) == (
        "Cannot declare housekeeping_cpus: CPUs 8-9 are offline (wanted 0-1,8-9). List CPUs that are online, which are "
        "0-7,10-15."
    )


LAUNCHERS: Dict[str, Any] = {
    "Slurm": (
        {f"{GROUP}/system.slice/slurmd.service/cgroup.procs": ""},
        "slurmd.service runs all jobs in system.slice, below slurmstepd.scope or NODENAME_slurmstepd.scope",
    ),
    "Docker": (
        {f"{GROUP}/system.slice/docker.service/cgroup.procs": ""},
        "docker.service runs containers in it, by cgroup-parent in /etc/docker/daemon.json, or by default in "
        "system.slice",
    ),
    "Docker on demand": (
        {
            f"{LIB}/docker.service": SERVICE,
            f"{LIB}/docker.socket": "[Socket]\n",
            f"{ETC}/sockets.target.wants/docker.socket": "",
        },
        "docker.service runs containers in it, by cgroup-parent in /etc/docker/daemon.json, or by default in "
        "system.slice",
    ),
    "a batch system": (
        {f"{LIB}/pbs.service": SERVICE, f"{ETC}/multi-user.target.wants/pbs.service": SERVICE},
        "pbs.service runs jobs in its own control group",
    ),
    "a container that is a service": (
        {"/etc/containers/systemd/vllm.container": "[Container]\n"},
        "/etc/containers/systemd/vllm.container is a container that runs as a service",
    ),
}


@pytest.mark.parametrize("case", LAUNCHERS)
def test_a_slice_in_which_jobs_or_containers_would_run_is_not_confined(tmp_path: Path, case: str) -> None:
    files, reason = LAUNCHERS[case]
    host = machine(tmp_path, files)
    before = snapshot(tmp_path, leave_out=())
    with pytest.raises(DeclarationError) as caught:
        run(host, when_busy="skip")
    assert str(caught.value) == (
        f"Cannot confine system.slice: jobs or containers would be confined with it, since {reason}. List the services "
        "to confine in daemons, which leaves this slice as it is."
    )
    assert snapshot(tmp_path, leave_out=()) == before
    run(host, daemons=[{"name": "chrony.service"}])
    assert not host.files.exists(SYSTEM)


@pytest.mark.parametrize("slurmd", ["system.slice/slurmd.service", "batch.slice/slurmd.service"])
def test_jobs_of_slurm_in_another_slice_leave_the_system_its_own(tmp_path: Path, slurmd: str) -> None:
    """CgroupSlice= has the jobs, and Slice= slurmd itself."""
    unit = SERVICE.replace("[Service]\n", f"[Service]\nSlice={slurmd.partition('/')[0]}\n")
    files = {
        "/etc/slurm/slurm.conf": "",
        "/etc/slurm/cgroup.conf": "CgroupSlice=batch.slice\n",
        f"{LIB}/slurmd.service": unit,
        f"{GROUP}/{slurmd}/cgroup.procs": "",
    }
    host = machine(tmp_path, files)
    assert run(host).remaining.status == "in_sync"
    with pytest.raises(DeclarationError) as caught:
        run(host, slices=["batch.slice"])
    assert "Cannot confine batch.slice: jobs or containers would be confined with it" in str(caught.value)
    assert "since slurmd.service runs all jobs in batch.slice, below slurmstepd.scope" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ('{"cgroup-parent": "/jobs.slice"}', SERVICE),
        ('{"exec-opts": ["native.cgroupdriver=cgroupfs"]}', SERVICE),
        ("{}", SERVICE.replace("/bin/a", "/bin/dockerd --cgroup-parent jobs.slice")),
    ],
)
def test_containers_of_docker_in_another_slice_leave_the_system_its_own(tmp_path: Path, text: str, unit: str) -> None:
    files = {
        "/etc/docker/daemon.json": text,
        f"{LIB}/docker.service": unit,
        f"{GROUP}/system.slice/docker.service/cgroup.procs": "",
    }
    assert run(machine(tmp_path, files)).remaining.status == "in_sync"


@pytest.mark.parametrize("path", ["system.slice.d/zz-local.conf", "slice.d/zz-local.conf"])
def test_who_has_a_say_after_us_is_named(tmp_path: Path, path: str) -> None:
    host = machine(tmp_path, {f"{ETC}/{path}": "[Slice]\nAllowedCPUs=4\n"})
    with pytest.raises(GpuFleetError) as caught:
        run(host)
    assert (caught.value.code, str(caught.value)) == (
        "conflict",
        f"Cannot set CPUs on system.slice: {ETC}/{path} is read after {SYSTEM} and sets AllowedCPUs= too "
        "(found AllowedCPUs=4, wanted 0-1,8-9). Remove that line, or leave the slice out of the declaration.",
    )


def test_another_slice_of_a_service_is_named(tmp_path: Path) -> None:
    path = f"{ETC}/chrony.service.d/zz-local.conf"
    host = machine(tmp_path, {path: "[Service]\nSlice=time.slice\n"})
    with pytest.raises(GpuFleetError) as caught:
        run(host, daemons=[{"name": "chrony.service"}])
    assert str(caught.value) == (
        f"Cannot set the slice on chrony.service: {path} is read after {ETC}/chrony.service.d/{OURS} and sets "
        "Slice= too (found time.slice, wanted housekeeping.slice). Remove that line, or leave the service out of the "
        "declaration."
    )


PINNED = f"{SERVICE}[Service]\nCPUAffinity=4-5\n"
PIN = f"{LIB}/pin.service"


@pytest.mark.parametrize("check", [True, False])
def test_a_service_that_could_not_start_any_more_is_named(tmp_path: Path, check: bool) -> None:
    """The kernel takes no list of which the cpuset has nothing: sched_setaffinity(2), EINVAL."""
    host = machine(tmp_path, {PIN: PINNED})
    before = snapshot(tmp_path, leave_out=())
    with pytest.raises(DeclarationError) as caught:
        run(host, check=check)
    assert str(caught.value) == (
        f"Cannot confine system.slice: pin.service ({PIN}:6) could not start again (status 215/CPUAFFINITY), as "
        "CPUAffinity= has no CPU in this slice (found pin.service on CPUs 4-5, wanted 0-1,8-9). "
        "Change or remove CPUAffinity= there, or move the service to another slice with Slice=."
    )
    assert snapshot(tmp_path, leave_out=()) == before
    assert host.files.log == []


def test_of_many_such_services_the_first_are_named(tmp_path: Path) -> None:
    host = machine(tmp_path, {f"{LIB}/pin{number}.service": PINNED for number in range(5)})
    with pytest.raises(DeclarationError, match=r"pin2\.service \(\S+:6\) and 2 more could not start"):
        run(host)


STARTING: Dict[str, Any] = {
    "some of its CPUs": {PIN: f"{PINNED}CPUAffinity=1\n"},
    "another slice": {PIN: PINNED, f"{ETC}/pin.service.d/slice.conf": "[Service]\nSlice=jobs.slice\n"},
    "no CPU of this machine, as before": {PIN: f"{SERVICE}[Service]\nCPUAffinity=64\n"},
    "a mask": {PIN: PINNED, f"{ETC}/pin.service": ""},
    "the CPUs of a NUMA node": {PIN: f"{SERVICE}[Service]\nCPUAffinity=numa\nNUMAMask=1\n"},
    "CPUs that only systemd knows": {PIN: f"{SERVICE}[Service]\nCPUAffinity=%H\n"},
    # Its children inherit the list, and what enters a cpuset without any of its CPUs gets all of them.
    "systemd itself": {"/etc/systemd/system.conf": "[Manager]\nCPUAffinity=4-5\n"},
}


@pytest.mark.parametrize("case", STARTING)
def test_a_service_that_starts_all_the_same_is_not_in_the_way(tmp_path: Path, case: str) -> None:
    assert run(machine(tmp_path, STARTING[case])).remaining.status == "in_sync"


def test_a_daemon_is_judged_by_the_slice_that_it_moves_to(tmp_path: Path) -> None:
    # It stays where the others are, in a slice with all CPUs.
    host = machine(tmp_path, {PIN: PINNED})
    assert run(host, daemons=[{"name": "chrony.service"}]).remaining.status == "pending"
    with pytest.raises(DeclarationError) as caught:
        run(host, daemons=[{"name": "chrony.service"}, {"name": "pin.service"}])
    assert str(caught.value).startswith(f"Cannot confine housekeeping.slice: pin.service ({PIN}:6) could not start ")
    assert str(caught.value).endswith("there, or remove it from daemons.")
    assert not host.files.exists(f"{ETC}/pin.service.d/{OURS}")


def test_the_services_are_read_only_where_something_is_to_change(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host)
    host.files.replace(PIN, PINNED)
    host.files.reads.clear()
    assert run(host).status == "in_sync"
    assert PIN not in host.files.reads
    with pytest.raises(DeclarationError, match=r"pin\.service"):
        run(host, "0-3,8-9")
    # Whoever gives the CPUs back has nothing to lose.
    assert run(host, None, state="absent").remaining.status == "in_sync"


@pytest.mark.parametrize("tree", sorted(path.stem for path in nodetree.FOLDER.glob("*.tree")))
def test_swapped_lists_are_refused_on_every_machine(tmp_path: Path, tree: str) -> None:
    nodetree.expand(tree, tmp_path / "root")
    host = RecordedHost(str(tmp_path / "root"))
    topology = read_cpu_topology(host.files)
    # The first core of each node is for the system.
    firsts = [min(cpus & topology.online) for cpus in topology.nodes.values() if cpus & topology.online] or [0]
    system = frozenset().union(*(core for core in topology.siblings if core & set(firsts)))
    jobs = topology.online - system
    before = snapshot(tmp_path, leave_out=())
    with pytest.raises(DeclarationError, match="which looks inverted"):
        assess(CONCERN, params({"housekeeping_cpus": cpulist.render(jobs)}), host)
    assert snapshot(tmp_path, leave_out=()) == before
