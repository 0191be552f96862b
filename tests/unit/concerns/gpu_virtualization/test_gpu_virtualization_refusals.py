# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is refused before anything changes, with the reason, and other owners."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    CannotLook,
    DeclarationError,
    GpuFleetError,
    OwnedByAnother,
)
from ansible_collections.gpufleet.node.plugins.module_utils._node.assessment import waiting
from ansible_collections.gpufleet.node.tests.unit.concerns.gpu_virtualization.virtualization_machine import (
    CARD,
    DRIVE,
    FIRST,
    PATH,
    PCI,
    RELEASE,
    SECOND,
    UNIT,
    Machine,
)
from ansible_collections.gpufleet.node.tests.unit.support import snapshot

pytestmark = pytest.mark.once

VFIO = "vfio-pci"
ALL: List[Dict[str, Any]] = [{"driver": VFIO}]
Arrange = Callable[[Machine], object]
DOMAIN = """<domain type='kvm'>
  <name>one</name>
  <devices>
    <hostdev mode='subsystem' type='pci' managed='{managed}'>
      <source>
        <address domain='0x0000' bus='0x17' slot='0x00' function='0x0'/>
      </source>
      <address type='pci' domain='0x0000' bus='0x07' slot='0x00' function='0x0'/>
    </hostdev>
  </devices>
</domain>
"""


def write(path: str, text: str) -> Arrange:
    def arrange(machine: Machine) -> None:
        machine.at(path).parent.mkdir(parents=True, exist_ok=True)
        machine.at(path).write_text(text)

    return arrange


def share(machine: Machine) -> None:
    """The first GPU is in the group of the drive."""
    machine.at(f"{PCI}/{FIRST}/iommu_group").unlink()
    machine.at(f"{PCI}/{FIRST}/iommu_group").symlink_to("../../../../kernel/iommu_groups/21")
    machine.at(f"/sys/kernel/iommu_groups/21/devices/{FIRST}").touch()


def share_a_gpu(machine: Machine) -> None:
    """Two GPUs are in one group."""
    machine.at(f"{PCI}/{FIRST}/iommu_group").unlink()
    machine.at(f"{PCI}/{FIRST}/iommu_group").symlink_to("../../../../kernel/iommu_groups/13")
    machine.at(f"/sys/kernel/iommu_groups/13/devices/{FIRST}").touch()


def amd(machine: Machine) -> None:
    machine.without_iommu()
    machine.at("/proc/cpuinfo").write_text("vendor_id\t: AuthenticAMD\n")


def refused(machine: Machine, **options: Any) -> GpuFleetError:
    """What a run is refused with, which changes nothing."""
    before = snapshot(machine.root)
    with pytest.raises(GpuFleetError) as raised:
        machine.run(**options)
    assert snapshot(machine.root) == before
    return raised.value


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        ([], "Cannot read the declaration: no GPU is declared. Set gpus: [{driver: vfio-pci}] for all GPUs"),
        ([{"match": {"index": 0}, "driver": VFIO}], "there is no key index. The keys are pci_address, pci_id"),
        (
            [{"match": {"pci_address": "0000:99:00.0"}, "driver": VFIO}],
            f"it matches no device; there is {FIRST}, {SECOND}, {CARD}",
        ),
    ],
)
def test_what_is_declared_of_no_gpu_is_refused(tmp_path: Path, gpus: Any, said: str) -> None:
    error = refused(Machine(tmp_path), gpus=gpus)
    assert isinstance(error, DeclarationError)
    assert said in str(error)


@pytest.mark.parametrize(
    ("arrange", "code", "said"),
    [
        (share, "declaration", f"Cannot bind {FIRST} to vfio-pci: its IOMMU group 21 has {DRIVE} (nvme) as well"),
        (write(f"{PCI}/{SECOND}/boot_vga", "1\n"), "declaration", f"bind {SECOND} to vfio-pci: it is the console"),
        (write(f"{PCI}/{FIRST}/virtfn0/.keep", ""), "declaration", "its 1 virtual functions are enabled"),
        (
            lambda machine: machine.at(f"{PCI}/{FIRST}/iommu_group").unlink(),
            "declaration",
            "it is in no IOMMU group, although this machine has an IOMMU",
        ),
        (
            Machine.without_iommu,
            "no_iommu",
            "there is no IOMMU: the kernel was started without intel_iommu=on; declare kernel_cmdline_arguments: {intel"
            '_iommu: "on"}, and reboot',
        ),
        (
            lambda machine: machine.without_iommu("ro intel_iommu=on"),
            "no_iommu",
            "was started with intel_iommu=on, so the firmware has it off; enable VT-d there",
        ),
        (
            lambda machine: machine.without_iommu("ro intel_iommu=off"),
            "no_iommu",
            "was started with intel_iommu=off; remove that argument and reboot",
        ),
        (amd, "no_iommu", "the firmware has it off (AMD-Vi or SMMU); enable it there"),
        (
            write(f"/lib/modules/{RELEASE}/modules.dep", "updates/dkms/nvidia.ko:\n"),
            "declaration",
            "Cannot bind GPUs to vfio-pci: this kernel has no module vfio-pci",
        ),
        (
            lambda machine: machine.host.commands.programs.pop("nvidia-smi"),
            "declaration",
            "this machine has no nvidia-smi, which lets the driver of NVIDIA let go of them",
        ),
        (write(PATH, "[Unit]\n"), "conflict", f"{PATH} was not written by gpu_virtualization"),
        (lambda machine: machine.at(PATH).symlink_to("/dev/null"), "conflict", f"by {UNIT}: it is masked"),
    ],
)
def test_what_this_machine_cannot_have_is_refused(tmp_path: Path, arrange: Arrange, code: str, said: str) -> None:
    machine = Machine(tmp_path)
    arrange(machine)
    error = refused(machine, gpus=ALL)
    assert (error.code, said in str(error)) == (code, True), str(error)


def test_a_machine_without_an_iommu_differs_for_each_gpu(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.without_iommu()
    error = refused(machine, gpus=[{"match": {"pci_id": "10de:2330"}, "driver": VFIO}])
    assert isinstance(error, CannotLook)
    assert [(row.object, row.effective, row.wanted) for row in error.settings] == [
        (FIRST, "off", "on"),
        (SECOND, "off", "on"),
    ]


def test_the_iommu_that_the_arguments_of_the_kernel_are_about_to_bring_is_waited_for() -> None:
    results = {"gpu_virtualization": {"status": "drifted", "failure": {"code": "no_iommu"}}}
    assert waiting({**results, "kernel_cmdline": {"status": "drifted"}}) == ["gpu_virtualization"]
    assert waiting({**results, "kernel_cmdline": {"status": "in_sync"}}) == []


def test_a_group_of_gpus_that_are_all_declared_is_bound_as_a_whole(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    share_a_gpu(machine)
    said = f"its IOMMU group 13 has {SECOND} (nvidia) as well"
    assert said in str(refused(machine, gpus=[{"match": {"pci_address": FIRST}, "driver": VFIO}]))
    machine.run(gpus=ALL)
    assert machine.drivers(FIRST, SECOND) == [VFIO, VFIO]


@pytest.mark.parametrize(
    ("path", "text", "driver", "said"),
    [
        (
            f"/etc/driverctl.d/{FIRST}",
            "nvidia\n",
            VFIO,
            f"driverctl binds it to nvidia at boot, by /etc/driverctl.d/{FIRST}",
        ),
        (f"/etc/driverctl.d/{FIRST}", "vfio-pci\n", "nvidia", "driverctl binds it to vfio-pci at boot"),
        (
            "/etc/modprobe.d/gpu.conf",
            "options vfio-pci disable_vga=1 ids=8086:1572,10DE:2330:10de:16c1\n",
            "nvidia",
            "modprobe.d binds it to vfio-pci at boot, by /etc/modprobe.d/gpu.conf line 1",
        ),
        (
            "/proc/cmdline",
            "ro intel_iommu=on vfio-pci.ids=10de:2330\n",
            "nvidia",
            "kernel command line binds it to vfio-pci at boot, by /proc/cmdline",
        ),
    ],
)
def test_who_binds_a_gpu_to_another_driver_at_boot_is_named(
    tmp_path: Path, path: str, text: str, driver: str, said: str
) -> None:
    machine = Machine(tmp_path, {path: text})
    error = refused(machine, gpus=[{"match": {"pci_address": FIRST}, "driver": driver}])
    assert isinstance(error, OwnedByAnother)
    assert said in str(error)


def test_what_a_built_in_module_does_not_read_binds_nothing(tmp_path: Path) -> None:
    more = {
        "/etc/modprobe.d/gpu.conf": "options vfio-pci ids=10de:2330\n",
        f"/lib/modules/{RELEASE}/modules.builtin": "kernel/drivers/vfio/pci/vfio-pci.ko\n",
    }
    outcome = Machine(tmp_path, more).run(gpus=[{"driver": "nvidia"}])
    assert (outcome.changes[0].setting, outcome.remaining.conflicts) == ("declaration", ())


@pytest.mark.parametrize(
    ("path", "text", "conflict"),
    [
        (
            "/etc/libvirt/qemu/one.xml",
            DOMAIN.format(managed="yes"),
            ("libvirt", 4, FIRST, "driver", "managed='yes'", "them"),
        ),
    ],
)
def test_who_else_has_a_say_is_listed(tmp_path: Path, path: str, text: str, conflict: Tuple[Any, ...]) -> None:
    (found,) = Machine(tmp_path, {path: text}).run(gpus=ALL).remaining.conflicts
    assert (found.owner, found.line, found.object, found.setting, found.value, found.wins) == conflict
    assert found.path == path


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/etc/libvirt/qemu/one.xml", DOMAIN.format(managed="no")),
        (f"/etc/driverctl.d/{FIRST}", "vfio-pci\n"),
        ("/run/nvidia/validations/vfio-pci-ready", ""),
    ],
)
def test_who_leaves_the_driver_to_others_or_binds_the_declared_one_is_not_listed(
    tmp_path: Path, path: str, text: str
) -> None:
    machine = Machine(tmp_path, {path: text})
    assert machine.run(gpus=ALL).remaining.conflicts == ()
