# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with the clients of BeeGFS, Ceph, Lustre and WekaFS.

What the kernel shows of Ceph is as fs/ceph/super.c writes it, and of the others as public listings of mounts have it:
of Lustre 2.15 (``checksum,flock,nouser_xattr,...``), of WEKA 4 and of BeeGFS 7.
"""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.tests.unit.concerns.filesystems import filesystems_machine
from ansible_collections.gpufleet.node.tests.unit.concerns.filesystems.filesystems_machine import Programs, programs
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost

RELEASE = "6.8.0-60-generic"
MODULES = f"/lib/modules/{RELEASE}/modules.dep"
UNIT = "/etc/systemd/system/data.mount"
ANEW = "a remount cannot change it: unmount /data and run again, or reboot"
FILES = {
    "/proc/sys/kernel/osrelease": f"{RELEASE}\n",
    "/proc/filesystems": "nodev\tsysfs\nnodev\ttmpfs\n\text4\n",
    MODULES: "updates/lustre.ko.zst:\nkernel/fs/ceph/ceph.ko.zst: kernel/net/ceph/libceph.ko.zst\nupdates/beegfs.ko:\n",
}
FSID = "b3acfc0d-575f-41d3-9c91-0e7ed3dbb3fa"
LUSTRE: Dict[str, Any] = {
    "path": "/data",
    "source": "mgs1@o2ib:mgs2@o2ib:/fs1/sets",
    "fstype": "lustre",
    "options": ["flock", "noatime", "lazystatfs"],
}
TUNED: Dict[str, Any] = {
    **LUSTRE,
    "tunables": {
        "llite.max_read_ahead_mb": 1024,
        "llite.max_cached_mb": 64000,
        "osc.max_rpcs_in_flight": 64,
        "osc.max_pages_per_rpc": "16M",
        "osc.checksum_type": "adler",
        "mdc.max_mod_rpcs_in_flight": 31,
        "mdc.max_rpcs_in_flight": 32,
    },
}
CEPH: Dict[str, Any] = {
    "path": "/data",
    "source": "mon1,mon2:/sets",
    "fstype": "ceph",
    "options": [
        "name=gpu",
        "secretfile=/etc/ceph/gpu.secret",
        "fs=cephfs",
        "rasize=67108864",
        "wsize=67108864",
        "nowsync",
    ],
}
BEEGFS: Dict[str, Any] = {
    "path": "/data",
    "fstype": "beegfs",
    "options": ["cfgFile=/etc/beegfs/beegfs-client.conf", "nosuid"],
}
WEKA: Dict[str, Any] = {
    "path": "/data",
    "source": "backend1,backend2/default",
    "fstype": "wekafs",
    "options": ["num_cores=4", "net=ib0", "net=ib1", "readcache", "readahead_kb=65536"],
}
ALL: Mapping[str, Dict[str, Any]] = {"beegfs": BEEGFS, "ceph": CEPH, "lustre": LUSTRE, "wekafs": WEKA}
ADDRESSES = {"mgs1": "10.0.1.1", "mgs2": "10.0.1.2", "mon1": "10.0.2.1:6789", "mon2": "10.0.2.2:6789"}
# What helpers read and do not hand on.
HELPERS = ("conf", "net", "num_cores", "core", "memory_mb", "network", "secretfile", "_netdev")
LUSTRE_FLAGS = ("checksum", "flock", "user_xattr", "lruresize", "lazystatfs", "user_fid2path", "verbose")
# The client has them until it is unmounted.
PARAMETERS = {
    "llite.fs1-{}.max_read_ahead_mb": "64",
    "llite.fs1-{}.max_cached_mb": "16000",
    "osc.fs1-OST0000-osc-{}.max_rpcs_in_flight": "8",
    "osc.fs1-OST0001-osc-{}.max_rpcs_in_flight": "8",
    "osc.fs1-OST0000-osc-{}.max_pages_per_rpc": "1024",
    "osc.fs1-OST0001-osc-{}.max_pages_per_rpc": "1024",
    "osc.fs1-OST0000-osc-{}.checksum_type": "crc32 adler [crc32c]",
    "osc.fs1-OST0001-osc-{}.checksum_type": "crc32 adler [crc32c]",
    "mdc.fs1-MDT0000-mdc-{}.max_rpcs_in_flight": "8",
    "mdc.fs1-MDT0000-mdc-{}.max_mod_rpcs_in_flight": "7",
    # Of another file system.
    "llite.fs1-x-{}.max_read_ahead_mb": "64",
    "osc.fs1-x-OST0000-osc-{}.max_rpcs_in_flight": "8",
    "osc.fs2-OST0000-osc-{}.max_rpcs_in_flight": "8",
}
PAGE_KB = 4
BY_DEFAULT = ("checksum", "lruresize", "lazystatfs", "verbose")


class Clients(Programs):
    """Its programs, and the helpers of the clients."""

    def __init__(self, host: FakeHost) -> None:
        super().__init__(host)
        for name in ("mount.ceph", "mount.lustre", "mount.wekafs"):
            host.commands.programs[name] = lambda argv: Completed(0, "", "")
        host.commands.programs["lctl"] = self.lctl
        self.parameters: Dict[str, str] = {}
        self.clients = 0

    def mount(self, argv: Sequence[str]) -> Completed:
        done = super().mount(argv)
        if done.status == 0 and "lustre" in argv:
            self.connect()
        return done

    def connect(self) -> None:
        """A new client, whose instances have the address that it got."""
        self.clients += 1
        self.parameters = {name.format(f"ffff9b2c{self.clients}000"): text for name, text in PARAMETERS.items()}

    def umount(self, argv: Sequence[str]) -> Completed:
        done = super().umount(argv)
        if not any(" - lustre " in line for line in self.lines):
            self.parameters = {}
        return done

    def lctl(self, argv: Sequence[str]) -> Completed:
        """``get_param`` and ``set_param``; what cannot be done is said, and the rest is done."""
        verb, *words = argv[1:]
        assert verb in ("get_param", "set_param")
        assert not [word for word in words if word.startswith("-")], "what is for the whole cluster"
        output, errors = [], []
        for word in words:
            pattern, _equals, value = word.partition("=")
            names = fnmatch.filter(self.parameters, pattern)
            if not names:
                errors.append(f"error: {verb}: param_path '{pattern.replace('.', '/')}': No such file or directory")
            for name in names:
                if verb == "get_param":
                    output.append(self.printed(name))
                elif self.takes(name, value):
                    in_bytes = name.endswith("max_pages_per_rpc") and value.endswith("M")
                    text = str(int(value[:-1]) * 1024 // PAGE_KB) if in_bytes else value
                    self.parameters[name] = f"crc32 [{text}] crc32c" if name.endswith("checksum_type") else text
                    output.append(word)
                else:
                    errors.append(f"error: {verb}: setting {name}={value}: Numerical result out of range")
        return Completed(34 if errors else 0, "".join(f"{line}\n" for line in output), "\n".join(errors))

    def printed(self, name: str) -> str:
        if name.endswith("max_cached_mb"):
            return f"{name}=\nusers: 5\nmax_cached_mb: {self.parameters[name]}\nused_mb: 12"
        return f"{name}={self.parameters[name]}"

    def takes(self, name: str, value: str) -> bool:
        if name.endswith("max_mod_rpcs_in_flight"):
            return int(value) < int(self.parameters[name.replace("max_mod_rpcs", "max_rpcs")])
        return not name.endswith("max_rpcs_in_flight") or int(value) <= 256

    def resolved(self, source: str) -> str:
        source = re.sub(r"(?:mgs|mon)[12]", lambda name: ADDRESSES[name[0]], source)
        return source.replace("@.", f"@{FSID}.")

    def shown(self, kind: str, options: Sequence[str]) -> List[str]:
        asked = [option for option in options if option.partition("=")[0] not in HELPERS]
        if kind == "lustre":
            return self.of_lustre(asked)
        if kind == "ceph":
            hidden = ("nowsync", "wsize=67108864", "rsize=67108864", "rasize=8388608")
            named = ["mds_namespace" + option[2:] if option.startswith("fs=") else option for option in asked]
            # With the ports of the monitors.
            named = [re.sub(r"(?<==)([0-9.]+)/([0-9.]+)$", r"\1:3300/\2:3300", option) for option in named]
            return ["secret=<hidden>", "acl", *(option for option in named if option not in hidden)]
        if kind == "wekafs":
            cache = [option for option in asked if option in ("readcache", "forcedirect")] or ["writecache"]
            others = {"inode_bits": "auto", "readahead_kb": "32768", "dentry_max_age_positive": "1000"}
            others.update({option.partition("=")[0]: option.partition("=")[2] for option in asked if "=" in option})
            return [*cache, *(f"{name}={value}" for name, value in others.items()), "container_name=client"]
        return asked if kind == "beegfs" else super().shown(kind, options)

    def of_lustre(self, asked: Sequence[str]) -> List[str]:
        found = []
        for name in LUSTRE_FLAGS:
            if name == "flock" and "localflock" in asked:
                found.append("localflock")
                continue
            is_set = name in asked or (name in BY_DEFAULT and f"no{name}" not in asked)
            found.append(name if is_set else f"no{name}")
        return [*found, "encrypt"]


def clients(host: FakeHost) -> Clients:
    found = programs(host)
    assert isinstance(found, Clients)
    return found


def machine(
    root: Path, files: Optional[Mapping[str, Optional[str]]] = None, links: Optional[Mapping[str, str]] = None
) -> FakeHost:
    host = filesystems_machine.machine(root, {**FILES, **(files or {})}, links)
    Clients(host)
    return host


def with_options(entry: Mapping[str, Any], *options: str) -> Dict[str, Any]:
    return {**entry, "options": list(options)}


def mount_by_unit(host: FakeHost) -> None:
    """What systemd does at boot."""
    lines = dict(line.split("=", 1) for line in host.files.read(UNIT).splitlines() if "=" in line)
    programs(host).mount(["mount", "-t", lines["Type"], "-o", lines["Options"], lines["What"], lines["Where"]])
