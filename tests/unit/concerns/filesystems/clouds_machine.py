# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with the clients of EFS, Storage Scale, 3FS, VAST and object stores.

What the kernel shows of rclone 1.60 and s3fs 1.90 is as recorded of Linux 6.18, with the command lines of their
processes. That of EFS is as mount_efs of amazon-efs-utils 2.4 makes it and a public listing of mounts has it, and that
of the others as their sources name it: fuse/config.rs of Mountpoint for Amazon S3, cmd/mount.go of Cloud Storage FUSE,
pkg/fuse/fuse.go of JuiceFS, libfuse_handler.go of BlobFuse2, and FuseMainLoop.cc of 3FS.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.tests.unit.concerns.filesystems import parallel_machine
from ansible_collections.gpufleet.node.tests.unit.concerns.filesystems.filesystems_machine import programs
from ansible_collections.gpufleet.node.tests.unit.concerns.filesystems.parallel_machine import Clients
from ansible_collections.gpufleet.node.tests.unit.support import STATUS_OF_ROOT, FakeHost

BUNDLE = "/sys/module/sunrpc/parameters/nfs_bundle_version"
EFS: Dict[str, Any] = {
    "path": "/data",
    "source": "fs-0123456789abcdef0:/sets",
    "fstype": "efs",
    "options": ["tls", "iam", "accesspoint=fsap-0123456789abcdef0", "rsize=1048576", "noatime"],
    "read_ahead_kb": 4096,
}
BLOBFUSE: Dict[str, Any] = {
    "path": "/data",
    "fstype": "blobfuse2",
    "options": ["--config-file=/etc/blobfuse2.yaml", "allow_other"],
}
GCSFUSE: Dict[str, Any] = {
    "path": "/data",
    "source": "sets",
    "fstype": "gcsfuse",
    "options": ["key_file=/etc/gcs.json", "implicit_dirs", "allow_other", "ro"],
}
JUICEFS: Dict[str, Any] = {
    "path": "/data",
    "source": "redis://redis1:6379/1",
    "fstype": "juicefs",
    "options": ["cache-dir=/scratch/jfs", "cache-size=1048576", "noatime"],
}
MOUNTPOINT: Dict[str, Any] = {
    "path": "/data",
    "source": "s3://sets/2026/",
    "fstype": "mountpoint-s3",
    "options": ["allow-other", "cache=/scratch/s3", "max-threads=64"],
}
RCLONE: Dict[str, Any] = {
    "path": "/data",
    "source": "s3:sets/2026",
    "fstype": "rclone",
    "options": ["config=/etc/rclone.conf", "vfs_cache_mode=full", "allow_other"],
    "read_ahead_kb": 4096,
}
S3FS: Dict[str, Any] = {
    "path": "/data",
    "source": "sets:/2026",
    "fstype": "s3fs",
    "options": ["passwd_file=/etc/passwd-s3fs", "use_cache=/scratch/s3fs", "allow_other"],
}
MADE: Mapping[str, Dict[str, Any]] = {
    one["fstype"]: one for one in (EFS, BLOBFUSE, GCSFUSE, JUICEFS, MOUNTPOINT, RCLONE, S3FS)
}
VAST: Dict[str, Any] = {
    "path": "/data",
    "source": "10.0.0.1:/sets",
    "fstype": "nfs",
    "options": ["vers=3", "nconnect=32", "remoteports=10.0.0.1-10.0.0.16", "localports=ib0~ib1", "spread_reads"],
}
GPFS: Dict[str, Any] = {"path": "/data", "source": "gpfs0", "fstype": "gpfs"}
HF3FS: Dict[str, Any] = {"path": "/data", "source": "hf3fs.stage", "fstype": "hf3fs"}
SCALE_MOUNT = "61 25 0:61 / /data rw,relatime shared:9 - gpfs gpfs0 rw\n"
HF3FS_MOUNT = (
    "61 25 0:61 / /data rw,nosuid,nodev,relatime shared:9 - fuse.hf3fs hf3fs.stage"
    " rw,user_id=0,group_id=0,default_permissions,allow_other,max_read=1048576\n"
)
# As gpfs_exporter has them of Storage Scale 5.0, and cinder of mmlsconfig.
EFFECTIVE = """
mmdiag:config:HEADER:version:reserved:reserved:name:value:changed:
mmdiag:config:0:1:::opensslLibName:/usr/lib64/libssl.so.10%3A/usr/lib64/libssl.so.6::
mmdiag:config:0:1:::pagepool:17179869184:static:
mmdiag:config:0:1:::maxMBpS:2048::
mmdiag:config:0:1:::verbsRdma:enable:static:
mmdiag:config:0:1:::verbsRdmaSend:1::
"""
CONFIGURED = """\
mmlsconfig::HEADER:version:reserved:reserved:configParameter:value:nodeList:
mmlsconfig::0:1:::clusterName:gpu.example.com::
mmlsconfig::0:1:::pagepool:16G::
mmlsconfig::0:1:::maxMBpS:20000::
mmlsconfig::0:1:::workerThreads:512::
mmlsconfig::0:1:::workerThreads:1024:nsdNodes:
"""
# By what mount(8) calls them: the type and the source in the kernel, and what the program calls itself.
KERNEL = {
    "fuse.s3fs": ("fuse.s3fs", "s3fs", "s3fs"),
    "fuse3": ("fuse", "blobfuse2", "blobfuse2"),
    "gcsfuse": ("fuse.gcsfuse", "", "/usr/bin/gcsfuse"),
    "juicefs": ("fuse.juicefs", "JuiceFS:sets", "/sbin/mount.juicefs"),
    "mount-s3": ("fuse", "mountpoint-s3", "/sbin/mount.mount-s3"),
    "rclone": ("fuse.rclone", "", "/usr/bin/rclone"),
}
SHOWN = ("allow_other", "allow-other", "default_permissions")
HELPERS = (
    *("mount.efs", "mount.gcsfuse", "gcsfuse", "mount.juicefs", "juicefs", "mount.mount-s3", "mount.rclone"),
    *("mount.fuse", "mount.fuse3", "fusermount", "s3fs", "blobfuse2"),
)
FILES = {"/usr/lpp/mmfs/bin/mmdiag": "", "/opt/3fs/bin/hf3fs_fuse_main": "", BUNDLE: "4.0.34\n", "/run/.keep": ""}
PID = "4711"


class Clouds(Clients):
    """Its programs, and the helpers that leave a process behind. ``port`` is that of the next proxy of EFS."""

    def __init__(self, host: FakeHost) -> None:
        super().__init__(host)
        for name in HELPERS:
            host.commands.programs[name] = lambda argv: Completed(0, "", "")
        for name, text in (("mmdiag", EFFECTIVE), ("mmlsconfig", CONFIGURED)):
            host.commands.programs[name] = lambda argv, text=text: Completed(0, text, "")
        host.commands.programs["systemd-run"] = self.systemd_run
        host.commands.programs["stat"] = lambda argv: Completed(0, "", "")
        self.port = 20049

    def systemd_run(self, argv: Sequence[str]) -> Completed:
        return self.mount(argv[argv.index("mount") :])

    def mount(self, argv: Sequence[str]) -> Completed:
        if "-t" not in argv or argv[argv.index("-t") + 1] not in (*KERNEL, "efs"):
            return super().mount(argv)
        # Ours takes no option of mount(8) for one of the file system.
        done = super().mount([f"rw,{word}" if word.startswith("--config-file") else word for word in argv])
        if done.status == 0:
            kind, (source, path) = argv[argv.index("-t") + 1], argv[-2:]
            (self.with_proxy if kind == "efs" else self.with_process)(kind, source, path)
        return done

    def with_proxy(self, kind: str, source: str, path: str) -> None:
        fsid, _colon, folder = source.partition(":")
        options = "vers=4.1,rsize=1048576,wsize=1048576,namlen=255,hard,noresvport,proto=tcp"
        options += f",port={self.port},timeo=600,retrans=2,sec=sys,clientaddr=127.0.0.1,local_lock=none,addr=127.0.0.1"
        self.show(path, "nfs4", f"127.0.0.1:{folder or '/'}", options)
        state = self.root / f"run/efs/{fsid}{path.replace('/', '.')}.{self.port}"
        state.parent.mkdir(exist_ok=True)
        state.write_text('{"pid": 4711}')
        self.bdi(path).mkdir(parents=True)
        (self.bdi(path) / "read_ahead_kb").write_text("15360\n")

    def with_process(self, kind: str, source: str, path: str) -> None:
        fstype, shown, program = KERNEL[kind]
        line = self.line(path)
        kept = [option for option in line.split()[-1].split(",") if option in SHOWN]
        options = ["user_id=0", "group_id=0", *(option.replace("-", "_") for option in kept)]
        self.show(path, fstype, shown or source, ",".join(options))
        # s3fs cuts its argument.
        words = [program, *(source.split(":") if kind == "fuse.s3fs" else [source]), path, "-o", "rw"]
        self.process(*words)
        self.bdi(path).mkdir(parents=True)
        (self.bdi(path) / "read_ahead_kb").write_text("128\n")

    def process(self, *words: str, status: str = STATUS_OF_ROOT) -> None:
        folder = self.root / "proc" / PID
        folder.mkdir(exist_ok=True)
        (folder / "cmdline").write_text("\0".join(words) + "\0")
        (folder / "status").write_text(status)
        (folder / "maps").write_text("")

    def line(self, path: str) -> str:
        return next(line for line in reversed(self.lines) if line.split()[4] == path)

    def bdi(self, path: str) -> Path:
        return self.root / f"sys/class/bdi/{self.line(path).split()[2]}"

    def show(self, path: str, fstype: str, source: str, options: str) -> None:
        fields = self.line(path).split()
        fields[-3:] = [fstype, source, f"rw,{options}"]
        self.put([*(line for line in self.lines if line != self.line(path)), f"{' '.join(fields)}\n"])

    def umount(self, argv: Sequence[str]) -> Completed:
        done = super().umount(argv)
        if done.status == 0:
            for folder, names in (("run/efs", "*"), (f"proc/{PID}", "*")):
                for file in (self.root / folder).glob(names):
                    file.unlink()
                if (self.root / folder).exists():
                    (self.root / folder).rmdir()
        return done


def clouds(host: FakeHost) -> Clouds:
    found = programs(host)
    assert isinstance(found, Clouds)
    return found


def machine(root: Path, files: Optional[Mapping[str, Optional[str]]] = None) -> FakeHost:
    host = parallel_machine.machine(root, {**FILES, **(files or {})})
    Clouds(host)
    return host


def begun(host: FakeHost) -> List[Any]:
    """The mounts that were made, by the command that made them."""
    return [argv for argv in host.commands.calls if argv[0] in ("mount", "systemd-run")]
