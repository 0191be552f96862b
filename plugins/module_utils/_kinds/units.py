# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kind *units*: a unit of systemd with a file of ours, what starts it at boot, and whether it runs.

What is in force is what systemd has read. A reload may have to wait for containers that would lose their GPUs by it
(``_linux.systemd``): until then the file is for the next boot only, and the setting says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional, Tuple

from .._core.change import Step
from .._core.planning import boot_change, effective_change
from .._core.setting import Setting
from .._core.value import frozen
from .._linux import systemd
from .own_files import OwnFile

if TYPE_CHECKING:
    from .._core.protocols import Files, Host

NOT_READ = "an older version"
START = "start at boot"
SERVICE = "service"
RUNNING = "running"
STOPPED = "stopped"
# In the [Unit] of a unit of ours that has GPUs open: whoever resets one may stop it meanwhile. systemd ignores X-.
YIELDS = "X-GpuFleet-Yields=gpu_reset"


@frozen
class UnitFile(OwnFile):
    """A file of ours that belongs to a unit: a drop-in, or the unit itself.

    ``reload_due`` says that systemd has not read it since we changed it, ``reload_blocker`` why it must not now.
    """

    unit: str
    reload_due: bool = False
    reload_blocker: str = ""

    def pending(self, what: str = "it") -> str:
        return f"systemd must reload {what}, and {self.reload_blocker}" if self.reload_blocker else ""

    def rows_in(self, wanted: Optional[str], *, immediate: bool, what: str = "it") -> List[Setting]:
        """The file as a setting of the unit as systemd has read it, where it is there, wanted, or not read yet."""
        goal, found = self.described(wanted)
        if goal is None and found is None and not self.reload_due:
            return []
        row = Setting(
            object=self.path,
            setting=self.setting,
            wanted=goal,
            effective=NOT_READ if self.reload_due else found,
            boot=found,
            identity=self.path,
            effective_matters=immediate,
            pending=self.pending(what),
            needs=systemd.DAEMON_RELOAD,
        )
        return [row]

    def steps(self, row: Optional[Setting], wanted: Optional[str]) -> Tuple[Tuple[Step, ...], Tuple[Step, ...]]:
        """Those that write this text, and those that let systemd read it; none without a row that differs."""
        from .._linux.systemd_apply import AnnounceUnit, ReloadUnits

        if row is None or (row.boot == row.wanted and row.pending):
            return (), ()
        if row.boot == row.wanted:
            return (), (Step(ReloadUnits(), (effective_change(row),)),)
        write = self.step(wanted, (boot_change(row),))
        return (Step(AnnounceUnit(self.unit)), write), (Step(ReloadUnits()),)


def unit_file(host: Host, unit: str, path: str, setting: str, text: Optional[str]) -> UnitFile:
    """The file with this text, None where it is not there, and whether systemd has read it."""
    due = systemd.reload_due(host, unit)
    blocker = systemd.reload_blocker(host) if due else ""
    return UnitFile(path, setting, text, unit, due, blocker)


def yielding(files: Files) -> Tuple[str, ...]:
    """The services of ours that stand still while a GPU is reset."""
    ours = (name for name in files.names(systemd.ETC) if name.startswith("gpufleet-") and name.endswith(".service"))
    return tuple(name for name in ours if YIELDS in (files.read_optional(f"{systemd.ETC}/{name}") or "").splitlines())


def start_row(unit: str, wanted: Optional[str], found: str) -> List[Setting]:
    """What starts a unit at boot; none where that may be as it is."""
    return [] if wanted is None else [Setting(unit, START, wanted, found, found, unit, effective_matters=False)]


def service_row(unit: str, wanted: str, found: str, pending: str = "") -> Setting:
    """Whether a unit runs."""
    return Setting(unit, SERVICE, wanted, found, None, unit, boot_matters=False, pending=pending)


def start_step(row: Setting, status: str) -> Step:
    """Enable the unit or disable it; ``status`` is that of ``systemd.enabled``."""
    from .._linux.systemd_apply import StartAtBoot

    action = StartAtBoot(row.object, row.wanted == systemd.ENABLED, static=status == systemd.STATIC)
    return Step(action, (boot_change(row),))


def service_step(row: Setting) -> Step:
    """Start or stop the unit."""
    from .._linux.systemd_apply import RunService

    return Step(RunService("start" if row.wanted == RUNNING else "stop", row.object), (effective_change(row),))
