# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What operators see of interrupts: a line a device in ``gpufleet status``, the audit and gpu_node_info."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

import pytest
from ansible_collections.gpufleet.node.node.status import status
from ansible_collections.gpufleet.node.plugins.module_utils._linux import cpulist
from ansible_collections.gpufleet.node.plugins.module_utils._node.assessment import assess_node
from ansible_collections.gpufleet.node.plugins.module_utils._node.facts import interrupts as info_interrupts
from ansible_collections.gpufleet.node.plugins.module_utils._node.look import validated
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.plugins.module_utils._node.table import device_table, devices_of, rows_of, table
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity.spec import NAME
from ansible_collections.gpufleet.node.tests.unit.concerns.numa_irq_affinity.irq_machine import (
    DECLARED,
    DRIVE0,
    ETH0,
    HOME,
    LOCAL,
    IrqMachine,
    run,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.numa_irq_affinity.irq_trees import large

NVME_QUEUE = "it cannot be moved: its smp_affinity_list is read-only"
LOCAL_DECLARATION: Dict[str, Any] = {"interrupts": [LOCAL]}


def effective(machine: IrqMachine) -> Dict[str, Any]:
    found: Dict[str, Any] = run(machine, LOCAL).effective["devices"]
    return found


def seen(machine: IrqMachine, **keywords: Any) -> List[Dict[str, Any]]:
    look = assess_node({NAME: LOCAL_DECLARATION}, machine.host, validate=validated, full=False, **keywords)
    found: List[Dict[str, Any]] = look["concerns"][NAME].get("devices", [])
    return found


def scatter(machine: IrqMachine) -> None:
    """Every interrupt may go anywhere again."""
    for number in machine.host.files.names("/proc/irq"):
        if number.isdecimal():
            (machine.root / "proc/irq" / number / "smp_affinity_list").write_text("0-15\n")


def test_every_declared_device_is_told_of_with_where_its_interrupts_belong_and_are(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    run(machine, LOCAL)
    assert seen(machine) == []
    found = {device["pci_address"]: device for device in seen(machine, devices=True)}
    declared = effective(machine)
    assert [device["device"] for device in found.values()] == list(declared)
    for name, state in declared.items():
        device, rows = found[state["pci_address"]], state["interrupts"].values()
        movable = [row for row in rows if not row["managed"]]
        assert device["device"] == name
        assert device["interrupts"] == len(rows)
        assert device["elsewhere"] == 0
        assert device["wanted"] == device["effective"]
        assert sum(device["unmanaged"].values()) == len(rows) - len(movable)
        assert cpulist.parse(device["wanted"] or "") == {cpu for row in movable for cpu in cpulist.parse(row["cpus"])}
    assert found[DRIVE0]["unmanaged"] == {NVME_QUEUE: 1}


def test_where_one_is_elsewhere_all_devices_are_told_of_unasked(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    run(machine, LOCAL)
    machine.renumber(ETH0)
    found = {device["pci_address"]: device for device in seen(machine)}
    moved = {address for address, device in found.items() if device["elsewhere"]}
    assert moved == {ETH0}
    assert found[ETH0]["elsewhere"] == len(machine.of(ETH0))
    assert found[ETH0]["effective"] == "0-15"
    assert cpulist.parse(found[ETH0]["wanted"]) < HOME[0]
    assert len(found) > 1


def test_status_shows_a_line_a_device_and_none_for_each_interrupt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = IrqMachine(tmp_path, large())
    run(machine, LOCAL)
    capsys.readouterr()
    concern = [entry for entry in REGISTRY if entry.name == NAME]
    assert status(machine.host, registry=concern) == 0
    right = capsys.readouterr().out.splitlines()
    assert right[0].split() == [
        "NODE",
        "DEVICE",
        "NUMA",
        "INTERRUPTS",
        "WANTED",
        "IN",
        "EFFECT",
        "ELSEWHERE",
        "UNMANAGED",
    ]
    # The reason of the drives' queues and the count of the concerns come below.
    assert len(right) == 1 + 64 + 1 + 1
    scatter(machine)
    assert status(machine.host, registry=concern) == 1
    wrong = capsys.readouterr().out.splitlines()
    # One line for all interrupts, and the same table of devices below.
    assert len(wrong) <= 4 + len(right) + 4
    assert sum("interrupt (" in line for line in wrong) == 1


def test_gpu_node_info_has_the_same_from_the_declaration_on_the_node(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    facts = info_interrupts.gather(machine.host.files, [])
    assert facts["declared"] is None
    assert facts["unavailable"]["declared"] == "numa_irq_affinity is not declared on this node"
    run(machine, LOCAL)
    facts = info_interrupts.gather(machine.host.files, [])
    assert facts["declared"] == seen(machine, devices=True)
    machine.renumber(ETH0)
    facts = info_interrupts.gather(machine.host.files, [])
    assert facts["declared"] == seen(machine)
    (machine.root / DECLARED[1:]).write_text("{")
    facts = info_interrupts.gather(machine.host.files, [])
    assert facts["unavailable"]["declared"] == (
        f"Cannot read the declaration in {DECLARED}: the file is damaged, or of another release. "
        "Run numa_irq_affinity again, which writes it."
    )


def test_gpu_node_info_names_the_file_that_keeps_it_from_telling(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    run(machine, LOCAL)
    (machine.root / "sys/devices/system/cpu/online").unlink()
    facts = info_interrupts.gather(machine.host.files, [])
    assert facts["declared"] is None
    assert facts["unavailable"]["declared"].endswith("/sys/devices/system/cpu/online")


def setting(name: str, **values: Any) -> Dict[str, Any]:
    row = {"node": "n1", "object": "eth0", "setting": name, "wanted": "1", "effective": "0-7", "boot": None}
    return {**row, "status": "drifted", **values}


def test_many_settings_of_a_kind_are_one_line_of_the_table() -> None:
    interrupts = [setting(f"interrupt eth0-{queue}", wanted=str(queue)) for queue in range(8)]
    queues = [setting(f"rps rx-{queue}", effective="none") for queue in range(5)]
    lines = [line.split() for line in table([*interrupts, *queues, setting("scheduler")])[1:-1]]
    assert lines == [
        ["n1", "eth0", "interrupt", "(8)", "0-7", "0-7", "-", "drifted"],
        ["n1", "eth0", "rps", "(5)", "1", "none", "-", "drifted"],
        ["n1", "eth0", "scheduler", "1", "0-7", "-", "drifted"],
    ]


def test_a_few_interrupts_are_listed_and_those_of_several_devices_counted() -> None:
    rows = [setting(f"interrupt eth0-{queue}") for queue in range(3)]
    others = [setting(f"interrupt eth1-{queue}", object="eth1") for queue in range(3)]
    assert [line.split()[1:4] for line in table(rows)[1:-1]] == [["eth0", "interrupt", f"eth0-{n}"] for n in range(3)]
    (line,) = table([*rows, *others])[1:-1]
    assert line.split() == ["n1", "2", "devices", "interrupt", "(6)", "1", "0-7", "-", "drifted"]
    steered = [setting(f"rps rx-{queue}", effective=["none", "0-3"][queue % 2]) for queue in range(4)]
    assert table(steered)[1].split() == ["n1", "eth0", "rps", "(4)", "1", "various", "-", "drifted"]


def test_the_line_of_a_device_says_what_nobody_can_move(tmp_path: Path) -> None:
    machine = IrqMachine(tmp_path)
    run(machine, LOCAL)
    look = assess_node({NAME: LOCAL_DECLARATION}, machine.host, validate=validated, full=False, devices=True)
    lines = device_table(devices_of("n1", look))
    assert next(line for line in lines if DRIVE0 in line).endswith("  1 [1]")
    assert next(line for line in lines if "eth0" in line).endswith("  0")
    assert lines[-1] == f"[1] {NVME_QUEUE}"
    assert rows_of("n1", look) == []
