# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the concern ``mig_layout`` may cost: the plan of a whole machine, and a run that finds nothing to do."""

from __future__ import annotations

import time
from typing import Dict, List, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core import declared
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome, Scope
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._linux.boot_service import BootCarrier
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.driver import Identity
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.actions import Repartition
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.busy import Holding
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.driver import DriverInstance, MigReading
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.spec import MigLayoutDeclaration
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.state import (
    MigGpu,
    MigLayoutDesired,
    MigLayoutState,
    Preconditions,
    WantedGpu,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.text import layout_text
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_cases import Case
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_layout_machine import params, ready
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_machine import ALL_SMALL, H100
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_tables import geometries
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import MakeMachine
from ansible_collections.gpufleet.node.tests.unit.support import PATIENCE, quickest

pytestmark = pytest.mark.once

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

PLAN_SECONDS = 0.020
RUN_SECONDS = 0.050
GPUS = 8


def machine_of(key: str, seed: int) -> Tuple[MigLayoutState, MigLayoutDesired]:
    """Eight GPUs of a model, each with instances, jobs on some of them, and another layout that is declared."""
    seen: List[MigGpu] = []
    gpus: List[WantedGpu] = []
    holdings: Dict[str, Tuple[Holding, ...]] = {}
    for index in range(GPUS):
        case = Case(geometries()[key], seed + index)
        driver_instance = [
            DriverInstance(one, number, tuple(range(len(one.compute))))
            for number, one in enumerate(case.present, start=1)
        ]
        identity = Identity(index, f"GPU-{index}", f"0000:{index:02x}:00.0", key)
        reading = MigReading(
            identity, mode=(True, True), resetless=True, geometry=case.geometry, instances=tuple(driver_instance)
        )
        gpus.append(WantedGpu(reading, True, case.wanted(), case.geometry, case.preferred))
        now = {"mig": "enabled", "instances": layout_text(reading.layout, case.geometry)}
        seen.append(MigGpu(identity.name, now, {"mig": "enabled", "instances": None}))
        holdings[identity.uuid] = tuple(
            Holding(f"job (pid {start})", start, start, first, True)
            for start, firsts in case.busy.items()
            for first in firsts
        )
    readings = tuple(gpu.reading for gpu in gpus)
    preconditions = Preconditions(
        together={}, holdings=holdings, modules=(), passed_through=frozenset(), has_tool=True, unmanaged=frozenset()
    )
    state = MigLayoutState(
        gpus=tuple(seen),
        readings=readings,
        carrier=BootCarrier(declared.WANTED),
        declaration=MigLayoutDeclaration(when_busy="skip"),
        record={},
        preconditions=preconditions,
    )
    return state, MigLayoutDesired(tuple(gpus))


@pytest.mark.parametrize("key", geometries())
def test_eight_gpus_of_any_model_are_planned_in_a_moment(key: str) -> None:
    slowest = 0.0
    for seed in range(0, 10 * GPUS, GPUS):
        state, desired = machine_of(key, seed)
        assert any(isinstance(step.action, Repartition) for step in CONCERN.plan(state, desired, Scope()).steps)
        slowest = max(slowest, quickest(lambda state=state, desired=desired: CONCERN.plan(state, desired, Scope())))
    print(f"{key}: {slowest * 1000:.1f} ms")
    assert slowest < PLAN_SECONDS * PATIENCE


def test_a_run_on_eight_gpus_of_seven_instances_finds_quickly_that_there_is_nothing_to_do(
    gpu_machine: MakeMachine,
) -> None:
    machine = ready(gpu_machine, H100, layouts=dict.fromkeys(range(GPUS), ALL_SMALL))
    declaration = params({"layout": "all-1g"})

    def run() -> Tuple[float, Outcome]:
        machine.connect()
        try:
            begin = time.perf_counter()
            outcome = converge(CONCERN, declaration, machine.host, check_mode=False)
            return time.perf_counter() - begin, outcome
        finally:
            machine.host.nvml.close()

    # The first one writes what is declared for the boot.
    assert run()[1].error is None
    machine.clear_logs()
    runs = [run() for _attempt in range(7)]
    seconds, outcome = min(runs, key=lambda one: one[0])
    print(f"{seconds * 1000:.1f} ms")
    assert (outcome.status, outcome.changes, outcome.error) == ("in_sync", (), None)
    assert (machine.log(), machine.host.files.log, machine.host.commands.calls) == ([], [], [])
    assert seconds < RUN_SECONDS * PATIENCE
