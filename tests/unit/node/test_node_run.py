# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``gpufleet run``: which slice a command gets, what systemd is asked for, and who may ask."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
from typing import Any, Dict, List, Mapping, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.node import command
from ansible_collections.gpufleet.node.node import run as launcher
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import LOCK
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError, NotPermitted
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._linux.program import ON_PATH, PROGRAM
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia import mig
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.driver import Driver
from ansible_collections.gpufleet.node.tests.unit.concerns.gpu_slices.slices_machine import (
    DAEMON,
    ETC,
    LIB,
    machine,
    run,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_machine import ONE, divide, whole
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import GpuMachine, MakeMachine
from ansible_collections.gpufleet.node.tests.unit.support import build

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

NODE0, NODE1 = "0-31,64-95", "32-63,96-127"


CALLER = 4711


def process_files(pid: int, owners: str, *, start: int = 1) -> Dict[str, str]:
    """Files of a process in /proc: its users, its parent and its start."""
    numbers = " ".join(["0"] * 17)
    return {
        f"/proc/{pid}/status": f"Name:\tpython\nUid:\t{owners}\n",
        f"/proc/{pid}/stat": f"{pid} (python) S 1 {numbers} {start} 0\n",
    }


class Executed(BaseException):
    """The process would have become this program."""


class Bed:
    """A machine with slices, on which ``gpufleet run`` runs as a user, and what it did there."""

    def __init__(self, made: GpuMachine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = made
        self.executed: List[Tuple[Sequence[str], Dict[str, str]]] = []
        self._monkeypatch = monkeypatch
        made.host.commands.programs["busctl"] = self._busctl
        made.host.commands.programs["env"] = lambda _argv: Completed(0, "", "")
        monkeypatch.setattr(os, "execve", self._execute)
        monkeypatch.setattr(command, "this_host", lambda: made.host)
        monkeypatch.setattr(launcher.shutil, "which", lambda name: f"/usr/bin/{name}" if name == "true" else None)
        self.user(0)

    def user(self, number: int, *, member: bool = False) -> None:
        self._monkeypatch.setattr(os, "geteuid", lambda: number)
        self._monkeypatch.setattr(launcher, "_user", lambda: "alice")
        self._monkeypatch.setattr(launcher, "_is_member", lambda group: member)

    def __call__(self, *arguments: str) -> Tuple[Sequence[str], Dict[str, str]]:
        with pytest.raises(Executed):
            command.main(["run", *arguments, "--", "true", "-l", "--gpu"])
        return self.executed[-1]

    def asked(self) -> str:
        """The last call of systemd, without what is the same in all."""
        return " ".join(next(call for call in reversed(self.made.host.commands.calls) if call[0] == "busctl"))

    def _busctl(self, argv: Sequence[str]) -> Completed:
        words = list(argv)
        name, slice_name = words[7], words[words.index("Slice") + 2]
        process = words[words.index("PIDs") + 3]
        folder = "gpu.slice" if slice_name == "gpu.slice" else f"gpu.slice/{slice_name}"
        build(self.made.root, {f"/proc/{process}/cgroup": f"0::/{folder}/{name}\n"})
        return Completed(0, 'o "/org/freedesktop/systemd1/job/1"\n', "")

    def _execute(self, program: str, argv: Sequence[str], environment: Dict[str, str]) -> None:
        self.executed.append((argv, environment))
        raise Executed


@pytest.fixture
def bed(gpu_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch) -> Bed:
    made = machine(gpu_machine)
    run(made, gpus=[{}], launch_group="gpu-users")
    return Bed(made, monkeypatch)


def test_a_command_runs_in_the_slice_of_its_gpu_and_sees_that_alone(
    bed: Bed, capsys: pytest.CaptureFixture[str]
) -> None:
    argv, environment = bed("--gpu", "2")
    uuid = bed.made.gpu(2)["uuid"]
    assert argv == ["true", "-l", "--gpu"]
    assert environment["CUDA_VISIBLE_DEVICES"] == uuid
    assert {**os.environ, "CUDA_VISIBLE_DEVICES": uuid} == environment
    assert f"Slice s gpu-2.slice CollectMode s inactive-or-failed PIDs au 1 {os.getpid()} 0" in bed.asked()
    assert capsys.readouterr().err == (
        f"gpufleet: in gpu-2.slice: CPUs {NODE1}, memory nodes 1, swap limit 0; CUDA_VISIBLE_DEVICES={uuid}\n"
    )


def test_several_gpus_have_the_cpus_and_memory_of_all_of_them(bed: Bed, capsys: pytest.CaptureFixture[str]) -> None:
    _argv, environment = bed("--gpu", "1", "--gpu", bed.made.gpu(2)["uuid"])
    assert environment["CUDA_VISIBLE_DEVICES"] == f"{bed.made.gpu(1)['uuid']},{bed.made.gpu(2)['uuid']}"
    # 128 CPUs and two nodes, a bit for each.
    all_cpus = " ".join(["255"] * 16)
    assert "Slice s gpu.slice" in bed.asked()
    assert f"AllowedCPUs ay 16 {all_cpus} AllowedMemoryNodes ay 1 3 MemorySwapMax t 0 0" in bed.asked()
    assert "in gpu.slice (gpu-1.slice, gpu-2.slice): CPUs 0-127, memory nodes 0-1" in capsys.readouterr().err


def test_a_mig_instance_is_meant_by_its_number_or_its_uuid(gpu_machine: MakeMachine, monkeypatch: Any) -> None:
    made = machine(gpu_machine, "hgx-h100-80gb-8")
    divide(made, 0, (whole(0, ONE), whole(1, ONE)))
    run(made, gpus=[{}])
    bed = Bed(made, monkeypatch)
    uuids = [one["uuid"] for one in made.host.nvml.ask(visible_instances)]
    for text in ("0:1", uuids[1].lower()):
        _argv, environment = bed("--gpu", text)
        assert environment["CUDA_VISIBLE_DEVICES"] == uuids[1]
        assert "Slice s gpu-0.slice" in bed.asked()
    for texts, message in (
        (["0"], "gpu0 is divided into MIG instances, of which CUDA would take the first. Name an instance: 0:0, 0:1."),
        (["0:2"], "this machine has no such MIG instance. There is 0:0, 0:1."),
        (["0:0", "0:1"], "a process of CUDA sees one MIG instance, and no GPU beside it."),
        (["0:0", "1"], "a process of CUDA sees one MIG instance, and no GPU beside it."),
    ):
        with pytest.raises(DeclarationError, match=re.escape(message)):
            launcher.prepare(made.host, texts)


def visible_instances(driver: Driver) -> List[Dict[str, str]]:
    """The MIG devices of the first GPU, as NVML itself lists them."""
    gpu = driver.gpus()[0]
    return [{"uuid": driver.read("nvmlDeviceGetUUID", handle).value} for handle, _one, _two in mig.devices(gpu)]


def test_a_gpu_without_a_slice_of_its_own_takes_that_of_its_node(gpu_machine: MakeMachine, monkeypatch: Any) -> None:
    made = machine(gpu_machine)
    run(made, numa_nodes=[{"node": 0}, {"node": 1}])
    bed = Bed(made, monkeypatch)
    bed("--gpu", "3")
    assert "Slice s gpu-node1.slice" in bed.asked()


@pytest.mark.parametrize(
    ("gpus", "message"),
    [
        (["9"], "Cannot run on GPU 9: this machine has no such GPU. There is 0, 1, 2, 3."),
        (["x"], "Cannot run on GPU x: this machine has no such GPU. There is 0, 1, 2, 3."),
        (["MIG-1"], "Cannot run on GPU MIG-1: this machine has no such MIG instance. There is none."),
        (["0:0"], "Cannot run on GPU 0:0: gpu0 is not divided: its MIG mode is off. Name the GPU: 0."),
    ],
)
def test_what_is_not_there_is_refused(
    bed: Bed, capsys: pytest.CaptureFixture[str], gpus: List[str], message: str
) -> None:
    status = command.main(["run", *(word for gpu in gpus for word in ("--gpu", gpu)), "--", "true"])
    assert (status, capsys.readouterr().err, bed.executed) == (64, f"{message}\n", [])


def test_a_gpu_that_is_named_twice_and_a_program_that_is_missing_are_refused(
    bed: Bed, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["run", "--gpu", "0", "--gpu", "0", "--", "true"]) == 64
    assert "it is named twice. Name each GPU once." in capsys.readouterr().err
    assert command.main(["run", "--gpu", "0", "--", "gone"]) == 127
    assert capsys.readouterr().err == "Cannot run gone: there is no such program.\n"


def test_a_slice_of_another_gpu_is_not_taken(bed: Bed) -> None:
    path = bed.made.root / f"{ETC}/gpu-0.slice".lstrip("/")
    path.write_text(path.read_text().replace(bed.made.gpu(0)["uuid"], "GPU-other"))
    with pytest.raises(DeclarationError, match=r"Cannot run on gpu0: gpu-0\.slice was made for another GPU"):
        launcher.prepare(bed.made.host, ["0"])


def test_without_slices_the_scheduler_or_the_role_is_named(gpu_machine: MakeMachine) -> None:
    made = machine(gpu_machine)
    with pytest.raises(DeclarationError) as caught:
        launcher.prepare(made.host, ["0"])
    assert str(caught.value) == (
        "Cannot run on gpu0: this node has no slice for it. Declare it in gpu_slices_gpus and run the role gpu_slices."
    )
    build(
        made.root,
        {f"{LIB}/slurmd.service": DAEMON},
        {f"{ETC}/multi-user.target.wants/slurmd.service": f"{LIB}/slurmd.service"},
    )
    with pytest.raises(DeclarationError) as caught:
        launcher.prepare(made.host, ["0"])
    assert str(caught.value) == (
        "Cannot run on gpu0: Slurm places the jobs of this node (slurmd.service is enabled). Submit a job to it."
    )


# Who may


def test_polkit_is_asked_for_the_command_where_it_is_and_not_below_a_link(bed: Bed) -> None:
    bed.user(1000, member=True)
    bed.made.host.files.replace(ON_PATH, "")
    bed("--gpu", "0")
    assert ON_PATH in bed.made.host.commands.calls[-1]
    (bed.made.root / "usr/local").rename(bed.made.root / "var/usrlocal")
    (bed.made.root / "usr/local").symlink_to("/var/usrlocal")
    bed("--gpu", "0")
    assert PROGRAM in bed.made.host.commands.calls[-1]


# What pkexec 126 says, and our program behind it.
NOT_AUTHORIZED = (
    "Error executing command as another user: Not authorized\n\nThis incident has been reported.\n"  # pkexec.c
)
LOCKED = "Cannot start a command in gpu-0.slice: another run is changing this node (pid 7). Wait until it has ended.\n"


@pytest.mark.parametrize(
    ("completed", "message"),
    [
        (
            Completed(127, "", NOT_AUTHORIZED),
            "polkit refuses it (Not authorized). Check that the role gpu_slices is in sync.",
        ),
        (Completed(127, "", ""), "polkit refuses it (exit status 127). Check that the role gpu_slices is in sync."),
        (Completed(64, "", LOCKED), LOCKED.partition(": ")[2].strip()),
        (Completed(124, "", ""), "gpufleet place ended with exit status 124."),
    ],
)
def test_a_member_of_the_group_asks_polkit_and_a_refusal_is_told(
    bed: Bed, capsys: pytest.CaptureFixture[str], completed: Completed, message: str
) -> None:
    bed.user(1000, member=True)
    bed("--gpu", "0")
    pkexec = (bed.made.host.commands.find("pkexec"), "--disable-internal-agent")
    asked = ("env", "--ignore-environment", *pkexec, PROGRAM, "place", "gpu-0.slice")
    assert bed.made.host.commands.calls[-1] == asked
    bed.made.host.commands.programs["env"] = lambda _argv: completed
    assert command.main(["run", "--gpu", "0", "--", "true"]) == 64
    assert capsys.readouterr().err.endswith(f"Cannot start a command in gpu-0.slice: {message}\n")


def test_without_the_program_that_asks_systemd_it_is_named(bed: Bed, capsys: pytest.CaptureFixture[str]) -> None:
    del bed.made.host.commands.programs["busctl"]
    assert command.main(["run", "--gpu", "0", "--", "true"]) == 64
    assert capsys.readouterr().err == (
        "Cannot start a command in gpu-0.slice: busctl, with which systemd is asked, is missing. Reinstall the package "
        "systemd, to which it belongs.\n"
    )


def test_others_are_told_who_may(bed: Bed, capsys: pytest.CaptureFixture[str]) -> None:
    bed.user(1000)
    assert command.main(["run", "--gpu", "0", "--", "true"]) == 64
    assert capsys.readouterr().err == (
        "Cannot start a command in gpu-0.slice: only root and the group gpu-users may, and this is alice. Ask an"
        " administrator to add alice to gpu-users.\n"
    )
    run(bed.made, gpus=[{}])
    assert command.main(["run", "--gpu", "0", "--", "true"]) == 64
    assert (
        "only root may, and this is alice. Ask an administrator to set gpu_slices_launch_group"
        in capsys.readouterr().err
    )
    assert bed.executed == []


@pytest.mark.parametrize(
    ("owners", "user", "moved"),
    [("1000 1000 1000 1000", "1000", True), ("0 0 0 0", "1000", False), ("1000 0 0 0", "1000", False)],
)
def test_the_helper_moves_nothing_but_a_process_of_the_user_who_calls_it(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, owners: str, user: str, moved: bool
) -> None:
    monkeypatch.setattr(os, "getppid", lambda: CALLER)
    build(bed.made.root, process_files(CALLER, owners))
    monkeypatch.setenv("PKEXEC_UID", user)
    if moved:
        assert launcher.place_caller(bed.made.host, ["gpu-0.slice"]) == 0
        assert f"PIDs au 1 {CALLER}" in bed.asked()
    else:
        with pytest.raises(NotPermitted, match="the calling process does not belong to the user who asks"):
            launcher.place_caller(bed.made.host, ["gpu-0.slice"])


@pytest.mark.parametrize(
    "later", [process_files(CALLER, "1000 1000 1000 1000", start=9), process_files(CALLER, "0 0 0 0"), {}]
)
def test_nor_what_has_its_number_when_the_lock_is_free(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, later: Mapping[str, str]
) -> None:
    files = bed.made.host.files
    monkeypatch.setattr(os, "getppid", lambda: CALLER)
    monkeypatch.setenv("PKEXEC_UID", "1000")
    build(bed.made.root, process_files(CALLER, "1000 1000 1000 1000"))
    locked = []

    def lock(path: str, timeout: float) -> Any:
        locked.append(path)
        if path == LOCK:
            shutil.rmtree(bed.made.root / f"proc/{CALLER}")
            build(bed.made.root, later)
        return contextlib.nullcontext()

    monkeypatch.setattr(files, "lock", lock)
    with pytest.raises(NotPermitted, match="the calling process does not belong to the user who asks"):
        launcher.place_caller(bed.made.host, ["gpu-0.slice"])
    assert locked == [launcher.QUEUE, LOCK]
    assert all(call[0] != "busctl" for call in bed.made.host.commands.calls)


def test_nor_can_its_user_stop_it_while_it_has_the_lock(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getppid", lambda: CALLER)
    monkeypatch.setenv("PKEXEC_UID", "1000")
    build(bed.made.root, process_files(CALLER, "1000 1000 1000 1000"))
    ignored = []

    def lock(path: str, timeout: float) -> Any:
        ignored.append([signal.getsignal(number) is signal.SIG_IGN for number in launcher.STOPS])
        return contextlib.nullcontext()

    monkeypatch.setattr(bed.made.host.files, "lock", lock)
    before = [signal.getsignal(number) for number in launcher.STOPS]
    assert launcher.place_caller(bed.made.host, ["gpu-0.slice"]) == 0
    assert ignored == [[True, True, True]] * 2
    assert [signal.getsignal(number) for number in launcher.STOPS] == before


@pytest.mark.parametrize("name", ["system.slice", "gpu-7.slice", "../gpu-0.slice", "gpu-0.slice Slice"])
def test_nor_into_anything_but_a_slice_of_ours(bed: Bed, name: str) -> None:
    with pytest.raises(DeclarationError, match="it is not a slice of gpu_slices"):
        launcher.place(bed.made.host, [name], process=1)


def test_while_a_run_changes_the_node_nothing_is_started(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launcher, "LOCK_SECONDS", 0.0)
    with bed.made.host.files.lock("/run/gpufleet/lock", 0.0), pytest.raises(NotPermitted) as caught:
        launcher.place(bed.made.host, ["gpu-0.slice"], process=1)
    assert "another run is changing this node" in str(caught.value)
