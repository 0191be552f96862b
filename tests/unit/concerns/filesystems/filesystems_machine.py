# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with mounts: the kernel's table, and the programs that change it.

What the kernel shows of an option is as recorded of Linux 6.18, and as fs/nfs/super.c writes it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils._linux import mounts, systemd
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.filesystems.concern import CONCERN
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build

MOUNTINFO = "/proc/self/mountinfo"
DISK = "/dev/disk/by-uuid/6f1d"
ROOT = "25 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
# As Linux 6.1 shows two mounts of NFS from one server, the first of which was made without nconnect.
OTHERS = (
    "60 25 0:48 / /home rw,relatime shared:30 - nfs4 nfs1:/home rw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,"
    "hard,proto=tcp,timeo=600,retrans=2,sec=sys,clientaddr=10.0.0.7,local_lock=none,addr=10.0.0.1\n"
)
FSTAB = """\
# /etc/fstab: static file system information.
UUID=11aa / ext4 errors=remount-ro 0 1
nfs1:/home /home nfs defaults 0 0
"""
FILES = {
    "/etc/fstab": FSTAB,
    "/etc/systemd/system/.keep": "",
    "/run/systemd/system/.keep": "",
    MOUNTINFO: ROOT,
    "/proc/meminfo": "MemTotal:       16000000 kB\n",
    "/proc/1/comm": "systemd\n",
    "/sys/class/bdi/8:0/read_ahead_kb": "128\n",
    "/sys/devices/virtual/block/nvme0n1p1/dev": "259:1\n",
    "/dev/nvme0n1p1": "",
    "/srv/.keep": "",
    "/var/lib/dpkg/status": "",
}
LINKS = {
    "/sys/class/block/nvme0n1p1": "/sys/devices/virtual/block/nvme0n1p1",
    DISK: "/dev/nvme0n1p1",
}
FLAGS = ("ro", "rw", "noatime", "relatime", "nosuid", "nodev", "noexec", "nodiratime", "suid", "dev", "exec")
NFS_MOUNT: Dict[str, Any] = {
    "path": "/data",
    "source": "nfs1:/export/data",
    "fstype": "nfs",
    "options": ["vers=4.2", "rsize=1048576", "nconnect=8", "actimeo=60", "noatime", "_netdev"],
    "read_ahead_kb": 15360,
}
SCRATCH: Dict[str, Any] = {
    "path": "/srv/scratch",
    "source": "UUID=6f1d",
    "fstype": "xfs",
    "options": ["noatime", "allocsize=64m"],
}
HOT: Dict[str, Any] = {"path": "/hot", "fstype": "tmpfs", "options": ["size=64g", "nosuid"]}


class Programs:
    """``mount``, ``umount``, ``mkdir``, ``udevadm`` and ``systemctl`` of this machine.

    ``allows`` is the limit of the server, ``dead`` are the sources that do not respond, ``drops`` what the kernel does
    not take, and ``says`` what a mount or its end is refused with.
    """

    def __init__(self, host: FakeHost) -> None:
        self.host = host
        self.allows = 1048576
        self.dead: List[str] = []
        self.drops: List[str] = []
        self.says = ""
        for name in ("mount", "umount", "mkdir", "udevadm", "systemctl"):
            host.commands.programs[name] = getattr(self, name)
        host.commands.programs["mount.nfs"] = lambda argv: Completed(0, "", "")

    @property
    def root(self) -> Path:
        return Path(self.host.files.root)

    @property
    def lines(self) -> List[str]:
        return self.host.files.read(mounts.PATH).splitlines(True)

    def put(self, lines: Sequence[str]) -> None:
        (self.root / "proc/self/mountinfo").write_text("".join(sorted(lines)))

    def mount(self, argv: Sequence[str]) -> Completed:
        words = [word for word in argv[1:] if not word.startswith("--")]
        named = {words[at]: words[at + 1] for at in range(len(words) - 1) if words[at] in ("-t", "-o")}
        source, path = words[-2:]
        options = [option for option in named.get("-o", "").split(",") if option and option not in self.drops]
        if "remount" in options:
            return self.remount(path, options)
        if source in self.dead:
            return Completed(124, "", "")
        if self.says:
            return Completed(32, "", self.says)
        ids = {int(line.split()[0]) for line in self.lines}
        number = next(number for number in range(61, 99) if number not in ids)
        kind = {"nfs": "nfs4"}.get(named["-t"], named["-t"])
        source = self.host.files.resolve(source) if source.startswith("/dev/") else self.resolved(source)
        node = self.host.files.read_optional(f"/sys/class/block/{source.rpartition('/')[2]}/dev")
        device = node.strip() if node and source.startswith("/dev/") else f"0:{number}"
        flags = [option for option in options if option in FLAGS and not option.startswith(("suid", "dev", "exec"))]
        flags = [*([] if "ro" in flags else ["rw"]), *flags, *([] if "noatime" in flags else ["relatime"])]
        shown = ",".join(["rw", *self.shown(named["-t"], [option for option in options if option not in FLAGS])])
        self.put(
            [
                *self.lines,
                f"{number} 25 {device} / {path} {','.join(flags)} shared:{number} - {kind} {source} {shown}\n",
            ]
        )
        if kind == "nfs4":
            bdi = self.root / f"sys/class/bdi/{device}"
            bdi.mkdir(parents=True)
            (bdi / "read_ahead_kb").write_text("128\n")
        return Completed(0, "", "")

    def resolved(self, source: str) -> str:
        """As the helper hands it to the kernel."""
        return source

    def shown(self, kind: str, options: Sequence[str]) -> List[str]:
        found = []
        for option in options:
            name, _equals, value = option.partition("=")
            if name in ("actimeo",):
                found += [f"acregmin={value}", f"acdirmin={value}"]
            elif name == "rsize":
                found.append(f"rsize={min(int(value), self.allows)}")
            elif name == "nconnect" and any("addr=10.0.0.1" in line for line in self.lines):
                continue
            elif name in ("size", "allocsize"):
                number = int(value[:-1]) * {"k": 1, "m": 1024, "g": 1024**2}[value[-1]]
                found.append(f"{name}={number}k")
            elif name not in ("_netdev", "nodiscard", "hard"):
                found.append(option)
        if kind == "nfs":
            found += ["hard", "proto=tcp", "sec=sys", "addr=10.0.0.1"]
        return found

    def remount(self, path: str, options: Sequence[str]) -> Completed:
        lines = self.lines
        at = max(number for number, line in enumerate(lines) if line.split()[4] == path)
        fields = lines[at].split()
        fields[5] = ",".join(option for option in options if option in FLAGS)
        if "bind" not in options:
            others = [option for option in options if option not in (*FLAGS, "remount")]
            names = {option.partition("=")[0] for option in others}
            kept = [option for option in fields[-1].split(",") if option.partition("=")[0] not in names]
            fields[-1] = ",".join([*kept, *self.shown("tmpfs", others)])
        lines[at] = f"{' '.join(fields)}\n"
        self.put(lines)
        return Completed(0, "", "")

    def umount(self, argv: Sequence[str]) -> Completed:
        path = argv[-1]
        lines = self.lines
        if self.says:
            return Completed(32, "", self.says)
        at = max((number for number, line in enumerate(lines) if line.split()[4] == path), default=None)
        if at is None:
            return Completed(32, "", f"umount: {path}: not mounted.\n")
        shutil.rmtree(self.root / f"sys/class/bdi/{lines[at].split()[2]}", ignore_errors=True)
        self.put(lines[:at] + lines[at + 1 :])
        return Completed(0, "", "")

    def mkdir(self, argv: Sequence[str]) -> Completed:
        (self.root / argv[-1].lstrip("/")).mkdir(parents=True, exist_ok=True)
        return Completed(0, "", "")

    def udevadm(self, argv: Sequence[str]) -> Completed:
        return Completed(0, "", "")

    def systemctl(self, argv: Sequence[str]) -> Completed:
        words = [word for word in argv[1:] if word != "--no-reload"]
        if words[0] == "show":
            return Completed(0, "NeedDaemonReload=no\n", "")
        for unit in words[1:]:
            self.link(words[0], unit)
        return Completed(0, "", "")

    def link(self, verb: str, unit: str) -> None:
        for target in ("remote-fs.target", "local-fs.target"):
            place = self.root / f"etc/systemd/system/{target}.wants/{unit}"
            wants = f"WantedBy={target}" in (self.host.files.read_optional(f"{systemd.ETC}/{unit}") or "")
            if verb == "enable" and wants and not place.is_symlink():
                place.parent.mkdir(exist_ok=True)
                place.symlink_to(f"{systemd.ETC}/{unit}")
            elif verb == "disable" and place.is_symlink():
                place.unlink()
                if not any(place.parent.iterdir()):
                    place.parent.rmdir()


def machine(
    root: Path, files: Optional[Mapping[str, Optional[str]]] = None, links: Optional[Mapping[str, str]] = None
) -> FakeHost:
    """The machine above with other files, and without those that are None."""
    merged: Dict[str, Optional[str]] = {**FILES, **(files or {})}
    host = build(root, {path: text for path, text in merged.items() if text is not None}, {**LINKS, **(links or {})})
    Programs(host)
    return host


def programs(host: FakeHost) -> Programs:
    found: Programs = host.commands.programs["mount"].__self__  # type: ignore[attr-defined]
    return found


def run(host: FakeHost, *entries: Mapping[str, Any], check: bool = False, **declaration: Any) -> Outcome:
    given = {**({"mounts": list(entries)} if entries else {}), **declaration}
    validated = ArgumentSpecValidator({**SHARED_OPTIONS, **CONCERN.options}).validate(given)
    assert validated.error_messages == []
    return converge(CONCERN, validated.validated_parameters, host, check_mode=check)


def mounted(host: FakeHost, path: str) -> Optional[mounts.Mount]:
    return mounts.at(mounts.read(host.files), path)


def unmanaged(outcome: Outcome) -> List[Any]:
    return [(entry.object, entry.setting, entry.reason) for entry in outcome.remaining.unmanaged]


def pending(outcome: Outcome) -> Dict[str, str]:
    return {row.setting: row.pending for row in outcome.remaining.pending}


def started(host: FakeHost, program: str) -> List[Any]:
    return [argv for argv in host.commands.calls if argv[0] == program]
