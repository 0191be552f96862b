# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with NVMe drives, and the programs that make arrays and file systems of them.

A drive is a file of its first bytes: the superblock of md, or that of a file system; what an array has on it lies
behind that, on its first drive. Each byte that a program writes is a point to be killed at, or to fail at.
"""

from __future__ import annotations

import errno
import os
import struct
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.filesystems import superblocks
from ansible_collections.gpufleet.node.tests.unit.concerns.filesystems import filesystems_machine
from ansible_collections.gpufleet.node.tests.unit.concerns.filesystems.filesystems_machine import Programs
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost

BY_ID = "/dev/disk/by-id"
# The last one is never named.
SERIALS = {"nvme1n1": "S1", "nvme2n1": "S2", "nvme3n1": "S3"}
LINKS = {f"{BY_ID}/nvme-DRIVE_{serial}": f"/dev/{name}" for name, serial in SERIALS.items()}
BYTES = 3_840_000_000_000
# Where a drive has what is on its array.
DATA = 16384
SCRATCH: Dict[str, Any] = {
    "path": "/scratch",
    "fstype": "xfs",
    "options": ["noatime"],
    "made_of": {"drives": [f"{BY_ID}/nvme-DRIVE_S1", f"{BY_ID}/nvme-DRIVE_S2"]},
}
EPHEMERAL = {**SCRATCH, "made_of": {**SCRATCH["made_of"], "ephemeral": True}}
ONE = {**SCRATCH, "made_of": {"drives": [f"{BY_ID}/nvme-DRIVE_S1"]}}
MD = "/sys/class/block/md127"


def made_of(base: Optional[Mapping[str, Any]] = None, **more: Any) -> Dict[str, Any]:
    """``base``, the scratch of two drives unless another is given, with these options of ``made_of``."""
    entry = SCRATCH if base is None else base
    return {**entry, "made_of": {**entry["made_of"], **more}}


def md_head(uuid: str, name: str, *, role: int, disks: int = 2, level: int = 0, chunk_kb: int = 512) -> bytes:
    """The head of a drive of an array, with metadata of version 1.2."""
    block = bytearray(1024)
    struct.pack_into("<II", block, 0, superblocks.MD_MAGIC, 1)
    block[16:32] = bytes.fromhex(uuid.replace("-", "").replace(":", ""))
    block[32:64] = name.encode().ljust(32, b"\0")
    struct.pack_into("<i", block, 72, level)
    struct.pack_into("<II", block, 88, chunk_kb * 2, disks)
    struct.pack_into("<I", block, 160, role)
    for number in range(disks):
        struct.pack_into("<H", block, 256 + 2 * number, number)
    return (b"\0" * 4096 + bytes(block)).ljust(8192, b"\0")


def xfs_head(uuid: str, *, label: str = "", making: bool = False, unit: int = 0, width: int = 0) -> bytes:
    head = bytearray(8192)
    head[:4] = b"XFSB"
    struct.pack_into(">I", head, 4, 4096)
    head[32:48] = bytes.fromhex(uuid.replace("-", ""))
    head[108:120] = label.encode().ljust(12, b"\0")
    head[126] = making
    struct.pack_into(">II", head, 184, unit, width)
    return bytes(head)


def ext4_head(uuid: str, *, label: str = "", stride: int = 0, width: int = 0) -> bytes:
    head = bytearray(8192)
    struct.pack_into("<I", head, 1024 + 24, 2)
    struct.pack_into("<H", head, 1024 + 56, superblocks.EXT_MAGIC)
    struct.pack_into("<I", head, 1024 + 96, superblocks.EXTENTS)
    head[1024 + 104 : 1024 + 120] = bytes.fromhex(uuid.replace("-", ""))
    head[1024 + 120 : 1024 + 136] = label.encode().ljust(16, b"\0")
    struct.pack_into("<H", head, 1024 + 0x164, stride)
    struct.pack_into("<I", head, 1024 + 0x170, width)
    return bytes(head)


class Drives(Programs):
    """The programs above, and ``mdadm``, ``mkfs.xfs``, ``mkfs.ext4`` and ``blkid``.

    ``claimed`` are the drives that the kernel has claimed, ``finds`` what blkid says of a node, and ``opened`` the
    nodes that were read. ``fails`` is a program that fails, and what it says.
    """

    def __init__(self, host: FakeHost) -> None:
        super().__init__(host)
        self.claimed: List[str] = []
        self.finds: Dict[str, Completed] = {}
        self.opened: List[str] = []
        self.written: List[str] = []
        self.fails: Dict[str, str] = {}
        read_part = host.files.read_part

        def reading(path: str, offset: int, size: int, *, exclusive: bool = False) -> bytes:
            self.opened.append(path)
            if exclusive and (path in self.claimed or self.holders(os.path.basename(path))):
                raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), path)
            return read_part(path, offset, size)

        host.files.read_part = reading  # type: ignore[method-assign]
        for name in ("blkid", "mdadm"):
            host.commands.programs[name] = getattr(self, name)
        for name in ("mkfs.xfs", "mkfs.ext4"):
            host.commands.programs[name] = self.mkfs

    # --- what is on a drive ---

    def head(self, node: str) -> bytes:
        return (self.root / node.lstrip("/")).read_bytes()

    def write(self, node: str, content: bytes, offset: int = 0) -> None:
        """A write to a drive; it may be the last thing before a kill, or fail."""
        self.host.files.effect("write", node, "")
        self.written.append(node)
        self.put_bytes(node, content, offset)

    def put_bytes(self, node: str, content: bytes, offset: int = 0) -> None:
        path = self.root / node.lstrip("/")
        old = path.read_bytes() if path.exists() else b""
        path.write_bytes(old[:offset].ljust(offset, b"\0") + content + old[offset + len(content) :])

    def holders(self, name: str) -> Sequence[str]:
        return self.host.files.names(f"/sys/class/block/{name}/holders")

    def member(self, node: str) -> Optional[superblocks.Member]:
        return superblocks.member_of(self.head(node)[:8192])

    # --- mdadm ---

    def mdadm(self, argv: Sequence[str]) -> Completed:
        said = self.fails.get("mdadm")
        if said:
            return Completed(1, "", said)
        nodes = [word for word in argv[3:] if word.startswith("/dev/")]
        options = dict(word.partition("=")[::2] for word in argv if word.startswith("--"))
        try:
            if argv[1] == "--stop":
                return self.stop(os.path.basename(argv[2]))
            if any(self.holders(os.path.basename(node)) for node in nodes):
                return Completed(1, "", "mdadm: cannot open: Device or resource busy")
            if argv[1] == "--create":
                return self.create(argv[2], nodes, options)
            return self.assemble(argv[2], nodes, options)
        except OSError as error:
            return Completed(1, "", f"mdadm: {error.strerror}")

    def create(self, link: str, nodes: Sequence[str], options: Mapping[str, str]) -> Completed:
        if any(any(self.head(node)) for node in nodes) and "--run" not in options:
            return Completed(2, "", "mdadm: create aborted.")
        if any((self.member(node) is None) and any(self.head(node)[:4096]) for node in nodes):
            return Completed(2, "", "mdadm: it would have written over something else")
        for role, node in enumerate(nodes):
            head = md_head(
                options["--uuid"],
                f"{options['--homehost']}:{options['--name']}",
                role=role,
                disks=len(nodes),
                chunk_kb=int(options["--chunk"]),
            )
            self.write(node, head)
        self.host.files.effect("run", link, "")
        self.run_array(link, nodes)
        return Completed(0, "", f"mdadm: array {link} started.")

    def assemble(self, link: str, nodes: Sequence[str], options: Mapping[str, str]) -> Completed:
        found = [self.member(node) for node in nodes]
        wanted = options["--uuid"].replace(":", "")
        if any(one is None or one.array.replace("-", "") != wanted for one in found):
            return Completed(1, "", "mdadm: no superblock of that array")
        self.run_array(link, nodes)
        return Completed(0, "", "")

    def stop(self, name: str) -> Completed:
        if any(f" {self.host.files.read(f'/sys/class/block/{name}/dev').strip()} " in line for line in self.lines):
            return Completed(1, "", "mdadm: Cannot get exclusive access")
        self.forget_array(name)
        return Completed(0, "", "")

    def forget_array(self, name: str) -> None:
        for drive in SERIALS:
            (self.root / f"sys/class/block/{drive}/holders/{name}").unlink(missing_ok=True)
        folder = self.root / f"sys/class/block/{name}"
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        folder.rmdir()
        (self.root / f"dev/{name}").unlink()
        for link in (*(self.root / "dev/md").glob("*"), *(self.root / BY_ID.lstrip("/")).glob("md-*")):
            if os.readlink(link) == f"/dev/{name}":
                link.unlink()

    def run_array(self, link: str, nodes: Sequence[str], *, state: str = "clean") -> None:
        """What the kernel and udev show of an array, which may not run."""
        member = self.member(nodes[0])
        assert member is not None
        values = {
            "dev": "9:127",
            "size": str(BYTES * len(nodes) // 512),
            "md/level": f"raid{member.level}",
            "md/raid_disks": str(member.disks),
            "md/chunk_size": str(member.chunk_kb * 1024),
            "md/array_state": state,
            "holders/.keep": "",
            **{f"slaves/{os.path.basename(node)}": "" for node in nodes},
        }
        for name, value in values.items():
            path = self.root / MD.lstrip("/") / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{value}\n")
        (self.root / MD.lstrip("/") / "holders/.keep").unlink()
        for node in nodes:
            (self.root / f"sys/class/block/{os.path.basename(node)}/holders/md127").write_text("")
        (self.root / "dev/md127").write_bytes(self.head(nodes[0])[DATA:] if state == "clean" else b"")
        if state == "clean":
            (self.root / link.lstrip("/")).parent.mkdir(exist_ok=True)
            uuid = member.array.replace("-", "")
            uuid = ":".join(uuid[at : at + 8] for at in range(0, 32, 8))
            for name in (link, f"{BY_ID}/md-uuid-{uuid}"):
                (self.root / name.lstrip("/")).symlink_to("/dev/md127")

    def reboot(self, *, stopped: bool = False) -> None:
        """udev assembles what is whole, under its name. ``stopped``: the drives of an instance are empty after that."""
        self.put([line for line in self.lines if "/scratch" not in line])
        (self.root / "run/gpufleet/filesystems.json").unlink(missing_ok=True)
        if self.host.files.exists(MD):
            self.forget_array("md127")
        nodes = [f"/dev/{name}" for name in SERIALS]
        if stopped:
            for node in nodes:
                (self.root / node.lstrip("/")).write_bytes(b"")
        members = [node for node in nodes if self.member(node) is not None]
        if members:
            found = self.member(members[0])
            assert found is not None
            whole = len(members) == found.disks
            self.run_array(f"/dev/md/{found.name.rpartition(':')[2]}", members, state="clean" if whole else "inactive")

    # --- file systems ---

    def mkfs(self, argv: Sequence[str]) -> Completed:
        said = self.fails.get(argv[0])
        if said:
            return Completed(1, "", said)
        node = argv[-1]
        force = "-f" in argv or "-F" in argv
        if any(self.head(node)[:8192]) and not force:
            return Completed(1, "", f"{argv[0]}: {node} appears to contain something")
        if any(line.split()[2] == self.number(node) for line in self.lines):
            return Completed(1, "", f"{argv[0]}: {node} contains a mounted filesystem")
        named = {argv[at]: argv[at + 1] for at in range(len(argv) - 1)}
        try:
            if argv[0] == "mkfs.xfs":
                words = dict(word.partition("=")[::2] for word in named.get("-d", "").split(","))
                unit = int(words.get("su", "0k")[:-1]) // 4
                shape = {"unit": unit, "width": unit * int(words.get("sw", 0)), "label": named.get("-L", "")}
                uuid = named["-m"].partition("=")[2]
                self.write_content(node, xfs_head(uuid, making=True, **shape))  # type: ignore[arg-type]
                self.write_content(node, xfs_head(uuid, **shape))  # type: ignore[arg-type]
            else:
                extended = dict(word.partition("=")[::2] for word in named["-E"].split(","))
                # Before the superblock there is something that no tool knows.
                self.write_content(node, b"\0" * 4096 + b"groups")
                label, width = named.get("-L", ""), int(extended.get("stripe_width", 0))
                head = ext4_head(named["-U"], label=label, stride=int(extended.get("stride", 0)), width=width)
                self.write_content(node, head)
        except OSError as error:
            return Completed(1, "", f"{argv[0]}: {error.strerror}")
        return Completed(0, "", "")

    def write_content(self, node: str, content: bytes) -> None:
        self.write(node, content)
        if node == "/dev/md127":
            first = next(name for name in SERIALS if f"{name}" in self.host.files.names(f"{MD}/slaves"))
            self.put_bytes(f"/dev/{first}", content, DATA)

    def number(self, node: str) -> str:
        return (self.host.files.read_optional(f"/sys/class/block/{os.path.basename(node)}/dev") or "").strip()

    def blkid(self, argv: Sequence[str]) -> Completed:
        node = argv[-1]
        if node in self.finds:
            return self.finds[node]
        head = self.head(node)[:8192]
        if superblocks.member_of(head) is not None:
            return Completed(0, f"DEVNAME={node}\nTYPE=linux_raid_member\n", "")
        found = superblocks.superblock_of(head)
        if found is not None:
            return Completed(0, f"DEVNAME={node}\nTYPE={found.fstype}\n", "")
        return Completed(2, "", "")

    def mount(self, argv: Sequence[str]) -> Completed:
        node = self.host.files.resolve(argv[-2]) if "remount" not in argv[2] else ""
        if os.path.basename(node) in (*SERIALS, "md127"):
            found = superblocks.superblock_of(self.head(node)[:8192])
            if found is None or not found.complete:
                return Completed(32, "", f"mount: {argv[-1]}: wrong fs type, bad superblock on {node}.")
        return super().mount(argv)


def machine(root: Path, files: Optional[Mapping[str, Optional[str]]] = None) -> FakeHost:
    """The machine of ``filesystems_machine`` with three empty drives, of which the declarations name two."""
    drives: Dict[str, Optional[str]] = {}
    for number, (name, serial) in enumerate(SERIALS.items(), 10):
        folder = f"/sys/class/block/{name}"
        drives.update(
            {
                f"/dev/{name}": "",
                f"{folder}/dev": f"259:{number}\n",
                f"{folder}/size": f"{BYTES // 512}\n",
                f"{folder}/ro": "0\n",
                f"{folder}/wwid": f"eui.{serial}\n",
                f"{folder}/device/serial": f"{serial}\n",
                f"{folder}/holders/.keep": "",
            }
        )
    host = filesystems_machine.machine(
        root, {"/etc/mdadm/mdadm.conf": "HOMEHOST <system>\n", **drives, **(files or {})}, LINKS
    )
    for name in SERIALS:
        (root / f"sys/class/block/{name}/holders/.keep").unlink()
    Drives(host)
    return host


def drives_of(host: FakeHost) -> Drives:
    found: Drives = host.commands.programs["mdadm"].__self__  # type: ignore[attr-defined]
    return found


def with_boot_service(host: FakeHost) -> FakeHost:
    """The machine with the boot service that ``node_tools`` installs."""
    root = Path(host.files.root)
    unit = "etc/systemd/system/gpufleet-boot.service"
    for path in ("var/lib/gpufleet/program/gpufleet.pyz", "var/lib/gpufleet/program/gpufleet", unit):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("[Service]\n")
    wants = root / "etc/systemd/system/multi-user.target.wants"
    wants.mkdir()
    (wants / "gpufleet-boot.service").symlink_to(f"/{unit}")
    return host
