# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who has a device open: the lists of processes that NVML keeps do not have everybody who is in the way of a reset."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, List, Tuple, Union

from .._core.value import frozen
from .._machine import processes

if TYPE_CHECKING:
    from .._core.protocols import Files

PROC = "/proc"
NVIDIA_DEVICES = "/dev/nvidia"
UNKNOWN = "?"
_DELETED = " (deleted)"


@frozen
class Holder:
    """A process and the device files that it has open.

    ``unit`` is the unit of systemd that it belongs to and ``container`` the id of its container, as its control group
    tells them; each is empty where there is none.
    """

    pid: int
    command: str
    unit: str
    container: str
    devices: Tuple[str, ...]

    @property
    def name(self) -> str:
        """What a person calls it."""
        inside = f", container {self.container[:12]}" if self.container else f", {self.unit}" if self.unit else ""
        return f"{self.command} (pid {self.pid}{inside})"


@frozen
class Holders:
    """All that were found, by pid, and how many processes nobody but root may look into."""

    holders: Tuple[Holder, ...]
    hidden: int


Prefix = Union[str, Tuple[str, ...]]


def find(files: Files, prefix: Prefix = NVIDIA_DEVICES) -> Holders:
    """Every process with an open file whose path begins with ``prefix``, or with one of several. Others than root see
    only their own."""
    found: List[Holder] = []
    hidden = 0
    for pid in sorted(int(name) for name in files.names(PROC) if name.isdecimal()):
        try:
            devices = _open_devices(files, pid, prefix)
            if devices:
                found.append(describe(files, pid, devices))
        except PermissionError:
            hidden += 1
        except OSError:
            continue  # It ended while we looked.
    return Holders(tuple(found), hidden)


def describe(files: Files, pid: int, devices: Tuple[str, ...] = ()) -> Holder:
    """Who a process is; the command of one that has ended is ``?``. Raises ``OSError`` when it ends meanwhile."""
    command = (files.read_optional(f"{PROC}/{pid}/comm") or UNKNOWN).strip()
    unit, container = parse_cgroup(files.read_optional(f"{PROC}/{pid}/cgroup") or "")
    return Holder(pid, command, unit, container, devices)


def kernel_modules(files: Files) -> Tuple[str, ...]:
    """The kernel modules that have GPUs open, which no process shows, each with what to do about it."""
    found: List[str] = []
    # mig-parted issue 181 and magic_castle issue 387. Without modeset it makes no device and opens no GPU.
    if _parameter(files, "nvidia_drm", "modeset") == "Y":
        found.append("nvidia_drm with modeset=Y (unload it by modprobe -r nvidia_drm, or load it with modeset=0)")
    # Its service is among those that mig-parted stops before a reset (deployments/systemd/utils-custom.sh).
    if files.exists("/sys/module/nv_peer_mem"):
        found.append("nv_peer_mem (unload it by modprobe -r nv_peer_mem, and load it again afterwards)")
    return tuple(found)


def _parameter(files: Files, module: str, name: str) -> str:
    """A parameter of a loaded module, empty where it is not loaded, has none, or shows it to root only."""
    try:
        return (files.read_optional(f"/sys/module/{module}/parameters/{name}") or "").strip()
    except PermissionError:
        return ""


def _open_devices(files: Files, pid: int, prefix: Prefix) -> Tuple[str, ...]:
    targets: Dict[str, None] = {}
    for target in processes.opened(files, pid):
        if target.startswith(prefix):
            targets[target[: -len(_DELETED)] if target.endswith(_DELETED) else target] = None
    return tuple(sorted(targets))


def parse_cgroup(text: str) -> Tuple[str, str]:
    """The unit of systemd and the id of the container, from proc_pid_cgroup(5).

    Docker, containerd, CRI-O and podman put an id of 64 digits into the last parts of the path, alone or as a scope
    (``docker-<id>.scope``, ``cri-containerd-<id>.scope``). The unit is that of the system's own manager, so of a
    user's service it is ``user@1000.service``.
    """
    paths: Dict[str, str] = {}
    for line in text.splitlines():
        _number, _colon, rest = line.partition(":")
        controllers, _colon, path = rest.partition(":")
        paths[controllers] = path
    # Version 2 of the hierarchy has no name; in a mixed setup systemd's own one is named.
    path = paths.get("name=systemd") or paths.get("") or next(iter(paths.values()), "")
    units = re.findall(r"(?<=/)[^/]+\.(?:service|scope)(?=/|$)", path)
    containers = re.findall(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])", path)
    return (units[0] if units else ""), (containers[-1] if containers else "")
