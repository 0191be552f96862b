# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs that are divided into vGPUs: now, at boot, and back; and who is in the way."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, Dict, List

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    CannotLook,
    DeclarationError,
    GpuFleetError,
    InUse,
    Refused,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._core.setting import EFFECTIVE
from ansible_collections.gpufleet.node.plugins.module_utils._linux import boot_service
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.driver import Driver
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.errors import NoDriver
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_virtualization import apply, vgpus
from ansible_collections.gpufleet.node.tests.unit.concerns.gpu_virtualization.vgpu_machine import PARTS, VgpuMachine
from ansible_collections.gpufleet.node.tests.unit.concerns.gpu_virtualization.virtualization_machine import FIRST, PCI
from ansible_collections.gpufleet.node.tests.unit.support import Killed, snapshot

pytestmark = pytest.mark.once


def wanted(*counts: Any) -> List[Dict[str, Any]]:
    """Pairs of a type and a count on the first GPU."""
    types = [{"type": name, "count": count} for name, count in zip(counts[::2], counts[1::2])]
    return [{"match": {"pci_address": FIRST}, "vgpus": types}]


@pytest.fixture
def machine(tmp_path: Path) -> VgpuMachine:
    return VgpuMachine(tmp_path)


def test_a_gpu_is_divided_by_what_the_driver_calls_the_type(machine: VgpuMachine) -> None:
    outcome = machine.run(gpus=wanted("NVIDIA H100-20C", 3))
    assert machine.types() == [1020, 1020, 1020, 0]
    assert outcome.effective["gpus"][FIRST]["vgpus"] == {"H100-20C": 3}
    assert outcome.boot["gpus"][FIRST]["vgpus"] == {"H100-20C": 3}
    assert machine.driver(FIRST) == "nvidia"
    assert machine.persistent, "persistence mode is on again"
    assert machine.run(gpus=wanted("NVIDIA H100-20C", 3)).changes == ()


def test_all_of_a_gpu_can_be_given_away_and_the_names_stay_known(machine: VgpuMachine) -> None:
    machine.run(gpus=wanted("H100-40C", 2))
    assert machine.at(f"{PCI}/{PARTS[0]}/nvidia/creatable_vgpu_types").read_text() == ""
    assert machine.run(gpus=wanted("H100-40C", 2)).changes == ()


def test_only_what_is_too_many_goes_and_never_what_a_virtual_machine_has(machine: VgpuMachine) -> None:
    machine.run(gpus=wanted("H100-20C", 4))
    machine.open(4711, "/dev/vfio/31", "qemu-system-x86")
    machine.run(gpus=wanted("H100-20C", 1))
    assert machine.types() == [0, 1020, 0, 0]
    with pytest.raises(InUse, match=rf"Cannot change the vGPUs of {FIRST}: in use by qemu-system-x86 \(pid 4711"):
        machine.run(gpus=wanted("H100-40C", 1))
    outcome = machine.run(gpus=wanted("H100-40C", 1), when_busy="skip")
    assert (machine.types(), outcome.remaining.needs) == ([0, 1020, 0, 0], ("idle_gpu",))
    machine.end(4711)
    machine.run(gpus=wanted("H100-40C", 1))
    assert sorted(machine.types()) == [0, 0, 0, 1040]


def test_the_boot_service_makes_them_again(machine: VgpuMachine) -> None:
    machine.run(gpus=wanted("H100-20C", 2))
    machine.switch("-d")
    assert machine.types() == []
    machine.run(gpus=wanted("H100-20C", 2), permanent=False)
    assert machine.types() == [1020, 1020, 0, 0]


def test_without_the_boot_service_nothing_would_bring_them_back(machine: VgpuMachine) -> None:
    machine.at(boot_service.ARCHIVE).unlink()
    with pytest.raises(Refused, match=r"the boot service is not installed\. Run the role node_tools first"):
        machine.run(gpus=wanted("H100-20C", 2))
    assert not machine.enabled
    machine.run(gpus=wanted("H100-20C", 2), permanent=False)
    assert machine.types() == [1020, 1020, 0, 0]


def test_absent_disables_what_was_disabled(machine: VgpuMachine) -> None:
    before = snapshot(machine.root)
    machine.run(gpus=wanted("H100-20C", 2))
    machine.open(4711, "/dev/vfio/30", "qemu-system-x86")
    with pytest.raises(InUse, match="qemu-system-x86"):
        machine.run(state="absent")
    assert machine.types() == [1020, 1020, 0, 0]
    machine.end(4711)
    machine.run(state="absent")
    after = {path: entry for path, entry in snapshot(machine.root).items() if path in before or "/pci/" in path}
    assert after == before


def test_absent_makes_those_again_that_were_there(machine: VgpuMachine) -> None:
    machine.run(gpus=wanted("H100-40C", 1), permanent=False)
    machine.run(state="absent")
    machine.switch("-e")
    machine.host.files.write_attribute(f"{PCI}/{PARTS[2]}/{vgpus.CURRENT}", "1020")
    machine.run(gpus=wanted("H100-40C", 1))
    assert sorted(machine.types()) == [0, 0, 0, 1040]
    machine.run(state="absent")
    assert sorted(machine.types()) == [0, 0, 0, 1020]


def test_a_process_that_has_the_gpu_open_keeps_it_whole(machine: VgpuMachine) -> None:
    machine.open(4711, "/dev/nvidia0")
    with pytest.raises(InUse, match=r"in use by python3 \(pid 4711"):
        machine.run(gpus=wanted("H100-20C", 2))
    assert not machine.enabled
    machine.end(4711)
    machine.open(4712, "/dev/nvidia0", "nvidia-persistenced")
    machine.run(gpus=wanted("H100-20C", 2))
    assert machine.types() == [1020, 1020, 0, 0]


def test_skip_also_spares_a_gpu_whose_client_came_after_the_look(machine: VgpuMachine) -> None:
    smi = machine.host.commands.programs["nvidia-smi"]

    def client_comes(argv: Any) -> Completed:
        if "-pm" in argv and argv[-1] == "0":
            machine.open(4711, "/dev/nvidia0")
        return smi(argv)

    machine.host.commands.programs["nvidia-smi"] = client_comes
    outcome = machine.run(gpus=wanted("H100-20C", 2), when_busy="skip")
    assert (machine.enabled, machine.persistent) == (False, True)
    assert outcome.remaining.needs == ("idle_gpu",)
    assert EFFECTIVE not in {change.scope for change in outcome.changes}
    machine.end(4711)
    machine.host.commands.programs["nvidia-smi"] = smi
    machine.run(gpus=wanted("H100-20C", 2), when_busy="skip")
    assert machine.types() == [1020, 1020, 0, 0]


def test_skip_also_spares_a_vgpu_that_a_virtual_machine_got_after_the_look(
    machine: VgpuMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.run(gpus=wanted("H100-20C", 1))
    perform = apply.make_vgpus

    def machine_starts(*arguments: Any) -> None:
        machine.open(4711, "/dev/vfio/30", "qemu-system-x86")
        perform(*arguments)

    monkeypatch.setattr(apply, "make_vgpus", machine_starts)
    outcome = machine.run(gpus=wanted("H100-40C", 1), when_busy="skip")
    assert (machine.types(), outcome.remaining.needs) == ([1020, 0, 0, 0], ("idle_gpu",))


def test_skip_also_spares_a_gpu_whose_client_came_when_nothing_was_looked_at_any_more(machine: VgpuMachine) -> None:
    manage = machine.host.commands.programs["sriov-manage"]

    def client_comes(argv: Any) -> Completed:
        machine.open(4711, "/dev/nvidia0")
        return manage(argv)

    machine.host.commands.programs["sriov-manage"] = client_comes
    outcome = machine.run(gpus=wanted("H100-20C", 2), when_busy="skip")
    assert (machine.enabled, machine.persistent, outcome.remaining.needs) == (False, True, ("idle_gpu",))
    machine.end(4711)
    with pytest.raises(InUse, match=r"in use by python3 \(pid 4711"):
        machine.run(gpus=wanted("H100-20C", 2))


def test_skip_also_spares_a_vgpu_that_the_driver_refuses_to_remove_from_a_virtual_machine(
    machine: VgpuMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.run(gpus=wanted("H100-20C", 1))
    write = apply._write

    def machine_starts(path: str, value: str, *arguments: Any) -> None:
        if value == "0":
            machine.open(4711, "/dev/vfio/30", "qemu-system-x86")
            raise Refused("set vGPUs", object=FIRST, cause="the kernel refused the value: Device or resource busy")
        write(path, value, *arguments)

    monkeypatch.setattr(apply, "_write", machine_starts)
    outcome = machine.run(gpus=wanted("H100-40C", 1), when_busy="skip")
    assert (machine.types(), outcome.remaining.needs) == ([1020, 0, 0, 0], ("idle_gpu",))


def test_a_run_that_is_killed_anywhere_is_completed_by_the_next_and_can_be_given_back(tmp_path: Path) -> None:
    for number in range(1, 30):
        machine = VgpuMachine(tmp_path / str(number))
        machine.host.files.kill_at = number
        try:
            machine.run(gpus=wanted("H100-20C", 2))
        except Killed:
            machine.host.files.kill_at = None
        else:
            break
        machine.run(gpus=wanted("H100-20C", 2))
        assert machine.types() == [1020, 1020, 0, 0], number
        machine.run(state="absent")
        assert not machine.enabled, number
    assert number > 5


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        ([{"match": {"pci_address": FIRST}}], "it declares neither a driver nor vGPUs"),
        ([{**wanted("H100-20C", 1)[0], "driver": "vfio-pci"}], "one that is bound to vfio-pci has none"),
        (wanted("H100-20C", 0), "the count of H100-20C is below 1"),
        (wanted("H100/20C", 1), "it is not the name of a vGPU type (found H100/20C)"),
        (wanted("NVIDIA H100-1-10C", 1), "H100-1-10C is backed by MIG"),
        (wanted("H100-24C", 1), "it does not offer the type H100-24C; it offers H100-20C, H100-40C, H100-80C"),
        (wanted("H100-20C", 5), "5 vGPUs are wanted, and it has 4 virtual functions"),
    ],
)
def test_what_cannot_be_had_is_refused_before_anything_changes(machine: VgpuMachine, gpus: Any, said: str) -> None:
    before = snapshot(machine.root)
    with pytest.raises(DeclarationError) as raised:
        machine.run(gpus=gpus)
    assert said in str(raised.value)
    assert snapshot(machine.root) == before


@pytest.mark.parametrize(
    ("arrange", "said"),
    [
        (lambda machine: machine.at(f"{PCI}/{FIRST}/sriov_totalvfs").unlink(), "it has no virtual functions"),
        (lambda machine: machine.at(vgpus.TOOL).unlink(), f"there is no {vgpus.TOOL} to enable"),
        (lambda machine: machine.at(f"{PCI}/{FIRST}/{vgpus.MEDIATED}").mkdir(), "are mediated devices (mdev)"),
        (lambda machine: machine.bind(FIRST, "nouveau"), "it is bound to nouveau, and vGPUs need nvidia"),
    ],
)
def test_a_machine_that_has_no_such_vgpus_is_refused(
    machine: VgpuMachine, arrange: Callable[[VgpuMachine], Any], said: str
) -> None:
    arrange(machine)
    with pytest.raises(DeclarationError) as raised:
        machine.run(gpus=wanted("H100-20C", 1))
    assert said in str(raised.value)


def test_a_driver_that_is_not_for_hosts_of_vgpus_is_refused(machine: VgpuMachine) -> None:
    machine.run(gpus=wanted("H100-20C", 1))
    for part in PARTS:
        shutil.rmtree(machine.at(f"{PCI}/{part}/nvidia"))
    with pytest.raises(DeclarationError, match="its virtual functions have no nvidia/current_vgpu_type"):
        machine.run(gpus=wanted("H100-20C", 1))


def test_the_driver_that_is_not_loaded_yet_is_waited_for(machine: VgpuMachine) -> None:
    machine.at(f"{PCI}/{FIRST}/driver").unlink()
    with pytest.raises(NoDriver) as raised:
        machine.run(gpus=wanted("H100-20C", 1))
    assert raised.value.code in next(entry for entry in REGISTRY if entry.name == "kernel_modules").registration.cures


def test_the_iommu_that_comes_with_the_next_boot_is_waited_for(machine: VgpuMachine) -> None:
    machine.without_iommu()
    with pytest.raises(GpuFleetError, match=f"Cannot give {FIRST} to virtual machines: there is no IOMMU"):
        machine.run(gpus=wanted("H100-20C", 1))
    machine.host.files.replace(
        "/etc/gpufleet/declared.d/kernel_cmdline.json",
        '{"schema": 1, "declaration": {"arguments": {"intel_iommu": "on"}}}',
    )
    outcome = machine.run(gpus=wanted("H100-20C", 1))
    assert (machine.enabled, outcome.remaining.needs) == (False, ("reboot",))


@pytest.mark.parametrize(
    ("setting", "value"), [("virtual functions", "some"), ("vGPUs", "two of them"), ("vGPUs", "0 x H100-20C")]
)
def test_a_damaged_record_is_named_before_anything_changes(machine: VgpuMachine, setting: str, value: str) -> None:
    machine.run(gpus=wanted("H100-20C", 1))
    path = machine.at("/var/lib/gpufleet/baseline/gpu_virtualization.json")
    document = json.loads(path.read_text())
    (entry,) = [one for one in document["values"] if one["setting"] == setting]
    entry["effective"] = value
    path.write_text(json.dumps(document))
    with pytest.raises(CannotLook, match="the file is damaged"):
        machine.run(state="absent")
    assert machine.types() == [1020, 0, 0, 0]


def test_types_that_do_not_go_together_are_refused_where_that_is_known(machine: VgpuMachine) -> None:
    machine.run(gpus=wanted("H100-20C", 2))
    with pytest.raises(DeclarationError, match="the driver makes no more H100-40C beside 2 x H100-20C"):
        machine.run(gpus=wanted("H100-20C", 2, "H100-40C", 1))
    assert machine.types() == [1020, 1020, 0, 0]


def test_what_the_driver_makes_no_more_of_fails_with_what_there_is(machine: VgpuMachine) -> None:
    with pytest.raises(Refused, match="the driver makes no more of the type H100-80C on this GPU"):
        machine.run(gpus=wanted("H100-80C", 2))
    assert machine.types() == [1080, 0, 0, 0]


def test_the_driver_is_asked_for_the_types_of_each_gpu() -> None:
    names = {1020: "NVIDIA H100-20C", 18: "GRID T4-16Q"}
    nvml = SimpleNamespace(
        NVMLError=LookupError,
        nvmlDeviceGetSupportedVgpus=lambda handle: {"one": (1020, 18), "other": ()}[handle],
        nvmlVgpuTypeGetName=names.__getitem__,
    )
    driver = Driver(nvml)
    gpus = [("one", FIRST, ""), ("other", "0000:65:00.0", ""), ("lost", "", "it fell off the bus")]
    driver.gpus = lambda: tuple(  # type: ignore[method-assign,assignment,return-value]
        SimpleNamespace(
            identity=SimpleNamespace(pci_address=address, lost=lost),
            read=lambda name, handle=handle: driver.read(name, handle),
        )
        for handle, address, lost in gpus
    )
    assert vgpus.supported_types(driver) == {FIRST: {1020: "H100-20C", 18: "T4-16Q"}, "0000:65:00.0": {}}


def test_the_types_are_read_with_a_line_of_names_above_them() -> None:
    assert vgpus.creatable("ID    : vGPU Name\n1428  : NVIDIA H200X-141C\n1414 : NVIDIA H200X-1-18C\n") == (1428, 1414)
