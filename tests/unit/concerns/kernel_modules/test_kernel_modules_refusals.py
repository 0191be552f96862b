# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Bad input: what was given, the exact message that comes back, and that nothing changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.assessment import assess
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError, GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kernel_modules.concern import CONCERN
from ansible_collections.gpufleet.node.tests.nodes import nodetree
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedHost
from ansible_collections.gpufleet.node.tests.unit.concerns.kernel_modules.kernel_modules_machine import (
    BLOCK_FILE,
    LOAD_FILE,
    NOUVEAU_LOADED,
    RELEASE,
    machine,
    params,
    run,
)
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build, snapshot

BEFORE_OURS = "/usr/lib/modprobe.d/a.conf"


def not_root(host: FakeHost) -> None:
    host.may_change = False


def read_only_etc(host: FakeHost) -> None:
    host.files.read_only.append("/etc")


def unpatched(host: FakeHost) -> None:
    pass


def case(
    name: str,
    message: str,
    *,
    load: Any = (),
    block: Any = (),
    more: Optional[Mapping[str, str]] = None,
    loaded: str = "",
    prepare: Callable[[FakeHost], None] = unpatched,
    **shared: Any,
) -> Any:
    return pytest.param(list(load), list(block), message, more, loaded, prepare, shared, id=name)


@pytest.mark.parametrize(
    ("load", "block", "message", "more", "loaded", "prepare", "shared"),
    [
        case(
            "a file name",
            "Cannot use load[1]: 'nvidia.ko' is not the name of a kernel module.",
            load=["nvidia", "nvidia.ko"],
        ),
        case(
            "an option of modprobe",
            "Cannot use block[0]: '-r' is not the name of a kernel module.",
            block=["-r"],
        ),
        case(
            "a second line for the file",
            "Cannot use block[0]: 'nouveau\\ninstall x' is not the name of a kernel module.",
            block=["nouveau\ninstall x"],
        ),
        case(
            "a list in the list",
            "Cannot use load[0]: \"['nvidia']\" is not the name of a kernel module.",
            load=[["nvidia"]],
        ),
        case(
            "a name that is longer than the kernel takes",
            f"Cannot use load[1]: '{'m' * 56}' has 56 characters, but the name of a kernel module has at most 55.",
            load=["m" * 55, "m" * 56],
            strict=False,
        ),
        case(
            "a name that is much longer",
            f"Cannot use block[0]: '{'m' * 59}... has 5000 characters, but the name of a kernel module has at most 55.",
            block=["m" * 5000],
        ),
        case("an empty name", "Cannot use load[0]: '' is not the name of a kernel module.", load=[""]),
        case(
            "a module in both lists",
            "Cannot load nvidia_uvm: it is in load and in block. Leave it in one of the two.",
            load=["nvidia-uvm"],
            block=["nouveau", "nvidia_uvm"],
        ),
        case(
            "a module that needs a blocked one",
            "Cannot load nvidia_peermem: it needs ib_core, which is in the list block. Remove one of the two.",
            load=["nvidia_peermem"],
            block=["ib_core"],
        ),
        case(
            "a block of what is built in",
            f"Cannot block ext4: it is built into this kernel ({RELEASE}), and is not a module. Leave it out, or "
            "boot a kernel that has it as a module.",
            block=["ext4"],
        ),
        case(
            "a driver that is not installed, strictly",
            f"Cannot load nvidia: the NVIDIA driver is not installed for this kernel ({RELEASE}). Install it, leave it "
            "out, or set strict: false.",
            load=["dummy", "nvidia"],
            more={f"/lib/modules/{RELEASE}/modules.dep": "kernel/drivers/net/dummy.ko:\n"},
            strict=True,
        ),
        case(
            "a load that another file stops",
            "Cannot load nvidia: /etc/modprobe.d/site.conf line 2 says install nvidia /bin/true (found blocked, wanted "
            "loaded). Remove that line, or set permanent: false.",
            load=["nvidia"],
            more={"/etc/modprobe.d/site.conf": "# no GPUs here\ninstall nvidia /bin/true\n"},
        ),
        case(
            "a load that another file stops, now",
            "Cannot load nvidia: /etc/modprobe.d/site.conf line 1 says install nvidia /bin/false (found not loaded, "
            "wanted loaded). Remove it there.",
            load=["nvidia"],
            more={"/etc/modprobe.d/site.conf": "install nvidia /bin/false\n"},
            permanent=False,
        ),
        case(
            "a load that another file keeps from systemd",
            "Cannot load nvidia_uvm: /usr/lib/modprobe.d/site.conf line 1 says blacklist nvidia-uvm (found "
            "blacklisted, wanted loaded). Remove that line, or set permanent: false.",
            load=["nvidia_uvm"],
            more={"/usr/lib/modprobe.d/site.conf": "blacklist nvidia-uvm\n"},
        ),
        case(
            "a load whose dependency another file stops",
            "Cannot load nvidia_peermem: /etc/modprobe.d/cis.conf line 1 says install ib_core /bin/false (found on "
            "demand, wanted loaded). Remove that line, or set permanent: false.",
            load=["nvidia_peermem"],
            more={"/etc/modprobe.d/cis.conf": "install ib_core /bin/false\n"},
        ),
        case(
            "a load that the command line of the next boot stops",
            "Cannot load nvidia: /etc/default/grub line 1 says module_blacklist=nvidia (found blocked, wanted loaded). "
            "Remove that line, or set permanent: false.",
            load=["nvidia"],
            more={
                "/boot/grub/grub.cfg": "menuentry 'Linux' {\n\tlinux /vmlinuz module_blacklist=nouveau,nvidia\n}\n",
                "/etc/default/grub": 'GRUB_CMDLINE_LINUX="module_blacklist=nouveau,nvidia"\n',
            },
        ),
        case(
            "a block before which another file loads",
            f"Cannot block nouveau: {BEFORE_OURS} line 1 comes before our line and says install nouveau "
            "/sbin/modprobe -i nouveau (found blacklisted, wanted blocked). Remove that line, or set permanent: false.",
            block=["nouveau"],
            more={BEFORE_OURS: "install nouveau /sbin/modprobe -i nouveau\n"},
        ),
        case(
            "a block that a soft dependency makes void",
            "Cannot block nouveau: /etc/modprobe.d/vfio.conf line 1 says softdep nouveau pre: vfio-pci, and modprobe "
            "runs no install command then (found blacklisted, wanted blocked). Remove that line, or set permanent: "
            "false.",
            block=["nouveau"],
            more={"/etc/modprobe.d/vfio.conf": "softdep nouveau pre: vfio-pci\n"},
        ),
        case(
            "a block of a module in use, for now only",
            "Cannot unload ttm: in use by nouveau (found loaded, wanted not loaded). Stop what uses it, or set "
            "permanent: true and reboot.",
            block=["ttm"],
            loaded=NOUVEAU_LOADED,
            permanent=False,
        ),
        case(
            "not root",
            "Cannot change kernel_modules: not running as root. Run the task with become: true.",
            load=["nvidia"],
            prepare=not_root,
        ),
        case(
            "a file system that cannot be written",
            f"Cannot write {BLOCK_FILE}: /etc/modprobe.d is on a read-only file system, or is immutable"
            " (see lsattr -d). Make it writable, or set permanent: false.",
            block=["nouveau"],
            prepare=read_only_etc,
        ),
        case(
            "a file system that cannot be written, for the load list",
            f"Cannot write {LOAD_FILE}: /etc/modules-load.d is on a read-only file system, or is immutable"
            " (see lsattr -d). Make it writable, or set permanent: false.",
            load=["nvidia"],
            prepare=read_only_etc,
        ),
        case(
            "a damaged record, for absent",
            "Cannot read the original values in /var/lib/gpufleet/baseline/kernel_modules.json: "
            "the file is damaged: it is not JSON. Restore it from a backup, or remove it to give up restoring.",
            more={"/var/lib/gpufleet/baseline/kernel_modules.json": "x"},
            state="absent",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_anything_changes(
    tmp_path: Path,
    load: List[str],
    block: List[str],
    message: str,
    more: Optional[Mapping[str, str]],
    loaded: str,
    prepare: Callable[[FakeHost], None],
    shared: Dict[str, Any],
) -> None:
    host, _kernel = machine(tmp_path, more, loaded=loaded, initramfs=True)
    prepare(host)
    before = snapshot(tmp_path)
    with pytest.raises(GpuFleetError) as caught:
        converge(CONCERN, params(load, block, **shared), host, check_mode=False)
    assert str(caught.value) == message
    assert snapshot(tmp_path) == before
    assert host.commands.calls == []


def test_a_refusal_names_the_module_for_programs(tmp_path: Path) -> None:
    host, _kernel = machine(tmp_path, {"/etc/modprobe.d/site.conf": "blacklist nvidia\n"})
    with pytest.raises(GpuFleetError) as caught:
        run(host, ["nvidia"])
    assert caught.value.failure() == {
        "code": "conflict",
        "object": "nvidia",
        "found": "blacklisted",
        "wanted": "loaded",
        "hint": "remove that line, or set permanent: false",
    }


def test_an_option_that_is_no_option_is_refused_by_the_specification() -> None:
    with pytest.raises(ValueError, match=r"loads\. Supported parameters include: accepted, block, immediate, load"):
        params(loads=["nvidia"])


@pytest.mark.parametrize("name", nodetree.names())
def test_every_recorded_machine_can_be_looked_at(tmp_path: Path, name: str) -> None:
    host = RecordedHost(str(nodetree.expand(name, tmp_path / name)))
    _state, plan = assess(CONCERN, params(["nvidia", "nvidia_uvm"], ["nouveau"]), host)
    assert {row.boot for row in plan.settings if row.object == "nouveau"} == {"on demand"}


PCI = "/sys/devices/pci0000:00"
VIRTUAL = "/sys/devices/virtual"
SUBSYSTEM = f"{VIRTUAL}/nvme-subsystem/nvme-subsys0"
DRIVERS = {
    f"{PCI}/0000:00:02.0": "virtio_pci",
    f"{PCI}/0000:00:02.0/virtio1": "virtio_blk",
    f"{PCI}/0000:00:03.0/virtio2": "virtio_net",
    f"{PCI}/0000:01:00.0": "nvme",
    f"{PCI}/0000:02:00.0": "mlx5_core",
    f"{PCI}/0000:04:00.0": "dummy",
}
# / on a virtual disk, the EFI partition and a btrfs on an nvme of many paths, /usr on a mirror below a dm-crypt.
STANDING = {
    f"/lib/modules/{RELEASE}/modules.dep": """\
kernel/drivers/block/virtio_blk.ko: kernel/drivers/virtio/virtio.ko
kernel/drivers/net/mlx5_core.ko:
kernel/drivers/net/dummy.ko:
kernel/drivers/nvme/nvme.ko: kernel/drivers/nvme/nvme-core.ko
kernel/drivers/nvme/nvme-core.ko:
kernel/drivers/virtio/virtio.ko:
kernel/fs/fat/fat.ko:
kernel/fs/fat/vfat.ko: kernel/fs/fat/fat.ko
kernel/fs/nfs/nfs.ko:
""",
    "/proc/self/mountinfo": """\
27 1 254:1 / / rw,relatime shared:1 master:2 - xfs /dev/vda1 rw
28 27 259:1 / /boot/efi rw - vfat /dev/nvme0n1p1 rw
29 27 0:35 /var /var rw - btrfs /dev/nvme0n1p2 rw
30 27 253:0 / /usr rw - xfs /dev/mapper/usr rw
31 27 0:40 / /home rw - nfs server:/home rw
""",
    "/proc/net/route": f"Iface\tDestination\nbond0\t{'0' * 8}\t010200C0\t0003\t0\t0\t0\t{'0' * 8}\t0\t0\t0\n"
    f"dummy0\t000200C0\t{'0' * 8}\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n",
    "/proc/net/ipv6_route": f"{'0' * 32} 00 {'0' * 32} 00 fd{'0' * 29}1 00000400 00000003 00000000 00000001     eth1\n",
    f"{VIRTUAL}/block/dm-0/dm/uuid": "CRYPT-LUKS2-0123-usr\n",
    f"{VIRTUAL}/block/md127/md/level": "raid1\n",
    f"{VIRTUAL}/net/bond0/uevent": "DEVTYPE=bond\nINTERFACE=bond0\n",
    **{f"{path}/uevent": f"DRIVER={module}\n" for path, module in DRIVERS.items()},
    **{f"/sys/module/{module}/initstate": "live\n" for module in DRIVERS.values()},
}
STANDING_LINKS = {
    "/sys/dev/block/254:1": f"{PCI}/0000:00:02.0/virtio1/block/vda/vda1",
    "/sys/dev/block/259:1": f"{SUBSYSTEM}/nvme0n1/nvme0n1p1",
    "/sys/class/block/nvme0n1p2": f"{SUBSYSTEM}/nvme0n1/nvme0n1p2",
    "/sys/dev/block/253:0": f"{VIRTUAL}/block/dm-0",
    "/sys/class/net/bond0": f"{VIRTUAL}/net/bond0",
    "/sys/class/net/dummy0": f"{PCI}/0000:04:00.0/net/dummy0",
    "/sys/class/net/eth1": f"{PCI}/0000:00:03.0/virtio2/net/eth1",
    f"{SUBSYSTEM}/nvme0": f"{PCI}/0000:01:00.0/nvme/nvme0",
    f"{VIRTUAL}/block/dm-0/slaves/md127": f"{VIRTUAL}/block/md127",
    f"{VIRTUAL}/net/bond0/lower_eth0": f"{PCI}/0000:02:00.0/net/eth0",
    **{f"{path}/driver/module": f"/sys/module/{module}" for path, module in DRIVERS.items()},
}
NO_BOOT = "Leave it out: this machine would not boot without it."
NO_NETWORK = "Leave it out: this machine would not be reachable without it."


def standing(root: Path, *, loaded: str = "", block_text: str = "") -> FakeHost:
    """A machine on these file systems, disks and interfaces."""
    (root / f"{PCI}/0000:01:00.0/nvme/nvme0".lstrip("/")).mkdir(parents=True)
    build(root, {}, STANDING_LINKS)
    host, _kernel = machine(root, {**STANDING, BLOCK_FILE: block_text}, loaded=loaded)
    return host


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("virtio-blk", f"block virtio_blk: the root file system is on vda1, which it drives. {NO_BOOT}"),
        ("virtio_pci", f"block virtio_pci: the root file system is on vda1, which it drives. {NO_BOOT}"),
        (
            "virtio",
            "block virtio: the root file system is on vda1, which virtio_blk drives, and virtio_blk needs it. "
            f"{NO_BOOT}",
        ),
        ("xfs", f"block xfs: the root file system is xfs, which it reads. {NO_BOOT}"),
        (
            "fat",
            f"block fat: the file system of /boot/efi is vfat, which vfat reads, and vfat needs it. {NO_BOOT}",
        ),
        ("nvme", f"block nvme: the file system of /boot/efi is on nvme0n1p1, which it drives. {NO_BOOT}"),
        (
            "nvme-core",
            "block nvme_core: the file system of /boot/efi is on nvme0n1p1, which nvme drives, and nvme needs it. "
            f"{NO_BOOT}",
        ),
        ("btrfs", f"block btrfs: the file system of /var is btrfs, which it reads. {NO_BOOT}"),
        ("dm_crypt", f"block dm_crypt: the file system of /usr is on dm-0, which it drives. {NO_BOOT}"),
        ("raid1", f"block raid1: the file system of /usr is on dm-0, which it drives. {NO_BOOT}"),
        ("bonding", f"block bonding: the default route goes over bond0, which it drives. {NO_NETWORK}"),
        ("mlx5_core", f"block mlx5_core: the default route goes over bond0, which it drives. {NO_NETWORK}"),
        ("virtio_net", f"block virtio_net: the default route goes over eth1, which it drives. {NO_NETWORK}"),
    ],
)
def test_a_block_of_what_the_machine_stands_on_is_refused(tmp_path: Path, name: str, message: str) -> None:
    host = standing(tmp_path, loaded=f"{name.replace('-', '_')} 16384 0 - Live 0x0\n")
    before = snapshot(tmp_path)
    with pytest.raises(DeclarationError) as caught:
        run(host, block=["dummy", name])
    assert str(caught.value) == f"Cannot {message}"
    assert snapshot(tmp_path) == before
    assert host.commands.calls == []


def test_a_disk_of_btrfs_is_found_by_its_name(tmp_path: Path) -> None:
    mounts = "29 27 0:35 /root / rw - btrfs /dev/nvme0n1p2 rw\n"
    host = standing(tmp_path)
    (tmp_path / "proc/self/mountinfo").write_text(mounts)
    with pytest.raises(DeclarationError, match=r"block nvme: the root file system is on nvme0n1p2, which it drives\."):
        run(host, block=["nvme"])


def test_what_would_be_lost_only_at_boot_is_refused_too(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="block nvme: the file system of /boot/efi"):
        run(standing(tmp_path), block=["nvme"])


def test_what_carries_another_mount_or_another_route_can_be_blocked(tmp_path: Path) -> None:
    host = standing(tmp_path, loaded="dummy 16384 0 - Live 0x0\nnfs 16384 0 - Live 0x0\n")
    assert run(host, block=["dummy", "nfs"]).boot == {"modules": {"dummy": "blocked", "nfs": "blocked"}}


def test_only_a_block_that_takes_something_away_looks_at_what_the_machine_stands_on(tmp_path: Path) -> None:
    host = standing(tmp_path, block_text="install dummy /bin/false\n")
    assess(CONCERN, params(["nfs"], ["dummy", "nouveau"]), host)
    assert "/proc/self/mountinfo" not in host.files.reads
