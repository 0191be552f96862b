# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What has to be installed on this machine before a file system of a server or a cluster can be mounted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping

from ..._core.value import frozen
from .values import BEEGFS, CEPH, LUSTRE, NFS, WEKA

if TYPE_CHECKING:
    from ..._core.protocols import Host

KNOWN = "/proc/filesystems"


@frozen
class Client:
    """``title`` is its name, ``module`` that of the kernel, ``helper`` the program without which mount(8) cannot do.

    Both may be empty. ``hint`` says what to install, and ``after`` is the service that has to run before a mount.
    """

    title: str
    hint: str
    module: str = ""
    helper: str = ""
    after: str = ""


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
}


def lacking(host: Host, fstype: str) -> str:
    """What is missing to mount this type; empty where nothing is."""
    client = CLIENTS.get(fstype)
    if client is None:
        return ""
    if client.helper and host.commands.find(client.helper) is None:
        return client.helper
    if not client.module or fstype in (host.files.read_optional(KNOWN) or "").split():
        return ""
    from ..._linux.kernel_modules import read_installed

    installed = read_installed(host.files)
    if installed.dependencies(client.module) is not None or installed.has_built_in(client.module):
        return ""
    return f"module {client.module} for the kernel {installed.release}"
