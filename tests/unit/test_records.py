# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What every concern keeps of what it found: what was really changed, whatever became of the run."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import engine_machine
import irq_machine
import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import NotPermitted, Refused
from concern_machines import CONCERNS, Nodes, difference, failure_of
from support import Killed

pytestmark = pytest.mark.once
pytest_plugins = ("concern_machines", "gpu_machine", "persistence_machine", "nvml_simulator_fixtures")

OURS = ("var/lib/gpufleet", "etc/gpufleet")


@pytest.mark.parametrize("concern", CONCERNS)
def test_a_run_that_fails_anywhere_keeps_what_it_changed_and_no_more_and_can_be_given_back(
    nodes: Nodes, concern: str
) -> None:
    for point in range(1, 200):
        node = nodes(concern)
        untouched = node.found()
        node.host.files.log.clear()
        node.host.files.fail_at = point
        failed = failure_of(node.present)
        node.host.files.fail_at = None
        if len(node.host.files.log) < point:
            assert failed is None
            assert point > 4
            break
        tree, state = node.found()
        rest = {path: entry for path, entry in tree.items() if not path.startswith(OURS)}
        if failed is not None and (rest, state) == untouched:
            assert difference(tree, untouched[0]) == [], f"at side effect {point}"
        node.absent()
        assert node.differs_from(untouched) == [], f"at side effect {point}"
    else:
        pytest.fail("it never ended")


def test_interrupts_that_somebody_else_moves_after_a_run_that_could_not_stay_where_they_are(tmp_path: Path) -> None:
    machine = irq_machine.IrqMachine(tmp_path)
    numbers = [int(name) for name in machine.host.files.names("/proc/irq") if name.isdigit()]
    machine.refuses.update(dict.fromkeys(numbers, errno.ENOSPC))
    with pytest.raises(Refused):
        irq_machine.run(machine, irq_machine.LOCAL)
    machine.refuses.clear()
    for number in numbers:
        (tmp_path / f"proc/irq/{number}/smp_affinity_list").write_text("2\n")
    irq_machine.run(machine, state="absent")
    assert {machine.cpus(number) for number in numbers} == {"2"}
    assert not machine.host.files.exists("/var/lib/gpufleet")


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


def test_a_binding_that_could_not_be_installed_leaves_nothing_to_give_back(nodes: Nodes) -> None:
    node = nodes("nvml")
    untouched = node.found()
    node.host.files.read_only.append("/usr/local/lib")
    assert isinstance(failure_of(node.present), NotPermitted)
    assert node.differs_from(untouched) == []
    assert node.absent().changes == ()


@pytest.mark.parametrize("concern", CONCERNS)
def test_a_run_that_is_killed_anywhere_can_be_given_back(nodes: Nodes, concern: str) -> None:
    for point in range(1, 200):
        node = nodes(concern)
        untouched = node.found()
        node.host.files.log.clear()
        node.host.files.kill_at = point
        try:
            node.present()
        except Killed:
            node.host.files.kill_at = None
            node.absent()
            assert node.differs_from(untouched) == [], f"at side effect {point}"
        else:
            node.host.files.kill_at = None
            assert point > 4
            node.absent()
            break
    else:
        pytest.fail("it never ended")


@pytest.mark.parametrize(
    ("concern", "path"),
    [
        ("numa_irq_affinity", "/sys/devices/system/cpu/nohz_full"),
        ("numa_irq_affinity", "/sys/devices/system/cpu/cpu0/topology/thread_siblings_list"),
        ("hugepages", "/sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages"),
    ],
)
def test_what_the_kernel_never_says_is_an_error_that_names_the_file(nodes: Nodes, concern: str, path: str) -> None:
    node = nodes(concern)
    node.host.files.replace(path, "no-such,thing\n")
    failure = failure_of(node.present)
    assert failure is not None
    assert (failure.code, failure.object) == ("cannot_look", path)
    assert "'no-such,thing' is no" in str(failure)


HOSTILE = {
    "a list": "[]",
    "a number": "1",
    "cut": '{"schema": 1, "found": [',
    "no text": '{"schema": 1, "found": "\x00", "folders": 7}',
    "not UTF-8": '{"schema": 1, "found": "\udcff"}',
    "deep": "[" * 100_000,
    "wrong types": '{"schema": 1, "found": [[]], "folders": {"a": 1}, "begun": 3}',
}


@pytest.mark.parametrize("kind", [*HOSTILE, "a folder", "a pipe"])
@pytest.mark.parametrize("concern", ["hugepages", "container_runtime", "numa_irq_affinity", "nvme_scheduler"])
def test_a_record_of_any_other_making_is_an_error_with_words_and_nothing_changes(
    nodes: Nodes, concern: str, kind: str
) -> None:
    node = nodes(concern)
    node.present()
    real = node.host.files.locate(f"/var/lib/gpufleet/before/{concern}.json")
    Path(real).unlink()
    if kind == "a folder":
        Path(real).mkdir()
    elif kind == "a pipe":
        os.mkfifo(real)
    else:
        Path(real).write_bytes(HOSTILE[kind].encode("utf-8", "surrogateescape"))
    failure = failure_of(node.absent)
    assert failure is not None
    assert failure.code == "cannot_look"
    assert f"/var/lib/gpufleet/before/{concern}.json" in str(failure)
    assert node.run(node.declaration).changes == ()
