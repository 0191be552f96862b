# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The modules that the running machine stands on, which are never blocked.

Read from sysfs (Documentation/admin-guide/sysfs-rules.rst of the kernel): a device lies below the devices that carry
it, and each one's ``driver/module`` names what drives it.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Iterator, Sequence, Set, Tuple

from ..._core.errors import DeclarationError
from ..._core.regex import regex
from ..._linux import mounts
from ..._linux.kernel_modules import Installed, normal

if TYPE_CHECKING:
    from ..._core.protocols import Files

SYSTEM_MOUNTS = ("/", "/usr", "/var", "/boot", "/boot/efi", "/efi")
NO_BOOT = "leave it out: this machine would not boot without it"
NO_NETWORK = "leave it out: this machine would not be reachable without it"

# What lies under a device beside its parents: of dm and md, of a bond, bridge or vlan, of an nvme that has many paths.
UNDER = regex(r"lower_.+|nvme\d+")
# A virtual device has no driver: a file of the device, what it says, and the module that makes such devices.
MAKERS = (
    ("dm/uuid", r"", "dm_mod"),
    ("dm/uuid", r"^CRYPT-", "dm_crypt"),
    ("dm/uuid", r"^mpath-", "dm_multipath"),
    ("md/level", r"^raid0$", "raid0"),
    ("md/level", r"^raid1$", "raid1"),
    ("md/level", r"^raid10$", "raid10"),
    ("md/level", r"^raid[456]$", "raid456"),
    ("uevent", r"^DEVTYPE=bond$", "bonding"),
    ("uevent", r"^DEVTYPE=bridge$", "bridge"),
    ("uevent", r"^DEVTYPE=vlan$", "8021q"),
)


def refuse_vital(files: Files, installed: Installed, names: Sequence[str]) -> None:
    """Raise ``DeclarationError`` for the first module that is under a file system of the system or the default route.

    What such a module needs counts too, for it could not be loaded again without that.
    """
    for module, stands, does, hint in (*_under_mounts(files), *_under_routes(files)):
        if module in names:
            raise DeclarationError("block {}", object=module, cause=f"{stands}, which it {does}", hint=hint)
        for name in installed.dependencies(module) or ():
            if name in names:
                cause = f"{stands}, which {module} {does}, and {module} needs it"
                raise DeclarationError("block {}", object=name, cause=cause, hint=hint)


def _under_mounts(files: Files) -> Iterator[Tuple[str, str, str, str]]:
    """Each module, what stands on it, what it does for that, and what would be lost."""
    for mount in mounts.read(files):
        if mount.path not in SYSTEM_MOUNTS:
            continue
        system = "the root file system" if mount.path == "/" else f"the file system of {mount.path}"
        yield normal(mount.fstype), f"{system} is {mount.fstype}", "reads", NO_BOOT
        path = files.resolve(f"/sys/dev/block/{mount.number}")
        if mount.number.startswith("0:"):
            # btrfs has a number of its own in place of the device's.
            path = files.resolve(f"/sys/class/block/{os.path.basename(files.resolve(mount.source))}")
        for module in _drivers(files, path, set()):
            yield module, f"{system} is on {os.path.basename(path)}", "drives", NO_BOOT


def _under_routes(files: Files) -> Iterator[Tuple[str, str, str, str]]:
    lines = (files.read_optional("/proc/net/route") or "").splitlines()[1:]
    names = [fields[0] for fields in map(str.split, lines) if fields[1] == fields[7] == "00000000"]
    lines = (files.read_optional("/proc/net/ipv6_route") or "").splitlines()
    names += [fields[-1] for fields in map(str.split, lines) if fields[:2] == ["0" * 32, "00"]]
    for name in dict.fromkeys(names):
        for module in _drivers(files, files.resolve(f"/sys/class/net/{name}"), set()):
            yield module, f"the default route goes over {name}", "drives", NO_NETWORK


def _drivers(files: Files, path: str, seen: Set[str]) -> Iterator[str]:
    """The modules of a device, of those that carry it, and of those that it is made of."""
    while path.startswith("/sys/devices/") and path not in seen:
        seen.add(path)
        for file, pattern, module in MAKERS:
            text = files.read_optional(f"{path}/{file}")
            if text is not None and re.search(pattern, text, re.MULTILINE):
                yield module
        if files.exists(f"{path}/driver/module"):
            yield normal(os.path.basename(files.resolve(f"{path}/driver/module")))
        under = [f"slaves/{name}" for name in files.names(f"{path}/slaves")]
        under += [name for name in files.names(path) if UNDER.fullmatch(name)]
        for name in under:
            yield from _drivers(files, files.resolve(f"{path}/{name}"), seen)
        path = os.path.dirname(path)
