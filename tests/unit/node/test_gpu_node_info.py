# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The module gpu_node_info as a whole: facts of recorded machines, and what happens where something cannot be read.

The expected facts lie in tests/nodes/expected. After a change that is meant, write them anew with
GPUFLEET_WRITE_EXPECTED=1 in the environment, and read the difference.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Tuple

import pytest
import yaml
from ansible_collections.gpufleet.node.node import command
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._node.facts import collect, pci
from ansible_collections.gpufleet.node.plugins.module_utils._node.facts import gpus as info_gpus
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.driver import Driver
from ansible_collections.gpufleet.node.plugins.modules import gpu_node_info
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedHost
from ansible_collections.gpufleet.node.tests.unit.node.facts_machine import (
    EXPECTED,
    LARGE,
    LARGE_CPUS,
    LARGE_IRQS,
    MACHINES,
    Trees,
    gpu_host,
    quiet_host,
    render,
)
from ansible_collections.gpufleet.node.tests.unit.support import AT_ONCE_SECONDS, PATIENCE, build, quickest

if TYPE_CHECKING:
    from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import GpuMachine, MakeMachine

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)

EVERYTHING = tuple(collect.PARTS)
CPU_SECONDS = 0.15
HANG_DEADLINE = 0.5


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> Trees:
    return Trees(tmp_path_factory.mktemp("trees"))


@pytest.fixture
def hgx(gpu_machine: MakeMachine, trees: Trees) -> GpuMachine:
    return gpu_host(gpu_machine, trees("hgx-2socket"))


# --- whole machines ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tree", sorted(MACHINES))
def test_the_facts_of_a_recorded_machine_are_those_that_a_person_has_read(
    tree: str, gpu_machine: MakeMachine, trees: Trees
) -> None:
    kind = MACHINES[tree]
    host = gpu_host(gpu_machine, trees(tree), kind).host if kind else quiet_host(trees(tree))
    text = render(collect.gather(host, EVERYTHING)) + "\n"
    path = EXPECTED / f"{tree}.json"
    if os.environ.get("GPUFLEET_WRITE_EXPECTED"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def documented(contains: Dict[str, Any], path: str = "") -> Iterator[Tuple[str, Dict[str, Any]]]:
    for name, entry in contains.items():
        yield f"{path}{name}", entry
        yield from documented(entry.get("contains", {}), f"{path}{name}.")


def present(value: Any, path: str = "") -> Iterator[Tuple[str, Any]]:
    """Every field by its path, the objects of a list without their numbers."""
    if isinstance(value, list):
        for entry in value:
            yield from present(entry, path)
    elif isinstance(value, dict):
        for name, entry in value.items():
            if path.endswith(".services.") and name in SERVICES:
                yield from present(entry, path)
                continue
            yield f"{path}{name}", entry
            if name != "unavailable":
                yield from present(entry, f"{path}{name}.")


SERVICES = ("persistenced", "fabricmanager", "imex", "dcgm", "dcgm_exporter")
TYPES = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "dict": dict}


def test_every_field_is_documented_with_its_type(hgx: GpuMachine) -> None:
    fields = dict(documented(yaml.safe_load(gpu_node_info.RETURN)["node"]["contains"]))
    facts = list(present(collect.gather(hgx.host, EVERYTHING)))
    assert {path for path, _value in facts} - set(fields) == set()
    for path, value in facts:
        if value is not None:
            # Exactly: a bool is an int to isinstance.
            assert value.__class__ is TYPES[fields[path]["type"]], path


def test_every_null_field_has_a_reason_and_no_other_has(hgx: GpuMachine, tmp_path: Path) -> None:
    def check(value: Any, where: str) -> None:
        if isinstance(value, list):
            for entry in value:
                check(entry, where)
        elif isinstance(value, dict) and where.rpartition(".")[2] != "unavailable":
            missing = {name for name, entry in value.items() if entry is None}
            reasons = value.get("unavailable", {})
            assert missing == set(reasons), where
            assert all(reasons.values()), where
            for name, entry in value.items():
                check(entry, f"{where}.{name}")

    check(collect.gather(hgx.host, EVERYTHING), "node")
    check(collect.gather(quiet_host(tmp_path / "empty"), EVERYTHING), "node")


def test_only_what_is_asked_for_is_gathered_and_read(trees: Trees) -> None:
    host = quiet_host(trees("hgx-2socket"))
    facts = collect.gather(host, ("memory",))
    assert list(facts) == ["system", "memory", "unavailable"]
    assert [path for path in host.files.reads if path.startswith(("/sys/bus", "/sys/block", "/proc/irq"))] == []
    assert host.commands.calls == []


def test_the_boot_is_told_apart_and_what_waits_for_the_next_is_named(tmp_path: Path) -> None:
    host = quiet_host(tmp_path)
    build(
        tmp_path,
        {
            "/proc/sys/kernel/random/boot_id": "3b2f9f0c-6f0e-4a4e-8c0f-1d9c2a7e5b61\n",
            "/run/gpufleet/reboot-required.d/hugepages": "one\ntwo\n",
            "/run/gpufleet/reboot-required.d/kernel_modules": "three\n",
        },
    )
    system = collect.gather(host, ())["system"]
    assert system["boot_id"] == "3b2f9f0c-6f0e-4a4e-8c0f-1d9c2a7e5b61"
    assert system["reboot_reasons"] == ["one", "two", "three"]


def test_the_driver_is_not_asked_for_what_it_has_no_part_in(hgx: GpuMachine) -> None:
    hgx.clear_logs()
    collect.gather(hgx.host, ("block", "memory", "interrupts", "firmware", "engines", "orchestrator", "owners"))
    hgx.host.nvml.close()
    assert hgx.log(changes=False) == []


def test_the_choices_are_the_parts_and_what_costs_most_is_left_out_unless_named() -> None:
    choices = yaml.safe_load(gpu_node_info.DOCUMENTATION)["options"]["gather"]
    assert choices["choices"] == ["all", *sorted(collect.PARTS)]
    assert choices["default"] == sorted(collect.DEFAULT_PARTS) == sorted(set(collect.PARTS) - {"gds", "holders"})


def test_a_read_changes_nothing_and_runs_no_program_but_dmesg(hgx: GpuMachine) -> None:
    hgx.clear_logs()
    collect.gather(hgx.host, EVERYTHING)
    assert hgx.host.files.log == []
    assert hgx.host.commands.calls == [("dmesg",)]
    assert hgx.log() == []


# --- what cannot be read ----------------------------------------------------------------------------------------------


def test_a_machine_without_anything_has_facts_too(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    facts = collect.gather(quiet_host(tmp_path / "root"), EVERYTHING)
    assert [name for name in facts if facts[name] is None] == ["nvml_gpus"]
    assert facts["gpus"] == facts["block"] == facts["engines"] == facts["topology"]["devices"] == []
    assert facts["system"]["unavailable"]["kernel"] == "there is no /proc/sys/kernel/osrelease"


def test_a_driver_that_hangs_leaves_its_fields_null_and_everything_else_there(hgx: GpuMachine) -> None:
    right = collect.gather(hgx.host, EVERYTHING)
    hgx.host.commands.programs["dmesg"] = lambda _argv: Completed(0, "NVRM: Xid (PCI:0000:43:00): 79, gone\n", "")
    hgx.connect(deadline=HANG_DEADLINE)
    hgx.sim("hang", "nvmlDeviceGetCount_v2")
    started = time.monotonic()
    facts = collect.gather(hgx.host, EVERYTHING)
    assert time.monotonic() - started < HANG_DEADLINE + AT_ONCE_SECONDS
    assert facts["nvml_gpus"] is None
    assert facts["unavailable"]["nvml_gpus"] == (
        "Cannot query the NVIDIA driver: it did not respond within 0.5 s; the kernel log says: "
        "NVRM: Xid (PCI:0000:43:00): 79, gone. Look up the Xid in NVIDIA's list; the node may need a reboot."
    )
    for name in ("block", "memory", "interrupts", "firmware", "gds", "engines", "orchestrator", "owners", "holders"):
        assert facts[name] == right[name], name
    assert [gpu["pci_address"] for gpu in facts["gpus"]] == [gpu["pci_address"] for gpu in right["gpus"]]
    for gpu in facts["gpus"]:
        assert gpu["link"]["width"] == 16
        assert {name for name, value in gpu.items() if value is None} == {*info_gpus.IDENTITY, *info_gpus.STATE}
        assert gpu["unavailable"]["memory"] == "the NVIDIA driver did not respond"
    assert facts["driver"]["kernel_module_version"] == "550.54.15"
    assert facts["driver"]["version"] is None
    # The kernel log is a witness of its own.
    assert [gpu["healthy"] for gpu in facts["health"]["gpus"]] == [None, False, *[None] * 6]


def test_a_lost_gpu_is_listed_with_what_the_bus_says_and_the_others_are_whole(hgx: GpuMachine) -> None:
    hgx.sim("lose", 3)
    facts = collect.gather(hgx.host, collect.DEFAULT_PARTS)
    lost = facts["gpus"][3]
    assert (lost["lost"], lost["index"], lost["pci_address"], lost["uuid"]) == (True, 3, "0000:61:00.0", None)
    assert "fallen off the bus" in lost["unavailable"]["memory"]
    assert [gpu["lost"] for gpu in facts["gpus"]] == [index == 3 for index in range(8)]
    assert facts["gpus"][4]["memory"]["total_mib"] == 81559
    assert [gpu["healthy"] for gpu in facts["health"]["gpus"]] == [index != 3 for index in range(8)]


def test_gpus_that_the_bus_does_not_show_have_the_place_that_the_driver_tells(
    gpu_machine: MakeMachine, trees: Trees
) -> None:
    host = quiet_host(trees("rhel9-bls"))
    host.nvml = gpu_machine("hgx-h100-80gb-8").host.nvml
    facts = collect.gather(host, ("topology",))
    unseen = [device for device in facts["topology"]["devices"] if device["kind"] == "gpu" and device["link"] is None]
    assert len(unseen) == 8
    assert unseen[0]["pci_address"] == "0000:1b:00.0"
    assert {device["cpus_source"] for device in unseen} == {"nvml_cpu_affinity"}
    assert {device["unavailable"]["link"] for device in unseen} == {pci.NOT_ON_BUS}
    assert [entry for entry in facts["topology"]["distances"] if entry["gpu"] == unseen[0]["pci_address"]] == []


def test_one_value_that_fails_is_null_with_what_the_driver_said(hgx: GpuMachine) -> None:
    hgx.sim("fail", "nvmlDeviceGetPowerManagementLimit", "NVML_ERROR_UNKNOWN", 0)
    power = collect.gather(hgx.host, ("gpus",))["gpus"][0]["power"]
    assert power["limit_watts"] is None
    assert power["unavailable"]["limit_watts"] == "the driver returned unknown error (999)"
    assert power["default_limit_watts"] == 700.0


def test_a_part_that_goes_wrong_is_null_with_the_reason(trees: Trees, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_node: collect.FactsNode) -> Any:
        raise ValueError("no such thing")

    monkeypatch.setattr(collect, "PARTS", {**collect.PARTS, "block": broken})
    facts = collect.gather(quiet_host(trees("single-socket")), ("block", "memory"))
    assert facts["block"] is None
    assert facts["unavailable"] == {
        "block": "ValueError: no such thing; this is a defect of the collection, report it",
    }
    assert facts["memory"]["default_hugepage_kb"] == 2048


def test_what_only_root_may_read_says_so(trees: Trees, monkeypatch: pytest.MonkeyPatch) -> None:
    host = quiet_host(trees("hgx-2socket"))
    read = host.files.read

    def guarded(path: str) -> str:
        if path.endswith("/product_serial"):
            raise PermissionError(13, "Permission denied", path)
        return read(path)

    host.files.read = guarded  # type: ignore[method-assign]
    host.may_change = False
    host.commands.programs["dmesg"] = lambda _argv: Completed(1, "", "dmesg: read kernel buffer failed")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    facts = collect.gather(host, ("firmware", "health"))
    assert facts["system"]["root"] is False
    assert facts["firmware"]["machine"]["unavailable"] == {"serial": "root only"}
    assert facts["health"]["unavailable"] == {"xids": "the kernel log is for root only"}


# --- what the driver says ---------------------------------------------------------------------------------------------


def make_instances(driver: Driver) -> None:
    """A question: the first GPU gets MIG, an instance of 3 slices with all in one compute instance, and one without."""
    nvml, handle = driver.nvml, driver.gpus()[0].handle
    assert nvml.nvmlDeviceSetMigMode(handle, 1) == 0
    for profile in (9, 14):
        instance = nvml.nvmlDeviceCreateGpuInstance(handle, profile)
        if profile == 9:
            nvml.nvmlGpuInstanceCreateComputeInstance(instance, 2)


def test_mig_instances_are_listed_in_the_order_of_their_memory_those_without_compute_too(hgx: GpuMachine) -> None:
    hgx.host.nvml.ask(make_instances)
    hgx.connect()
    first, second = (gpu["mig"] for gpu in collect.gather(hgx.host, ("gpus",))["gpus"][:2])
    assert second == {"current": False, "pending": False, "instances": [], "unavailable": {}}
    assert (first["current"], first["pending"]) == (True, True)
    described = [
        (instance["profile"], instance["start"], instance["size"], len(instance["compute_instances"]))
        for instance in first["instances"]
    ]
    assert sorted(described, key=lambda entry: entry[1]) == described
    assert {(name, size, count) for name, _start, size, count in described} == {("3g.40gb", 4, 1), ("2g.20gb", 2, 0)}
    compute: List[Dict[str, Any]] = [one for instance in first["instances"] for one in instance["compute_instances"]]
    assert [(one["slices"], one["uuid"][:4]) for one in compute] == [(3, "MIG-")]


def test_a_process_on_a_gpu_is_listed_once_with_what_it_does_there(hgx: GpuMachine) -> None:
    hgx.sim("add-client", 2, "--name", "train", "--pid", os.getpid(), "--kind", "compute", "--memory", 2048)
    gpus = collect.gather(hgx.host, ("gpus",))["gpus"]
    assert [len(gpu["processes"]) for gpu in gpus] == [0, 0, 1, *[0] * 5]
    process = gpus[2]["processes"][0]
    assert (process["pid"], process["types"], process["memory_mib"]) == (os.getpid(), ["compute"], 2048)


# --- speed ------------------------------------------------------------------------------------------------------------


def test_a_large_node_is_read_within_its_budget(gpu_machine: MakeMachine, trees: Trees) -> None:
    machine = gpu_host(gpu_machine, trees(LARGE))

    def gather() -> Dict[str, Any]:
        machine.connect()
        return collect.gather(machine.host, collect.DEFAULT_PARTS)

    facts = gather()
    assert facts["system"]["cpus"] == LARGE_CPUS
    assert facts["interrupts"]["total"] == LARGE_IRQS
    assert len(facts["block"]) == 16
    assert len(facts["gpus"]) == facts["nvml_gpus"] == 8
    assert quickest(gather) < CPU_SECONDS * PATIENCE


# --- the command on the node ------------------------------------------------------------------------------------------


def test_the_command_on_the_node_says_the_same(
    trees: Trees, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    host = quiet_host(trees("single-socket"))
    monkeypatch.setattr(command, "this_host", lambda: RecordedHost(str(trees("single-socket"))))
    assert command.main(["facts", "memory", "block"]) == 0
    assert json.loads(capsys.readouterr().out) == collect.gather(host, ("memory", "block"))
    assert command.main(["facts"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {*collect.DEFAULT_PARTS, "system", "nvml_gpus", "unavailable"}
    with pytest.raises(SystemExit) as stopped:
        command.main(["facts", "gpu"])
    assert stopped.value.code == command.USAGE_EXIT
    assert "argument PART: there is no part gpu; these are all, block, cdi, driver," in capsys.readouterr().err
