# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What has to be installed on this machine before a file system of a server or a cluster can be mounted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Tuple

from ..._core.value import frozen
from .values import (
    BEEGFS,
    BLOBFUSE,
    CEPH,
    EFS,
    GCSFUSE,
    GPFS,
    HF3FS,
    JUICEFS,
    LUSTRE,
    MOUNTPOINT,
    NFS,
    RCLONE,
    S3FS,
    VAST,
    WEKA,
)

if TYPE_CHECKING:
    from ..._core.protocols import Host

KNOWN = "/proc/filesystems"
SUNRPC = "/sys/module/sunrpc"
# What the modules of VAST have, and those of the kernel have not.
BUNDLE = f"{SUNRPC}/parameters/nfs_bundle_version"
STOCK = "kernel/"
# Programs of FUSE that mount for a process without that privilege, or that does not mount by itself.
FUSERMOUNT = ("fusermount3", "fusermount")


@frozen
class Client:
    """``title`` is its name, ``module`` that of the kernel, ``helper`` the program without which mount(8) cannot do.

    Both may be empty. ``program`` is what the helper starts, ``either`` are programs of which it needs one, and
    ``file`` is the path of a program that is not in ``PATH``. ``hint`` says what to install, and ``after`` is the
    service that has to run before a mount. ``remedy`` says what to do where a service of its own has not mounted it,
    with ``{}`` for the source.
    """

    title: str
    hint: str
    module: str = ""
    helper: str = ""
    program: str = ""
    either: Tuple[str, ...] = ()
    file: str = ""
    after: str = ""
    remedy: str = ""


CLIENTS: Mapping[str, Client] = {
    NFS: Client("NFS", "install nfs-common (Debian, Ubuntu), nfs-utils (EL) or nfs-client (SUSE)", helper="mount.nfs"),
    BEEGFS: Client(
        "BeeGFS",
        "install beegfs-client, and build its module for this kernel",
        module="beegfs",
        after="beegfs-helperd.service",
    ),
    # It reads the file with the secret, and resolves names.
    CEPH: Client(
        "CephFS",
        "install ceph-common, and the package of the kernel that has the module ceph",
        module="ceph",
        helper="mount.ceph",
    ),
    LUSTRE: Client(
        "Lustre",
        "install lustre-client, or lustre-client-modules for this kernel and lustre-client-utils",
        module="lustre",
        helper="mount.lustre",
        after="lnet.service",
    ),
    # The agent brings the module with the first mount.
    WEKA: Client(
        "WekaFS",
        "install the agent of WEKA from one of its backends",
        helper="mount.wekafs",
        after="weka-agent.service",
    ),
    VAST: Client(
        "VAST NFS",
        "install the package vastnfs for this kernel, and load its modules with vastnfs-ctl reload",
        helper="mount.nfs",
    ),
    # mount.efs starts the watchdog itself.
    EFS: Client("Amazon EFS", "install amazon-efs-utils", helper="mount.efs"),
    GPFS: Client(
        "IBM Storage Scale",
        "install gpfs.base, and add the node to its cluster",
        file="/usr/lpp/mmfs/bin/mmdiag",
        remedy="run mmmount {} here, or, for every start of the daemon, mmchfs {} -A yes on an administration node",
    ),
    HF3FS: Client(
        "3FS",
        "install hf3fs_fuse_main and its launcher in /opt/3fs",
        file="/opt/3fs/bin/hf3fs_fuse_main",
        remedy="enable and start hf3fs_fuse_main.service",
    ),
    BLOBFUSE: Client("BlobFuse2", "install blobfuse2 and fuse3", helper="mount.fuse3", program="blobfuse2"),
    GCSFUSE: Client(
        "Cloud Storage FUSE",
        "install gcsfuse and fuse3",
        helper="mount.gcsfuse",
        program="gcsfuse",
        either=FUSERMOUNT,
    ),
    JUICEFS: Client(
        "JuiceFS", "install juicefs, and link /sbin/mount.juicefs to it", helper="mount.juicefs", program="juicefs"
    ),
    MOUNTPOINT: Client(
        "Mountpoint for Amazon S3",
        "install the package mount-s3, 1.18 or later",
        helper="mount.mount-s3",
    ),
    # Without fusermount, rclone waits for a minute, and does not say for what.
    RCLONE: Client(
        "rclone",
        "install rclone and fuse3, and link /sbin/mount.rclone to rclone",
        helper="mount.rclone",
        either=FUSERMOUNT,
    ),
    S3FS: Client("s3fs", "install s3fs and fuse3", helper="mount.fuse", program="s3fs"),
}


def lacking(host: Host, name: str) -> str:
    """What is missing to mount with this client; empty where nothing is."""
    client = CLIENTS.get(name)
    if client is None:
        return ""
    for program in (client.helper, client.program):
        if program and host.commands.find(program) is None:
            return program
    if client.either and all(host.commands.find(program) is None for program in client.either):
        return client.either[0]
    if client.file and not host.files.exists(client.file):
        return client.file
    if name == VAST:
        return _lacking_of_vast(host)
    if not client.module or name in (host.files.read_optional(KNOWN) or "").split():
        return ""
    from ..._linux.kernel_modules import read_installed

    installed = read_installed(host.files)
    if installed.dependencies(client.module) is not None or installed.has_built_in(client.module):
        return ""
    return f"module {client.module} for the kernel {installed.release}"


def _lacking_of_vast(host: Host) -> str:
    """The kernel has modules of the same names, so what counts is which of both are loaded, or would be."""
    files = host.files
    if files.exists(BUNDLE):
        return ""
    if files.exists(SUNRPC):
        return f"{BUNDLE}, so the modules of the kernel itself are loaded"
    from ..._linux.kernel_modules import read_installed

    installed = read_installed(files)
    path = installed.path_of("sunrpc")
    if path is not None and not path.startswith(STOCK):
        return ""
    return f"module sunrpc of VAST for the kernel {installed.release}"
