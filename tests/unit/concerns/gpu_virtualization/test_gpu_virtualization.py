# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUs that change hands: now, at boot, and back; and who is in the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Set

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import InUse, NotInEffect, Refused
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._core.setting import EFFECTIVE
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_virtualization import apply
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_virtualization.files import CLOSED
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_virtualization.plan import Bind
from ansible_collections.gpufleet.node.tests.unit.concerns.gpu_virtualization.virtualization_machine import (
    CARD,
    DRIVE,
    FIRST,
    MINORS,
    PATH,
    PCI,
    SECOND,
    SOUND,
    WANTS,
    Machine,
)
from ansible_collections.gpufleet.node.tests.unit.support import STATUS_OF_USER, Killed

pytestmark = pytest.mark.once

VFIO = "vfio-pci"
GPUS = (FIRST, SECOND, CARD)
ALL: List[Dict[str, Any]] = [{"driver": VFIO}]
VM = "/machine.slice/machine-qemu\\x2d1\\x2done.scope/libvirt/emulator"


def entry(address: str, driver: str = VFIO) -> Dict[str, Any]:
    return {"match": {"pci_address": address}, "driver": driver}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_gpus_are_bound_with_what_is_in_their_slot_and_nothing_else_is(machine: Machine) -> None:
    outcome = machine.run(gpus=ALL)
    assert machine.drivers(*GPUS, SOUND, DRIVE) == [VFIO, VFIO, VFIO, VFIO, "nvme"]
    assert outcome.effective["gpus"][CARD] == {"driver": VFIO, "iommu_group": "20", "devices": ["/dev/vfio/20"]}
    assert outcome.boot["gpus"][FIRST] == {"driver": VFIO}
    assert machine.run(gpus=ALL).changes == ()


def test_a_boot_binds_them_before_any_other_driver_is_loaded(machine: Machine) -> None:
    machine.run(gpus=[entry(FIRST), entry(CARD)])
    machine.boot()
    assert machine.drivers(*GPUS, SOUND) == [VFIO, "nvidia", VFIO, VFIO]
    assert machine.run(gpus=[entry(FIRST), entry(CARD)]).changes == ()
    order = "Before=systemd-modules-load.service systemd-udev-trigger.service sysinit.target\n"
    assert order in machine.at(PATH).read_text()


def test_a_boot_binds_nothing_that_took_the_place_of_a_gpu(machine: Machine) -> None:
    machine.run(gpus=[entry(FIRST)])
    machine.at(f"{PCI}/{FIRST}/device").write_text("0x2bb5\n")
    machine.boot()
    assert machine.driver(FIRST) == "nvidia"


def test_what_the_initramfs_bound_first_is_moved_by_the_boot_service(machine: Machine) -> None:
    machine.run(gpus=[entry(FIRST)])
    # The driver had it before the unit wrote the override.
    machine.let_go(FIRST)
    machine.at(f"{PCI}/{FIRST}/driver").symlink_to("../../drivers/nvidia")
    outcome = machine.run(gpus=[entry(FIRST)], permanent=False)
    assert [(change.setting, change.before, change.after) for change in outcome.changes] == [("driver", "nvidia", VFIO)]


def test_gpus_that_are_no_longer_declared_return_to_the_drivers_they_had(machine: Machine) -> None:
    machine.run(gpus=ALL)
    machine.run(gpus=[entry(FIRST)])
    assert machine.drivers(*GPUS, SOUND) == [VFIO, "nvidia", "nvidia", "snd_hda_intel"]
    assert (CARD in machine.at(PATH).read_text(), FIRST in machine.at(PATH).read_text()) == (False, True)


def test_a_run_that_is_killed_while_gpus_change_hands_is_completed_by_the_next(tmp_path: Path) -> None:
    for number in range(1, 60):
        machine = Machine(tmp_path / str(number), functions=(FIRST, SECOND))
        machine.run(gpus=[entry(FIRST)])
        machine.host.files.log.clear()
        machine.host.files.kill_at = number
        try:
            machine.run(gpus=[entry(SECOND)])
        except Killed:
            machine.host.files.kill_at = None
        else:
            break
        machine.run(gpus=[entry(SECOND)])
        assert machine.drivers(FIRST, SECOND) == ["nvidia", VFIO], number
        assert (FIRST in machine.at(PATH).read_text(), machine.closed) == (False, set()), number
        machine.run(state="absent")
        assert machine.drivers(FIRST, SECOND) == ["nvidia", "nvidia"], number
    assert number > 10


def test_absent_returns_everything_to_what_it_was_bound_to(machine: Machine) -> None:
    machine.at(f"{PCI}/{SECOND}/driver").unlink()
    machine.run(gpus=ALL)
    machine.run(state="absent")
    assert machine.drivers(*GPUS, SOUND) == ["nvidia", None, "nvidia", "snd_hda_intel"]
    assert {machine.at(f"{PCI}/{gpu}/driver_override").read_text() for gpu in GPUS} == {"(null)\n"}
    assert not machine.at(PATH).exists()
    assert not machine.at(WANTS).exists()


def test_absent_leaves_what_was_bound_to_vfio_pci_before_us(machine: Machine) -> None:
    machine.host.commands.programs["modprobe"](("modprobe", VFIO))
    machine.at(f"{PCI}/{FIRST}/driver").unlink()
    machine.at(f"{PCI}/{FIRST}/driver").symlink_to("../../drivers/vfio-pci")
    machine.at(f"{PCI}/{FIRST}/driver_override").write_text("vfio-pci\n")
    machine.run(gpus=ALL)
    machine.run(state="absent")
    assert machine.driver(FIRST) == VFIO
    assert machine.at(f"{PCI}/{FIRST}/driver_override").read_text() == "vfio-pci\n"


def test_a_gpu_that_was_taken_out_is_not_restored_with_the_reason(machine: Machine) -> None:
    machine.run(gpus=[entry(FIRST)])
    for path in machine.at(f"{PCI}/{FIRST}").iterdir():
        path.unlink()
    machine.at(f"{PCI}/{FIRST}").rmdir()
    outcome = machine.run(state="absent")
    reasons = [(one.object, one.reason) for one in outcome.remaining.unmanaged]
    assert reasons in ([], [(FIRST, "the GPU is missing")])
    assert not machine.at(PATH).exists()


def test_only_the_next_boot_changes_where_that_is_asked(machine: Machine) -> None:
    machine.open(4711, "/dev/nvidia0")
    machine.run(gpus=ALL, immediate=False)
    assert machine.drivers(*GPUS) == ["nvidia"] * 3
    machine.end(4711)
    machine.boot()
    assert machine.drivers(*GPUS) == [VFIO] * 3


def test_only_the_running_system_changes_where_that_is_asked(machine: Machine) -> None:
    machine.run(gpus=ALL, permanent=False)
    assert machine.drivers(*GPUS) == [VFIO] * 3
    assert not machine.at(PATH).exists()


@pytest.mark.parametrize(
    ("path", "cgroup", "named"),
    [
        ("/dev/nvidia0", "/user.slice/s.scope", "python3 (pid 4711, s.scope)"),
        ("/dev/dri/renderD128", "/system.slice/nvidia-dcgm.service", "python3 (pid 4711, nvidia-dcgm.service)"),
    ],
)
def test_a_gpu_that_a_process_has_open_is_not_unbound(machine: Machine, path: str, cgroup: str, named: str) -> None:
    machine.at(f"{PCI}/{FIRST}/drm/renderD128").mkdir(parents=True)
    machine.open(4711, path, cgroup=cgroup)
    with pytest.raises(InUse) as raised:
        machine.run(gpus=ALL)
    assert f"Cannot unbind {FIRST}: in use by {named}. Nothing was changed; end them" in str(raised.value)
    assert machine.drivers(*GPUS, SOUND) == ["nvidia", "nvidia", "nvidia", "snd_hda_intel"]
    assert not machine.at(PATH).exists()
    machine.end(4711)
    machine.run(gpus=ALL)
    assert machine.driver(FIRST) == VFIO


@pytest.mark.parametrize("device", ["/dev/vfio/12", "/dev/vfio/devices/vfio0"])
def test_a_gpu_that_a_virtual_machine_has_is_not_returned(machine: Machine, device: str) -> None:
    machine.run(gpus=ALL)
    machine.at(f"{PCI}/{FIRST}/vfio-dev/vfio0").mkdir(parents=True)
    machine.open(4711, device, "qemu-system-x86", VM)
    for options in ({"state": "absent"}, {"gpus": [entry(SECOND)]}, {"gpus": [entry(FIRST, "nvidia")]}):
        with pytest.raises(InUse, match=r"in use by qemu-system-x86 \(pid 4711, machine-qemu"):
            machine.run(**options)
    assert machine.drivers(*GPUS) == [VFIO] * 3


def test_a_gpu_whose_device_file_nobody_tells_may_be_any(machine: Machine) -> None:
    machine.at(f"/proc/driver/nvidia/gpus/{FIRST}/information").write_text("Model: \t\t Unknown\n")
    machine.open(4711, "/dev/nvidia7")
    with pytest.raises(InUse, match=f"unbind {FIRST}"):
        machine.run(gpus=ALL)


def test_a_module_of_the_kernel_that_has_gpus_open_is_in_the_way(machine: Machine) -> None:
    parameter = machine.at("/sys/module/nvidia_drm/parameters/modeset")
    parameter.parent.mkdir(parents=True)
    parameter.write_text("Y\n")
    with pytest.raises(InUse, match="in use by nvidia_drm with modeset=Y"):
        machine.run(gpus=ALL)


def test_skip_leaves_a_gpu_in_use_with_all_of_its_slot_and_changes_the_next_boot(machine: Machine) -> None:
    machine.open(4711, "/dev/nvidia2")
    outcome = machine.run(gpus=ALL, when_busy="skip")
    assert machine.drivers(*GPUS, SOUND) == [VFIO, VFIO, "nvidia", "snd_hda_intel"]
    assert outcome.remaining.needs == ("idle_gpu",)
    assert {row.object for row in outcome.remaining.pending} == {CARD, SOUND}
    machine.end(4711)
    machine.boot()
    assert machine.drivers(CARD, SOUND) == [VFIO, VFIO]


def test_skip_leaves_an_iommu_group_whole(machine: Machine) -> None:
    first, second = GPUS[:2]
    machine.at(f"{PCI}/{second}/iommu_group").unlink()
    machine.at(f"{PCI}/{second}/iommu_group").symlink_to("../../../../kernel/iommu_groups/12")
    machine.at(f"/sys/kernel/iommu_groups/12/devices/{second}").write_text("")
    machine.open(4711, "/dev/nvidia0")
    outcome = machine.run(gpus=[{"match": {"pci_address": [first, second]}, "driver": VFIO}], when_busy="skip")
    assert machine.drivers(first, second) == ["nvidia", "nvidia"]
    assert {row.object for row in outcome.remaining.pending} == {first, second}
    machine.end(4711)
    machine.run(gpus=[{"match": {"pci_address": [first, second]}, "driver": VFIO}], when_busy="skip")
    assert machine.drivers(first, second) == [VFIO, VFIO]


def test_wait_waits_until_nobody_uses_it(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.open(4711, "/dev/nvidia0")
    monkeypatch.setattr("time.sleep", lambda _seconds: machine.end(4711))
    machine.run(gpus=ALL, when_busy="wait", busy_timeout=60)
    assert machine.driver(FIRST) == VFIO


def test_the_daemon_of_persistence_mode_lets_go_and_is_not_in_the_way(machine: Machine) -> None:
    machine.open(4711, "/dev/nvidia0", "nvidia-persistenced", "/system.slice/nvidia-persistenced.service")
    machine.run(gpus=[entry(FIRST)])
    assert machine.driver(FIRST) == VFIO


def test_a_job_with_the_name_of_that_daemon_is_in_the_way(machine: Machine) -> None:
    machine.open(4711, "/dev/nvidia0", "nvidia-persistenced", status=STATUS_OF_USER)
    with pytest.raises(InUse, match=r"in use by nvidia-persiste \(pid 4711"):
        machine.run(gpus=[entry(FIRST)])


def client_comes(machine: Machine, address: str) -> None:
    """Let a process open a GPU once, at the moment when it is about to take no new client."""
    smi = machine.host.commands.programs["nvidia-smi"]

    def and_client(argv: Any) -> Completed:
        if "-pm" in argv and address in argv:
            machine.host.commands.programs["nvidia-smi"] = smi
            machine.open(4711, f"/dev/nvidia{MINORS[address]}")
        return smi(argv)

    machine.host.commands.programs["nvidia-smi"] = and_client


def test_a_client_that_comes_between_the_look_and_the_change_is_not_waited_for(machine: Machine) -> None:
    client_comes(machine, FIRST)
    with pytest.raises(InUse, match=r"python3 \(pid 4711"):
        machine.run(gpus=ALL)
    assert machine.driver(FIRST) == "nvidia"
    assert machine.closed == set(), "the GPU lets clients in again"


@pytest.mark.parametrize(("address", "left"), [(FIRST, {FIRST}), (CARD, {CARD, SOUND})])
def test_skip_also_spares_a_gpu_whose_client_came_after_the_look(
    machine: Machine, address: str, left: Set[str]
) -> None:
    client_comes(machine, address)
    outcome = machine.run(gpus=ALL, when_busy="skip")
    assert {one for one in (*GPUS, SOUND) if machine.driver(one) != VFIO} == left
    assert machine.closed == set(), "the GPU lets clients in again"
    assert {row.object for row in outcome.remaining.pending} == left
    assert outcome.remaining.needs == ("idle_gpu",)
    changed = {change.object for change in outcome.changes if change.setting == "driver" and change.scope == EFFECTIVE}
    assert changed == {*GPUS, SOUND} - left
    machine.end(4711)
    machine.run(gpus=ALL, when_busy="skip")
    assert machine.drivers(*GPUS, SOUND) == [VFIO] * 4


@pytest.mark.parametrize("when_busy", ["skip", "fail"])
def test_the_rest_of_a_group_changes_though_the_first_of_it_is_in_use_again_as_wanted(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, when_busy: str
) -> None:
    machine.run(gpus=ALL)
    bind = apply.bind

    def job_starts(action: Bind, *arguments: Any) -> None:
        bind(action, *arguments)
        if action.address == CARD:
            machine.open(4711, f"/dev/nvidia{MINORS[CARD]}")

    monkeypatch.setattr(apply, "bind", job_starts)
    machine.run(state="absent", when_busy=when_busy)
    assert machine.drivers(*GPUS, SOUND) == ["nvidia", "nvidia", "nvidia", "snd_hda_intel"]


def client_goes_when_the_gpu_opens(machine: Machine) -> None:
    smi = machine.host.commands.programs["nvidia-smi"]

    def and_client(argv: Any) -> Completed:
        if "drain" in argv and argv[-1] == "0":
            machine.end(4711)
        return smi(argv)

    machine.host.commands.programs["nvidia-smi"] = and_client


def test_with_skip_a_gpu_whose_late_client_has_gone_again_is_changed_after_all(machine: Machine) -> None:
    client_goes_when_the_gpu_opens(machine)
    client_comes(machine, FIRST)
    outcome = machine.run(gpus=ALL, when_busy="skip")
    assert (outcome.error, outcome.remaining.status) == (None, "in_sync")
    assert machine.drivers(*GPUS, SOUND) == [VFIO] * 4
    changed = [change.object for change in outcome.changes if change.setting == "driver" and change.scope == EFFECTIVE]
    assert sorted(changed) == sorted([*GPUS, SOUND])


def test_a_gpu_to_which_clients_come_again_and_again_is_named(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    client_goes_when_the_gpu_opens(machine)
    bind = apply.bind
    seen: List[Bind] = []

    def and_client(action: Bind, *arguments: Any) -> None:
        if action.address == FIRST:
            seen.append(action)
            client_comes(machine, FIRST)
        bind(action, *arguments)

    monkeypatch.setattr(apply, "bind", and_client)
    with pytest.raises(InUse, match=r"python3 \(pid 4711"):
        machine.run(gpus=ALL, when_busy="skip")
    assert (len(seen), machine.driver(FIRST), machine.closed) == (3, "nvidia", set())


def test_a_gpu_that_the_driver_does_not_close_is_not_unbound(machine: Machine) -> None:
    machine.host.commands.programs["nvidia-smi"] = lambda _argv: Completed(3, "", "Not Supported\n")
    with pytest.raises(Refused, match=f"Cannot disable persistence mode of {FIRST}.*Not Supported"):
        machine.run(gpus=ALL)
    assert machine.driver(FIRST) == "nvidia"


def test_a_gpu_that_a_killed_run_left_closed_is_opened_again(machine: Machine) -> None:
    machine.closed.add(FIRST)
    machine.host.files.replace(CLOSED, f"{FIRST}\n")
    outcome = machine.run(gpus=[entry(SECOND)])
    assert (FIRST, "new clients", "kept away", "let in") in [
        (change.object, change.setting, change.before, change.after) for change in outcome.changes
    ]
    assert machine.closed == set()
    assert not machine.at(CLOSED).exists()


def test_a_driver_that_does_not_take_the_function_is_a_failure(machine: Machine) -> None:
    machine.host.commands.programs["modprobe"] = lambda _argv: Completed(0, "", "")
    with pytest.raises(NotInEffect):
        machine.run(gpus=[entry(FIRST)])


def test_the_iommu_that_comes_with_the_next_boot_is_waited_for(machine: Machine) -> None:
    machine.without_iommu()
    machine.host.files.replace(
        "/etc/gpufleet/declared.d/kernel_cmdline.json",
        '{"schema": 1, "declaration": {"arguments": {"intel_iommu": "on"}}}',
    )
    outcome = machine.run(gpus=[entry(FIRST)])
    assert machine.driver(FIRST) == "nvidia"
    assert outcome.remaining.needs == ("reboot",)
    assert outcome.remaining.reboot_reasons[-1].endswith("the IOMMU comes with the next boot")
    machine.boot()
    assert machine.driver(FIRST) == VFIO
