# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kind *service values*: what systemd gives to all services (systemd-system.conf(5)), and to named ones, by files
of ours.

Of several files that set one the last counts. systemd reads its own when it is executed, and a process keeps the values
with which it was started.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Collection, Dict, Iterator, List, Mapping, Optional, Tuple

from .._core.change import US, Conflict, ReplaceFile, Step
from .._core.errors import OwnedByAnother, refuse_all
from .._core.planning import boot_change, effective_change
from .._core.setting import IN_SYNC, Setting
from .._core.value import field, frozen
from .._linux import dropins, systemd
from .own_files import Key, OwnFile

if TYPE_CHECKING:
    from .._core.contract import Scope
    from .._core.protocols import Files, Host

MAIN = "/etc/systemd/system.conf"
# What stands for all services that set no value of their own.
DEFAULT = "services"

Effective = Dict[str, Tuple[Dict[str, str], bool]]
"""By unit, the values by item, and whether they are those of a process."""


@frozen
class Target:
    """All services, or one.

    ``lines`` are the values that files set, in the order in which systemd reads them, as path, item and value.
    ``effective`` are the values of its process, or where none runs those that it would get now. ``runs``: it has one.
    ``seen``: systemd said so.
    """

    unit: str
    file: OwnFile
    lines: Tuple[Tuple[str, str, str], ...]
    effective: Mapping[str, str]
    runs: bool = False
    seen: bool = False

    def value(self, item: str, *, without: str = "") -> Tuple[Optional[str], str]:
        """The value that the files set, empty where one takes it back, and the file that says so."""
        found = [(value, path) for path, one, value in self.lines if one == item and path != without]
        return found[-1] if found else (None, "")


@frozen
class ServicesState:
    """What was seen. ``lacking`` are the units that are not there, ``blocker`` says why systemd must not reload.

    ``reload_due``, ``reexec_due``: it has not read a file of ours. ``others`` are the values of what runs besides.
    """

    targets: Mapping[str, Target] = field(default_factory=dict)
    keys: Tuple[Key, ...] = ()
    lacking: Tuple[str, ...] = ()
    blocker: str = ""
    reload_due: bool = False
    reexec_due: bool = False
    others: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


class ServiceValues:
    """Values that systemd gives to services. A concern says how a file has them, and who has which now."""

    concern: str
    holds: str
    """What the files hold, such as ``limits``."""

    # --- what a concern says ---

    def lines(self, files: Files, unit: str) -> Iterator[Tuple[str, str, str]]:
        """The values that files set, with an empty one where one takes back what came before."""
        raise NotImplementedError

    def effective(self, host: Host, units: List[str], items: Collection[str]) -> Effective:
        """The values of each, of these items at least. What runs besides may be among them."""
        raise NotImplementedError

    def render(self, unit: str, values: Mapping[str, Optional[str]]) -> str:
        """Our file for all services, or for one."""
        raise NotImplementedError

    def overrules(self, path: str) -> bool:
        """Whether systemd reads the file of another after ours."""
        return os.path.dirname(path).endswith(".d") and os.path.basename(path) > self.name

    # --- what the kind does ---

    @property
    def name(self) -> str:
        return f"99-gpufleet-{self.concern}.conf"

    def path_of(self, unit: str) -> str:
        """Our file for all services, or for one."""
        return f"/etc/systemd/system.conf.d/{self.name}" if unit == DEFAULT else f"{systemd.ETC}/{unit}.d/{self.name}"

    def sources(self, files: Files, unit: str) -> Tuple[str, ...]:
        """The files that say it, in the order in which they are read."""
        if unit != DEFAULT:
            return systemd.sources(files, unit)
        return (MAIN, *dropins.walk_kind(files, "systemd/system.conf.d", ".conf"))

    def observe(self, host: Host, wanted: Mapping[Key, Optional[str]]) -> ServicesState:
        """What is declared (``wanted``), and what our files set, which a declaration without it gives up."""
        files = host.files
        folders = (name[: -len(".d")] for name in files.names(systemd.ETC) if name.endswith(".service.d"))
        ours = [unit for unit in (DEFAULT, *folders) if files.exists(self.path_of(unit))]
        units = tuple(dict.fromkeys((*(unit for unit, _item in wanted), *ours)))
        there = [unit for unit in units if unit == DEFAULT]
        named = [unit for unit in units if unit != DEFAULT]
        if named:
            unit_files = systemd.unit_files(files)
            there += [unit for unit in named if unit_files.status(unit) != systemd.NOT_FOUND]
        lines = {unit: tuple(self.lines(files, unit)) for unit in units}
        before = [(unit, item) for unit in ours for path, item, _value in lines[unit] if path == self.path_of(unit)]
        keys = tuple(dict.fromkeys((*wanted, *before)))
        effective: Effective = {}
        if units and systemd.running(files):
            effective = self.effective(host, there, dict.fromkeys(item for _unit, item in keys))
        targets = {}
        for unit in units:
            path = self.path_of(unit)
            values, runs = effective.get(unit, ({}, False))
            file = OwnFile(path, self.holds, files.read_optional(path))
            targets[unit] = Target(unit, file, lines[unit], values, runs, unit in effective)
        due = any(systemd.reload_due(host, unit) for unit in units)
        reexec_due = systemd.running(files) and files.exists(systemd.REEXEC_MARKER)
        late = any(
            targets[unit].effective.get(item) != value and not targets[unit].runs
            for (unit, item), value in wanted.items()
            if targets[unit].seen
        )
        return ServicesState(
            targets,
            keys,
            tuple(unit for unit in units if unit not in there),
            systemd.reload_blocker(host) if due or reexec_due or late else "",
            due,
            reexec_due,
            {unit: values for unit, (values, _runs) in effective.items() if unit not in targets},
        )

    def plan(
        self, state: ServicesState, wanted: Mapping[Key, Optional[str]], scope: Scope
    ) -> Tuple[List[Setting], List[Step], List[Conflict]]:
        """The values and files as settings, the steps, and who else sets them. Raises ``OwnedByAnother``."""
        rows: List[Setting] = []
        conflicts: List[Conflict] = []
        refusals: List[OwnedByAnother] = []
        for key in state.keys:
            unit, item = key
            target = state.targets[unit]
            others, path = target.value(item, without=target.file.path)
            goal = wanted.get(key, others or None)
            if key in wanted and others is not None and others != goal:
                if self.overrules(path):
                    refusals.append(_refusal(target, item, path, others, goal))
                if others:
                    conflicts.append(Conflict("systemd", path, None, unit, item, others, US))
            pending, needs = self._pending(target, state.blocker)
            matters = scope.immediate and key in wanted and target.seen
            boot = target.value(item)[0] or None
            rows.append(
                Setting(unit, item, goal, target.effective.get(item), boot, unit, matters, True, pending, needs)
            )
        refuse_all(refusals)
        files = [row for unit, target in state.targets.items() for row in target.file.rows(self._text(unit, wanted))]
        steps: List[Step] = []
        if state.reload_due or state.reexec_due or any(row.status != IN_SYNC for row in (*rows, *files)):
            steps = self._steps(state, wanted, rows, files)
        return [*rows, *files], steps, conflicts

    def kept_by_process(self, unit: str) -> Tuple[str, str]:
        """Why a value of a process is not in effect yet, and what mends it."""
        return f"its process keeps the {self.holds} with which it was started; restart {unit}", f"restart of {unit}"

    def _pending(self, target: Target, blocker: str) -> Tuple[str, str]:
        """Why a value is not in effect yet, where that is not ours to mend, and what mends it."""
        if target.runs:
            return self.kept_by_process(target.unit)
        if target.unit == DEFAULT:
            return (f"systemd must be re-executed, and {blocker}" if blocker else ""), systemd.DAEMON_REEXEC
        return (f"systemd must reload it, and {blocker}" if blocker else ""), systemd.DAEMON_RELOAD

    def _steps(
        self, state: ServicesState, wanted: Mapping[Key, Optional[str]], rows: List[Setting], files: List[Setting]
    ) -> List[Step]:
        """The files first, and then systemd reads them, its own only when it is executed anew."""
        from .._linux.systemd_apply import AnnounceUnit, ReexecuteManager, ReloadUnits

        steps: List[Step] = []
        written: List[str] = []
        by_path = {row.object: row for row in files}
        for unit, target in state.targets.items():
            differing = [row for row in rows if row.object == unit and row.boot != row.wanted]
            differing += [row for row in (by_path.get(target.file.path),) if row is not None and row.boot != row.wanted]
            if differing:
                if unit != DEFAULT:
                    steps.append(Step(AnnounceUnit(unit)))
                elif target.seen:
                    steps.append(Step(ReplaceFile(systemd.REEXEC_MARKER, "")))
                steps.append(target.file.step(self._text(unit, wanted), map(boot_change, differing)))
                written.append(unit)
        late = [row for row in rows if row.effective_matters and row.effective != row.wanted and not row.pending]
        changes = tuple(map(effective_change, late))
        reexec = DEFAULT in written or any(row.object == DEFAULT for row in late)
        if reexec or (state.reexec_due and not state.blocker):
            steps.append(Step(ReexecuteManager(), changes))
        elif written or late or (state.reload_due and not state.blocker):
            steps.append(Step(ReloadUnits(), changes))
        return steps

    def _text(self, unit: str, wanted: Mapping[Key, Optional[str]]) -> Optional[str]:
        values = {item: value for (one, item), value in wanted.items() if one == unit}
        return self.render(unit, values) if values else None


def _refusal(target: Target, item: str, path: str, found: str, wanted: Optional[str]) -> OwnedByAnother:
    return OwnedByAnother(
        f"set {item}",
        object=target.unit,
        cause=f"{path} overrules {target.file.path}",
        found=found,
        wanted=wanted,
        hint="remove that line, declare the same value, or leave the setting out of the declaration",
    )
