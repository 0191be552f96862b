# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Machines whose GPUs no driver serves: what every concern of GPUs says of them, and what it takes back there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.node import status
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import CannotLook, GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._node.assessment import assess_node, waiting
from ansible_collections.gpufleet.node.plugins.module_utils._node.look import validated
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.plugins.module_utils._node.table import rows_of
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia import errors
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvidia_persistence.concern import (
    CONCERN as PERSISTENCE,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.gpu_settings import gpu_settings_machine
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout import mig_layout_machine
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_machine import H100
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import GpuMachine, MakeMachine
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

BUS = "/sys/bus/pci/devices"
FIRST, SECOND = "0000:17:00.0", "0000:65:00.0"
GPUS = {
    f"{BUS}/{address}/{name}": text
    for address in (FIRST, SECOND)
    for name, text in (("vendor", "0x10de\n"), ("class", "0x030200\n"))
}
ON_VFIO = {f"{BUS}/{address}/driver": "/sys/bus/pci/drivers/vfio-pci" for address in (FIRST, SECOND)}
# What the profile for training says of GPUs.
TRAINING: Dict[str, Dict[str, Any]] = {
    "nvidia_persistence": {"enabled": True},
    "mig_layout": {"gpus": [{"mig": "disabled", "optional": True}]},
    "gpu_settings": {"gpus": [{"ecc": "enabled", "optional": True}]},
}
INSISTING: Dict[str, Dict[str, Any]] = {
    "nvidia_persistence": {"gpus": [{"enabled": True}]},
    "mig_layout": {"gpus": [{"mig": "disabled"}]},
    "gpu_settings": {"gpus": [{"ecc": "enabled"}]},
}
NOT_LOADED = errors.NoDriver(errors.GOAL, cause="the kernel module nvidia is not loaded")


class Answers:
    """``protocols.Nvml`` of a driver that has one answer to every question."""

    def __init__(self, error: GpuFleetError) -> None:
        self.error = error

    def begin(self) -> None:
        pass

    def ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        raise self.error

    def close(self) -> None:
        pass


def bare(
    root: Path,
    files: Mapping[str, str],
    links: Optional[Mapping[str, str]] = None,
    *,
    error: GpuFleetError = NOT_LOADED,
) -> FakeHost:
    host = build(root, {"/sys/module/.keep": "", "/etc/modprobe.d/.keep": "", **files}, links)
    error.__dict__.pop("settings", None)
    host.nvml = Answers(error)
    return host


def look(host: FakeHost, declared: Mapping[str, Any]) -> Dict[str, Any]:
    # A declaration that is on the node is no matter of these tests.
    running = {name: {**options, "permanent": False} for name, options in declared.items()}
    return assess_node(running, host, validate=validated, full=False)


def rows(answer: Mapping[str, Any], concern: str) -> List[Tuple[Any, ...]]:
    keys = ("object", "setting", "wanted", "effective", "status")
    return [tuple(row[key] for key in keys) for row in answer["concerns"][concern]["settings"]]


@pytest.mark.parametrize("declared", [TRAINING, INSISTING], ids=["optional", "insisting"])
@pytest.mark.parametrize("concern", sorted(TRAINING))
def test_a_gpu_on_the_bus_without_its_driver_differs(
    tmp_path: Path, concern: str, declared: Mapping[str, Mapping[str, Any]]
) -> None:
    answer = look(bare(tmp_path, GPUS), {concern: declared[concern]})
    assert (answer["drifted"], answer["unknown"], answer["in_sync"]) == ([concern], [], [])
    assert answer["to_converge"] == [concern]
    assert answer["concerns"][concern]["failure"]["code"] == "no_driver"
    assert rows(answer, concern) == [
        (address, "driver", "loaded", "not loaded", "drifted") for address in (FIRST, SECOND)
    ]
    table = rows_of("node1", answer)
    assert {row["status"] for row in table} == {"drifted"}
    assert [row["object"] for row in table] == [concern, FIRST, SECOND]


@pytest.mark.parametrize("concern", sorted(TRAINING))
def test_the_task_says_the_same_as_the_look(tmp_path: Path, concern: str) -> None:
    entry = next(entry for entry in REGISTRY if entry.name == concern)
    with pytest.raises(errors.NoDriver) as raised:
        converge(entry.concern, validated(entry.concern, TRAINING[concern]), bare(tmp_path, GPUS), check_mode=False)
    assert [setting.object for setting in raised.value.settings] == [FIRST, SECOND]


@pytest.mark.parametrize("concern", sorted(TRAINING))
def test_a_machine_without_a_gpu_is_in_sync_and_has_nothing_that_anybody_could_set(
    tmp_path: Path, concern: str
) -> None:
    answer = look(bare(tmp_path, {}), {concern: TRAINING[concern]})
    result = answer["concerns"][concern]
    assert (answer["in_sync"], answer["to_converge"], result["unmanaged_total"]) == ([concern], [], 1)
    assert result["unmanaged"] == [
        {"object": "NVIDIA GPUs", "setting": "driver", "reason": "there is none on the PCI bus"}
    ]


@pytest.mark.parametrize("concern", sorted(TRAINING))
def test_gpus_that_were_handed_on_to_virtual_machines_are_no_fault(tmp_path: Path, concern: str) -> None:
    answer = look(
        bare(tmp_path, {**GPUS, "/sys/bus/pci/drivers/vfio-pci/bind": ""}, ON_VFIO), {concern: TRAINING[concern]}
    )
    result = answer["concerns"][concern]
    assert (answer["in_sync"], result["unmanaged_total"]) == ([concern], 2)
    assert result["unmanaged"][0] == {
        "object": FIRST,
        "setting": "driver",
        "reason": "it is bound to vfio-pci, for a virtual machine",
    }


@pytest.mark.parametrize("match", [{"pci_address": FIRST}, {"pci_id": "10de:2bb5"}], ids=["address", "id"])
@pytest.mark.parametrize("concern", ["gpu_settings", "nvidia_persistence"])
def test_a_gpu_of_a_virtual_machine_is_no_missing_one_where_the_driver_has_others(
    gpu_machine: MakeMachine, concern: str, match: Dict[str, str]
) -> None:
    files = {path: text for path, text in GPUS.items() if FIRST in path}
    machine = gpu_machine(
        "l40s-1",
        files={**files, f"{BUS}/{FIRST}/device": "0x2bb5\n", "/etc/systemd/system/.keep": ""},
        links={f"{BUS}/{FIRST}/driver": ON_VFIO[f"{BUS}/{FIRST}/driver"]},
    )
    (entry,) = INSISTING[concern]["gpus"]
    answer = look(machine.host, {concern: {"gpus": [{**entry, "match": match}]}})
    (unmanaged,) = answer["concerns"][concern]["unmanaged"]
    assert (answer["in_sync"], unmanaged["object"]) == ([concern], FIRST)
    assert unmanaged["reason"] == "it is bound to vfio-pci, for a virtual machine"
    # One that nobody has is still missed.
    answer = look(machine.host, {concern: {"gpus": [{**entry, "match": {"pci_address": SECOND}}]}})
    assert answer["invalid"] == [concern]


@pytest.mark.parametrize("concern", sorted(TRAINING))
def test_an_entry_that_insists_on_a_gpu_is_not_right_without_one(tmp_path: Path, concern: str) -> None:
    answer = look(bare(tmp_path, {}), {concern: INSISTING[concern]})
    assert (answer["unknown"], answer["in_sync"]) == ([concern], [])


@pytest.mark.parametrize(
    ("error", "status_of_it", "found"),
    [
        (
            errors.NoDriver(errors.GOAL, cause="there is no libnvidia-ml.so.1", state="no libnvidia-ml.so.1"),
            "drifted",
            [(FIRST, "driver", "loaded", "no libnvidia-ml.so.1", "drifted")],
        ),
        (
            errors.DriverMismatch(errors.GOAL, cause="different versions"),
            "drifted",
            [(FIRST, "driver", "loaded", "of another version than its library", "drifted")],
        ),
        (
            errors.NoBinding(errors.GOAL, cause="there is no nvidia-ml-py"),
            "drifted",
            [("nvidia-ml-py", "nvidia-ml-py", "installed", "not installed", "drifted")],
        ),
        (errors.DriverHangs(errors.GOAL, cause="it did not respond"), "unknown", []),
        (CannotLook(errors.GOAL, cause="the process that queried it died"), "unknown", []),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
@pytest.mark.parametrize("concern", sorted(TRAINING))
def test_the_table_says_what_the_driver_lacks(
    tmp_path: Path, concern: str, error: GpuFleetError, status_of_it: str, found: List[Tuple[str, ...]]
) -> None:
    one = {path: text for path, text in GPUS.items() if FIRST in path}
    answer = look(bare(tmp_path, one, error=error), {concern: TRAINING[concern]})
    assert answer["concerns"][concern]["status"] == status_of_it
    assert rows(answer, concern) == found


@pytest.mark.parametrize("coming", ["drifted", "in_sync"])
def test_what_the_kernel_modules_bring_is_waited_for(tmp_path: Path, coming: str) -> None:
    results = look(bare(tmp_path, GPUS), TRAINING)["concerns"]
    found = waiting({**results, "kernel_modules": {"status": coming}})
    assert sorted(found) == (sorted(TRAINING) if coming == "drifted" else [])


def test_the_status_of_the_node_shows_it_and_has_its_exit_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = {
        "schema": 1,
        "concern": PERSISTENCE.name,
        "apply_at_boot": True,
        "collection_version": "1",
        "declaration": TRAINING[PERSISTENCE.name],
    }
    host = bare(tmp_path, {**GPUS, "/etc/gpufleet/declared.d/nvidia_persistence.json": json.dumps(document)})
    assert status.status(host) == status.DRIFTED_EXIT
    text = capsys.readouterr().out
    assert "not loaded" in text
    assert "1 drifted" in text


def test_what_is_declared_of_no_gpu_can_be_taken_back_without_a_driver(tmp_path: Path) -> None:
    host = bare(tmp_path, GPUS)
    concern = next(entry.concern for entry in REGISTRY if entry.name == "mig_layout")
    for options, there in (({"gpus": []}, True), ({"state": "absent"}, False)):
        outcome = converge(concern, validated(concern, options), host, check_mode=False)
        assert (outcome.error, outcome.remaining.status, bool(outcome.changes)) == (None, "in_sync", True)
        assert host.files.exists(mig_layout_machine.DECLARED) is there


def uncovered(machine: GpuMachine) -> None:
    """The driver goes, and the GPUs stay on the bus."""
    for path, text in GPUS.items():
        place = machine.root / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    machine.sim("unload-driver")


@pytest.mark.once
def test_settings_are_restored_without_a_driver_but_for_what_only_the_driver_can(gpu_machine: MakeMachine) -> None:
    machine = gpu_settings_machine.ready(gpu_machine, "l40s-1")
    uuid = machine.gpu(0)["uuid"]
    gpu_settings_machine.run(machine, {"power_limit_watts": 250})
    uncovered(machine)
    outcome = gpu_settings_machine.run(machine, state="absent")
    assert (outcome.error, outcome.remaining.status) == (None, "in_sync")
    assert [entry.as_dict() for entry in outcome.remaining.unmanaged] == [
        {"object": uuid, "setting": "power_limit_watts", "reason": "no driver is loaded that could restore it"}
    ]
    files = machine.host.files
    assert not files.exists(gpu_settings_machine.DECLARED)
    assert not files.exists("/var/lib/gpufleet/baseline/gpu_settings.json")


@pytest.mark.once
def test_a_layout_is_restored_without_a_driver_but_for_what_only_the_driver_can(gpu_machine: MakeMachine) -> None:
    machine = mig_layout_machine.ready(gpu_machine, H100)
    uuid = machine.gpu(0)["uuid"]
    mig_layout_machine.run(machine, {"match": {"index": 0}, "layout": "all-1g"})
    uncovered(machine)
    outcome = mig_layout_machine.run(machine, state="absent")
    assert (outcome.error, outcome.remaining.status) == (None, "in_sync")
    assert [entry.as_dict() for entry in outcome.remaining.unmanaged] == [
        {"object": uuid, "setting": "instances", "reason": "no driver is loaded that could restore it"}
    ]
    files = machine.host.files
    assert not files.exists(mig_layout_machine.DECLARED)
    assert not files.exists(mig_layout_machine.RECORD)
    assert not files.exists("/var/lib/gpufleet/baseline/mig_layout.json")
