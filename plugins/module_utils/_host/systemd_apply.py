# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``systemctl daemon-reload``, guarded, and units that are started and enabled. Imported only when units change.

At a reload systemd writes the device rules of all scopes anew, from what it knows itself. A container whose GPUs came
by the legacy hook, behind the back of systemd, loses them then ("Failed to initialize NVML: Unknown Error", issues 48
and 1227 of nvidia-container-toolkit). Containers that got them by CDI or ``--device`` keep them.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Dict, Iterator, List, Optional, Tuple

from .._core import steps
from .._core.change import RoomAction, RunCommand, Step
from .._core.errors import CannotLook
from .systemd import ETC, MARKER, announce, running

if TYPE_CHECKING:
    from .protocols import Files, Host

SECONDS = 90.0
SCOPE = re.compile(r"/([^/\n]+\.scope)(?:/|$)", re.MULTILINE)
SHOWN = 3
Properties = Dict[str, List[str]]


@dataclass(frozen=True)
class AnnounceUnit(RoomAction):
    """Note that systemd must read this unit again."""

    unit: str


@dataclass(frozen=True)
class ReloadUnits(RoomAction):
    """Let systemd do so, if it may."""


@dataclass(frozen=True)
class StartAtBoot(RoomAction):
    """Make the links that a unit asks for, where it is ``static`` and asks for none the usual one; or remove all."""

    unit: str
    enable: bool
    static: bool = False


@dataclass(frozen=True)
class RunService(RoomAction):
    """Start, stop or restart a unit (``verb``)."""

    verb: str
    unit: str


def perform(step: Step, host: Host) -> None:
    """One of these steps, or one that all rooms share."""
    if isinstance(step.action, AnnounceUnit):
        announce(host, step.action.unit)
    elif isinstance(step.action, ReloadUnits):
        # What must wait is found again by the look that follows, with its reason.
        reload_announced(host)
    elif isinstance(step.action, StartAtBoot):
        start_at_boot(step.action, host)
    elif isinstance(step.action, RunService):
        run_service(step.action, host)
    else:
        steps.perform(step, host)


def start_at_boot(action: StartAtBoot, host: Host) -> None:
    if not action.enable:
        disable(host, action.unit)
    elif action.static:
        # A drop-in cannot add an [Install] section, so the link that one would ask for is made for itself.
        _systemctl(host, ("--no-reload", "add-wants", "multi-user.target", action.unit), f"enable {action.unit}")
    else:
        enable(host, action.unit)
    reload_where_harmless(host)


def run_service(action: RunService, host: Host) -> None:
    """Raises ``Refused`` with what systemd said."""
    _systemctl(host, (action.verb, action.unit), f"{action.verb} {action.unit}")


def restart(host: Host, unit: str) -> None:
    """Raises ``Refused`` with what systemd said."""
    run_service(RunService("restart", unit), host)


def enable(host: Host, unit: str) -> None:
    """Make the links that its [Install] asks for, also where systemd does not run; it reads no unit again for them."""
    _systemctl(host, ("--no-reload", "enable", unit), f"enable {unit}")


def reenable(host: Host, unit: str) -> None:
    """The same, and remove all other links to it."""
    _systemctl(host, ("--no-reload", "reenable", unit), f"enable {unit}")


def disable(host: Host, unit: str) -> None:
    """Remove all links to it; systemd reads no unit again for it."""
    _systemctl(host, ("--no-reload", "disable", unit), f"disable {unit}")


def reload_announced(host: Host) -> Optional[str]:
    """Reload when an announced unit needs it; the note stays while it must wait, and its reason is returned."""
    units = (host.files.read_optional(MARKER) or "").splitlines()
    if running(host.files) and any(needs_reload(host, unit) for unit in units):
        reason = containers_that_lose_gpus(host)
        if reason:
            return reason
        steps.run(RunCommand(("systemctl", "daemon-reload"), "let systemd read its units again", SECONDS), host)
    host.files.remove(MARKER)
    return None


def reload_where_harmless(host: Host) -> None:
    """Let systemd see new links. Nothing needs it, but until then ``systemctl`` asks for a reload at every unit."""
    if running(host.files) and not containers_that_lose_gpus(host):
        steps.run(RunCommand(("systemctl", "daemon-reload"), "let systemd read its units again", SECONDS), host)


def needs_reload(host: Host, unit: str) -> bool:
    """What systemd itself says. A unit that it never loaded needs none: it is read when it is first asked for.

    252 does not notice the first drop-in of a unit that it has loaded, as it has not met the folder. So a folder
    of which it knows none counts as well; one that it knows may have links that lead nowhere.
    """
    folder = f"{ETC}/{unit}.d"
    there = {f"{folder}/{name}" for name in host.files.names(folder) if name.endswith(".conf")}
    for block in show(host, ("NeedDaemonReload", "DropInPaths"), (unit,)):
        known = {path for line in block["DropInPaths"] for path in line.split()} if "DropInPaths" in block else there
        if block.get("NeedDaemonReload") == ["yes"] or (there and there.isdisjoint(known)):
            return True
    return False


def containers_that_lose_gpus(host: Host) -> str:
    """The scopes whose processes use a GPU of which the device rules of the scope say nothing; empty when none do."""
    scopes = _scopes_with_gpus(host.files)
    if not scopes:
        return ""
    losing = [
        block["Id"][0]
        for block in show(host, ("Id", "DevicePolicy", "DeviceAllow"), scopes)
        if block.get("Id") and not _keeps_gpus(block, host.files)
    ]
    if not losing:
        return ""
    more = f" and {len(losing) - SHOWN} more" if len(losing) > SHOWN else ""
    return f"{', '.join(losing[:SHOWN])}{more} would lose the GPUs, which systemd did not give"


def show(host: Host, properties: Tuple[str, ...], units: Tuple[str, ...]) -> Iterator[Properties]:
    """The properties of units, each with its values, for one may have a line for each. Raises ``CannotLook``."""
    goal = "ask systemd about its units"
    try:
        completed = host.commands.run(["systemctl", "show", f"--property={','.join(properties)}", "--", *units])
    except OSError as error:
        raise CannotLook(goal, object="systemctl", cause=error.strerror or str(error)) from error
    if completed.status != 0:
        said = completed.errors.strip().splitlines()
        cause = f"exit status {completed.status}: {said[-1] if said else 'no output'}"
        raise CannotLook(goal, object="systemctl show", cause=cause)
    for text in re.split(r"\n\n+", completed.output.strip()):
        block: Properties = {}
        for line in text.splitlines():
            name, _equals, value = line.partition("=")
            block.setdefault(name, []).extend([value] if value else [])
        yield block


def _systemctl(host: Host, arguments: Tuple[str, ...], goal: str) -> None:
    steps.run(RunCommand(("systemctl", *arguments), goal), host)


def _scopes_with_gpus(files: Files) -> Tuple[str, ...]:
    found: List[str] = []
    for pid in files.names("/proc"):
        if not pid.isdigit():
            continue
        # A process may end at any time.
        with contextlib.suppress(OSError):
            scope = SCOPE.search(files.read_optional(f"/proc/{pid}/cgroup") or "")
            if scope and scope[1] not in found and _has_gpu(files, pid):
                found.append(scope[1])
    return tuple(found)


def _has_gpu(files: Files, pid: str) -> bool:
    """Whether it sees the GPUs, in use or not, or has one open. Processes of the host do as well, but have no rules."""
    if files.exists(f"/proc/{pid}/root/dev/nvidiactl"):
        return True
    opened = (files.link(f"/proc/{pid}/fd/{number}") for number in files.names(f"/proc/{pid}/fd"))
    return any(path.startswith("/dev/nvidia") for path in opened)


def _keeps_gpus(scope: Properties, files: Files) -> bool:
    allowed = [entry.split()[0] for entry in scope.get("DeviceAllow", []) if entry.split()]
    if scope.get("DevicePolicy") == ["auto"] and not allowed:
        # No rules at all.
        return True
    # Major 195 is that of the GPUs and of nvidiactl. A device file that is not there cannot be allowed again.
    return any(
        entry.startswith("char-nvidia")
        or entry in ("char-*", "char-195")
        or (entry.startswith(("/dev/nvidia", "/dev/char/195:")) and files.exists(entry))
        for entry in allowed
    )
