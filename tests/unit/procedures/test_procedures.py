# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What every procedure has to keep (``_core/procedure.py``), on a machine where each finds something to do."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Mapping

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils import procedures
from ansible_collections.gpufleet.node.plugins.module_utils._core.procedure import AnyProcedure, Procedure, run_through
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.device_plugin.procedure import DevicePlugin
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.kubernetes.procedure import KubernetesDrain
from ansible_collections.gpufleet.node.tests.unit.concerns.fabric_manager.fabric_machine import FabricMachine
from ansible_collections.gpufleet.node.tests.unit.procedures.device_plugin.plugin_machine import (
    Machine as PluginMachine,
)
from ansible_collections.gpufleet.node.tests.unit.procedures.device_plugin.plugin_machine import gpus
from ansible_collections.gpufleet.node.tests.unit.procedures.engine_restart import restart_machine
from ansible_collections.gpufleet.node.tests.unit.procedures.kubernetes.kubernetes_machine import Machine
from ansible_collections.gpufleet.node.tests.unit.procedures.slurm.slurm_machine import Cluster
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, snapshot

METHODS = ("parse", "look", "decide", "predict", "perform")


@dataclass
class Bed:
    """A procedure with the machine that it is about. ``told`` is what that was told to do, beside its files."""

    procedure: AnyProcedure
    params: Mapping[str, Any]
    root: Path
    host: FakeHost
    told: Callable[[], Any]
    pause: Callable[[], float]

    def run(self, *, check_mode: bool = False) -> Dict[str, Any]:
        return run_through(self.procedure, self.params, self.host, check_mode=check_mode)

    def trace(self) -> Any:
        return (repr(self.told()), self.pause(), list(self.host.journal_lines), snapshot(self.root, ()))


def slurm(root: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    cluster = Cluster(root, monkeypatch)
    return Bed(
        procedure_of("slurm"),
        {"name": "n1", "state": "drained", "reason": "new layout", "timeout": 60, "poll": 5},
        root,
        cluster.host,
        told=lambda: cluster.orders,
        pause=lambda: cluster.now,
    )


def kubernetes(root: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    machine = Machine(root, monkeypatch)
    defaults = {name: argument.get("default") for name, argument in KubernetesDrain.options.items()}
    return Bed(
        KubernetesDrain(lambda access: machine.ask),
        {**defaults, "name": "h100-007", "state": "drained"},
        root,
        machine.host,
        told=lambda: machine.requests,
        pause=lambda: machine.now,
    )


def engine_restart(root: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    docker = restart_machine.Docker(root, monkeypatch)
    restart_machine.declare(docker, cdi=True)
    return Bed(
        procedure_of("engine_restart"),
        {"engine": "docker", "action": "restart", "health_timeout": 60, "when_containers_run": "fail"},
        root,
        docker.host,
        told=lambda: docker.calls,
        pause=lambda: docker.clock.now,
    )


def fabric_restart(root: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    machine = FabricMachine(root)
    machine.run(config={"LOG_LEVEL": 2})
    return Bed(
        procedure_of("fabric_restart"),
        {"daemon": "fabric_manager", "when_busy": "fail", "busy_timeout": 60, "start_timeout": 60},
        root,
        machine.host,
        told=lambda: machine.systemd.started,
        pause=lambda: 0.0,
    )


def device_plugin(root: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    machine = PluginMachine(root, monkeypatch)
    taints = [{"key": "nvidia.com/gpu", "value": "present"}]
    return Bed(
        DevicePlugin(lambda access: machine.ask),
        machine.params({"name": "h100-1", "replicas": 3, "gpus": gpus(4), "taints": taints}),
        root,
        machine.host,
        told=lambda: machine.requests,
        pause=lambda: machine.now,
    )


BEDS = {bed.__name__: bed for bed in (slurm, kubernetes, engine_restart, fabric_restart, device_plugin)}
NAMES = sorted(package.name for package in pkgutil.iter_modules(procedures.__path__))


def procedure_of(name: str) -> AnyProcedure:
    found: AnyProcedure = importlib.import_module(f"{procedures.__name__}.{name}.procedure").PROCEDURE
    return found


@pytest.fixture(params=NAMES)
def bed(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bed:
    return BEDS[request.param](tmp_path, monkeypatch)


@pytest.mark.parametrize("name", NAMES)
def test_a_procedure_offers_what_the_contract_names_and_the_options_of_its_module(name: str) -> None:
    procedure = procedure_of(name)
    for method in METHODS:
        said = inspect.signature(getattr(Procedure, method)).parameters
        assert list(inspect.signature(getattr(type(procedure), method)).parameters) == list(said), method
    importlib.import_module(f"{procedures.__name__.replace('module_utils.procedures', 'modules')}.{procedure.name}")
    options = importlib.import_module(f"{procedures.__name__}.{name}.options").OPTIONS
    assert procedure.options == options


def test_to_look_and_to_decide_changes_nothing_and_comes_to_the_same_twice(bed: Bed) -> None:
    before = bed.trace()
    options = bed.procedure.parse(bed.params)
    assert bed.procedure.parse(bed.params) == options
    state = bed.procedure.look(bed.host, options)
    decision = bed.procedure.decide(state, options)
    assert decision
    assert bed.procedure.decide(state, options) == decision
    assert bed.trace() == before


def test_check_mode_says_what_a_run_does_and_neither_does_it_nor_waits(bed: Bed) -> None:
    before = bed.trace()
    predicted = bed.run(check_mode=True)
    assert bed.trace() == before
    done = bed.run()
    assert bed.trace() != before
    assert "failed" not in done, done
    assert predicted.keys() == done.keys()
    assert (predicted["changed"], predicted["diff"]) == (True, done["diff"])
    assert done["changed"]


def test_after_a_run_there_is_nothing_to_do(bed: Bed) -> None:
    bed.run()
    before = bed.trace()
    result = bed.run()
    assert bed.trace() == before
    assert (result["changed"], result["diff"]) == (False, {"before": "", "after": ""})
    options = bed.procedure.parse(bed.params)
    assert not bed.procedure.decide(bed.procedure.look(bed.host, options), options)
