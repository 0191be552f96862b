# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What every concern keeps of what it found: what was really changed, whatever became of the run."""

from __future__ import annotations

import ast
import errno
import json
import os
import re
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Sequence, Tuple

import pytest
from ansible_collections.gpufleet.node.node.declarations import load as load_declarations
from ansible_collections.gpufleet.node.plugins.module_utils._core import baseline, declared
from ansible_collections.gpufleet.node.plugins.module_utils._core.declared import of_file
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError, NotPermitted, Refused
from ansible_collections.gpufleet.node.plugins.module_utils._core.record import read_note, texts_of
from ansible_collections.gpufleet.node.plugins.module_utils._core.targets import remedy
from ansible_collections.gpufleet.node.plugins.module_utils._machine.processes import Process
from ansible_collections.gpufleet.node.plugins.module_utils._node.facts import port_record
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia import reset_counts
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime import (
    last_good,
    original_files,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.docker import (
    meaning as docker_meaning,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.fabric_manager import notes as fabric_notes
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.filesystems import (
    made,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.filesystems import (
    observation as filesystems,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.filesystems import (
    spec as filesystems_spec,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.filesystems import (
    state as filesystems_state,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_settings import locks
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kernel_modules import (
    initramfs,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kernel_modules import (
    state as initramfs_state,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kubelet_config import state as kubelet_state
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout import (
    consumers,
    transaction,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout import (
    records as mig_records,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nic_settings import way_back
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity import devices as irq_devices
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.slurm_gpus import (
    observation as slurm_gpus_observation,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.slurm_gpus import state as slurm_gpus
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.slurm_topology import (
    observation as slurm_topology_observation,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.slurm_topology import state as slurm_topology
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
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build

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
    "a text for the values": '{"schema": 1, "values": "", "folders": []}',
    "10 MB": f'{{"schema": 1, "values": "{"x" * 10_000_000}"}}',
}
MISPLACED = ("a folder", "a pipe", "a link to nowhere", "a link to itself")
# What Python says of a defect, which tells an operator nothing.
OF_PYTHON = re.compile(
    r"\b\w+(Error|Exception)\b|'\w+' object|NoneType|codec|indices|recursion|invalid literal|unpack|attribute '"
)


WHOLE, CUT_SHORT = "whole", "cut short"
OURS = ("var/lib/gpufleet/", "etc/gpufleet/", "run/gpufleet/")
HOME = Path(__file__).resolve().parents[3]
LOCK = "/run/gpufleet/lock"


def make_hostile(host: FakeHost, path: str, kind: str, whole: str = "") -> None:
    """Put this in place of a file, whose text is handed in where the kind is made of it."""
    real = Path(host.files.locate(os.path.dirname(path)), os.path.basename(path))
    real.parent.mkdir(parents=True, exist_ok=True)
    if real.is_dir() and not real.is_symlink():
        real.rmdir()
    elif os.path.lexists(real):
        real.unlink()
    if kind in (WHOLE, CUT_SHORT):
        real.write_text(whole if kind == WHOLE else whole[: len(whole) // 2], errors="surrogateescape")
    elif kind == "a folder":
        real.mkdir()
    elif kind == "a pipe":
        os.mkfifo(real)
    elif kind == "a link to nowhere":
        os.symlink("/no/such/file", real)
    elif kind == "a link to itself":
        os.symlink(real.name, real)
    else:
        real.write_bytes(HOSTILE[kind].encode("utf-8", "surrogateescape"))


@pytest.mark.parametrize("concern", CONCERNS)
def test_a_damaged_record_of_what_was_before_us_is_named_before_anything_changes(nodes: Nodes, concern: str) -> None:
    node = nodes(concern)
    untouched = node.found()
    node.present()
    path = baseline.path_of(concern)
    whole = node.host.files.read(path)
    for kind in (*HOSTILE, CUT_SHORT, *MISPLACED):
        make_hostile(node.host, path, kind, whole)
        before = node.found()
        node.effects.clear()
        for verb in (PRESENT, OTHER, ABSENT):
            look, outcome = node.look(verb), node.outcome(verb)
            assert look["status"] == ("drifted" if look["settings"] else "unknown"), kind
            # All else is as it is declared. A link of ours that others may have made is removed by node_tools.
            assert verb == OTHER or {row["object"] for row in look["settings"]} <= {path}, kind
            failure = outcome.error
            assert failure is not None, kind
            assert look["msg"] == str(failure), kind
            # What a machine cannot have is said first.
            if verb != OTHER or path in str(failure):
                assert (failure.code, failure.object) == ("cannot_look", path), kind
                # Whoever else reads it stops at a link that leads to itself.
                assert failure.hint == baseline.HINT or (kind == "a link to itself" and failure.hint), kind
            assert not OF_PYTHON.search(str(failure)), kind
            assert outcome.changes == (), kind
        assert node.effects == [], kind
        assert node.found() == before, kind
    make_hostile(node.host, path, WHOLE, whole)
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
        for kind in ("a folder", "a link to itself"):
            make_hostile(node.host, path, kind)
            for verb in (PRESENT, ABSENT):
                look = node.look(verb)
                assert "exception" not in look, (kind, path)
                assert look["status"] != "unknown" or (path in look["msg"] and look["failure"]["hint"]), (kind, path)
                error = node.outcome(verb).error if verb == PRESENT or look["status"] == "unknown" else None
                assert error is None or path in str(error), (kind, path)
            make_hostile(node.host, path, WHOLE, whole)
            node.present()
        for kind in ("empty", "a list", "not UTF-8", CUT_SHORT):
            make_hostile(node.host, path, kind, whole)
            before = node.found()
            for verb in (PRESENT, ABSENT):
                outcome = node.outcome(verb)
                if outcome.error is not None:
                    assert path in str(outcome.error), kind
                    assert outcome.error.hint, kind
                    assert outcome.changes == (), kind
                    assert node.differs_from(before) == [], kind
                    make_hostile(node.host, path, WHOLE, whole)
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
    make_hostile(node.host, path, kind)
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
        make_hostile(node.host, path, kind)
        failure = failure_of(node.present)
        assert failure is not None
        assert path in str(failure)
    make_hostile(node.host, path, "a link to nowhere")
    Path(node.host.files.locate(os.path.dirname(path)), os.path.basename(path)).unlink()
    # Where the instances were is only a wish.
    for kind in HOSTILE:
        make_hostile(node.host, "/var/lib/gpufleet/mig_layout.json", kind)
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
    make_hostile(node.host, path, kind)
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


# Each document of ours that a reader of ours believes, with one as its writer makes it. Of a record a damaged one is an
# error, and of a note it is none.
Reader = Tuple[Callable[[FakeHost], Any], str]
OF_UNIT = json.dumps({"process": "7:9", "texts": {"/etc/one": "a"}})
RECORDS: Dict[str, Reader] = {
    baseline.path_of("hugepages"): (
        lambda host: baseline.load(host.files, "hugepages"),
        json.dumps(
            {
                "schema": 1,
                "values": [{"identity": "/a", "setting": "b", "effective": 1, "boot": None}],
                "folders": ["/c"],
                "files": ["/d"],
                "begun": [["/a", "b"]],
            }
        ),
    ),
    original_files.RECORD: (
        lambda host: original_files.load(host.files),
        json.dumps({"schema": 1, "files": {"/a": {"engine": "docker", "text": "b", "sums": ["c"]}}}),
    ),
    last_good.path_of("docker"): (
        lambda host: last_good.load(host.files, "docker"),
        json.dumps({"schema": 1, "files": [{"path": "/a", "before": None, "after": "b"}]}),
    ),
    way_back.RECORD: (
        lambda host: way_back.load(host.files),
        way_back.text_of(way_back.WayBack((way_back.Undo("eth0", "0000:01:00.0", "mtu", 1500, 9000),), 7, "boot")),
    ),
    mig_records.INTERRUPTED_RUN: (
        lambda host: transaction.interrupted_run(host.files),
        json.dumps(
            {
                "schema": 1,
                "boot": "",
                "stopped": ["dcgm.service"],
                "gpus": {"GPU-1": {"mig": True, "instances": "19@0-6[1c@0]", "persistence": None}},
            }
        ),
    ),
    declared.path_of("hugepages"): (
        lambda host: of_file(host.files, "hugepages"),
        json.dumps({"schema": 1, "declaration": {"a": 1}}),
    ),
}
NOTED: Dict[str, Reader] = {
    port_record.PATH: (
        lambda host: port_record.load(host.files)[0],
        json.dumps({"schema": 1, "boot_id": "", "samples": [{"seconds": 1.5, "counters": {"eth0": {"rx": 1}}}]}),
    ),
    reset_counts.RECORD: (lambda host: reset_counts.read(host.files), json.dumps({"GPU-1": 2})),
    locks.RECORD: (
        lambda host: locks.read_record(host.files),
        json.dumps({"schema": 1, "gpus": {"GPU-1": {"graphics_clock": {"value": "210-900"}}}}),
    ),
    mig_records.RECORD: (
        lambda host: mig_records.read_record(host.files) or None,
        mig_records.record_text({"GPU-1": "19@0"}),
    ),
    mig_records.NOTIFIED: (
        consumers.stale_consumers,
        json.dumps({"schema": 1, "specifications": {"/a": ""}, "processes": {"restart_dcgm": ["7:9"]}}),
    ),
    irq_devices.NOTE: (
        lambda host: irq_devices.noted(host.files),
        irq_devices.note_text({("0000:01:00.0", "a"): "b"}),
    ),
    docker_meaning.LOADED: (
        lambda host: docker_meaning.noted_of(host.files),
        json.dumps({"daemon": "7:9", "settings": {"default_shm_size": "64M"}}),
    ),
    fabric_notes.PATH: (
        lambda host: fabric_notes.read(host.files),
        fabric_notes.text_of(
            fabric_notes.Notes(
                {"/a": ("1", "2")}, {"/b": ("1", "2")}, {"c": True}, {"d": fabric_notes.Started("7:9", {"/e": "f"})}
            )
        ),
    ),
    filesystems_state.NOTES: (
        lambda host: filesystems.read_notes(host.files),
        filesystems.text_of_notes({"/a": filesystems_state.Note("7", "ro")}),
    ),
    filesystems_spec.JOURNAL: (
        lambda host: made.read_journal(host.files),
        json.dumps({"/a": {"array": "b", "filesystem": "c", "fstype": "xfs", "drives": ["d"]}}),
    ),
    initramfs_state.INITRAMFS_NOTE: (
        lambda host: read_note(host.files, initramfs_state.INITRAMFS_NOTE, initramfs._note) or initramfs.Note(),
        initramfs.text_of(initramfs.Note(("a",), {"/b": initramfs.Image((1, 2, 3), ("c",), ("d",))})),
    ),
    slurm_gpus.NOTE: (
        lambda host: slurm_gpus_observation._noted(host.files, slurm_gpus.Daemons(True, Process(7, 1, 9))),
        OF_UNIT,
    ),
    slurm_topology.NOTE: (
        lambda host: slurm_topology_observation._former(host.files, slurm_topology.Daemon(True)),
        OF_UNIT,
    ),
    kubelet_state.NOTE: (
        lambda host: read_note(host.files, kubelet_state.NOTE, texts_of),
        json.dumps({"/etc/one": "a", "/etc/two": None}),
    ),
}
READERS = {**RECORDS, **NOTED}
# What else we keep, and what of it is read: no text that could be damaged.
UNREAD = {
    "/etc/gpufleet/declared.d": "a folder",
    "/etc/gpufleet/irqbalance.d": "a folder, of a program of irqbalance",
    "/run/gpufleet/": "a folder",
    "/run/gpufleet/container_engine_restart": "a folder of empty files",
    "/run/gpufleet/container_runtime.check": "a folder of copies, for the time of a check",
    "/run/gpufleet/container_runtime.previous": "a folder",
    "/run/gpufleet/daemon-reexec": "empty",
    "/run/gpufleet/daemon-reload": "lines, each the name of a unit",
    "/run/gpufleet/gpu_virtualization.closed": "the address of a GPU",
    "/run/gpufleet/irqbalance/devices": "lines, each the address of a device",
    "/run/gpufleet/irqbalance/untold": "empty",
    "/run/gpufleet/lock": "empty",
    "/run/gpufleet/nvme_scheduler.rules": "a copy, for the time of a check",
    "/run/gpufleet/place.lock": "empty",
    "/run/gpufleet/ports.lock": "empty",
    "/run/gpufleet/reboot-required.d": "a folder of sentences",
    "/var/lib/gpufleet/": "a folder",
    "/var/lib/gpufleet/baseline": "a folder",
    "/var/lib/gpufleet/kernel_modules.initramfs": "a sentence",
    "/var/lib/gpufleet/program": "a folder, with checksums of what is in it",
    "/var/lib/gpufleet/python": "a folder, whose file is declared by its checksum",
}


def test_every_file_of_ours_that_the_code_names_has_its_reader_here() -> None:
    named = {
        node.value
        for folder in ("plugins/module_utils", "node")
        for path in (HOME / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if re.fullmatch(r"/(run|var/lib|etc)/gpufleet/[\w./-]*", node.value)
    }
    assert named - READERS.keys() == UNREAD.keys()


def mutants(value: Any) -> Iterator[Any]:
    """Documents of which one value has another type, or a key is missing."""
    others: Sequence[Any] = (None, 7, "x", ["x"], {"x": ["x"]}, "", [], {})
    yield from (other for other in others if not isinstance(other, type(value)))
    if isinstance(value, dict):
        for key in value:
            if len(value) > 1:
                yield {name: found for name, found in value.items() if name != key}
            yield from ({**value, key: other} for other in mutants(value[key]))
    elif isinstance(value, list) and value:
        yield from ([other, *value[1:]] for other in mutants(value[0]))


def damaged(whole: str) -> Iterator[Tuple[str, str]]:
    """Kinds of damage for ``make_hostile``, each with the text that it is made of."""
    yield from ((kind, whole) for kind in (*HOSTILE, CUT_SHORT, *MISPLACED))
    yield WHOLE, whole.replace('"', '"\udce9', 3)
    yield from ((WHOLE, json.dumps(mutant)) for mutant in mutants(json.loads(whole)))


@pytest.mark.parametrize("path", READERS)
def test_a_damaged_document_of_ours_is_an_error_for_an_operator_or_is_as_if_it_were_lost(
    tmp_path: Path, path: str
) -> None:
    read, whole = READERS[path]
    host = build(tmp_path, {})
    lost = read(host)
    make_hostile(host, path, WHOLE, whole)
    # No process of the one that is noted runs here.
    assert read(host) != lost or path == mig_records.NOTIFIED
    for kind, text in damaged(whole):
        if path == declared.path_of("hugepages") and kind == "a link to nowhere":
            # The next run writes it again.
            continue
        make_hostile(host, path, kind, text)
        about = f"{kind}: {text[:200]}"
        found, failure = lost, None
        try:
            found = read(host)
        except (GpuFleetError, OSError) as error:
            failure = error
        if isinstance(failure, GpuFleetError):
            assert path in RECORDS, about
            assert path in str(failure), about
            assert failure.hint, about
            assert not OF_PYTHON.search(str(failure)), f"{about}: {failure}"
        elif isinstance(failure, OSError):
            # Every look names it, with this for the next step.
            assert kind in MISPLACED, about
            assert (failure.filename, bool(remedy(failure))) == (path, True), about
        elif path in RECORDS:
            # What is not known is not what is not there.
            assert found != lost, about
        else:
            assert found == lost or kind == WHOLE, about


@pytest.mark.parametrize("concern", CONCERNS)
@pytest.mark.parametrize("value", [7, "x", ["x"], {"x": ["x"]}], ids=str)
def test_what_another_concern_declares_is_of_any_type_and_no_traceback(nodes: Nodes, concern: str, value: Any) -> None:
    node = nodes(concern)
    for entry in REGISTRY:
        document = {"schema": 1, "declaration": dict.fromkeys(entry.concern.options, value)}
        if entry.name != concern:
            node.host.files.replace(declared.path_of(entry.name), json.dumps(document))
    assert node.look(PRESENT).get("exception") is None
