# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Slices next to GPUs: what is in them, what is refused, who is never disturbed, and what comes back."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, List

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    DeclarationError,
    GpuFleetError,
    InUse,
    OwnedByAnother,
)
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.affinity import Affinity
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.driver import Identity
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_slices import apply, observation
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_slices import files as slice_files
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_slices.plan import StopSlices
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_slices.state import WantedSlice
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_slices.topology import (
    NumaTopology,
    Room,
    SliceGpu,
    of_gpu,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.gpu_slices.slices_machine import (
    CGROUP,
    DAEMON,
    ETC,
    LIB,
    NODES,
    RULE,
    machine,
    run,
    systemd_of,
)
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import MakeMachine
from ansible_collections.gpufleet.node.tests.unit.support import build, snapshot

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

NODE0, NODE1 = "0-31,64-95", "32-63,96-127"
DAEMON_UNIT = "nvidia-persistenced.service"
DROP_IN = f"{ETC}/{DAEMON_UNIT}.d/99-gpufleet-gpu_slices.conf"
SCORE = "/proc/500/oom_score_adj"


def directives(text: str) -> List[str]:
    return text.partition("[Slice]\n")[2].splitlines()


# What is in effect


def test_each_gpu_has_a_slice_with_the_cpus_and_memory_of_its_node_and_a_second_run_changes_nothing(
    gpu_machine: MakeMachine,
) -> None:
    made = machine(gpu_machine)
    outcome = run(made, gpus=[{}])
    slices = outcome.effective["slices"]
    assert [(name, one["CPUs"], one["memory nodes"], one["swap limit"]) for name, one in slices.items()] == [
        ("gpu-0.slice", NODE0, "0", "0"),
        ("gpu-1.slice", NODE0, "0", "0"),
        ("gpu-2.slice", NODE1, "1", "0"),
        ("gpu-3.slice", NODE1, "1", "0"),
    ]
    assert directives(made.host.files.read(f"{ETC}/gpu-2.slice")) == [
        f"AllowedCPUs={NODE1}",
        "AllowedMemoryNodes=1",
        "MemorySwapMax=0",
    ]
    made.clear_logs()
    again = run(made, gpus=[{}])
    assert (again.status, again.changes) == ("in_sync", ())
    # One question to systemd about all of them.
    assert [call[:2] for call in made.host.commands.calls] == [("systemctl", "show")]


def test_a_slice_that_is_loaded_is_in_effect_as_its_cgroup_says(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine)
    run(made, gpus=[{"match": {"index": 0}}])
    systemd_of(made).start("gpu-0.slice")
    assert run(made, gpus=[{"match": {"index": 0}}]).status == "in_sync"
    effective = made.root / f"{CGROUP}/gpu.slice/gpu-0.slice/cpuset.cpus.effective".lstrip("/")
    effective.write_text("0-127\n")
    outcome = run(made, gpus=[{"match": {"index": 0}}])
    # It keeps in its cgroup what it was once given, so it is stopped: nothing runs in it.
    assert outcome.status == "drifted"
    assert ("systemctl", "stop", "gpu-0.slice") in made.host.commands.calls
    assert outcome.effective["slices"]["gpu-0.slice"]["CPUs"] == NODE0


def test_the_entries_say_which_gpus_and_what_of_io(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine)
    limits = [{"device": "/dev/nvme0n1", "read_bandwidth": "5G", "write_iops": "2K"}]
    outcome = run(
        made,
        gpus=[{"match": {"index": 1}, "io_weight": 500, "io_limits": limits, "swap": True}],
        numa_nodes=[{"node": 1}],
        reserved_cpus="0-1,64-65",
    )
    assert sorted(outcome.effective["slices"]) == ["gpu-1.slice", "gpu-node1.slice"]
    assert directives(made.host.files.read(f"{ETC}/gpu-1.slice")) == [
        "AllowedCPUs=2-31,66-95",
        "AllowedMemoryNodes=0",
        "IOWeight=500",
        "IOReadBandwidthMax=/dev/nvme0n1 5000000000",
        "IOWriteIOPSMax=/dev/nvme0n1 2000",
    ]
    # The drive has no scheduler.
    [weight] = outcome.as_dict()["unmanaged"]
    assert weight == {
        "object": "gpu-1.slice",
        "setting": "I/O weight",
        "reason": "it is set, and not enforced on nvme0n1: only the scheduler bfq and io.cost heed a weight",
    }
    systemd_of(made).start("gpu-1.slice")
    loaded = run(made, gpus=[{"match": {"index": 1}, "io_weight": 500}], numa_nodes=[{"node": 1}], strict=True)
    assert loaded.effective["slices"]["gpu-1.slice"]["I/O weight"] == "500"


@pytest.mark.parametrize(
    "files",
    [
        {"/sys/block/nvme0n1/queue/scheduler": "none [bfq]\n"},
        {f"{CGROUP}/io.cost.qos": "259:0 enable=1 ctrl=auto\n"},
    ],
)
def test_a_weight_is_enforced_by_bfq_and_by_io_cost(gpu_machine: MakeMachine, files: Dict[str, str]) -> None:
    made = machine(gpu_machine, files=files)
    assert run(made, gpus=[{"io_weight": 500}]).as_dict()["unmanaged"] == []


def test_a_gpu_that_is_no_longer_declared_loses_its_slice(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine)
    run(made, gpus=[{}])
    systemd_of(made).start("gpu-3.slice")
    outcome = run(made, gpus=[{"match": {"index": [0, 1]}}])
    assert sorted(outcome.boot["slices"]) == ["gpu-0.slice", "gpu-1.slice"]
    assert not made.host.files.exists(f"{CGROUP}/gpu.slice/gpu-3.slice")


def test_where_nobody_reports_the_node_of_a_gpu_it_has_no_slice_with_the_reason(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine, files={"/sys/devices/system/cpu/online": "0-255\n"})
    # Neither the nodes nor the CPUs that the driver names are here.
    for number, cpus in ((0, "128-191"), (1, "192-255")):
        node = made.root / f"{NODES}/node{number}".lstrip("/")
        (node / "cpulist").write_text(f"{cpus}\n")
        node.rename(node.with_name(f"node{number + 4}"))
    outcome = run(made, gpus=[{"match": {"index": 0}}])
    [missing] = outcome.as_dict()["unmanaged"]
    assert (missing["object"], outcome.boot["slices"]) == ("gpu0", {})
    assert missing["reason"] == "neither the driver nor the firmware reports its NUMA node"
    with pytest.raises(DeclarationError, match="Cannot make a slice on gpu0: neither the driver"):
        run(made, gpus=[{"match": {"index": 0}}], strict=True)


@pytest.mark.parametrize(
    ("nodes", "own_node", "affinity", "numa_node", "expected"),
    [
        # Grace: the memory of the GPU is a node of its own, from which the driver gives memory to its processes.
        ({0: range(72), 1: range(72, 144), 2: ()}, 2, range(72), 0, (range(72), {0, 2})),
        # Four nodes in a socket, and the driver means the socket.
        ({0: range(8), 1: range(8, 16), 2: range(16, 24), 3: range(24, 32)}, None, range(16), 1, (range(8, 16), {1})),
        # The firmware alone, of a node that has only memory.
        ({0: range(4), 1: range(4, 8), 2: ()}, None, (), 2, (range(4), {0, 2})),
        # One node, whatever is told.
        ({0: range(4)}, None, (), None, (range(4), {0})),
        ({}, None, (), None, (range(4), {0})),
    ],
)
def test_the_room_of_a_gpu_is_its_node_with_the_memory_that_is_its_own(
    nodes: Dict[int, Any], own_node: Any, affinity: Any, numa_node: Any, expected: Any
) -> None:
    told = Affinity(own_node, (), frozenset(affinity))
    found = of_gpu(
        SliceGpu(Identity(0, "GPU-1", "0000:01:00.0"), told),
        NumaTopology(
            online=frozenset(range(4)),
            nodes={number: frozenset(cpus) for number, cpus in nodes.items()},
            memory=dict.fromkeys(nodes, 1000),
            distances={one: {other: 10 + (one != other) for other in nodes} for one in nodes},
            firmware={"0000:01:00.0": (numa_node, frozenset())},
        ),
    )
    assert found == Room(frozenset(expected[0]), frozenset(expected[1]))


# Who is left alone


@pytest.mark.parametrize(
    ("unit", "name"), [("slurmd.service", "Slurm"), ("kubelet.service", "Kubernetes"), ("k3s.service", "Kubernetes")]
)
def test_a_node_of_a_scheduler_is_left_to_it_and_its_daemon_is_protected(
    gpu_machine: MakeMachine, unit: str, name: str
) -> None:
    made = machine(gpu_machine, files={f"{LIB}/{unit}": DAEMON})
    build(made.root, {}, {f"{ETC}/multi-user.target.wants/{unit}": f"{LIB}/{unit}"})
    outcome = run(made, gpus=[{}], launch_group="gpu-users", protected_services=[{"name": unit}])
    [left] = outcome.as_dict()["unmanaged"]
    assert left["reason"] == f"{unit} is enabled: {name} places the jobs of this node, and confines them itself"
    assert (outcome.boot["slices"], outcome.boot["launch_group"]) == ({}, None)
    assert outcome.boot["services"][unit]["OOM score"] == "-900"
    with pytest.raises(DeclarationError, match=f"Cannot make slices for GPUs on node: {unit} is enabled"):
        run(made, gpus=[{}], strict=True)
    assert sorted(run(made, gpus=[{}], beside_scheduler=True).boot["slices"])[0] == "gpu-0.slice"


def test_without_cgroup_v2_there_are_no_slices(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine, files={f"{CGROUP}/cgroup.controllers": ""})
    [unconfined] = run(made, gpus=[{}]).as_dict()["unmanaged"]
    assert unconfined["reason"] == "systemd does not use cgroup v2 alone here, and would ignore AllowedCPUs="
    made = machine(gpu_machine, files={f"{CGROUP}/cgroup.controllers": "cpu memory\n"})
    with pytest.raises(DeclarationError, match="the kernel has no cgroup controller cpuset here"):
        run(made, gpus=[{}], strict=True)


def test_a_slice_in_which_something_runs_is_not_changed_and_who_runs_is_named(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine, files={"/proc/700/comm": "python\n"})
    run(made, gpus=[{}])
    systemd_of(made).start("gpu-0.slice", 700, 701)
    before = snapshot(made.root)
    message = (
        "Cannot change the slice gpu-0.slice: in use by job.scope (python, PID 700 and 1 more). Nothing was changed;"
        " end what runs there, or set when_busy: wait or skip."
    )
    for options in ({"gpus": [{}], "reserved_cpus": "0"}, {"state": "absent"}):
        with pytest.raises(InUse) as caught:
            run(made, **options)
        assert (str(caught.value), snapshot(made.root)) == (message, before)
    # What is not about it goes on.
    assert run(made, gpus=[{}], numa_nodes=[{"node": 0}]).status == "drifted"
    outcome = run(made, gpus=[{}], reserved_cpus="0", when_busy="skip")
    assert (outcome.remaining.status, outcome.as_dict()["needs"]) == ("pending", ["idle_slice"])
    assert outcome.boot["slices"]["gpu-0.slice"]["CPUs"] == NODE0
    assert outcome.boot["slices"]["gpu-1.slice"]["CPUs"] == "1-31,64-95"
    systemd_of(made).start("gpu-0.slice")
    assert run(made, gpus=[{}], reserved_cpus="0").boot["slices"]["gpu-0.slice"]["CPUs"] == "1-31,64-95"


def test_a_run_waits_for_it_where_that_is_declared(gpu_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    made = machine(gpu_machine)
    run(made, gpus=[{}])
    systemd_of(made).start("gpu-0.slice", 700)

    def ends(seconds: float) -> None:
        systemd_of(made).start("gpu-0.slice")

    monkeypatch.setattr("time.sleep", ends)
    outcome = run(made, gpus=[{}], reserved_cpus="0", when_busy="wait", busy_timeout=60)
    assert outcome.boot["slices"]["gpu-0.slice"]["CPUs"] == "1-31,64-95"


# What is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {},
            "Cannot read the declaration: nothing is declared. Set gpus: [{}] for a slice of each GPU, or"
            " numa_nodes, or"
            " protected_services, or state: absent.",
        ),
        (
            {"gpus": [{"match": {"index": 7}}]},
            "Cannot apply gpus[0] (index: 7): it matches no device; there is gpu0, gpu1, gpu2, gpu3. Correct the match,"
            " or set optional: true.",
        ),
        (
            {"gpus": [{"match": {"indx": 0}}]},
            "Cannot use gpus[0]: there is no key indx. Did you mean index?",
        ),
        (
            {"gpus": [{"io_weight": 20000}]},
            "Cannot set gpus[0].io_weight: systemd ignores it (wanted 20000). Set a number from 1 to 10000; 100 is that"
            " of others.",
        ),
        (
            {"gpus": [{"io_limits": [{"device": "nvme0n1", "read_bandwidth": "5G"}]}]},
            "Cannot use gpus[0].io_limits[0]: 'nvme0n1' is not the path of a device. Write it as /dev/nvme0n1.",
        ),
        (
            {"gpus": [{"io_limits": [{"device": "/dev/nvme0n1"}]}]},
            "Cannot use gpus[0].io_limits[0]: it limits nothing of /dev/nvme0n1. Set one of read_bandwidth,"
            " write_bandwidth, read_iops, write_iops.",
        ),
        (
            {"gpus": [{"io_limits": [{"device": "/dev/nvme0n1", "read_bandwidth": "5 GB"}]}]},
            "Cannot set gpus[0].io_limits[0].read_bandwidth: it is not a number a second, with K, M, G or T"
            " for powers of"
            " 1000 (wanted 5 GB). Set a number such as 5G.",
        ),
        (
            {"gpus": [{"io_limits": [{"device": "/dev/nvme9n1", "read_bandwidth": "5G"}]}]},
            "Cannot limit I/O of /dev/nvme9n1: this machine has no such block device. Correct the path, or"
            " leave the limit"
            " out.",
        ),
        (
            {"numa_nodes": [{"node": 4}]},
            "Cannot make the slice of numa_nodes[0]: this machine has no NUMA node 4. It has 0-3; correct it, or set"
            " optional: true.",
        ),
        (
            {"numa_nodes": [{"node": 2}]},
            "Cannot make the slice of numa_nodes[0]: NUMA node 2 has no online CPUs. Nodes with CPUs and memory: 0-1.",
        ),
        (
            {"numa_nodes": [{"node": 3}]},
            "Cannot make the slice of numa_nodes[0]: NUMA node 3 has no memory. Nodes with CPUs and memory: 0-1.",
        ),
        (
            {"numa_nodes": [{"node": 0}, {"node": 0}]},
            "Cannot use numa_nodes: 0 is in it twice. Leave one of them.",
        ),
        (
            {"gpus": [{}], "reserved_cpus": "0-x"},
            "Cannot set reserved_cpus: '0-x' is not a list of CPUs. Write numbers and ranges with commas, such as"
            " 0-3,64-67.",
        ),
        (
            {"gpus": [{}], "reserved_cpus": "4000"},
            "Cannot use reserved_cpus: there is no CPU 4000; this machine has 0-131.",
        ),
        (
            {"gpus": [{}], "reserved_cpus": NODE0},
            f"Cannot make the slice gpu-0.slice: all its CPUs ({NODE0}) are reserved. Leave some of them out of"
            " reserved_cpus.",
        ),
        (
            {"gpus": [{}], "launch_group": "no-such"},
            "Cannot let no-such use gpufleet run: there is no group no-such. Make the group first, or name"
            " another one.",
        ),
        (
            {"gpus": [{}], "launch_group": 'x")||true||("'},
            'Cannot set launch_group: it is not the name of a group (wanted x")||true||("). Set a name.',
        ),
        (
            {"protected_services": [{"name": DAEMON_UNIT}], "launch_group": "gpu-users"},
            "Cannot set launch_group: no slice is declared in which its members could start something. Declare gpus or"
            " numa_nodes.",
        ),
        (
            {"protected_services": [{"name": "ssh.service"}]},
            "Cannot protect ssh.service: its sessions and jobs inherit it, and would be protected as well."
            " Leave it out.",
        ),
        (
            {"protected_services": [{"name": "slurmd"}]},
            "Cannot use protected_services[0]: 'slurmd' is not the name of a service. Write it as slurmd.service.",
        ),
        (
            {"protected_services": [{"name": "gone.service"}]},
            "Cannot protect gone.service: this machine has no such unit. Leave it out, or set optional: true for it.",
        ),
        (
            {"protected_services": [{"name": DAEMON_UNIT, "oom_score_adjust": -1001}]},
            "Cannot set protected_services[0].oom_score_adjust: systemd ignores it (wanted -1001). Set a"
            " number from -1000"
            " (never ended) to 0.",
        ),
        (
            {"protected_services": [{"name": DAEMON_UNIT, "oom_score_adjust": 500}]},
            "Cannot set protected_services[0].oom_score_adjust: it protects from nothing (wanted 500). Set a"
            " number from"
            " -1000 (never ended) to 0.",
        ),
        (
            {"gpus": [{}], "busy_timeout": -1},
            "Cannot set busy_timeout: it is below 0 (wanted -1). Set seconds.",
        ),
    ],
)
def test_what_is_wrong_is_refused_before_anything_changes(
    gpu_machine: MakeMachine, options: Dict[str, Any], message: str
) -> None:
    made = machine(
        gpu_machine,
        files={
            "/sys/devices/system/cpu/online": "0-131\n",
            f"{NODES}/node0/distance": "10 21 21 21\n",
            f"{NODES}/node1/distance": "21 10 21 21\n",
            # One with memory alone, and one with CPUs alone.
            f"{NODES}/node2/cpulist": "\n",
            f"{NODES}/node2/meminfo": "Node 2 MemTotal:  1000 kB\n",
            f"{NODES}/node2/distance": "21 21 10 21\n",
            f"{NODES}/node3/cpulist": "128-131\n",
            f"{NODES}/node3/meminfo": "Node 3 MemTotal:  0 kB\n",
            f"{NODES}/node3/distance": "21 21 21 10\n",
        },
    )
    before = snapshot(made.root)
    with pytest.raises(GpuFleetError) as caught:
        run(made, **options)
    assert (str(caught.value), snapshot(made.root)) == (message, before)


ONLINE = {"/sys/devices/system/cpu/online": "0-127\n"}
PIN = f"{ETC}/pin.service"
PINNED = "[Service]\nExecStart=/bin/a\nSlice=gpu-2.slice\nCPUAffinity=0-1\n"


@pytest.mark.parametrize("place", ["gpu-2.slice", "gpu-2-mine.slice"])
def test_a_service_that_could_not_start_in_a_slice_any_more_is_named(gpu_machine: MakeMachine, place: str) -> None:
    made = machine(gpu_machine, files={**ONLINE, PIN: PINNED.replace("gpu-2.slice", place)})
    before = snapshot(made.root)
    with pytest.raises(DeclarationError) as caught:
        run(made, gpus=[{}])
    assert str(caught.value) == (
        f"Cannot make the slice gpu-2.slice: pin.service ({PIN}:4) could not start again (status 215/CPUAFFINITY), as "
        f"CPUAffinity= has no CPU in this slice (found pin.service on CPUs 0-1, wanted {NODE1}). "
        "Change or remove CPUAffinity= there, or move the service to another slice with Slice=."
    )
    assert snapshot(made.root) == before


@pytest.mark.parametrize(
    "text",
    [
        PINNED.replace("gpu-2.slice", "gpu-20.slice"),
        PINNED.replace("gpu-2.slice", "gpu-0.slice"),
        PINNED.replace("0-1", "0-127"),
        PINNED.replace("0-1", "500"),
    ],
    ids=["another slice", "CPUs of the slice", "some of them", "no CPU of this machine"],
)
def test_a_service_that_starts_all_the_same_is_not_in_the_way(gpu_machine: MakeMachine, text: str) -> None:
    made = machine(gpu_machine, files={**ONLINE, PIN: text})
    run(made, gpus=[{}])
    assert run(made, gpus=[{}]).status == "in_sync"


def test_without_a_change_no_service_is_read(gpu_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    made = machine(gpu_machine, files=ONLINE)
    run(made, gpus=[{}])
    monkeypatch.setattr(observation, "bound", lambda *_arguments: pytest.fail("it reads all services"))
    assert run(made, gpus=[{}]).status == "in_sync"


def test_the_slice_of_a_gpu_without_memory_next_to_it_is_refused(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine, files={f"{NODES}/node1/meminfo": "Node 1 MemTotal:  0 kB\n"})
    with pytest.raises(DeclarationError, match=re.escape("Cannot make the slice of gpu2: NUMA node 1 has no memory.")):
        run(made, gpus=[{}])


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("pkexec", "this machine has no pkexec. Install polkit with pkexec, or leave launch_group out."),
        ("rules", "this polkit reads no rules, as releases before 0.106 do not. Leave launch_group out."),
    ],
)
def test_a_group_is_refused_where_polkit_cannot_let_it(gpu_machine: MakeMachine, fault: str, message: str) -> None:
    made = machine(gpu_machine)
    if fault == "pkexec":
        del made.host.commands.programs["pkexec"]
    else:
        shutil.rmtree(made.root / "usr/share/polkit-1")
    with pytest.raises(DeclarationError, match=re.escape(message)):
        run(made, gpus=[{}], launch_group="gpu-users")


def test_a_unit_of_somebody_else_keeps_its_name_and_what_changes_a_slice_is_named(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine, files={f"{ETC}/gpu-0.slice": "[Slice]\nCPUWeight=50\n"})
    with pytest.raises(OwnedByAnother, match=r"gpu-0\.slice is a unit of this name, and not of gpu_slices"):
        run(made, gpus=[{}])
    assert run(made, gpus=[{"match": {"index": 1}}]).status == "drifted"
    # What systemctl set-property writes.
    control = "/etc/systemd/system.control/gpu-1.slice.d/50-AllowedCPUs.conf"
    build(made.root, {control: "[Slice]\nAllowedCPUs=40\n"})
    with pytest.raises(OwnedByAnother) as caught:
        run(made, gpus=[{"match": {"index": 1}}])
    assert str(caught.value) == (
        f"Cannot set CPUs on gpu-1.slice: {control} is read after {ETC}/gpu-1.slice (found 0-31,40,64-95,"
        f" wanted {NODE0})."
        " Remove it from that file; systemctl revert removes what systemctl set-property wrote."
    )


# Services and the launcher


def test_a_service_that_runs_is_protected_at_once_and_has_its_score_back_afterwards(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine, files={SCORE: "-17\n"})
    before = snapshot(made.root)
    outcome = run(made, protected_services=[{"name": DAEMON_UNIT}, {"name": "nvidia-dcgm.service"}])
    assert made.host.files.read(SCORE).strip() == "-900"
    assert made.host.files.read(DROP_IN).splitlines()[1:] == ["[Service]", "OOMScoreAdjust=-900"]
    assert outcome.effective["services"]["nvidia-dcgm.service"]["OOM score"] == "-900"
    assert run(made, protected_services=[{"name": DAEMON_UNIT}]).boot["services"][DAEMON_UNIT]["OOM score"] == "-900"
    run(made, state="absent")
    assert made.host.files.read(SCORE).strip() == "-17"
    assert {path: one for path, one in snapshot(made.root).items() if not path.startswith("proc/500")} == {
        path: one for path, one in before.items() if not path.startswith("proc/500")
    }


def test_where_systemd_oomd_is_on_it_spares_the_service_too(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine, files={f"{LIB}/systemd-oomd.service": DAEMON})
    build(made.root, {}, {f"{ETC}/multi-user.target.wants/systemd-oomd.service": f"{LIB}/systemd-oomd.service"})
    outcome = run(made, protected_services=[{"name": DAEMON_UNIT, "oom_score_adjust": -1000}])
    assert outcome.effective["services"][DAEMON_UNIT] == {
        "OOM score": "-1000",
        "preference of systemd-oomd": "avoid",
    }


def test_a_later_drop_in_of_the_service_is_an_owner(gpu_machine: MakeMachine) -> None:
    later = f"{ETC}/{DAEMON_UNIT}.d/zz.conf"
    made = machine(gpu_machine, files={later: "[Service]\nOOMScoreAdjust=0\n"})
    with pytest.raises(OwnedByAnother, match=f"Cannot set the OOM score on {DAEMON_UNIT}: {later} overrules"):
        run(made, protected_services=[{"name": DAEMON_UNIT}])


def test_the_rule_lets_the_group_do_one_thing(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine)
    assert run(made, gpus=[{}], launch_group="gpu-users").boot["launch_group"] == "gpu-users"
    rule = made.host.files.read(RULE)
    assert 'subject.isInGroup("gpu-users")' in rule
    # The right to start units would be that to be root.
    assert "manage-units" not in rule
    assert 'indexOf(action.lookup("program") + " place ") == 0' in rule
    assert '["/var/lib/gpufleet/program/gpufleet", "/usr/local/sbin/gpufleet"].indexOf(' in rule
    run(made, gpus=[{}])
    assert not made.host.files.exists(RULE)


def test_absent_stops_what_is_loaded_and_leaves_nothing(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine)
    before = snapshot(made.root)
    run(made, gpus=[{}], launch_group="gpu-users")
    systemd_of(made).start("gpu-0.slice")
    run(made, state="absent")
    assert ("systemctl", "stop", "gpu-0.slice", "gpu.slice") in made.host.commands.calls
    assert snapshot(made.root) == before


def test_what_was_started_between_the_look_and_the_stop_is_not_ended(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine)
    run(made, gpus=[{}])
    systemd = systemd_of(made)
    for name in ("gpu-0.slice", "gpu.slice"):
        systemd.start(name, 700)
        with pytest.raises(InUse, match=re.escape(f"Cannot stop {name}: something was started in it")):
            apply.stop(StopSlices((name,)), made.host)
    assert not [call for call in made.host.commands.calls if "stop" in call]


def test_skip_also_leaves_a_slice_in_which_something_was_started_after_the_look(
    gpu_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = machine(gpu_machine)
    run(made, gpus=[{}])
    systemd = systemd_of(made)
    systemd.start("gpu-0.slice")
    systemd.start("gpu-1.slice")
    stop = apply.stop

    def something_starts(action: StopSlices, host: Any) -> None:
        monkeypatch.setattr(apply, "stop", stop)
        systemd.start("gpu-0.slice", 700)
        stop(action, host)

    monkeypatch.setattr(apply, "stop", something_starts)
    outcome = run(made, gpus=[{}], reserved_cpus="0", when_busy="skip")
    assert (outcome.error, outcome.remaining.status, outcome.remaining.needs) == (None, "pending", ("idle_slice",))
    assert {row.object for row in outcome.remaining.pending} == {"gpu-0.slice"}
    assert outcome.boot["slices"]["gpu-0.slice"]["CPUs"] == NODE0
    assert outcome.boot["slices"]["gpu-1.slice"]["CPUs"] == "1-31,64-95"
    assert "gpu-0.slice" not in {change.object for change in outcome.changes}
    systemd.start("gpu-0.slice")
    assert run(made, gpus=[{}], reserved_cpus="0").boot["slices"]["gpu-0.slice"]["CPUs"] == "1-31,64-95"


# As systemd reads it


@pytest.mark.parametrize(
    ("texts", "values"),
    [
        (["[Slice]\nAllowedCPUs=0-3 8\nAllowedCPUs=10,11\n"], {"CPUs": "0-3,8,10-11"}),
        (["[Slice]\nAllowedCPUs=0-3\n", "[Slice]\nAllowedCPUs=\nAllowedCPUs=5\n"], {"CPUs": "5"}),
        (["[Slice]\nAllowedCPUs=0-7:1/2\nAllowedMemoryNodes=all\n"], {}),
        (["[Slice]\nMemorySwapMax=1G\nMemorySwapMax=x\n"], {"swap limit": str(1024**3)}),
        (["[Slice]\nIOWeight=20000\n"], {}),
        (["[Slice]\nIOReadBandwidthMax=/dev/a 1K\n"], {"read bandwidth of /dev/a": "1000"}),
        (["[Slice]\nIOReadBandwidthMax=/dev/a 1K\nIOReadBandwidthMax=\n"], {}),
        (["[Unit]\nAllowedCPUs=0\n"], {}),
    ],
)
def test_lines_mean_what_systemd_makes_of_them(texts: List[str], values: Dict[str, str]) -> None:
    assert slice_files.values_of(texts) == values


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_finds_nothing_wrong_with_what_is_written(tmp_path: Path) -> None:
    values = {
        "CPUs": NODE0,
        "memory nodes": "0",
        "swap limit": "0",
        "I/O weight": "10000",
        "read bandwidth of /dev/null": "5000000000",
        "write operations of /dev/null": "1000",
    }
    text = slice_files.render(WantedSlice("gpu-0.slice", "GPU 0 (GPU-1)", values))
    assert slice_files.values_of([text]) == values
    path = tmp_path / "gpu-0.slice"
    path.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
