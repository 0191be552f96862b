# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A change of layouts that was interrupted: every look names it, a converge and the boot service finish or undo it."""

from __future__ import annotations

import json
import os
import signal
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.node import status as node_status
from ansible_collections.gpufleet.node.node.boot import boot
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook, InUse
from ansible_collections.gpufleet.node.plugins.module_utils._node.assessment import assess_node
from ansible_collections.gpufleet.node.plugins.module_utils._node.look import validated
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.model import Layout
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.records import INTERRUPTED_RUN
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_layout_machine import (
    DECLARED,
    declared,
    ready,
    run,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_machine import (
    A100,
    ALL_SMALL,
    H100,
    LINKED_A100,
    MIXED,
    ONE,
    layout_in,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.saved_machine import SERVICE, Saved
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import FABRIC_MANAGER, GpuMachine, MakeMachine
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_machine import forked

pytestmark = pytest.mark.once

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

SMALL: Dict[str, Any] = {"match": {"index": 0}, "layout": "all-1g"}
DIVIDED: Dict[str, Any] = {"match": {"index": 0}, "instances": ["3g.40gb", "2g.20gb", {"profile": "1g", "count": 2}]}
SMALL_TEXT, DIVIDED_TEXT = "1g.10gb@0-6", "2g.20gb@0 1g.10gb@2-3 3g.40gb@4"

Seen = List[Tuple[Tuple[bool, bool], Layout]]


def seen(machine: GpuMachine) -> Seen:
    """Mode and layout of every GPU."""
    gpus = machine.describe()["gpus"]
    return [((bool(gpu["mig"]), bool(gpu["mig_pending"])), layout_in(gpu)) for gpu in gpus]


def killed(machine: GpuMachine, *entries: Mapping[str, Any], at: int, late: Sequence[str] = (), **options: Any) -> bool:
    """Whether a run was killed by SIGKILL with all that it started, at its change number ``at``."""
    machine.sim("kill-at-change", at, "--group", *late)

    def work() -> str:
        os.setpgid(0, 0)
        run(machine, *entries, **options)
        return ""

    end = forked(work)
    machine.sim("heal")
    return end[0] == -signal.SIGKILL


def looked(machine: GpuMachine, **declarations: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer of a look at the node, as the audit has it; it changes nothing."""
    before, text = seen(machine), machine.host.files.read_optional(INTERRUPTED_RUN)
    machine.clear_logs()
    machine.connect()
    try:
        answer = assess_node(declarations, machine.host, validate=validated, full=False)
    finally:
        machine.host.nvml.close()
    assert (machine.log(), machine.host.files.log) == ([], [])
    assert (seen(machine), machine.host.files.read_optional(INTERRUPTED_RUN)) == (before, text)
    return answer


def rows_of(answer: Mapping[str, Any]) -> Dict[str, Tuple[Any, Any]]:
    """The interrupted changes by GPU: what is found, and what is wanted."""
    return {
        row["object"]: (row["effective"], row["wanted"])
        for row in answer["concerns"].get("mig_layout", {"settings": []})["settings"]
        if row["setting"] == "interrupted_change"
    }


def booted(machine: GpuMachine, **options: Any) -> int:
    """What the boot service does, now."""
    machine.connect()
    try:
        return boot(machine.host, **options)
    finally:
        machine.host.nvml.close()


def stopped_in_the_middle(make: MakeMachine, *, declare: bool = False, at: int = 8, **options: Any) -> GpuMachine:
    """A machine whose first GPU was killed on its way from seven small instances to four others."""
    machine = ready(make, layouts={0: ALL_SMALL}, **options)
    if declare:
        assert run(machine, SMALL).error is None
    assert killed(machine, DIVIDED, at=at)
    assert seen(machine)[0][1] not in (ALL_SMALL, MIXED)
    return machine


# --- what a look says -------------------------------------------------------------------------------------------------

WANTED = "finished by the next converge or gpufleet-boot.service"


@pytest.mark.parametrize("declaration", [None, {}, {"gpus": [DIVIDED]}, {"gpus": [SMALL]}], ids=str)
def test_a_look_names_what_was_interrupted_whatever_is_declared_and_changes_nothing(
    gpu_machine: MakeMachine, declaration: Optional[Mapping[str, Any]]
) -> None:
    machine = stopped_in_the_middle(gpu_machine)
    answer = looked(machine, **({} if declaration is None else {"mig_layout": declaration}))
    assert rows_of(answer) == {"gpu0": (f"{SMALL_TEXT} -> {DIVIDED_TEXT}", WANTED)}
    assert (answer["drifted"], answer["to_converge"]) == (["mig_layout"], ["mig_layout"])
    assert answer["interrupted"] == (["mig_layout"] if declaration is None else [])


def test_a_look_that_is_not_about_layouts_says_nothing_of_it(gpu_machine: MakeMachine) -> None:
    machine = stopped_in_the_middle(gpu_machine)
    answer = assess_node({}, machine.host, validate=validated, full=False, excluded=["mig_layout"])
    assert (answer["concerns"], answer["interrupted"]) == ({}, [])


@pytest.mark.parametrize("declare", [False, True])
def test_the_status_of_the_node_names_it_too(
    gpu_machine: MakeMachine, capsys: pytest.CaptureFixture[str], declare: bool
) -> None:
    machine = stopped_in_the_middle(gpu_machine, declare=declare)
    before = seen(machine)
    machine.connect()
    assert node_status.status(machine.host) == node_status.DRIFTED_EXIT
    machine.host.nvml.close()
    told = capsys.readouterr().out
    assert f"{SMALL_TEXT} -> {DIVIDED_TEXT}" in told
    assert WANTED in told
    assert seen(machine) == before


def test_where_only_the_next_boot_is_declared_it_waits_for_that(gpu_machine: MakeMachine) -> None:
    machine = stopped_in_the_middle(gpu_machine, declare=True)
    before = seen(machine)
    assert run(machine, SMALL, immediate=False).error is None
    answer = looked(machine, mig_layout={"gpus": [SMALL], "immediate": False})
    assert rows_of(answer)["gpu0"][0] == f"{SMALL_TEXT} -> {DIVIDED_TEXT}"
    assert (answer["pending"], answer["concerns"]["mig_layout"]["needs"]) == (["mig_layout"], ["reboot"])
    assert seen(machine) == before


def test_a_damaged_record_is_named_and_kept(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, layouts={0: ALL_SMALL}, files={INTERRUPTED_RUN: "{"})
    answer = looked(machine)
    assert answer["unknown"] == ["mig_layout"]
    assert f"in {INTERRUPTED_RUN}: the file is damaged" in answer["concerns"]["mig_layout"]["msg"]
    assert booted(machine) == 1
    with pytest.raises(CannotLook, match="the file is damaged"):
        run(machine, DIVIDED)
    assert (machine.host.files.read(INTERRUPTED_RUN), seen(machine)[0][1]) == ("{", ALL_SMALL)


# --- what finishes it -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("declare", [False, True])
def test_a_run_that_only_finishes_keeps_nothing_to_restore(gpu_machine: MakeMachine, declare: bool) -> None:
    machine = stopped_in_the_middle(gpu_machine, declare=declare)
    path = "/var/lib/gpufleet/baseline/mig_layout.json"
    kept = machine.host.files.read_optional(path)
    if kept is not None and not declare:
        # That of the run that was killed: a crash of the disk may have taken it.
        machine.host.files.remove(path)
        kept = None
    assert run(machine, permanent=False).error is None
    assert machine.host.files.read_optional(INTERRUPTED_RUN) is None
    assert machine.host.files.read_optional(path) == kept


def test_the_boot_service_undoes_what_nobody_declares(gpu_machine: MakeMachine) -> None:
    machine = stopped_in_the_middle(gpu_machine)
    assert declared(machine) is None
    assert booted(machine) == 0
    assert seen(machine)[0] == ((True, True), ALL_SMALL)
    assert not machine.host.files.exists(INTERRUPTED_RUN)
    assert declared(machine) is None
    assert looked(machine)["concerns"] == {}
    machine.clear_logs()
    assert (booted(machine), machine.log()) == (0, [])


def test_the_boot_service_leaves_it_alone_when_it_is_asked_for_another_concern(gpu_machine: MakeMachine) -> None:
    machine = stopped_in_the_middle(gpu_machine, declare=True)
    before = seen(machine)
    document = {"schema": 1, "collection_version": "0", "concern": "hugepages", "apply_at_boot": False}
    machine.host.files.replace(
        DECLARED.replace("mig_layout", "hugepages"), json.dumps({**document, "declaration": {}}) + "\n"
    )
    booted(machine, concerns=["hugepages"])
    assert (seen(machine), machine.host.files.exists(INTERRUPTED_RUN)) == (before, True)


def test_a_declaration_of_the_mode_alone_brings_the_instances_of_before_back(gpu_machine: MakeMachine) -> None:
    machine = stopped_in_the_middle(gpu_machine)
    assert run(machine, {"match": {"index": 0}}).error is None
    assert seen(machine)[0] == ((True, True), ALL_SMALL)
    assert not machine.host.files.exists(INTERRUPTED_RUN)
    assert run(machine, {"match": {"index": 0}}).status == "in_sync"


@pytest.mark.parametrize("kind", [A100, H100])
def test_a_mode_that_a_power_cut_left_on_is_off_again_after_the_boot(gpu_machine: MakeMachine, kind: str) -> None:
    machine = ready(gpu_machine, kind, files=FABRIC_MANAGER)
    before = seen(machine)
    assert killed(machine, DIVIDED, at=5)
    assert seen(machine) != before
    machine.reboot()
    if kind == A100:
        assert rows_of(looked(machine)) == {"gpu0": (f"disabled -> {DIVIDED_TEXT} (before the boot)", WANTED)}
    assert booted(machine) == 0
    assert seen(machine) == before
    assert not machine.host.files.exists(INTERRUPTED_RUN)


def test_what_was_stopped_or_divided_before_a_boot_is_left_to_that_boot(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, A100, layouts={0: ALL_SMALL}, units=[SERVICE], files=FABRIC_MANAGER)
    machine.sim("set", 1, "mig_busy=1")
    entry = {"match": {"index": [0, 1]}, "layout": "balanced"}
    assert killed(machine, entry, at=12, stop_services=[SERVICE])
    machine.reboot()
    systemctl: Any = machine.host.commands.programs["systemctl"]
    systemctl.active.clear()
    booted(machine)
    assert systemctl.active == set()
    assert [mode for mode, _layout in seen(machine)[:2]] == [(True, True), (False, False)]
    assert not machine.host.files.exists(INTERRUPTED_RUN)


def test_a_layout_that_could_not_be_restored_stays_on_record_until_it_is(gpu_machine: MakeMachine) -> None:
    machine = ready(gpu_machine, layouts={0: ALL_SMALL})
    machine.sim("fail", "nvmlDeviceCreateGpuInstanceWithPlacement", "NVML_ERROR_UNKNOWN", 0)
    outcome = run(machine, DIVIDED)
    assert "gpu0 could not be restored" in str(outcome.error)
    assert rows_of(looked(machine)) == {"gpu0": (f"{SMALL_TEXT} -> {DIVIDED_TEXT}", WANTED)}
    machine.sim("heal")
    assert booted(machine) == 0
    assert seen(machine)[0][1] == ALL_SMALL
    assert not machine.host.files.exists(INTERRUPTED_RUN)


# --- never under a job ------------------------------------------------------------------------------------------------


def test_who_uses_an_instance_by_now_keeps_it_and_the_change_stays_on_record(gpu_machine: MakeMachine) -> None:
    machine = stopped_in_the_middle(gpu_machine, at=14)
    # What the interrupted run had made already, and what was not there before.
    ready_made = (one for one in machine.gpu(0)["instances"] if one["compute_instances"])
    number = next(one["id"] for one in ready_made if one["profile_id"] != ONE)
    before = seen(machine)
    with machine.simulated.job(0, "--gi", number, "--ci", 0) as job:
        assert booted(machine) == 0
        answer = looked(machine)
        assert (answer["pending"], answer["concerns"]["mig_layout"]["needs"]) == (["mig_layout"], ["idle_gpu"])
        # Who declares another GPU is not kept from it.
        assert run(machine, {**SMALL, "match": {"index": 1}}).error is None
        assert run(machine, {**SMALL, "match": {"index": 1}}).changes == ()
        assert (seen(machine)[0], seen(machine)[1][1], job.poll()) == (before[0], ALL_SMALL, None)
        with pytest.raises(InUse):
            run(machine, SMALL)
        assert machine.host.files.exists(INTERRUPTED_RUN)
        assert run(machine, SMALL, when_busy="skip").error is None
        assert run(machine, SMALL, when_busy="skip").changes == ()
        assert (seen(machine)[0], machine.host.files.exists(INTERRUPTED_RUN), job.poll()) == (before[0], True, None)
    machine.host.files.remove(DECLARED)
    assert booted(machine) == 0
    assert seen(machine)[0][1] == ALL_SMALL
    assert not machine.host.files.exists(INTERRUPTED_RUN)


# --- a kill at every step ---------------------------------------------------------------------------------------------


def both(index: int, **other: Any) -> Dict[str, Any]:
    return {"match": {"index": index}, **other}


# By name: the machine, what its GPUs have, and what is declared.
CHANGES: Mapping[str, Tuple[str, Mapping[int, Layout], Sequence[Mapping[str, Any]]]] = {
    "instances": (H100, {0: ALL_SMALL, 1: MIXED}, [DIVIDED, both(1, instances=["7g.80gb"])]),
    "mode and instances": (H100, {1: MIXED}, [DIVIDED, both(1, mig="disabled")]),
    "a reset": (A100, {1: MIXED}, [DIVIDED, both(1, mig="disabled")]),
    "linked": (LINKED_A100, {1: MIXED}, [both(0, layout="balanced"), both(2, layout="all-1g")]),
}


@pytest.mark.parametrize("how", ["boot", "reboot", "converge"])
@pytest.mark.parametrize("of", CHANGES)
def test_a_gpu_is_old_or_new_wherever_the_run_was_killed(gpu_machine: MakeMachine, of: str, how: str) -> None:
    kind, layouts, entries = CHANGES[of]
    linked = kind == LINKED_A100
    machine = ready(gpu_machine, kind, layouts=layouts, units=[SERVICE], files={} if linked else FABRIC_MANAGER)
    saved, old = Saved(machine), seen(machine)
    machine.clear_logs()
    assert run(machine, *entries, stop_services=[SERVICE]).error is None
    new, calls = seen(machine), len(machine.log())
    assert new != old
    # As a boot leaves the old ones: an Ampere keeps its mode, and instances go.
    cold = [(mode if kind != H100 else (False, False), ()) for mode, _layout in old]
    # Each way out begins elsewhere, so that together they come by most steps.
    first = ["boot", "reboot", "converge"].index(how) + 1
    for at, late in [*((at, ()) for at in range(first, calls + 1, calls // 4)), (calls, ("--after-it",))]:
        saved.restore()
        if not killed(machine, *entries, at=at, late=late, stop_services=[SERVICE]):
            # What is reset counts as one call more.
            assert at > calls // 2
            continue
        assert machine.host.files.exists(INTERRUPTED_RUN)
        assert looked(machine)["drifted"] == ["mig_layout"], at
        if how == "reboot":
            machine.reboot()
        if how == "converge":
            outcome = run(machine, *entries, stop_services=[SERVICE])
            assert outcome.error is None, (at, outcome.error)
            assert seen(machine) == new, at
        else:
            assert booted(machine) == 0, at
            for index, one in enumerate(seen(machine)):
                was = cold[index] if how == "reboot" else old[index]
                assert one == was or (one == new[index] and (how == "boot" or not one[1])), (at, index)
        assert not machine.host.files.exists(INTERRUPTED_RUN), at
        if how != "reboot":
            assert [gpu["persistence"] for gpu in machine.describe()["gpus"]] == [1] * len(old), at
            systemctl: Any = machine.host.commands.programs["systemctl"]
            assert systemctl.active == {SERVICE}, at
        assert looked(machine)["concerns"] == {}, at


@pytest.mark.parametrize("of", ["instances", "a reset"])
def test_a_gpu_is_old_or_new_when_the_way_back_was_killed_too(gpu_machine: MakeMachine, of: str) -> None:
    kind, layouts, entries = CHANGES[of]
    machine = ready(gpu_machine, kind, layouts=layouts, units=[SERVICE], files=FABRIC_MANAGER)
    saved, old = Saved(machine), seen(machine)
    machine.clear_logs()
    assert run(machine, *entries).error is None
    new, calls = seen(machine), len(machine.log())
    for at in range(4, calls, 5):
        for more in (1, 4):
            saved.restore()
            machine.sim("fail", "--nth-change", at, "NVML_ERROR_UNKNOWN")
            if not killed(machine, *entries, at=at + more):
                continue
            # And once more, while that is undone.
            machine.sim("kill-at-change", 2, "--group")
            forked(lambda: str(os.setpgid(0, 0) or booted(machine)))
            machine.sim("heal")
            assert booted(machine) == 0, (at, more)
            for index, one in enumerate(seen(machine)):
                assert one in (old[index], new[index]), (at, more, index)
            assert not machine.host.files.exists(INTERRUPTED_RUN), (at, more)
            assert looked(machine)["concerns"] == {}, (at, more)


def test_every_concern_with_such_a_record_says_where_it_lies() -> None:
    known = {entry.name: entry.registration.interrupted for entry in REGISTRY}
    assert {name: path for name, path in known.items() if path} == {"mig_layout": INTERRUPTED_RUN}
