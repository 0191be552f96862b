# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The disk image that nodes start from: a bare Debian, built once per definition and kept in the cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import List, Tuple

from bed_host import CACHE, BedError, bootstrap_tools, locked, require, run_logged, say, tail, tool

SCRIPTS = Path(__file__).resolve().parent / "image"
SUITES = ("trixie", "bookworm")
MIRROR = "http://deb.debian.org/debian"
SIZE_MIB = 4096

# A bare server: what boots, what answers to SSH, what Ansible needs. No container engine: bringing one, or meeting it,
# is a matter for the tests. irqbalance is there and off, ethtool for who changes queues, mdadm and xfsprogs for who
# makes a scratch of its drives.
PACKAGES = (
    "systemd", "systemd-sysv", "udev", "dbus", "openssh-server", "python3", "iproute2", "kmod", "procps",
    "linux-image-cloud-amd64", "initramfs-tools", "lz4", "grub2-common", "grub-pc-bin", "irqbalance", "ethtool",
    "iputils-ping", "mdadm", "xfsprogs",
)  # fmt: skip
# What is there on one suite alone, and off: tuned, which tunes what others tune too.
OFF = {"bookworm": ("tuned",)}
# What a server has beside that when it runs jobs: container engines and Slurm, off, and what lets a group launch.
OF_A_WORKER = (
    "docker.io", "containerd", "runc", "busybox-static", "python3-grpcio",
    "slurmctld", "slurmd", "slurm-client", "munge", "polkitd", "pkexec",
)  # fmt: skip
# The client of Docker is a package of its own, except there.
WITH_CLIENT = ("bookworm",)

# Half the files of the packages, none of which a node under test reads.
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")


@dataclass(frozen=True)
class Image:
    """An image in the cache.

    disk: raw ext4 file system without a partition table, sparse, label `root`.
    loader: GRUB in the form that QEMU's -kernel takes.
    """

    suite: str
    worker: bool
    digest: str
    folder: Path

    @property
    def disk(self) -> Path:
        return self.folder / "root.raw"

    @property
    def loader(self) -> Path:
        return self.folder / "loader.img"


def define(*, suite: str, mirror: str, worker: bool) -> Image:
    """The image for a suite, of a bare server or of one that runs jobs, whether it exists or not.

    Its digest covers all that it is built from except the versions of the packages: those are the newest ones on the
    day of the build.
    """
    digest = hashlib.sha256()
    for part in (suite, mirror, str(SIZE_MIB), *packages_of(suite, worker=worker), *LEFT_OUT):
        digest.update(part.encode() + b"\0")
    for script in sorted(SCRIPTS.iterdir()):
        digest.update(script.name.encode() + b"\0" + script.read_bytes() + b"\0")
    name = digest.hexdigest()[:16]
    return Image(suite=suite, worker=worker, digest=name, folder=CACHE / "images" / f"{suite}-{name}")


def packages_of(suite: str, *, worker: bool) -> Tuple[str, ...]:
    client = () if suite in WITH_CLIENT else ("docker-cli",)
    bare = (*PACKAGES, *OFF.get(suite, ()))
    return (*bare, *OF_A_WORKER, *client) if worker else bare


def ensure(*, suite: str, mirror: str = MIRROR, worker: bool = False, rebuild: bool = False) -> Image:
    """The image for a suite, built when it is not in the cache (or when `rebuild` says so).

    Errors: BedError with the end of the build log.
    """
    image = define(suite=suite, mirror=mirror, worker=worker)
    with locked(CACHE / "images" / f"{image.folder.name}.lock", what=f"The image {image.folder.name}"):
        if image.disk.exists() and not rebuild:
            return image
        require((*bootstrap_tools(), "mkfs.ext4"))
        work = image.folder.with_suffix(".part")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        say(f"building the image {image.folder.name} from {mirror} (log: {work / 'build.log'})")
        _build(image, mirror=mirror, work=work)
        # Disks of nodes are copies, so an image may be replaced while beds run.
        shutil.rmtree(image.folder, ignore_errors=True)
        work.rename(image.folder)
        say(f"built {image.disk}")
    return image


def _build(image: Image, *, mirror: str, work: Path) -> None:
    tree, log = work / "tree.tar", work / "build.log"
    identity = str(uuid.uuid5(uuid.NAMESPACE_DNS, image.folder.name))
    bootstrap = [
        tool("mmdebstrap"),
        "--variant=minbase",
        f"--include={','.join(packages_of(image.suite, worker=image.worker))}",
    ]
    # nvidia-persistenced is free software that asks for a driver that is not: contrib.
    bootstrap += ["--architectures=amd64", "--components=main,contrib", "--dpkgopt=force-unsafe-io"]
    bootstrap += [f"--dpkgopt=path-exclude={pattern}" for pattern in LEFT_OUT]
    bootstrap += [
        # update-initramfs runs once, in the script, with the node's own configuration.
        f"--customize-hook=upload {_quoted(SCRIPTS / 'customize.sh')} /customize.sh",
        f'--customize-hook=chroot "$1" sh /customize.sh {identity}',
        '--customize-hook=rm "$1/customize.sh"',
        *(f'--customize-hook=chroot "$1" systemctl disable {name}.service' for name in OFF.get(image.suite, ())),
        image.suite,
        str(tree),
        mirror,
    ]
    run_logged(bootstrap, log=log, goal=f"bootstrap Debian {image.suite} from {mirror}")

    # Without root the tree belongs to a range of subordinate ids; only the same mapping can unpack it again.
    helper: List[str] = [] if os.geteuid() == 0 else [tool("mmdebstrap"), "--unshare-helper"]
    pack = [*helper, "sh", "-c", (SCRIPTS / "pack.sh").read_text(), "pack.sh", identity, str(SIZE_MIB)]
    disk, loader = work / image.disk.name, work / image.loader.name
    environment = {**os.environ, "PATH": os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"}
    with tree.open("rb") as stdin, disk.open("wb") as target, loader.open("wb") as stdout, log.open("ab") as stderr:
        disk.chmod(0o666)
        command = ["sh", "-c", f'exec 3<>/dev/fd/{target.fileno()}; exec "$@"', "sh", *pack]
        done = subprocess.run(
            command, stdin=stdin, stdout=stdout, stderr=stderr, pass_fds=[target.fileno()], env=environment, check=False
        )
    if done.returncode != 0:
        raise BedError(f"Cannot make the file system {disk}: exit status {done.returncode}, log {log}:\n{tail(log)}")
    disk.chmod(0o444)
    tree.unlink()


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "'\\''") + "'"
