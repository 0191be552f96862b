# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who has a device open: the lists of processes that NVML keeps do not have everybody who is in the way of a reset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Collection, Dict, List, Tuple, Union

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
    shows them; each may be empty. ``is_genuine`` says whether root started it, or it runs
    the machine's own program of that name: the command of another process may be any.
    """

    pid: int
    command: str
    unit: str
    container: str
    devices: Tuple[str, ...]
    is_genuine: bool = False

    def is_daemon(self, commands: Collection[str], units: Collection[str]) -> bool:
        """Whether it is a daemon with one of these commands, or of one of these units, which may have globs."""
        return (self.is_genuine and self.command in commands) or processes.in_unit(self.unit, units)

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
    unit, container = processes.parse_cgroup(files.read_optional(f"{PROC}/{pid}/cgroup") or "")
    is_genuine = processes.is_started_by_root(files, str(pid), command) or processes.runs_installed(
        files, str(pid), command
    )
    return Holder(pid, command, unit, container, devices, is_genuine)


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
