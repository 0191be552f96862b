# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How the layout of GPUs is changed: what stays, what comes back when something goes wrong, and what is reset."""

from __future__ import annotations

import json
import os
import signal
import time
from types import FrameType
from typing import Any, Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    CannotLook,
    GpuFleetError,
    InUse,
    NotInEffect,
    Refused,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._machine.boot_id import BOOT_ID
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.driver import Gpu
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.errors import DriverHangs
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout import (
    apply,
    busy,
    consumers,
    driver_apply,
    transaction,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.actions import (
    ResetGroup,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.model import (
    Compute,
    Instance,
    Layout,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.records import INTERRUPTED_RUN, NOTIFIED
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.transaction import (
    Record,
    Snapshot,
    TargetLayout,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_machine import (
    A100,
    ALL_SMALL,
    FOUR,
    H100,
    LINKED_A100,
    MIXED,
    ONE,
    SEVEN,
    THREE,
    Systemctl,
    divided,
    layout_of,
    mode_of,
    numbers_of,
    nvidia_smi,
    repartition,
    whole,
    work,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.nvidia_persistence.persistence_machine import (
    UPSTREAM,
    MakePersistenceMachine,
)
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import FABRIC_MANAGER, GpuMachine, MakeMachine
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_machine import forked
from ansible_collections.gpufleet.node.tests.unit.support import AT_ONCE_SECONDS, STATUS_OF_ROOT

pytestmark = pytest.mark.once

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.concerns.nvidia_persistence.persistence_machine",)

UNKNOWN = "NVML_ERROR_UNKNOWN"
# A 3g whose slices are shared, and one that has none.
SHARED: Layout = (Instance(0, THREE, (Compute(0, 1), Compute(1, 1))), whole(4, THREE))
ORPHAN: Layout = (Instance(0, THREE, ()), whole(4, THREE))


def bring(machine: GpuMachine, target: Layout, *indices: int, reset: bool = False, mig: bool = True) -> None:
    works = [work(machine, index, mig=mig, target=target) for index in indices or (0,)]
    repartition(machine, *(ResetGroup((one,), reset=reset) for one in works))


def symbols(machine: GpuMachine) -> List[str]:
    return [symbol for symbol, _result in machine.log()]


def pci_of(machine: GpuMachine, index: int) -> str:
    return work(machine, index).pci_address


def systemctl_of(machine: GpuMachine) -> Systemctl:
    systemctl = machine.host.commands.programs["systemctl"]
    assert isinstance(systemctl, Systemctl)
    return systemctl


def interrupted_run(machine: GpuMachine) -> bool:
    return bool(machine.host.files.exists(INTERRUPTED_RUN))


def write(machine: GpuMachine, path: str, text: str) -> None:
    target = machine.root / path.lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)


def start_process(machine: GpuMachine, pid: int, command: str) -> None:
    """A process of the machine, which has no GPU open."""
    write(machine, f"/proc/{pid}/comm", f"{command[:15]}\n")
    write(machine, f"/proc/{pid}/status", STATUS_OF_ROOT)
    write(machine, f"/proc/{pid}/cgroup", "0::/\n")
    write(machine, f"/proc/{pid}/stat", f"{pid} ({command[:15]}) S 1 {' '.join(['0'] * 17)} 4711 0\n")


def monitor(machine: GpuMachine, pid: int) -> None:
    """A process that merely has the first GPU open."""
    start_process(machine, pid, "nvtop")
    link = machine.root / f"proc/{pid}/fd/3"
    link.parent.mkdir()
    link.symlink_to("/dev/nvidia0")


def journal_of(machine: GpuMachine, monkeypatch: pytest.MonkeyPatch) -> List[Tuple[str, Mapping[str, str]]]:
    """The lines from now on with their fields."""
    lines: List[Tuple[str, Mapping[str, str]]] = []
    monkeypatch.setattr(machine.host, "journal", lambda message, fields: lines.append((message, fields)))
    return lines


# --- instances --------------------------------------------------------------------------------------------------------


def test_a_gpu_gets_exactly_the_layout_that_is_wanted_and_only_what_differs_is_touched(
    gpu_machine: MakeMachine,
) -> None:
    machine = divided(gpu_machine, layouts={0: ALL_SMALL, 1: MIXED})
    big = (whole(0, FOUR), whole(4, THREE))
    way = [ALL_SMALL, MIXED, SHARED, ORPHAN, MIXED, big, SHARED, (), (whole(0, SEVEN),), ORPHAN, SHARED, big, ALL_SMALL]
    for before, after in zip(way, way[1:]):
        machine.clear_logs()
        bring(machine, after)
        assert layout_of(machine) == after
        kept = {(one.start, one.profile) for one in before} & {(one.start, one.profile) for one in after}
        assert symbols(machine).count("nvmlGpuInstanceDestroy") == len(before) - len(kept)
        assert symbols(machine).count("nvmlDeviceCreateGpuInstanceWithPlacement") == len(after) - len(kept)
    assert layout_of(machine, 1) == MIXED
    assert not interrupted_run(machine)


def test_a_layout_that_is_there_takes_no_call_that_changes(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, layouts={0: MIXED})
    bring(machine, MIXED)
    assert machine.log() == []


def test_what_stays_keeps_its_number_and_who_uses_it(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, layouts={0: ALL_SMALL})
    before = numbers_of(machine)
    for start in (0, 1):
        machine.sim("add-client", 0, "--gi", before[start, ONE], "--ci", 0, "--name", f"job{start}")
    bring(machine, MIXED)
    assert layout_of(machine) == MIXED
    after = numbers_of(machine)
    assert [after[start, ONE] for start in (0, 1)] == [before[start, ONE] for start in (0, 1)]
    assert [client["name"] for client in machine.describe()["clients"]] == ["job0", "job1"]
    bring(machine, ALL_SMALL)
    assert layout_of(machine) == ALL_SMALL


def test_what_somebody_uses_is_not_taken_away_and_nothing_else_either(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, layouts={0: ALL_SMALL})
    before = machine.gpu(0)["instances"]
    machine.sim("add-client", 0, "--gi", numbers_of(machine)[4, ONE], "--ci", 0, "--pid", 4711, "--name", "train")
    monitor(machine, 4712)
    with pytest.raises(InUse) as caught:
        bring(machine, MIXED)
    assert str(caught.value) == (
        "Cannot destroy the compute instance 1c@0 of 1g.10gb@4 on gpu0: the driver reports that it is in use. "
        "Stop what uses it, and run again. train (pid 4711) uses 1g.10gb@4 of gpu0. gpu0 has its previous layout "
        "again: 1g.10gb@0-6."
    )
    assert caught.value.hint == (
        "stop what uses it, and run again; train (pid 4711) uses 1g.10gb@4 of gpu0; gpu0 has its previous layout "
        "again: 1g.10gb@0-6"
    )
    assert layout_of(machine) == ALL_SMALL
    unused = [one for one in before if one["placement"]["start"] in (0, 1, 4, 5, 6)]
    assert [one for one in machine.gpu(0)["instances"] if one in unused] == unused
    assert not interrupted_run(machine)


def test_an_older_driver_that_places_no_compute_instances_gets_the_same_layout(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, A100, "--driver", "520.61.05", files=FABRIC_MANAGER)
    machine.sim("set", 0, "mig=1", "mig_pending=1")
    bring(machine, (Instance(0, THREE, (Compute(0, 2), Compute(2, 1))), whole(4, THREE)))
    assert layout_of(machine) == (Instance(0, THREE, (Compute(0, 2), Compute(2, 1))), whole(4, THREE))
    assert "nvmlGpuInstanceCreateComputeInstance" in symbols(machine)
    # There the driver chooses the first place, which is not the one that is wanted.
    with pytest.raises(NotInEffect) as caught:
        bring(machine, (Instance(0, THREE, (Compute(0, 2), Compute(2, 1))), Instance(4, THREE, (Compute(2, 1),))))
    assert (caught.value.found, caught.value.wanted) == (
        "3g.40gb@0[2c@0 1c@2] 3g.40gb@4[1c@0]",
        "3g.40gb@0[2c@0 1c@2] 3g.40gb@4[1c@2]",
    )
    assert layout_of(machine) == (Instance(0, THREE, (Compute(0, 2), Compute(2, 1))), whole(4, THREE))


def test_a_driver_too_old_to_tell_placements_is_refused(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, A100, "--driver", "450.80.02", files=FABRIC_MANAGER)
    machine.sim("set", 0, "mig=1", "mig_pending=1")
    with pytest.raises(
        Refused, match="Cannot create profile 19 on gpu0: the driver does not report where that may lie"
    ):
        bring(machine, ALL_SMALL)
    assert layout_of(machine) == ()


def test_groups_after_the_one_that_failed_are_not_touched(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, layouts={0: ALL_SMALL, 1: ALL_SMALL, 2: ALL_SMALL})
    machine.sim("add-client", 1, "--gi", numbers_of(machine, 1)[4, ONE], "--ci", 0)
    with pytest.raises(InUse, match=r"gpu1 has its previous layout again: 1g\.10gb@0-6\."):
        bring(machine, MIXED, 0, 1, 2)
    assert [layout_of(machine, index) for index in range(3)] == [MIXED, ALL_SMALL, ALL_SMALL]


# --- faults -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [MIXED, SHARED], ids=["mixed", "shared"])
def test_a_call_that_fails_leaves_the_old_layout_whichever_it_is(gpu_machine: MakeMachine, target: Layout) -> None:
    machine = divided(gpu_machine, layouts={0: ALL_SMALL})
    bring(machine, target)
    calls = len(machine.log())
    assert calls > 10
    bring(machine, ALL_SMALL)
    group = ResetGroup((work(machine, target=target),))
    for number in range(1, calls + 1):
        machine.sim("fail", "--nth-change", number, UNKNOWN)
        with pytest.raises(Refused, match=r"gpu0 has its previous layout again: 1g\.10gb@0-6"):
            repartition(machine, group)
        assert layout_of(machine) == ALL_SMALL, number
        assert not interrupted_run(machine)


def test_a_layout_that_cannot_be_restored_is_told_as_it_is(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, layouts={0: ALL_SMALL})
    machine.sim("fail", "nvmlDeviceCreateGpuInstanceWithPlacement", UNKNOWN, 0)
    with pytest.raises(Refused) as caught:
        bring(machine, MIXED)
    assert str(caught.value).startswith("Cannot create 2g.20gb@2 on gpu0: the driver returned unknown error (999).")
    assert "gpu0 could not be restored: Cannot create 1g.10gb@2 on gpu0: the driver returned " in str(caught.value)
    assert str(caught.value).endswith("; it now has 1g.10gb@0-1.")
    assert layout_of(machine) == (whole(0, ONE), whole(1, ONE))
    assert machine.host.journal_lines[-1].startswith("mig_layout: gpu0 could not be restored: ")


def test_a_gpu_that_is_not_what_the_driver_said_is_restored(
    gpu_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = divided(gpu_machine, layouts={0: (whole(0, THREE),)})
    real = driver_apply._call

    def swallow(gpu: Gpu, goal: str, function: str, *arguments: Any) -> Any:
        return None if function.startswith("nvmlDeviceCreate") else real(gpu, goal, function, *arguments)

    monkeypatch.setattr(driver_apply, "_call", swallow)
    with pytest.raises(NotInEffect, match=r"found 3g\.40gb@0, wanted 3g\.40gb@0 3g\.40gb@4\[\]") as caught:
        repartition(machine, ResetGroup((work(machine, target=(whole(0, THREE), whole(4, THREE))),)), patched=True)
    assert "gpu0 has its previous layout again: 3g.40gb@0." in str(caught.value)


def test_a_driver_that_hangs_is_not_asked_again(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, layouts={0: ALL_SMALL})
    machine.sim("hang", "nvmlGpuInstanceDestroy")
    started = time.monotonic()
    with pytest.raises(DriverHangs, match="gpu0 may have any layout now: the driver does not respond") as caught:
        repartition(machine, ResetGroup((work(machine, target=MIXED),)), deadline=2.0)
    assert time.monotonic() - started < AT_ONCE_SECONDS
    assert str(caught.value).count("it did not respond within 2 s") == 1
    # What it still has to bring back is there for the next run.
    assert interrupted_run(machine)
    machine.sim("heal")
    bring(machine, MIXED)
    assert layout_of(machine) == MIXED
    assert not interrupted_run(machine)


class Late(Exception):
    """As the deadline of a concern at boot: an error that is none of ours."""


def test_a_deadline_in_the_middle_restores_and_goes_on(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, layouts={0: ALL_SMALL})
    machine.sim("hang", "nvmlGpuInstanceDestroy", 1)

    def ring(_number: int, _frame: Optional[FrameType]) -> None:
        machine.sim("heal")
        raise Late

    former = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 1.0)
        with pytest.raises(Late):
            bring(machine, MIXED)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
    assert layout_of(machine) == ALL_SMALL
    assert machine.host.journal_lines == ["mig_layout: gpu0 has its previous layout again: 1g.10gb@0-6"]
    assert not interrupted_run(machine)


def test_a_deadline_while_something_is_brought_back_does_not_keep_services_down(
    gpu_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = divided(gpu_machine, A100, units=["dcgm.service"], persistence=True, files=FABRIC_MANAGER)
    real, calls = apply._set_persistence, []

    def late_at_the_end(host: Any, before: Mapping[str, Snapshot]) -> None:
        calls.append(before)
        if len(calls) == 2:
            raise Late
        real(host, before)

    monkeypatch.setattr(apply, "_set_persistence", late_at_the_end)
    with pytest.raises(Late):
        repartition(machine, ResetGroup((work(machine, target=MIXED),), reset=True), stop_services=["dcgm.service"])
    assert systemctl_of(machine).active == {"dcgm.service"}
    assert layout_of(machine) == MIXED
    assert not interrupted_run(machine)


def test_a_deadline_during_the_restoration_is_told_in_the_journal_and_services_run(
    gpu_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = divided(gpu_machine, A100, units=["dcgm.service"], files=FABRIC_MANAGER)
    machine.sim("fail", "nvmlDeviceCreateGpuInstanceWithPlacement", UNKNOWN)
    real, calls = apply._switched, []

    def late_at_the_restoration(host: Any, group: ResetGroup) -> Any:
        calls.append(group)
        if len(calls) == 2:
            raise Late
        return real(host, group)

    monkeypatch.setattr(apply, "_switched", late_at_the_restoration)
    with pytest.raises(Late):
        repartition(machine, ResetGroup((work(machine, target=MIXED),), reset=True), stop_services=["dcgm.service"])
    told = "mig_layout: gpu0 may have any layout now: its restoration was interrupted"
    assert told in machine.host.journal_lines
    assert systemctl_of(machine).active == {"dcgm.service"}


def test_a_gpu_that_is_lost_meanwhile_does_not_have_its_layout_of_before(
    gpu_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = divided(gpu_machine)
    real = apply._bring

    def lose_it(*arguments: Any) -> None:
        real(*arguments)
        machine.sim("fail", "nvmlDeviceGetMigMode", UNKNOWN, 0)
        raise Refused("go on", cause="the test says so")

    monkeypatch.setattr(apply, "_bring", lose_it)
    with pytest.raises(Refused, match="gpu0 could not be restored: "):
        bring(machine, MIXED)


# --- MIG mode ---------------------------------------------------------------------------------------------------------


def test_mig_mode_of_a_hopper_changes_at_once_with_other_clients_there(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, persistence=True)
    machine.sim("add-client", 0, "--kind", "monitor")
    bring(machine, MIXED)
    assert (mode_of(machine), layout_of(machine)) == ((True, True), MIXED)
    assert "nvmlDeviceSetPersistenceMode" not in symbols(machine)
    bring(machine, (), mig=False)
    assert (mode_of(machine), layout_of(machine)) == ((False, False), ())
    assert machine.host.commands.calls == []


def test_mig_mode_alone_leaves_the_instances_alone(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, layouts={0: MIXED})
    repartition(machine, ResetGroup((work(machine, 0),)), ResetGroup((work(machine, 1),)))
    assert (layout_of(machine), mode_of(machine, 1), layout_of(machine, 1)) == (MIXED, (True, True), ())


def test_a_hopper_that_computes_keeps_its_mode(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine)
    for pid in range(4711, 4717):
        machine.sim("add-client", 0, "--kind", "compute", "--pid", pid, "--name", "train")
    monitor(machine, 4710)
    with pytest.raises(InUse) as caught:
        bring(machine, MIXED)
    assert str(caught.value) == (
        "Cannot enable MIG mode on gpu0: the driver keeps it pending, because the GPU is in use. Stop what uses it, "
        "and run again. train (pid 4711) uses gpu0, train (pid 4712) uses gpu0, train (pid 4713) uses gpu0, train "
        "(pid 4714) uses gpu0, and 2 more. gpu0 has its previous layout again: MIG mode disabled."
    )
    assert mode_of(machine) == (False, False)


def test_who_cannot_be_found_changes_nothing_about_the_error(
    gpu_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = divided(gpu_machine)
    machine.sim("add-client", 0, "--kind", "compute", "--pid", 4711, "--name", "train")

    def fail(*_arguments: Any, **_options: Any) -> NoReturn:
        raise CannotLook("look", cause="nobody tells")

    monkeypatch.setattr(busy, "find", fail)
    with pytest.raises(InUse) as caught:
        bring(machine, MIXED)
    assert str(caught.value) == (
        "Cannot enable MIG mode on gpu0: the driver keeps it pending, because the GPU is in use. Stop what uses it, "
        "and run again. gpu0 has its previous layout again: MIG mode disabled."
    )


def test_a_mode_that_only_a_reset_would_bring_is_not_laid_at_somebodys_door(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, LINKED_A100)
    with pytest.raises(Refused) as caught:
        bring(machine, MIXED)
    assert str(caught.value) == (
        "Cannot enable MIG mode on gpu0: the driver returned gpu requires restart (16), and keeps it pending. Reset "
        "the GPU while it is idle, or reboot the node. gpu0 has its previous layout again: MIG mode disabled."
    )
    assert mode_of(machine) == (False, False)


def test_an_ampere_that_nobody_has_open_changes_at_once(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, A100, persistence=True, files=FABRIC_MANAGER)
    bring(machine, MIXED, reset=True)
    assert (mode_of(machine), layout_of(machine)) == ((True, True), MIXED)
    # The flag went with the reset, and came back before there were instances to lose.
    assert machine.gpu(0)["persistence"] == 1
    assert symbols(machine)[:3] == [
        "nvmlDeviceSetPersistenceMode",
        "nvmlDeviceSetMigMode",
        "nvmlDeviceSetPersistenceMode",
    ]
    assert machine.host.commands.calls == []
    bring(machine, (), mig=False, reset=True)
    assert (mode_of(machine), machine.gpu(0)["persistence"]) == ((False, False), 1)


def test_an_ampere_that_the_daemon_holds_is_let_go_and_held_again(persistence_machine: MakePersistenceMachine) -> None:
    machine = persistence_machine(A100, unit=UPSTREAM, files=FABRIC_MANAGER).machine
    machine.host.commands.programs["nvidia-smi"] = nvidia_smi(machine)
    held = [gpu["daemon_pid"] for gpu in machine.describe()["gpus"]]
    assert all(held)
    bring(machine, MIXED, reset=True)
    assert (mode_of(machine), layout_of(machine)) == ((True, True), MIXED)
    assert [gpu["daemon_pid"] for gpu in machine.describe()["gpus"]] == held
    bring(machine, (), mig=False, reset=True)
    assert mode_of(machine) == (False, False)
    assert [gpu["daemon_pid"] for gpu in machine.describe()["gpus"]] == held


def test_a_mode_that_stays_pending_is_activated_by_a_reset_of_that_gpu_alone(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, A100, layouts={1: MIXED}, files=FABRIC_MANAGER)
    machine.sim("set", 0, "mig_busy=1")
    bring(machine, ALL_SMALL, reset=True)
    assert (mode_of(machine), layout_of(machine)) == ((True, True), ALL_SMALL)
    assert layout_of(machine, 1) == MIXED
    (call,) = machine.host.commands.calls
    assert call == ("nvidia-smi", "--gpu-reset", "-i", pci_of(machine, 0))


def test_linked_gpus_are_reset_together_and_the_others_have_their_instances_again(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, LINKED_A100, layouts={1: MIXED}, persistence=True)
    works = [work(machine, 0, target=ALL_SMALL), work(machine, 1, target=MIXED)]
    works += [work(machine, index, mig=False) for index in (2, 3)]
    repartition(machine, ResetGroup(tuple(works), reset=True))
    assert [mode_of(machine, index)[0] for index in range(4)] == [True, True, False, False]
    assert (layout_of(machine), layout_of(machine, 1)) == (ALL_SMALL, MIXED)
    assert [gpu["persistence"] for gpu in machine.describe()["gpus"]] == [1, 1, 1, 1]
    (call,) = machine.host.commands.calls
    assert call[-1] == ",".join(pci_of(machine, index) for index in range(4))


def test_linked_gpus_that_the_daemon_holds_are_all_let_go_for_the_reset(
    persistence_machine: MakePersistenceMachine,
) -> None:
    machine = persistence_machine(LINKED_A100, unit=UPSTREAM).machine
    machine.host.commands.programs["nvidia-smi"] = nvidia_smi(machine)
    held = [gpu["daemon_pid"] for gpu in machine.describe()["gpus"]]
    works = [work(machine, 0, target=MIXED), *(work(machine, index, mig=False) for index in (1, 2, 3))]
    repartition(machine, ResetGroup(tuple(works), reset=True))
    assert [mode_of(machine, index)[0] for index in range(4)] == [True, False, False, False]
    assert layout_of(machine) == MIXED
    assert [call[0] for call in machine.host.commands.calls][-1] == "nvidia-smi"
    assert [gpu["daemon_pid"] for gpu in machine.describe()["gpus"]] == held
    assert all(held)


@pytest.mark.parametrize("mig", [True, False], ids=["on", "off"])
def test_a_reset_that_is_refused_leaves_mode_layout_and_persistence(gpu_machine: MakeMachine, mig: bool) -> None:
    machine = divided(gpu_machine, A100, layouts={} if mig else {0: MIXED}, persistence=True, files=FABRIC_MANAGER)
    machine.sim("add-client", 0, "--kind", "monitor", "--name", "dcgm")
    with pytest.raises(Refused, match="Cannot reset gpu0: nvidia-smi ended with status 255: ") as caught:
        bring(machine, MIXED if mig else (), mig=mig, reset=True)
    what = "MIG mode disabled" if mig else "1g.10gb@0-1 2g.20gb@2 3g.40gb@4"
    assert str(caught.value).endswith(f"gpu0 has its previous layout again: {what}.")
    assert "Stop what has these GPUs open, or name its service in stop_services." in str(caught.value)
    assert mode_of(machine) == (not mig, not mig)
    assert layout_of(machine) == (() if mig else MIXED)
    assert machine.gpu(0)["persistence"] == 1
    assert not interrupted_run(machine)


def test_without_nvidia_smi_there_is_no_reset(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, A100, files=FABRIC_MANAGER)
    del machine.host.commands.programs["nvidia-smi"]
    machine.sim("set", 0, "mig_busy=1")
    with pytest.raises(Refused) as caught:
        bring(machine, MIXED, reset=True)
    assert str(caught.value) == (
        "Cannot reset gpu0: there is no nvidia-smi on this node, and GPUs cannot be reset without it. Install the "
        "driver package that has it, or reboot the node. gpu0 has its previous layout again: MIG mode disabled."
    )
    assert mode_of(machine) == (False, False)


def test_who_has_a_gpu_open_that_is_not_reset_for_it_is_named(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, A100, files=FABRIC_MANAGER)
    machine.sim("add-client", 0, "--kind", "monitor")
    monitor(machine, 4711)
    with pytest.raises(Refused) as caught:
        bring(machine, MIXED, reset=True)
    assert " nvtop (pid 4711) uses gpu0. gpu0 has its previous layout again" in str(caught.value)


def test_a_reset_that_does_not_end_is_told_so(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, A100, files=FABRIC_MANAGER)
    machine.sim("set", 0, "mig_busy=1")
    machine.host.commands.programs["nvidia-smi"] = lambda _argv: Completed(124, "", "")
    with pytest.raises(Refused) as caught:
        bring(machine, MIXED, reset=True)
    assert str(caught.value) == (
        "Cannot reset gpu0: nvidia-smi did not end within 120 s. Check the kernel log for NVRM; the node "
        "may need a reboot. gpu0 has its previous layout again: MIG mode disabled."
    )


def test_what_a_reset_takes_is_in_the_journal(gpu_machine: MakeMachine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = divided(gpu_machine, A100, units=["dcgm.service"], persistence=True, files=FABRIC_MANAGER)
    machine.sim("set", 0, "mig_busy=1")
    lines = journal_of(machine, monkeypatch)
    repartition(machine, ResetGroup((work(machine, target=MIXED),), reset=True), stop_services=["dcgm.service"])
    assert [message for message, _fields in lines] == [
        "mig_layout: dcgm.service was stopped",
        "mig_layout: gpu0 persistence_mode: enabled -> disabled",
        "mig_layout: gpu0 was reset",
        "mig_layout: gpu0 persistence_mode: disabled -> enabled",
        "mig_layout: dcgm.service was started",
    ]
    assert all(fields["GPUFLEET_CONCERN"] == "mig_layout" for _message, fields in lines)
    assert lines[1][1] == {
        "GPUFLEET_CONCERN": "mig_layout",
        "GPUFLEET_OBJECT": "gpu0",
        "GPUFLEET_SETTING": "persistence_mode",
        "GPUFLEET_BEFORE": "enabled",
        "GPUFLEET_AFTER": "disabled",
    }
    assert [fields["GPUFLEET_OBJECT"] for _message, fields in lines] == ["dcgm.service", *["gpu0"] * 3, "dcgm.service"]


def test_a_gpu_of_a_virtual_machine_keeps_its_mode_pending_until_that_starts_anew(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, A100, files=FABRIC_MANAGER)
    machine.sim("set", 0, "passthrough=1")
    bring(machine, MIXED)
    assert (mode_of(machine), layout_of(machine)) == ((False, True), ())
    assert machine.host.commands.calls == []
    assert not interrupted_run(machine)


def test_a_pending_mode_that_is_not_wanted_is_taken_back(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, A100, layouts={0: MIXED}, files=FABRIC_MANAGER)
    machine.sim("set", 0, "mig_pending=0")
    bring(machine, MIXED)
    assert (mode_of(machine), layout_of(machine)) == ((True, True), MIXED)
    assert symbols(machine) == ["nvmlDeviceSetMigMode"]


@pytest.mark.parametrize("kind", [H100, A100])
@pytest.mark.parametrize("mig", [True, False], ids=["on", "off"])
def test_a_change_of_mode_that_fails_anywhere_leaves_the_old_state(
    gpu_machine: MakeMachine, kind: str, mig: bool
) -> None:
    files = FABRIC_MANAGER if kind == A100 else {}
    machine = divided(gpu_machine, kind, layouts={0: MIXED}, persistence=True, files=files)

    def go(on: bool) -> None:
        bring(machine, MIXED if on else (), mig=on, reset=kind == A100)

    if mig:
        go(False)
    machine.clear_logs()
    go(mig)
    calls = len(machine.log())
    assert calls >= 8
    go(not mig)
    for number in range(1, calls + 1):
        machine.sim("fail", "--nth-change", number, UNKNOWN)
        with pytest.raises(Refused, match="gpu0 has its previous layout again"):
            go(mig)
        assert layout_of(machine) == (() if mig else MIXED), number
        assert mode_of(machine) == (not mig, not mig), number
        assert machine.gpu(0)["persistence"] == 1, number
        assert not interrupted_run(machine)


# --- services ---------------------------------------------------------------------------------------------------------


def test_services_stand_still_around_a_reset_alone(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, A100, units=["dcgm.service", "nvsm.service"], files=FABRIC_MANAGER)
    names = ["dcgm.service", "nvsm.service", "gone.service"]
    repartition(machine, ResetGroup((work(machine, target=MIXED),), reset=True), stop_services=names)
    systemctl = systemctl_of(machine)
    assert systemctl.done == [
        ("stop", "dcgm.service"),
        ("stop", "nvsm.service"),
        ("start", "dcgm.service"),
        ("start", "nvsm.service"),
    ]
    systemctl.done.clear()
    repartition(machine, ResetGroup((work(machine, target=ALL_SMALL),)), stop_services=names)
    assert systemctl.done == []


def test_services_are_started_again_when_the_change_fails(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, A100, units=["dcgm.service"], files=FABRIC_MANAGER)
    machine.sim("add-client", 0, "--kind", "compute")
    with pytest.raises(Refused, match="gpu0 has its previous layout again"):
        repartition(machine, ResetGroup((work(machine, target=MIXED),), reset=True), stop_services=["dcgm.service"])
    assert systemctl_of(machine).active == {"dcgm.service"}


def test_a_service_that_does_not_start_is_an_error_after_all_else_and_tried_again(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, A100, units=["dcgm.service"], files=FABRIC_MANAGER)
    systemctl_of(machine).stuck.add("dcgm.service")
    with pytest.raises(GpuFleetError, match="Cannot start"):
        repartition(machine, ResetGroup((work(machine, target=MIXED),), reset=True), stop_services=["dcgm.service"])
    assert layout_of(machine) == MIXED
    assert transaction.interrupted_run(machine.host.files) == Record(stopped=("dcgm.service",))
    systemctl_of(machine).stuck.clear()
    repartition(machine)
    assert systemctl_of(machine).active == {"dcgm.service"}
    assert not interrupted_run(machine)


def test_a_service_that_does_not_start_hides_no_other_error(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, A100, units=["dcgm.service"], files=FABRIC_MANAGER)
    systemctl_of(machine).stuck.add("dcgm.service")
    machine.sim("add-client", 0, "--kind", "compute")
    with pytest.raises(Refused, match=r"Cannot reset gpu0: .* Cannot start dcgm"):
        repartition(machine, ResetGroup((work(machine, target=MIXED),), reset=True), stop_services=["dcgm.service"])


# --- a run that is killed ---------------------------------------------------------------------------------------------


def killed(machine: GpuMachine, *groups: ResetGroup, stop_services: Sequence[str] = ()) -> None:
    """A run in a process of its own, which does not come to its end."""

    def work_of_a_run() -> str:
        os.setpgid(0, 0)
        repartition(machine, *groups, stop_services=stop_services)
        return "it came to its end"

    status, answer = forked(work_of_a_run)
    assert (status, answer) == (-signal.SIGKILL, "")


@pytest.mark.parametrize("late", [(), ("--after-it",)], ids=["before", "after"])
def test_a_run_after_one_that_was_killed_brings_the_layout(gpu_machine: MakeMachine, late: Tuple[str, ...]) -> None:
    machine = divided(gpu_machine, layouts={0: ALL_SMALL})
    bring(machine, MIXED)
    calls = len(machine.log())
    # After a change is before the next one.
    for number in range(1 + bool(late), calls + 1, 2):
        bring(machine, ALL_SMALL)
        machine.sim("kill-at-change", number, "--group", *late)
        killed(machine, ResetGroup((work(machine, target=MIXED),)))
        left = transaction.interrupted_run(machine.host.files)
        assert left is not None
        assert left.gpus == {machine.gpu(0)["uuid"]: Snapshot(True, ALL_SMALL, False, TargetLayout(True, MIXED))}
        bring(machine, MIXED)
        assert layout_of(machine) == MIXED
        assert not interrupted_run(machine)


def test_when_that_run_fails_as_well_the_layout_of_before_both_comes_back(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, layouts={0: ALL_SMALL})
    machine.sim("kill-at-change", 8, "--group")
    killed(machine, ResetGroup((work(machine, target=MIXED),)))
    assert layout_of(machine) not in (ALL_SMALL, MIXED)
    machine.sim("fail", "nvmlDeviceCreateGpuInstanceWithPlacement", UNKNOWN)
    with pytest.raises(Refused, match=r"gpu0 has its previous layout again: 1g\.10gb@0-6"):
        bring(machine, MIXED)
    assert layout_of(machine) == ALL_SMALL


def test_what_a_killed_run_stopped_and_switched_off_comes_back(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, A100, units=["dcgm.service"], persistence=True, files=FABRIC_MANAGER)
    machine.sim("kill-at-change", 2, "--group")
    killed(machine, ResetGroup((work(machine, target=MIXED),), reset=True), stop_services=["dcgm.service"])
    assert (machine.gpu(0)["persistence"], mode_of(machine)) == (0, (False, False))
    left = transaction.interrupted_run(machine.host.files)
    known = Snapshot(False, (), True, TargetLayout(True, MIXED))
    assert left == Record({machine.gpu(0)["uuid"]: known}, ("dcgm.service",))
    # That process had a systemctl of its own, which told it that all was well.
    systemctl_of(machine).active.clear()
    repartition(machine)
    assert machine.gpu(0)["persistence"] == 1
    assert systemctl_of(machine).active == {"dcgm.service"}
    assert not interrupted_run(machine)


def test_what_a_killed_run_left_of_a_gpu_that_has_gone_is_forgotten(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, units=["dcgm.service"])
    systemctl_of(machine).active.clear()
    record = Record({"GPU-gone": Snapshot(True, (), True)}, ("dcgm.service",))
    transaction.keep(machine.host.files, record)
    repartition(machine)
    assert systemctl_of(machine).active == {"dcgm.service"}
    assert not interrupted_run(machine)
    told = "mig_layout: GPU-gone has gone, and its previous layout is dropped"
    assert machine.host.journal_lines == [told, "mig_layout: dcgm.service was started"]


# --- who must hear ----------------------------------------------------------------------------------------------------

SPECIFICATION = "/etc/cdi/nvidia.yaml"
PLUGIN = "nvidia-device-plugin"


def needs(machine: GpuMachine) -> List[str]:
    return sorted(consumer.need for consumer in consumers.stale_consumers(machine.host))


def tell_capabilities(machine: GpuMachine, *indices: int) -> None:
    """The kernel module tells the device files of whatever instance these GPUs have."""
    folder = "/proc/driver/nvidia/capabilities"
    for index in indices:
        for number in range(14):
            here, first = f"{folder}/gpu{index}/mig/gi{number}", 1000 * index + 10 * number
            write(machine, f"{here}/access", f"DeviceFileMinor: {first}\nDeviceFileMode: 292\n")
            write(machine, f"{here}/ci0/access", f"DeviceFileMinor: {first + 1}\nDeviceFileMode: 292\n")


def specification(machine: GpuMachine) -> str:
    """As nvidia-ctk writes it of what is there: GPUs that are not divided, and MIG devices."""
    devices: Dict[str, List[str]] = {}
    for index, gpu in enumerate(machine.describe()["gpus"]):
        if not gpu["mig"]:
            devices[str(index)] = [f"nvidia{index}"]
        for place, number in enumerate(sorted(numbers_of(machine, index).values())):
            first = 1000 * index + 10 * number
            caps = [f"nvidia-caps/nvidia-cap{minor}" for minor in (first, first + 1)]
            devices[f"{index}:{place}"] = [f"nvidia{index}", *caps]
    lines = ["cdiVersion: 0.5.0", "containerEdits:", "  deviceNodes:", "  - path: /dev/nvidiactl", "devices:"]
    devices["all"] = sorted({node for nodes in devices.values() for node in nodes})
    for name, nodes in devices.items():
        lines += ["- containerEdits:", "    deviceNodes:", *(f"    - path: /dev/{node}" for node in nodes)]
        lines.append(f'  name: "{name}"')
    return "\n".join([*lines, "kind: nvidia.com/gpu", ""])


def test_a_specification_of_the_instances_that_a_boot_makes_again_is_right(gpu_machine: MakeMachine) -> None:
    for kind, target in ((H100, ALL_SMALL), (H100, MIXED), (A100, MIXED)):
        machine = divided(gpu_machine, kind, layouts={0: target})
        tell_capabilities(machine, 0)
        write(machine, SPECIFICATION, specification(machine))
        start_process(machine, 4711, PLUGIN)
        machine.reboot()
        bring(machine, target)
        assert layout_of(machine) == target
        assert needs(machine) == ["device_plugin"]


@pytest.mark.parametrize("described", [None, (), ALL_SMALL], ids=["no MIG", "nothing", "other instances"])
def test_a_specification_of_anything_else_is_old_after_a_boot(
    gpu_machine: MakeMachine, described: Optional[Layout]
) -> None:
    machine = divided(gpu_machine, layouts={} if described is None else {0: described})
    tell_capabilities(machine, 0)
    write(machine, SPECIFICATION, specification(machine))
    machine.reboot()
    bring(machine, MIXED)
    assert needs(machine) == ["cdi"]
    write(machine, SPECIFICATION, specification(machine))
    assert needs(machine) == []


def test_where_the_kernel_module_tells_no_device_files_a_specification_is_old(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, layouts={0: MIXED})
    write(machine, SPECIFICATION, specification(machine))
    machine.reboot()
    bring(machine, MIXED)
    assert needs(machine) == ["cdi"]


@pytest.mark.parametrize("mig", [True, False], ids=["on", "off"])
def test_a_change_of_mode_alone_is_one_to_hear_of(gpu_machine: MakeMachine, mig: bool) -> None:
    machine = divided(gpu_machine, layouts={} if mig else {0: ()})
    tell_capabilities(machine, 0)
    write(machine, SPECIFICATION, specification(machine))
    start_process(machine, 4711, PLUGIN)
    repartition(machine, ResetGroup((work(machine, mig=mig),)))
    assert mode_of(machine) == (mig, mig)
    assert needs(machine) == ["cdi", "device_plugin"]


def test_who_starts_in_the_middle_of_a_change_must_hear_and_a_service_that_was_stopped_for_it_need_not(
    gpu_machine: MakeMachine,
) -> None:
    machine = divided(gpu_machine, A100, units=["dcgm.service"], files=FABRIC_MANAGER)
    machine.sim("set", 0, "mig_busy=1")
    smi, systemctl = nvidia_smi(machine), systemctl_of(machine)

    def reset(argv: Sequence[str]) -> Completed:
        start_process(machine, 4711, PLUGIN)
        return smi(argv)

    def start(argv: Sequence[str]) -> Completed:
        if argv[1] == "start":
            start_process(machine, 4712, "nv-hostengine")
        return systemctl(argv)

    machine.host.commands.programs.update({"nvidia-smi": reset, "systemctl": start})
    repartition(machine, ResetGroup((work(machine, target=MIXED),), reset=True), stop_services=["dcgm.service"])
    assert needs(machine) == ["device_plugin"]


def test_a_change_that_ends_where_it_began_gives_nobody_anything_to_hear(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine)
    start_process(machine, 4711, PLUGIN)
    machine.sim("add-client", 0, "--kind", "compute")
    with pytest.raises(InUse):
        bring(machine, MIXED)
    assert needs(machine) == []
    assert not machine.host.files.exists(NOTIFIED)


# --- the record -------------------------------------------------------------------------------------------------------


def test_the_record_says_what_it_was_told(gpu_machine: MakeMachine) -> None:
    files = gpu_machine().host.files
    write(gpu_machine(), BOOT_ID, "this-boot\n")
    moving = Snapshot(False, (), True, TargetLayout(True, SHARED))
    record = Record(
        {"GPU-1": Snapshot(True, SHARED, None, TargetLayout(False, None)), "GPU-2": moving}, ("dcgm.service",)
    )
    transaction.keep(files, record)
    assert transaction.interrupted_run(files) == record
    assert json.loads(files.read(INTERRUPTED_RUN)) == {
        "schema": 1,
        "boot": "this-boot",
        "gpus": {
            "GPU-1": {
                "mig": True,
                "instances": "9@0[1c@0-1] 9@4[3c@0]",
                "persistence": None,
                "to": {"mig": False, "instances": None},
            },
            "GPU-2": {
                "mig": False,
                "instances": "none",
                "persistence": True,
                "to": {"mig": True, "instances": "9@0[1c@0-1] 9@4[3c@0]"},
            },
        },
        "stopped": ["dcgm.service"],
    }
    # As a boot leaves it: no instances, no persistence mode, and the units that are to start.
    files.write_attribute(BOOT_ID, "next-boot\n")
    assert transaction.interrupted_run(files) == Record(
        {
            "GPU-1": Snapshot(True, None, None, TargetLayout(False, None)),
            "GPU-2": Snapshot(False, None, None, TargetLayout(True, SHARED)),
        },
        rebooted=True,
    )
    transaction.keep(files, Record())
    assert transaction.interrupted_run(files) is None
    assert not files.exists(INTERRUPTED_RUN)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"schema": 2, "gpus": {}, "stopped": []}',
        '{"schema": 1, "gpus": {}, "stopped": []}',
        '{"schema": 1, "boot": "", "gpus": {"GPU-1": {"mig": 1, "instances": "none", "persistence": null}}, '
        '"stopped": []}',
        '{"schema": 1, "boot": "", "gpus": {"GPU-1": {"mig": true, "instances": "3g@x", "persistence": null}}, '
        '"stopped": []}',
        '{"schema": 1, "boot": "", "gpus": {"GPU-1": {"mig": true, "instances": "none", "persistence": null, '
        '"to": {"mig": null, "instances": null}}}, "stopped": []}',
    ],
)
def test_a_damaged_record_stays_and_nothing_is_changed(gpu_machine: MakeMachine, text: str) -> None:
    machine = divided(gpu_machine, layouts={0: ALL_SMALL}, files={INTERRUPTED_RUN: text})
    with pytest.raises(CannotLook, match=f"an interrupted run left in {INTERRUPTED_RUN}: the file is damaged: "):
        bring(machine, MIXED)
    assert (layout_of(machine), machine.host.files.read(INTERRUPTED_RUN)) == (ALL_SMALL, text)
