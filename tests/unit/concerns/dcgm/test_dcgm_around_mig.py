# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A change of MIG instances stops and starts DCGM once, and leaves it as it was: simulated GPUs, a stand-in of DCGM."""

from __future__ import annotations

from typing import Dict, List, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.setting import IN_SYNC
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.tests.unit.concerns.dcgm.dcgm_machine import (
    ENGINE,
    EXPORTER,
    HEALTH,
    Dcgm,
    files_of,
    links_of,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.dcgm.dcgm_machine import run as run_dcgm
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_layout_machine import devices, ready, run
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import FABRIC_MANAGER, GpuMachine, MakeMachine
from ansible_collections.gpufleet.node.tests.unit.support import build

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

A100, H100 = "hgx-a100-80gb-8", "hgx-h100-80gb-8"
SMALL = {"match": {"index": 0}, "layout": "all-1g"}
SERVICES = [ENGINE, EXPORTER, "not-here.service"]
WATCHES = {"PCIe", "NVLINK", "Memory", "InfoROM", "Thermal", "Power"}


def with_dcgm(make: MakeMachine, kind: str) -> Tuple[GpuMachine, Dcgm]:
    files: Dict[str, str] = {path.replace("/run/proc", "/proc"): text for path, text in files_of().items()}
    machine = ready(make, kind, files={**files, **FABRIC_MANAGER})
    links = {path: target for path, target in links_of(4).items() if path != "/proc"}
    build(machine.root, {}, links)
    return machine, Dcgm(machine.host, proc="/proc")


def converged(make: MakeMachine, kind: str) -> Tuple[GpuMachine, Dcgm]:
    machine, dcgm = with_dcgm(make, kind)
    run_dcgm(machine.host)
    for unit in (ENGINE, EXPORTER):
        dcgm.grow_old(unit, 60.0)
    dcgm.starts.clear()
    dcgm.stops.clear()
    return machine, dcgm


def order(units: List[str]) -> List[str]:
    return [unit for unit in units if unit in (ENGINE, EXPORTER)]


def test_a_reset_stops_and_starts_both_once_and_the_watches_are_on_again(gpu_machine: MakeMachine) -> None:
    machine, dcgm = converged(gpu_machine, A100)
    outcome = run(machine, SMALL, stop_services=SERVICES)
    assert outcome.error is None, outcome.error
    assert devices(machine)[0] == ["1g.10gb"] * 7
    assert (order(dcgm.stops), order(dcgm.starts)) == ([ENGINE, EXPORTER], [ENGINE, EXPORTER])
    assert dcgm.active == {ENGINE, EXPORTER, HEALTH}
    assert dcgm.watches == WATCHES
    # They know the new instances, so no handler restarts them once more.
    assert outcome.as_dict()["needs"] == []
    again = run_dcgm(machine.host)
    assert (again.status, again.changes) == (IN_SYNC, ())


def test_what_did_not_run_before_a_reset_does_not_run_after_it(gpu_machine: MakeMachine) -> None:
    machine, dcgm = with_dcgm(gpu_machine, A100)
    dcgm.run(ENGINE)
    outcome = run(machine, SMALL, stop_services=SERVICES)
    assert outcome.error is None, outcome.error
    assert (order(dcgm.stops), order(dcgm.starts)) == ([ENGINE], [ENGINE])
    assert dcgm.active == {ENGINE}
    assert dcgm.watches == set()


def test_without_a_reset_the_handlers_restart_both_once_and_the_watches_are_on_again(gpu_machine: MakeMachine) -> None:
    machine, dcgm = converged(gpu_machine, H100)
    outcome = run(machine, SMALL, stop_services=SERVICES).as_dict()
    # Nothing is stopped where no GPU is reset; what was started before knows the old instances.
    assert (dcgm.stops, dcgm.starts) == ([], [])
    assert outcome["needs"] == ["dcgm", "dcgm_exporter"]
    units = [unit for need in outcome["needs"] for unit in outcome["effective"]["consumers"][need]["units"]]
    assert units == [ENGINE, EXPORTER]
    # As the handlers of the role do, in this order.
    for unit in units:
        machine.host.commands.run(["systemctl", "restart", unit])
    assert order(dcgm.starts) == [ENGINE, EXPORTER]
    assert dcgm.watches == WATCHES
    assert run(machine, SMALL, stop_services=SERVICES).as_dict()["needs"] == []
    again = run_dcgm(machine.host)
    assert (again.status, again.changes) == (IN_SYNC, ())


@pytest.mark.parametrize("name", ["mig_layout"])
def test_who_may_stop_dcgm_lets_it_be_looked_at_again(name: str) -> None:
    registered = {entry.name: entry.registration for entry in REGISTRY}
    assert "dcgm" in registered[name].disturbs
    assert name in registered["dcgm"].after
