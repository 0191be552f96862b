# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What every concern keeps of what it found: what was really changed, whatever became of the run."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Dict

import pytest
from ansible_collections.gpufleet.node.node.declarations import load as load_declarations
from ansible_collections.gpufleet.node.plugins.module_utils._core import baseline, declared
from ansible_collections.gpufleet.node.plugins.module_utils._core.declared import of_file
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError, NotPermitted, Refused
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia import reset_counts
from ansible_collections.gpufleet.node.tests.unit.concerns.container_runtime import engine_machine
from ansible_collections.gpufleet.node.tests.unit.concerns.numa_irq_affinity import irq_machine
from ansible_collections.gpufleet.node.tests.unit.contract.concern_machines import (
    ABSENT,
    CONCERNS,
    OTHER,
    PRESENT,
    Node,
    Nodes,
    failure_of,
)
from ansible_collections.gpufleet.node.tests.unit.support import build

pytestmark = pytest.mark.once
pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.contract.concern_machines",)


def test_interrupts_that_somebody_else_moves_after_a_run_that_could_not_stay_where_they_are(tmp_path: Path) -> None:
    machine = irq_machine.IrqMachine(tmp_path)
    numbers = [int(name) for name in machine.host.files.names("/proc/irq") if name.isdecimal()]
    machine.refuses.update(dict.fromkeys(numbers, errno.ENOSPC))
    with pytest.raises(Refused):
        irq_machine.run(machine, irq_machine.LOCAL)
    machine.refuses.clear()
    for number in numbers:
        (tmp_path / f"proc/irq/{number}/smp_affinity_list").write_text("2\n")
    irq_machine.run(machine, state="absent")
    assert {machine.cpus(number) for number in numbers} == {"2"}
    assert machine.host.files.names("/var/lib/gpufleet") == ("program",)


def test_a_configuration_that_somebody_else_writes_after_a_run_that_could_not_stays_as_it_is(nodes: Nodes) -> None:
    main = engine_machine.main_of("docker")
    node = nodes("container_runtime")
    node.host.files.read_only.append("/etc/docker")
    assert isinstance(failure_of(node.present), NotPermitted)
    assert not node.host.files.exists("/var/lib/gpufleet")
    node.host.files.read_only.clear()
    node.host.files.replace(main, "log=journald\n")
    node.absent()
    assert node.host.files.read(main) == "log=journald\n"
    # What comes later is given back to what it was then, byte for byte.
    node.present()
    node.absent()
    assert node.host.files.read(main) == "log=journald\n"


def test_a_binding_that_could_not_be_installed_leaves_nothing_to_restore(nodes: Nodes) -> None:
    node = nodes("nvml")
    untouched = node.found()
    node.host.files.read_only.append("/var/lib")
    assert isinstance(failure_of(node.present), NotPermitted)
    assert node.differs_from(untouched) == []
    assert node.absent().changes == ()


@pytest.mark.parametrize(
    ("concern", "path"),
    [
        ("numa_irq_affinity", "/sys/devices/system/cpu/nohz_full"),
        ("numa_irq_affinity", "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list"),
        ("numa_irq_affinity", "/sys/devices/system/cpu/online"),
        ("numa_irq_affinity", "/sys/devices/system/cpu/possible"),
        ("numa_irq_affinity", "/sys/devices/system/cpu/isolated"),
        ("numa_irq_affinity", "/sys/devices/system/node/node0/cpulist"),
        ("hugepages", "/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages"),
        ("hugepages", "/sys/kernel/mm/transparent_hugepage/hpage_pmd_size"),
        ("hugepages", "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"),
        ("hugepages", "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages"),
        ("hugepages", "/sys/devices/system/node/node0/hugepages/hugepages-2048kB/surplus_hugepages"),
        ("kernel_modules", "/proc/modules"),
    ],
)
def test_what_the_kernel_never_says_is_an_error_that_names_the_file(nodes: Nodes, concern: str, path: str) -> None:
    node = nodes(concern)
    node.host.files.replace(path, "no-such,thing\n")
    failure = failure_of(node.present)
    assert failure is not None
    assert (failure.code, failure.object) == ("cannot_look", path)
    assert "'no-such,thing' is no" in str(failure)


@pytest.mark.parametrize("named", ["smp_affinity_list", "local_cpulist", "distance"])
def test_what_the_kernel_never_says_of_an_interrupt_or_a_device_names_the_file(tmp_path: Path, named: str) -> None:
    machine = irq_machine.IrqMachine(tmp_path)
    pci = f"/sys/bus/pci/devices/{irq_machine.ETH0}"
    path = {
        "smp_affinity_list": next(
            f"/proc/irq/{name}/smp_affinity_list"
            for name in sorted(machine.host.files.names(f"{pci}/msi_irqs"))
            if name.isdecimal()
        ),
        "local_cpulist": f"{pci}/local_cpulist",
        "distance": "/sys/devices/system/node/node0/distance",
    }[named]
    if named == "local_cpulist":
        machine.host.files.replace(f"{pci}/numa_node", "-1\n")
    if named == "distance":
        # The CPUs of a node without any are those of the nearest.
        machine.host.files.replace("/sys/devices/system/node/node0/cpulist", "\n")
    machine.host.files.replace(path, "no-such,thing\n")
    failure = failure_of(lambda: irq_machine.run(machine, irq_machine.LOCAL))
    assert failure is not None
    assert (failure.code, failure.object) == ("cannot_look", path)


HOSTILE = {
    "empty": "",
    "of a later release": '{"schema": 99, "values": [], "folders": []}',
    "a list": "[]",
    "a number": "1",
    "cut": '{"schema": 1, "values": [',
    "no text": '{"schema": 1, "values": "\x00", "folders": 7}',
    "not UTF-8": '{"schema": 1, "values": "\udcff"}',
    "deep": "[" * 100_000,
    "wrong types": '{"schema": 1, "values": [[]], "folders": {"a": 1}, "begun": 3}',
    "a text for a list": '{"schema": 1, "values": [], "folders": "/etc"}',
    "a folder that is none": '{"schema": 1, "values": [], "folders": ["/etc/\\u0000"]}',
    "10 MB": f'{{"schema": 1, "values": "{"x" * 10_000_000}"}}',
}


WHOLE, CUT_SHORT = "whole", "cut short"
OURS = ("var/lib/gpufleet/", "etc/gpufleet/", "run/gpufleet/")
LOCK = "/run/gpufleet/lock"


def make_hostile(node: Node, path: str, kind: str, whole: str = "") -> None:
    """Put this in place of a file, whose text is handed in where the kind is made of it."""
    real = Path(node.host.files.locate(path))
    real.parent.mkdir(parents=True, exist_ok=True)
    if real.is_dir():
        real.rmdir()
    elif os.path.lexists(real):
        real.unlink()
    if kind in (WHOLE, CUT_SHORT):
        real.write_text(whole if kind == WHOLE else whole[: len(whole) // 2])
    elif kind == "a folder":
        real.mkdir()
    elif kind == "a pipe":
        os.mkfifo(real)
    elif kind == "a link to nowhere":
        real.symlink_to("/no/such/file")
    else:
        real.write_bytes(HOSTILE[kind].encode("utf-8", "surrogateescape"))


@pytest.mark.parametrize("concern", CONCERNS)
def test_a_damaged_record_of_what_was_before_us_is_named_before_anything_changes(nodes: Nodes, concern: str) -> None:
    node = nodes(concern)
    untouched = node.found()
    node.present()
    path = baseline.path_of(concern)
    whole = node.host.files.read(path)
    for kind in (*HOSTILE, CUT_SHORT, "a folder", "a pipe"):
        make_hostile(node, path, kind, whole)
        before = node.found()
        node.effects.clear()
        look, failure = node.look(ABSENT), failure_of(node.absent)
        assert failure is not None, kind
        assert (failure.code, failure.object) == ("cannot_look", path), kind
        assert (look["status"], look["msg"]) == ("unknown", str(failure)), kind
        # A folder or a pipe is no work of ours, and the message says which of them it is.
        assert failure.hint == baseline.HINT or kind in ("a folder", "a pipe"), kind
        # What is there needs no record.
        assert node.present().changes == (), kind
        refused = node.outcome(OTHER)
        if refused.error is not None:
            assert path in str(refused.error), kind
            assert refused.changes == (), kind
        else:
            # It changed nothing that was not recorded.
            node.present()
        assert node.effects == [] or refused.error is None, kind
        assert node.found()[1] == before[1], kind
    make_hostile(node, path, WHOLE, whole)
    node.absent()
    assert node.differs_from(untouched) == []


def of_ours(node: Node) -> Dict[str, str]:
    """The files of ours that a run left, with their texts, but the one that the law before this is about."""
    tree, _state = node.everything()
    return {
        f"/{path}": entry[2]
        for path, entry in tree.items()
        if path.startswith(OURS) and entry[0] == "file" and f"/{path}" not in (LOCK, baseline.path_of(node.name))
    }


@pytest.mark.parametrize("concern", CONCERNS)
def test_any_other_damaged_file_of_ours_is_named_before_anything_changes_or_of_no_matter(
    nodes: Nodes, concern: str
) -> None:
    node = nodes(concern)
    untouched = node.found()
    node.present()
    # The program that other concerns find there is a matter of node_tools.
    ours = {path: whole for path, whole in of_ours(node).items() if path[1:] not in untouched[0]}
    assert declared.path_of(concern) in ours
    for path, whole in ours.items():
        for kind in ("empty", "a list", "not UTF-8", CUT_SHORT):
            make_hostile(node, path, kind, whole)
            before = node.found()
            for verb in (PRESENT, ABSENT):
                outcome = node.outcome(verb)
                if outcome.error is not None:
                    assert path in str(outcome.error), kind
                    assert outcome.error.hint, kind
                    assert outcome.changes == (), kind
                    assert node.differs_from(before) == [], kind
                    make_hostile(node, path, WHOLE, whole)
                    node.absent()
                elif verb == ABSENT:
                    assert node.differs_from(untouched) == [], f"{kind} {path}"
            node.present()
    node.absent()
    assert node.differs_from(untouched) == []


@pytest.mark.parametrize("value", ['"x\\u0000y"', '"0-99"', "-1", '""'])
def test_a_number_of_pages_that_nobody_had_is_damage(nodes: Nodes, value: str) -> None:
    node = nodes("hugepages")
    node.present()
    path = "/var/lib/gpufleet/baseline/hugepages.json"
    document = json.loads(node.host.files.read(path))
    pool = next(entry for entry in document["values"] if "nr_hugepages" in entry["identity"])
    pool["effective"] = json.loads(value)
    node.host.files.replace(path, json.dumps(document))
    failure = failure_of(node.absent)
    assert failure is not None
    assert failure.code == "cannot_look"
    assert f"in {path}: the file is damaged" in str(failure)


# What is only noted, and is nothing where nobody can read it; of all else a damaged one is an error.
NOTES = ("/run/gpufleet/numa_irq_affinity.json", "/run/gpufleet/reboot-required.d/hugepages")
FILES = {
    "/var/lib/gpufleet/container_runtime.json": "container_runtime",
    "/run/gpufleet/container_runtime.previous/docker.json": "container_runtime",
    **{path: path.rpartition("/")[2].replace(".json", "") for path in NOTES},
}


@pytest.mark.parametrize("kind", [*HOSTILE, "a folder", "a pipe", "a link to nowhere"])
@pytest.mark.parametrize("path", FILES)
def test_any_file_of_ours_that_is_damaged_is_named_or_of_no_matter(nodes: Nodes, path: str, kind: str) -> None:
    node = nodes(FILES[path])
    make_hostile(node, path, kind)
    failure = failure_of(node.present)
    if failure is not None:
        assert path in str(failure)
    assert failure is None or path not in NOTES or kind == "a folder"


def test_a_damaged_record_of_what_a_change_of_layouts_left_is_named(nodes: Nodes) -> None:
    path = "/var/lib/gpufleet/mig_layout.transaction"
    gpu = '{"mig": true, "instances": %s, "persistence": null}'
    document = '{"schema": 1, "boot": "", "stopped": [], "gpus": {"GPU-1": %s}}'
    kinds = [
        *(text for name, text in HOSTILE.items()),
        *(document % (gpu % value) for value in ("1", "[]", '"19@0-99999999999"', '"19@\\u0000"')),
        *(document % value for value in ("[]", "null", '"x"')),
    ]
    node = nodes("mig_layout")
    for text in kinds:
        node.host.files.replace(path, text)
        failure = failure_of(node.present)
        assert failure is not None
        assert (failure.code, failure.object) == ("cannot_look", path), text[:200]
    for kind in ("a folder", "a pipe"):
        make_hostile(node, path, kind)
        failure = failure_of(node.present)
        assert failure is not None
        assert path in str(failure)
    make_hostile(node, path, "a link to nowhere")
    Path(node.host.files.locate(os.path.dirname(path)), os.path.basename(path)).unlink()
    # Where the instances were is only a wish.
    for kind in HOSTILE:
        make_hostile(node, "/var/lib/gpufleet/mig_layout.json", kind)
        assert failure_of(node.present) is None, kind


@pytest.mark.parametrize("text", ['{"GPU-1": 1e999}', '{"GPU-1": []}', "[]", '"x"', "[" * 100_000])
def test_a_damaged_count_of_releases_is_none(tmp_path: Path, text: str) -> None:
    host = build(tmp_path, {reset_counts.RECORD: text})
    assert reset_counts.read(host.files) == {}


@pytest.mark.parametrize("kind", [*HOSTILE, "a folder", "a pipe", "a link to nowhere"])
def test_a_damaged_declaration_is_named_and_the_others_are_read(nodes: Nodes, kind: str) -> None:
    node = nodes("hugepages")
    node.present()
    path = declared.path_of("kernel_modules")
    make_hostile(node, path, kind)
    found = load_declarations(node.host.files, REGISTRY)
    assert list(found.usable) == ["hugepages"]
    assert path in str(found.broken["kernel_modules"])
    failure = None
    try:
        of_file(node.host.files, "kernel_modules")
    except (GpuFleetError, OSError) as error:
        failure = error
    # A look has nothing there; the program of the node says that it cannot read it.
    assert (failure is None) == (kind == "a link to nowhere")
