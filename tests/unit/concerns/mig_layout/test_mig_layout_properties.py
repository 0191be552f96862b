# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``mig_layout`` against random layouts, jobs, faults and kills, on every kind of GPU with MIG.

What a run should come to is what ``test_mig_solver`` finds among all layouts that there are.
"""

from __future__ import annotations

import json
import os
import random
import signal
from collections import Counter
from ctypes import byref
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import InUse
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.driver import Driver
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.model import (
    Compute,
    Geometry,
    Instance,
    Layout,
    WantedInstance,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.records import INTERRUPTED_RUN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.satisfied import satisfied
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.text import layout_text
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_cases import (
    Case,
    every_division,
    every_target,
    held,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_layout_machine import (
    declared,
    devices,
    ready,
    run,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_machine import (
    A100,
    H100,
    LINKED_A100,
    MIXED,
    layout_in,
    layout_of,
    mode_of,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_tables import geometries
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.saved_machine import SERVICE, Saved
from ansible_collections.gpufleet.node.tests.unit.concerns.nvidia_persistence.persistence_machine import (
    UPSTREAM,
    MakePersistenceMachine,
)
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import FABRIC_MANAGER, GpuMachine, MakeMachine
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_machine import forked

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.concerns.nvidia_persistence.persistence_machine",)
pytestmark = pytest.mark.once

A30 = "a30-4"
GB200 = "gb200-4"
# What the GPUs of a machine can be divided into, by its name. The last one does not ship: see ``kind_of``.
RTX = "rtx-pro-6000"
KINDS = {
    H100: "h100-80",
    A100: "a100-80",
    LINKED_A100: "a100-40",
    A30: "a30",
    "hgx-h200-141gb-8": "h200-141",
    "hgx-b200-8": "b200-180",
    GB200: "gb200",
    RTX: "rtx-pro-6000",
}
CODES = ("UNKNOWN", "IN_USE", "INSUFFICIENT_RESOURCES", "INVALID_ARGUMENT", "NOT_SUPPORTED", "GPU_IS_LOST", "TIMEOUT")
DESTROYS = ("nvmlGpuInstanceDestroy", "nvmlComputeInstanceDestroy")
CREATES = ("nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceCreateComputeInstanceWithPlacement")


def kind_of(name: str, folder: Path) -> str:
    """The machine for ``nvml-sim create``; one of RTX GPUs is described in ``folder``."""
    if name != RTX:
        return name
    gpus = [{"model": "rtx-pro-6000-96gb", "pci": f"0000:{bus}:00.0", "node": 0} for bus in ("17", "3d", "60", "70")]
    description = {"driver": "580.65.06", "nodes": {"0": "0-15"}, "sockets": [[0]], "gpus": gpus}
    path = folder / "rtx.json"
    path.write_text(json.dumps(description))
    return str(path)


# --- machines ---------------------------------------------------------------------------------------------------------


def divide_all(driver: Driver, layouts: Mapping[int, Layout], sizes: Mapping[int, int]) -> None:
    """A question: make these instances, by the index of their GPU. ``sizes`` are memory slices by profile."""
    nvml = driver.nvml
    for index, layout in layouts.items():
        for one in layout:
            place = byref(nvml.c_nvmlGpuInstancePlacement_t(one.start, sizes[one.profile]))
            gpu = driver.gpus()[index].handle
            instance = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, one.profile, place)
            for part in one.compute:
                number = (1, 2, 3, 4, 7).index(part.slices)
                inside = byref(nvml.c_nvmlComputeInstancePlacement_t(part.start, part.slices))
                nvml.nvmlGpuInstanceCreateComputeInstanceWithPlacement(instance, number, inside)


def divided(
    make: MakeMachine, kind: str, geometry: Geometry, layouts: Mapping[int, Layout], **options: Any
) -> GpuMachine:
    """A machine whose GPUs have MIG mode on where they have a layout here, and no call behind them."""
    machine = ready(make, kind, **options)
    machine.host.commands.programs["nvidia-smi"] = lambda argv: Completed(*machine.simulated.smi(*argv[1:]))
    for index in layouts:
        machine.sim("set", index, "mig=1", "mig_pending=1")
    machine.host.nvml.ask(divide_all, dict(layouts), {one.number: one.size for one in geometry.profiles})
    machine.host.nvml.close()
    machine.clear_logs()
    return machine


def job_on(machine: GpuMachine, index: int, case: Case) -> None:
    """A job on everything of a GPU that is busy in this case."""
    for instance in machine.gpu(index)["instances"]:
        for part in instance["compute_instances"]:
            if part["placement"]["start"] in case.busy.get(instance["placement"]["start"], ()):
                name = f"job{index}-{instance['placement']['start']}"
                machine.sim("add-client", index, "--gi", instance["id"], "--ci", part["id"], "--name", name)


def entry_of(index: int, wanted: Sequence[WantedInstance]) -> Dict[str, Any]:
    """The declaration of what is wanted of one GPU, every element in full."""
    return {
        "match": {"index": index},
        "instances": [
            {
                "profile": one.profile,
                "placement": one.start,
                "compute_instances": [{"profile": f"{c.slices}c", "placement": c.start} for c in one.compute],
            }
            for one in wanted
        ],
    }


def device_names(geometry: Geometry, layout: Layout) -> List[str]:
    """What a client calls the MIG devices of a layout."""
    found = []
    for one in layout:
        profile = geometry.profile(one.profile)
        assert profile is not None
        for part in one.compute:
            found.append(profile.name if part.slices == profile.slices else f"{part.slices}c.{profile.name}")
    return sorted(found)


def fewest_calls(before: Layout, after: Layout) -> Dict[str, int]:
    """How often each function has to be called, at the least, on the way from one layout to another."""
    (old, old_parts), (new, new_parts) = held(before), held(after)
    gone, gone_parts = len(old - new), len(old_parts - new_parts)
    come, come_parts = len(new - old), len(new_parts - old_parts)
    found = zip((*DESTROYS, *CREATES), (gone, gone_parts, come, come_parts))
    return {symbol: number for symbol, number in found if number}


def calls_of(machine: GpuMachine, count: int) -> List[Dict[str, int]]:
    """The changes since ``forget``, all of which went well, for each GPU: how many of each."""
    found: List[Dict[str, int]] = [Counter() for _gpu in range(count)]
    for call in json.loads(machine.sim("log", "--changes", "--json")):
        assert call["result"] == 0
        found[call["gpu"]][call["symbol"]] += 1
    return found


# --- from any layout to any other, with jobs on some instances --------------------------------------------------------


@pytest.mark.parametrize(("name", "seed"), [*((name, 1) for name in KINDS), (H100, 2), (RTX, 2)])
def test_every_gpu_gets_what_is_declared_with_the_fewest_calls_or_names_who_is_in_the_way(
    gpu_machine: MakeMachine, tmp_path: Path, name: str, seed: int
) -> None:
    geometry = geometries()[KINDS[name]]
    count = 8 if name.endswith("-8") else 4
    cases = [Case(geometry, 100 * seed + index) for index in range(count)]
    wanted = [case.wanted() for case in cases]
    layouts = {index: case.present for index, case in enumerate(cases)}
    machine = divided(gpu_machine, kind_of(name, tmp_path), geometry, layouts)
    for index, case in enumerate(cases):
        case.preferred = ()
        case.busy = {start: starts for start, starts in case.busy.items() if starts}
        job_on(machine, index, case)
    clients = machine.describe()["clients"]
    best = [min(every_target(geometry, one), key=case.merit) for case, one in zip(cases, wanted)]
    blocked = {index for index, case in enumerate(cases) if case.merit(best[index])[0] or case.merit(best[index])[2]}
    entries = [entry_of(index, one) for index, one in enumerate(wanted)]
    machine.clear_logs()
    if blocked:
        with pytest.raises(InUse) as caught:
            run(machine, *entries)
        assert f" on {', '.join(f'gpu{index}' for index in sorted(blocked))}: " in str(caught.value)
        assert machine.log() == []

    predicted = run(machine, *entries, check_mode=True, when_busy="skip")
    assert machine.log() == []
    outcome = run(machine, *entries, when_busy="skip")
    assert outcome.error is None, outcome.error
    assert outcome.changes == predicted.changes
    assert machine.describe()["clients"] == clients
    expected = [cases[index].present if index in blocked else best[index] for index in range(count)]
    assert [layout_in(gpu) for gpu in machine.describe()["gpus"]] == expected
    assert devices(machine) == [device_names(geometry, layout) for layout in expected]
    waiting = {setting.object: setting.pending for setting in outcome.remaining.pending}
    assert set(waiting) == {f"gpu{index}" for index in blocked}
    for index in blocked:
        assert waiting[f"gpu{index}"].startswith(f"job{index}-"), waiting
    assert calls_of(machine, count) == [fewest_calls(case.present, layout) for case, layout in zip(cases, expected)]

    machine.clear_logs()
    again = run(machine, *entries, when_busy="skip")
    assert (again.changes, again.error, machine.log()) == ((), None, [])
    assert again.status == ("pending" if blocked else "in_sync")


@pytest.mark.parametrize("name", [H100, A30])
def test_all_gpus_are_restored_place_for_place_after_any_runs(gpu_machine: MakeMachine, name: str) -> None:
    geometry = geometries()[KINDS[name]]
    draw = random.Random(4)

    def case() -> Case:
        return Case(geometry, draw.randrange(1 << 30))

    machine = divided(gpu_machine, name, geometry, {index: case().present for index in range(3)})
    before = [(mode_of(machine, index), layout_of(machine, index)) for index in range(4)]
    for _time in range(2):
        entries = [entry_of(index, case().wanted()) for index in range(4) if draw.random() < 0.8]
        assert run(machine, *entries).error is None
    assert run(machine, {"match": {"index": [0, 3]}, "mig": "disabled"}).error is None
    outcome = run(machine, state="absent")
    assert outcome.error is None, outcome.error
    assert [(mode_of(machine, index), layout_of(machine, index)) for index in range(4)] == before
    assert machine.host.files.names("/var/lib/gpufleet") == ("program",)
    assert run(machine, state="absent").changes == ()


# --- a fault at every call --------------------------------------------------------------------------------------------


def pair(geometry: Geometry, seed: int) -> Tuple[Case, Tuple[WantedInstance, ...], Layout]:
    """A layout, a declaration and what it comes to, that takes a good number of calls of all kinds."""
    while True:
        case, seed = Case(geometry, seed), seed + 1
        case.preferred, case.busy = (), {}
        wanted = case.wanted()
        target = min(every_target(geometry, wanted), key=case.merit)
        now, then = held(case.present), held(target)
        lost, found = now[1] - then[1], then[1] - now[1]
        if now[0] & then[0] and len(now[0] - then[0]) > 1 and len(then[0] - now[0]) > 1 and lost and found:
            return case, wanted, target


@pytest.mark.parametrize(("name", "stride"), [(name, 1 if name in (H100, A30, RTX) else 4) for name in KINDS])
def test_a_fault_at_any_call_leaves_the_old_layout_and_says_so(
    gpu_machine: MakeMachine, tmp_path: Path, name: str, stride: int
) -> None:
    geometry = geometries()[KINDS[name]]
    case, wanted, target = pair(geometry, 7)
    machine = divided(gpu_machine, kind_of(name, tmp_path), geometry, {1: case.present})
    old = layout_text(case.present, geometry)
    calls = sum(fewest_calls(case.present, target).values())
    for nth in range(stride, calls + 1, stride):
        code = CODES[nth % len(CODES)]
        machine.sim("fail", "--nth-change", nth, f"NVML_ERROR_{code}")
        outcome = run(machine, entry_of(1, wanted))
        assert layout_of(machine, 1) == case.present, (nth, code)
        assert f"gpu1 has its previous layout again: {old}." in str(outcome.error)
        assert [change for change in outcome.changes if change.scope == "effective"] == []
        assert (declared(machine), machine.host.files.exists(INTERRUPTED_RUN)) == (None, False)
    machine.clear_logs()
    assert run(machine, entry_of(1, wanted)).error is None
    assert calls_of(machine, 2)[1] == fewest_calls(case.present, target)
    assert devices(machine)[1] == device_names(geometry, target)


@pytest.mark.parametrize("symbol", CREATES)
def test_a_layout_that_cannot_be_restored_is_told_as_it_is(gpu_machine: MakeMachine, symbol: str) -> None:
    geometry = geometries()["a30"]
    entry = {"match": {"index": 0}, "layout": "all-1g"}
    old = (Instance(0, 5, (Compute(0, 2),)), Instance(2, 5, (Compute(0, 2),)))
    machine = divided(gpu_machine, A30, geometry, {0: old}, files=FABRIC_MANAGER)
    saved = Saved(machine)
    for passing in range(4):
        saved.restore()
        machine.sim("fail", "--after", passing, symbol, "NVML_ERROR_UNKNOWN", 0)
        outcome = run(machine, entry)
        now = layout_of(machine)
        assert now != old
        assert "gpu0 could not be restored: " in str(outcome.error)
        assert str(outcome.error).endswith(f"; it now has {layout_text(now, geometry)}.")
        machine.sim("heal")
        assert run(machine, entry).error is None
        assert devices(machine)[0] == ["1g.6gb"] * 4


# --- a kill at every call ---------------------------------------------------------------------------------------------


def is_killed(machine: GpuMachine, *entries: Mapping[str, Any], **options: Any) -> bool:
    """Whether a run was killed, in a process of its own with all that it started."""

    def work() -> str:
        os.setpgid(0, 0)
        return str(run(machine, *entries, **options).error)

    end = forked(work)
    assert end in ((-signal.SIGKILL, ""), (0, "None"))
    return end[0] != 0


@pytest.mark.parametrize("name", [H100, A30, GB200])
def test_a_run_after_one_that_was_killed_at_any_call_ends_as_declared(
    gpu_machine: MakeMachine, tmp_path: Path, name: str
) -> None:
    geometry = geometries()[KINDS[name]]
    case, wanted, target = pair(geometry, 11)
    machine = divided(gpu_machine, name, geometry, {0: case.present})
    entry = entry_of(0, wanted)
    saved = Saved(machine)
    calls = sum(fewest_calls(case.present, target).values())
    for nth, late in [*((nth, ()) for nth in range(1, calls + 1, 2)), (calls, ("--after-it",))]:
        saved.restore()
        machine.sim("kill-at-change", nth, "--group", *late)
        assert is_killed(machine, entry)
        assert machine.host.files.exists(INTERRUPTED_RUN)
        assert run(machine, entry, check_mode=True).status == "drifted", (nth, late)
        outcome = run(machine, entry)
        assert outcome.error is None, (nth, late, outcome.error)
        assert satisfied(layout_of(machine), wanted)
        assert not machine.host.files.exists(INTERRUPTED_RUN)
        machine.clear_logs()
        assert (run(machine, entry).status, machine.log()) == ("in_sync", [])


# --- modes that take a reset ------------------------------------------------------------------------------------------


class Ampere:
    """A machine whose GPUs are reset for their mode, with a service in the way."""

    def __init__(self, make: MakeMachine, kind: str, *, manager: bool, persistence: Sequence[int], seed: int) -> None:
        self.random = random.Random(seed)
        self.geometry = geometries()[KINDS[kind]]
        self.persistence = list(persistence)
        self.count = len(persistence)
        layouts = {index: self.layout() for index in range(self.count) if self.random.random() < 0.5}
        files = FABRIC_MANAGER if manager else {}
        self.machine = divided(make, kind, self.geometry, layouts, units=[SERVICE], files=files, persistence=False)
        for index, mode in enumerate(persistence):
            self.machine.sim("set", index, f"persistence={mode}")
        self.machine.clear_logs()

    def layout(self) -> Layout:
        case = Case(self.geometry, self.random.randrange(1 << 30))
        return case.present

    def entries(self) -> List[Dict[str, Any]]:
        """A declaration for some GPUs: off, on alone, or with instances."""
        found: List[Dict[str, Any]] = []
        for index in range(self.count):
            match = {"match": {"index": index}}
            choices: List[Optional[Dict[str, Any]]] = [
                None,
                {**match, "mig": "disabled"},
                match,
                {**match, "layout": "balanced"},
                entry_of(index, Case(self.geometry, self.random.randrange(1 << 30)).wanted()),
            ]
            entry = self.random.choice(choices)
            if entry is not None:
                found.append(entry)
        return found

    def seen(self) -> List[Tuple[Tuple[bool, bool], Layout]]:
        """Mode and layout of every GPU."""
        gpus = self.machine.describe()["gpus"]
        return [((bool(gpu["mig"]), bool(gpu["mig_pending"])), layout_in(gpu)) for gpu in gpus]

    def check_the_rest(self) -> None:
        """Persistence mode is that of before, services run, and nothing is left over."""
        assert [gpu["persistence"] for gpu in self.machine.describe()["gpus"]] == self.persistence
        systemctl: Any = self.machine.host.commands.programs["systemctl"]
        assert systemctl.active == {SERVICE}
        assert not self.machine.host.files.exists(INTERRUPTED_RUN)

    def run(self, entries: Sequence[Mapping[str, Any]], **options: Any) -> Outcome:
        return run(self.machine, *entries, stop_services=[SERVICE], **options)


ON, OFF = (1, 1, 1, 1), (0, 0, 0, 0)
AMPERES = {
    "linked": (LINKED_A100, False, ON),
    "linked, of all kinds": (LINKED_A100, False, (1, 0, 0, 1)),
    "with a fabric manager": (A100, True, ON + OFF),
    "without a fabric manager": (A100, False, OFF + ON),
    "not linked": (A30, False, (0, 1, 1, 0)),
}


@pytest.mark.parametrize("of", AMPERES)
def test_modes_and_layouts_of_gpus_that_are_reset_come_to_what_is_declared(gpu_machine: MakeMachine, of: str) -> None:
    kind, manager, persistence = AMPERES[of]
    ampere = Ampere(gpu_machine, kind, manager=manager, persistence=persistence, seed=1)
    for _time in range(2):
        entries = ampere.entries()
        before = ampere.seen()
        predicted = ampere.run(entries, check_mode=True)
        outcome = ampere.run(entries)
        assert outcome.error is None, outcome.error
        assert outcome.changes == predicted.changes
        ampere.check_the_rest()
        declared_of = {entry["match"]["index"]: entry for entry in entries}
        for index, (old, new) in enumerate(zip(before, ampere.seen())):
            entry = declared_of.get(index)
            if entry is None:
                assert new == old, index
            elif entry.get("mig") == "disabled":
                assert new == ((False, False), ()), index
            else:
                assert new[0] == (True, True), index
        ampere.machine.clear_logs()
        again = ampere.run(entries)
        assert (again.status, again.changes, ampere.machine.log()) == ("in_sync", (), [])


@pytest.mark.parametrize(("of", "stride"), [("linked", 4), ("without a fabric manager", 17), ("not linked", 6)])
def test_a_fault_while_modes_change_leaves_every_group_old_or_new(
    gpu_machine: MakeMachine, of: str, stride: int
) -> None:
    kind, manager, persistence = AMPERES[of]
    ampere = Ampere(gpu_machine, kind, manager=manager, persistence=persistence, seed=5)
    machine, entries, old = ampere.machine, ampere.entries(), ampere.seen()
    saved = Saved(machine)
    assert ampere.run(entries).error is None
    new, calls = ampere.seen(), len(machine.log())
    assert new != old
    for nth in range(1, calls + 1, stride):
        saved.restore()
        machine.sim("fail", "--nth-change", nth, f"NVML_ERROR_{CODES[nth % len(CODES)]}")
        outcome = ampere.run(entries)
        found = ampere.seen()
        for index, one in enumerate(found):
            assert one in (old[index], new[index]), (nth, index, outcome.error)
        ampere.check_the_rest()
        if outcome.error is None:
            assert found == new, nth
        else:
            assert "has its previous layout again: " in str(outcome.error), nth


def test_a_kill_while_modes_change_is_made_good_by_the_next_run(gpu_machine: MakeMachine) -> None:
    kind, manager, persistence = AMPERES["linked, of all kinds"]
    ampere = Ampere(gpu_machine, kind, manager=manager, persistence=persistence, seed=5)
    machine, entries = ampere.machine, ampere.entries()
    saved = Saved(machine)
    assert ampere.run(entries).error is None
    declared_of = {entry["match"]["index"] for entry in entries}
    undeclared = {index: one for index, one in enumerate(ampere.seen()) if index not in declared_of}
    assert undeclared
    nth = 1
    while True:
        saved.restore()
        machine.sim("kill-at-change", nth, "--group")
        if not is_killed(machine, *entries, stop_services=[SERVICE]):
            break
        assert ampere.run(entries, check_mode=True).status == "drifted"
        outcome = ampere.run(entries)
        assert outcome.error is None, (nth, outcome.error)
        ampere.check_the_rest()
        seen = ampere.seen()
        assert {index: seen[index] for index in undeclared} == undeclared, nth
        assert ampere.run(entries).status == "in_sync"
        nth += 5
    assert nth > 10


def test_gpus_that_the_daemon_holds_are_held_again_whatever_happens(
    persistence_machine: MakePersistenceMachine,
) -> None:
    machine = persistence_machine(A100, unit=UPSTREAM, files=FABRIC_MANAGER).machine
    machine.host.commands.programs["nvidia-smi"] = lambda argv: Completed(*machine.simulated.smi(*argv[1:]))
    entry = {"match": {"index": [0, 1]}, "layout": "balanced"}

    def daemons() -> List[int]:
        return [gpu["daemon_pid"] for gpu in machine.describe()["gpus"]]

    held_by = daemons()
    assert all(held_by)
    for nth in (1, 2, 3, 5):
        machine.sim("fail", "--nth-change", nth, "NVML_ERROR_UNKNOWN")
        outcome = run(machine, entry, permanent=False)
        assert "gpu0 has its previous layout again: MIG mode disabled." in str(outcome.error)
        assert (mode_of(machine), daemons()) == ((False, False), held_by)
    assert run(machine, entry, permanent=False).error is None
    assert (layout_of(machine) != (), daemons()) == (True, held_by)
    assert run(machine, {"mig": "disabled"}, permanent=False).error is None
    assert (devices(machine), daemons()) == ([[]] * 8, held_by)


def test_a_reset_that_is_refused_leaves_modes_layouts_and_persistence(gpu_machine: MakeMachine) -> None:
    machine = divided(gpu_machine, LINKED_A100, geometries()["a100-40"], {1: MIXED}, units=[SERVICE], persistence=True)
    machine.sim("fail", "gpu-reset", "NVML_ERROR_UNKNOWN", 0)
    outcome = run(machine, {"match": {"index": 0}, "layout": "all-1g"}, stop_services=[SERVICE])
    text = str(outcome.error)
    assert text.startswith("Cannot reset gpu0, gpu1, gpu2, gpu3: ")
    for line in ("gpu0 has its previous layout again: MIG mode disabled", "gpu1 has its previous layout again: 1g"):
        assert line in text
    assert [mode_of(machine, index) for index in range(4)] == [(False, False), (True, True), *[(False, False)] * 2]
    assert (layout_of(machine, 1), declared(machine)) == (MIXED, None)
    assert [gpu["persistence"] for gpu in machine.describe()["gpus"]] == [1] * 4
    systemctl: Any = machine.host.commands.programs["systemctl"]
    assert systemctl.active == {SERVICE}


def test_every_kind_of_gpu_that_ships_is_among_those_that_are_tried() -> None:
    shipped = {path.stem for path in (Path(__file__).parents[3] / "nvml_simulator" / "machines").glob("*.json")}
    # Without MIG, and with GPUs that others have as well.
    assert shipped - set(KINDS) == {"l40s-1", "mixed", "h200-141gb-vm-1"}
    assert all(every_division(geometries()[key]) for key in KINDS.values())
