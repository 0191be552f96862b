# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The limits of services: those that systemd gives to each (systemd-system.conf(5)), and those of named units.

Of several files that set one the last counts. systemd reads its own when it is executed, and a process keeps the limits
with which it was started.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Dict, Iterator, List, Mapping, Optional, Tuple

from ..._core.change import Conflict, ReplaceFile, Step
from ..._core.errors import DeclarationError, OwnedByAnother
from ..._core.planning import boot_change, effective_change
from ..._core.setting import IN_SYNC, Setting
from ..._core.value import field, frozen
from ..._kinds.own_files import Key, OwnFile, header_of
from ..._linux import dropins, systemd
from .spec import DEFAULT, INFINITY

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from ..._core.protocols import Files, Host

MAIN = "/etc/systemd/system.conf"
NAME = "99-gpufleet-resource_limits.conf"
# The names of /proc/PID/limits.
IN_PROC = {
    "Max locked memory": "memlock",
    "Max open files": "nofile",
    "Max processes": "nproc",
    "Max realtime priority": "rtprio",
}
SIZES = {"": 1, "K": 1024, "M": 1024**2, "G": 1024**3, "T": 1024**4, "P": 1024**5, "E": 1024**6}
# As some releases show infinity.
NO_LIMIT = str(2**64 - 1)


@frozen
class Target:
    """All services, or one.

    ``lines`` are the limits that files set, in the order in which systemd reads them, as path, item and value.
    ``effective`` are the limits of its process, or where none runs those that it would get now. ``runs``: it has one.
    """

    unit: str
    file: OwnFile
    lines: Tuple[Tuple[str, str, str], ...]
    effective: Mapping[str, str]
    runs: bool = False

    def value(self, item: str, *, without: str = "") -> Tuple[Optional[str], str]:
        """The limit that the files set, empty where one takes it back, and the file that says so."""
        found = [(value, path) for path, one, value in self.lines if one == item and path != without]
        return found[-1] if found else (None, "")


@frozen
class ServicesState:
    """What was seen. ``lacking`` are the units that are not there, ``blocker`` says why systemd must not reload.

    ``reload_due``, ``reexec_due``: it has not read a file of ours.
    """

    targets: Mapping[str, Target] = field(default_factory=dict)
    keys: Tuple[Key, ...] = ()
    lacking: Tuple[str, ...] = ()
    blocker: str = ""
    reload_due: bool = False
    reexec_due: bool = False


def path_of(unit: str) -> str:
    """Our file for all services, or for one."""
    return f"/etc/systemd/system.conf.d/{NAME}" if unit == DEFAULT else f"{systemd.ETC}/{unit}.d/{NAME}"


def observe(host: Host, wanted: Mapping[Key, Optional[str]]) -> ServicesState:
    """What is declared (``wanted``), and what our files set, which a declaration without it gives up."""
    files = host.files
    folders = (name[: -len(".d")] for name in files.names(systemd.ETC) if name.endswith(".service.d"))
    ours = [unit for unit in (DEFAULT, *folders) if files.exists(path_of(unit))]
    units = tuple(dict.fromkeys((*(unit for unit, _item in wanted), *ours)))
    there = [unit for unit in units if unit == DEFAULT or systemd.enabled(files, unit) != systemd.NOT_FOUND]
    effective = _effective(host, there) if systemd.running(files) else {}
    targets = {}
    for unit in units:
        path = path_of(unit)
        limits, runs = effective.get(unit, ({}, False))
        file = OwnFile(path, "limits", files.read_optional(path))
        targets[unit] = Target(unit, file, tuple(_lines(files, unit)), limits, runs)
    before = ((unit, item) for unit in ours for path, item, _value in targets[unit].lines if path == path_of(unit))
    due = any(systemd.reload_due(host, unit) for unit in units)
    reexec_due = systemd.running(files) and files.exists(systemd.REEXEC_MARKER)
    late = any(
        targets[unit].effective.get(item) != value and not targets[unit].runs
        for (unit, item), value in wanted.items()
        if targets[unit].effective
    )
    return ServicesState(
        targets,
        tuple(dict.fromkeys((*wanted, *before))),
        tuple(unit for unit in units if unit not in there),
        systemd.reload_blocker(host) if due or reexec_due or late else "",
        due,
        reexec_due,
    )


def refuse_impossible(wanted: Mapping[Key, Optional[str]], most: Optional[int]) -> None:
    """Raise ``DeclarationError`` for more open files than the kernel lets anybody have."""
    for (unit, item), value in wanted.items():
        hard = (value or "").partition(":")[2]
        if item == "nofile" and most is not None and int(hard) > most:
            raise DeclarationError(
                "set nofile",
                object=unit,
                cause=f"it is above /proc/sys/fs/nr_open, which is {most}, so no service would get it",
                wanted=value,
                hint="raise the sysctl fs.nr_open first, or set a lower nofile",
            )


def plan(
    state: ServicesState, wanted: Mapping[Key, Optional[str]], scope: Scope
) -> Tuple[List[Setting], List[Step], List[Conflict]]:
    """The limits and files as settings, the steps, and who else sets them. Raises ``OwnedByAnother``."""
    rows: List[Setting] = []
    conflicts: List[Conflict] = []
    for key in state.keys:
        unit, item = key
        target = state.targets[unit]
        others, path = target.value(item, without=target.file.path)
        goal = wanted.get(key, others or None)
        if key in wanted and others is not None and others != goal:
            _refuse_later(target, item, path, others, goal)
            if others:
                conflicts.append(Conflict("systemd", path, None, f"{unit} {item}", others, "us"))
        pending, needs = _pending(target, state.blocker)
        matters = scope.immediate and key in wanted and bool(target.effective)
        boot = target.value(item)[0] or None
        rows.append(Setting(unit, item, goal, target.effective.get(item), boot, unit, matters, True, pending, needs))
    files = [row for unit, target in state.targets.items() for row in target.file.rows(_text(unit, wanted))]
    steps: List[Step] = []
    if state.reload_due or state.reexec_due or any(row.status != IN_SYNC for row in (*rows, *files)):
        steps = _steps(state, wanted, rows, files)
    return [*rows, *files], steps, conflicts


def _pending(target: Target, blocker: str) -> Tuple[str, str]:
    """Why a limit is not in effect yet, where that is not ours to mend, and what mends it."""
    if target.runs:
        return (
            f"its process keeps the limits with which it was started; restart {target.unit}",
            f"restart of {target.unit}",
        )
    if target.unit == DEFAULT:
        return (f"systemd must be re-executed, and {blocker}" if blocker else ""), systemd.DAEMON_REEXEC
    return (f"systemd must reload it, and {blocker}" if blocker else ""), systemd.DAEMON_RELOAD


def _refuse_later(target: Target, item: str, path: str, found: str, wanted: Optional[str]) -> None:
    """Raise ``OwnedByAnother`` where systemd reads the other file after ours."""
    if os.path.dirname(path).endswith(".d") and os.path.basename(path) > NAME:
        raise OwnedByAnother(
            f"set {item}",
            object=target.unit,
            cause=f"{path} overrules {target.file.path}",
            found=found,
            wanted=wanted,
            hint="remove that line, declare the same value, or leave the setting out of the declaration",
        )


def _steps(
    state: ServicesState, wanted: Mapping[Key, Optional[str]], rows: List[Setting], files: List[Setting]
) -> List[Step]:
    """The files first, and then systemd reads them, its own only when it is executed anew."""
    from ..._linux.systemd_apply import AnnounceUnit, ReexecuteManager, ReloadUnits

    steps: List[Step] = []
    written: List[str] = []
    by_path = {row.object: row for row in files}
    for unit, target in state.targets.items():
        differing = [row for row in rows if row.object == unit and row.boot != row.wanted]
        differing += [row for row in (by_path.get(target.file.path),) if row is not None and row.boot != row.wanted]
        if differing:
            if unit != DEFAULT:
                steps.append(Step(AnnounceUnit(unit)))
            elif target.effective:
                steps.append(Step(ReplaceFile(systemd.REEXEC_MARKER, "")))
            steps.append(target.file.step(_text(unit, wanted), map(boot_change, differing)))
            written.append(unit)
    late = [row for row in rows if row.effective_matters and row.effective != row.wanted and not row.pending]
    changes = tuple(map(effective_change, late))
    reexec = DEFAULT in written or any(row.object == DEFAULT for row in late)
    if reexec or (state.reexec_due and not state.blocker):
        steps.append(Step(ReexecuteManager(), changes))
    elif written or late or (state.reload_due and not state.blocker):
        steps.append(Step(ReloadUnits(), changes))
    return steps


def _text(unit: str, wanted: Mapping[Key, Optional[str]]) -> Optional[str]:
    section, prefix = ("Manager", "DefaultLimit") if unit == DEFAULT else ("Service", "Limit")
    lines = [f"{prefix}{item.upper()}={value}\n" for (one, item), value in wanted.items() if one == unit]
    return "".join((header_of("resource_limits"), f"[{section}]\n", *lines)) if lines else None


def _lines(files: Files, unit: str) -> Iterator[Tuple[str, str, str]]:
    """The limits that files set, with an empty value where one takes back what came before."""
    paths: Tuple[str, ...] = (MAIN, *dropins.walk_kind(files, "systemd/system.conf.d", ".conf"))
    prefix = "Manager.DefaultLimit"
    if unit != DEFAULT:
        paths, prefix = systemd.sources(files, unit), "Service.Limit"
    items = {f"{prefix}{item.upper()}": item for item in IN_PROC.values()}
    for path in paths:
        for key, text in systemd.assignments(files.read_optional(path) or ""):
            item = items.get(key)
            value = item and _parsed(item, text)
            if item and value is not None:
                yield path, item, value


def _parsed(item: str, text: str) -> Optional[str]:
    """A limit as systemd reads it (systemd.exec(5)); None for a line that it ignores."""
    if not text:
        return ""
    parts = [_number(item, part) for part in text.split(":")]
    if len(parts) > 2 or None in parts:
        return None
    return f"{parts[0]}:{parts[-1]}"


def _number(item: str, text: str) -> Optional[str]:
    if text == INFINITY:
        return text
    match = re.fullmatch(r"([0-9]+)([KMGTPE]?)", text)
    if match is None or (match[2] and item != "memlock"):
        return None
    return str(int(match[1]) * SIZES[match[2]])


def _effective(host: Host, units: List[str]) -> Dict[str, Tuple[Dict[str, str], bool]]:
    """The limits of each, and whether they are those of a process."""
    found: Dict[str, Tuple[Dict[str, str], bool]] = {}
    items = [item.upper() for item in IN_PROC.values()]
    if DEFAULT in units:
        names = tuple(f"DefaultLimit{item}{side}" for item in items for side in ("", "Soft"))
        found[DEFAULT] = _shown(next(iter(systemd.show(host, names, ()))), "DefaultLimit"), False
    named = tuple(unit for unit in units if unit != DEFAULT)
    if named:
        names = ("MainPID", *(f"Limit{item}{side}" for item in items for side in ("", "Soft")))
        for unit, block in zip(named, systemd.show(host, names, named)):
            of_process = host.files.read_optional(f"/proc/{''.join(block.get('MainPID', ['0']))}/limits")
            found[unit] = (_of_process(of_process), True) if of_process else (_shown(block, "Limit"), False)
    return found


def _shown(block: systemd.Properties, prefix: str) -> Dict[str, str]:
    limits = {}
    for item in IN_PROC.values():
        hard = block.get(f"{prefix}{item.upper()}", [])
        soft = block.get(f"{prefix}{item.upper()}Soft", hard)
        if hard and soft:
            limits[item] = ":".join(INFINITY if text == NO_LIMIT else text for text in (soft[0], hard[0]))
    return limits


def _of_process(text: str) -> Dict[str, str]:
    """What proc_pid_limits(5) has: a name, the soft and the hard limit."""
    limits = {}
    for line in text.splitlines():
        match = re.match(r"(Max [a-z ]+?)  +(\S+) +(\S+)", line)
        if match and match[1] in IN_PROC:
            limits[IN_PROC[match[1]]] = ":".join(INFINITY if one == "unlimited" else one for one in match.groups()[1:])
    return limits
