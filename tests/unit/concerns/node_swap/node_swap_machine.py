# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with swap: the kernel's table, systemd with its generator of fstab, and the programs that change them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils._linux import fstab, systemd
from ansible_collections.gpufleet.node.plugins.module_utils._linux.escapes import unit_of_path
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.node_swap.concern import CONCERN
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build

HEADER = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
FSTAB = """\
# /etc/fstab: static file system information.
UUID=11aa / ext4 errors=remount-ro 0 1
UUID=22bb none\tswap sw,pri=5 0 0
/dev/sdz1 none swap noauto 0 0

/swap\\040file none swap defaults 0 0
"""
VENDOR = "/usr/lib/systemd/system"
GENERATOR = "/run/systemd/generator"
DISK = "/sys/devices/pci0000:00/0000:00:1f.2/ata1/block/sda"
GPT_SWAP = "0657fd6d-a4ab-43c4-84e5-0933c84b4f4f"
MEMINFO = """\
MemTotal:       16000000 kB
MemAvailable:    8000000 kB
CommitLimit:     9000000 kB
Committed_AS:       1000 kB
"""
FILES = {
    "/etc/fstab": FSTAB,
    "/etc/systemd/system/.keep": "",
    "/run/systemd/system/.keep": "",
    f"{GENERATOR}/dev-disk-by\\x2duuid-22bb.swap": "",
    f"{GENERATOR}/swap\\x20file.swap": "",
    "/usr/lib/systemd/system-generators/systemd-gpt-auto-generator": "",
    "/proc/swaps": f"{HEADER}/dev/sda2 partition 4194300 0 5\n/swap\\040file file 1048572 0 -2\n",
    "/proc/meminfo": MEMINFO,
    "/proc/sys/vm/overcommit_memory": "0\n",
    "/proc/self/mountinfo": "25 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n",
    f"{DISK}/sda1/partition": "1\n",
    f"{DISK}/sda1/dev": "8:1\n",
    f"{DISK}/sda2/partition": "2\n",
    f"{DISK}/sda2/dev": "8:2\n",
    "/run/udev/data/b8:1": "E:ID_PART_ENTRY_TYPE=0fc63daf-8483-4772-8e79-3d69d8477de4\n",
    "/run/udev/data/b8:2": f"E:ID_FS_UUID=22bb\nE:ID_PART_ENTRY_TYPE={GPT_SWAP}\n",
    "/var/lib/dpkg/status": "",
    "/dev/sda2": "",
    "/swap file": "",
}
LINKS = {
    "/sys/dev/block/8:1": f"{DISK}/sda1",
    "/sys/class/block/sda2": f"{DISK}/sda2",
    "/dev/disk/by-uuid/22bb": "/dev/sda2",
}


class Programs:
    """``swapon``, ``swapoff``, ``mkswap``, ``fallocate``, ``install``, ``mv`` and ``systemctl`` of this machine."""

    def __init__(self, host: FakeHost) -> None:
        self.host = host
        for name in ("swapon", "swapoff", "mkswap", "fallocate", "install", "mv", "systemctl"):
            host.commands.programs[name] = getattr(self, name)
        self.formatted: List[str] = []

    @property
    def lines(self) -> List[str]:
        return self.host.files.read("/proc/swaps").splitlines(True)[1:]

    def put(self, lines: Sequence[str]) -> Completed:
        Path(self.host.files.root, "proc/swaps").write_text(HEADER + "".join(sorted(lines)))
        return Completed(0, "", "")

    def swapoff(self, argv: Sequence[str]) -> Completed:
        name = argv[1].replace(" ", "\\040")
        left = [line for line in self.lines if line.split()[0] != name]
        if left == self.lines:
            return Completed(4, "", f"swapoff: {argv[1]}: swapoff failed: Invalid argument\n")
        return self.put(left)

    def swapon(self, argv: Sequence[str]) -> Completed:
        path = self.host.files.resolve(argv[-1])
        priority = argv[2] if argv[1] == "-p" else "-2"
        kind = "partition" if path.startswith("/dev/") else "file"
        size = {"/dev/sda2": 4194300, "/swap file": 1048572}.get(path, 1020)
        name = path.replace(" ", "\\040")
        return self.put([*self.lines, f"{name} {kind} {size} 0 {priority}\n"])

    def mkswap(self, argv: Sequence[str]) -> Completed:
        self.formatted.append(argv[1])
        return Completed(0, "", "")

    def fallocate(self, argv: Sequence[str]) -> Completed:
        os.truncate(self.host.files.locate(argv[3]), int(argv[2]))
        return Completed(0, "", "")

    def install(self, argv: Sequence[str]) -> Completed:
        place = self.host.files.locate(argv[-1])
        Path(place).touch()
        os.chmod(place, int(argv[1].partition("=")[2], 8))
        return Completed(0, "", "")

    def mv(self, argv: Sequence[str]) -> Completed:
        os.replace(self.host.files.locate(argv[-2]), self.host.files.locate(argv[-1]))
        return Completed(0, "", "")

    def systemctl(self, argv: Sequence[str]) -> Completed:
        words = [word for word in argv[1:] if word != "--no-reload"]
        if words[0] == "show":
            return Completed(0, "NeedDaemonReload=no\n", "")
        if words[0] == "daemon-reload":
            self.generate()
        else:
            self.link(words[0], words[1])
        return Completed(0, "", "")

    def link(self, verb: str, unit: str) -> None:
        place = Path(self.host.files.root, f"etc/systemd/system/swap.target.wants/{unit}")
        if verb == "enable" and not place.is_symlink():
            place.parent.mkdir(exist_ok=True)
            place.symlink_to(f"{systemd.ETC}/{unit}")
        elif verb == "disable" and place.is_symlink():
            place.unlink()
            if not any(place.parent.iterdir()):
                place.parent.rmdir()

    def generate(self) -> None:
        folder = Path(self.host.files.root, GENERATOR.lstrip("/"))
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.iterdir():
            old.unlink()
        for line in fstab.parse(self.host.files.read("/etc/fstab"), "\0"):
            if line.kind == "swap" and "noauto" not in line.options:
                path = line.spec.replace("UUID=", "/dev/disk/by-uuid/")
                (folder / unit_of_path(path, "swap")).touch()


def machine(
    root: Path, files: Optional[Mapping[str, Optional[str]]] = None, links: Optional[Mapping[str, str]] = None
) -> FakeHost:
    """The machine above with other files, and without those that are None."""
    merged: Dict[str, Optional[str]] = {**FILES, **(files or {})}
    host = build(root, {path: text for path, text in merged.items() if text is not None}, {**LINKS, **(links or {})})
    Programs(host)
    return host


def run(host: FakeHost, *, check: bool = False, **declaration: Any) -> Outcome:
    validated = ArgumentSpecValidator({**SHARED_OPTIONS, **CONCERN.options}).validate(declaration)
    assert validated.error_messages == []
    return converge(CONCERN, validated.validated_parameters, host, check_mode=check)
