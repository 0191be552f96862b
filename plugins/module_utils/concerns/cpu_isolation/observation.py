# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The slices and services that are confined, or that were, read from their files and their control groups."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Dict, Iterable, List, Tuple

from ..._core.declared import of_file
from ..._core.errors import GpuFleetError
from ..._kinds import units
from ..._linux import cpu_claims, cpusets, systemd
from ..._linux.cpus import FOLDER as CPUS
from ..._linux.cpus import read_cpus
from .spec import HOUSEKEEPING, CpuIsolationDeclaration
from .state import ConfinedSlice, CpuIsolationState, Daemon

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from ..._core.protocols import Files, Host
    from ..._linux.cpu_affinity import Affinity

FILE = "99-gpufleet-cpu_isolation.conf"
SETTING = "drop-in"


def observe(host: Host, declaration: CpuIsolationDeclaration, scope: Scope) -> CpuIsolationState:
    """What nobody declares any more is looked at where it has a file of ours, and system.slice always.

    A limit that was taken away may stay in force there, with no file that says so.
    """
    files = host.files
    ours = [name[: -len(".d")] for name in files.names(systemd.ETC) if files.exists(f"{systemd.ETC}/{name}/{FILE}")]
    known = (*declaration.known, *ours)
    made = (HOUSEKEEPING,) if declaration.daemons else ()
    former = (name for name in known if name.endswith(".slice"))
    names = dict.fromkeys((*declaration.slices, *made, cpusets.SYSTEM, *former))
    slices = {name: _slice(host, name) for name in names}
    named = dict.fromkeys((*declaration.daemons, *(name for name in known if not name.endswith(".slice"))))
    found = [name for name in named if systemd.sources(files, name)]
    daemons = {name: _daemon(host, name) for name in found}
    runs = systemd.running(files)
    possible = read_cpus(files, f"{CPUS}/possible")
    state = CpuIsolationState(
        slices=slices,
        daemons=daemons,
        lacking=tuple(name for name in declaration.daemons if name not in daemons),
        unavailable=cpusets.unavailable(files) if runs else "",
        systemd_runs=runs,
        reload_blocker=systemd.reload_blocker(host) if _waits_for_systemd(slices, daemons, declaration) else "",
        online=read_cpus(files, f"{CPUS}/online") or possible,
        possible=possible,
        isolated=_isolated(files, max(possible, default=0)),
    )
    return state if scope.restoring else _with_work(files, declaration, state)


def drop_in(unit: str) -> str:
    """Our file for a slice or a service."""
    return f"{systemd.ETC}/{unit}.d/{FILE}"


def _slice(host: Host, name: str) -> ConfinedSlice:
    files, path = host.files, drop_in(name)
    lines = list(cpusets.assigned(files, name))
    theirs = tuple((other, value) for other, value in lines if other != path)
    later = [(other, value) for other, value in theirs if os.path.basename(other) > FILE]
    return ConfinedSlice(
        name=name,
        file=units.unit_file(host, name, path, SETTING, files.read_optional(path)),
        allowed=cpusets.allowed(files, name),
        others=cpusets.allowed(files, name, without=path),
        theirs=theirs,
        later=later[0] if later else ("", ""),
        effective=cpusets.confined_to(files, name),
        there=files.exists(cpusets.folder_of(name)),
    )


def _daemon(host: Host, name: str) -> Daemon:
    files, path = host.files, drop_in(name)
    later = [
        other
        for other in systemd.drop_ins(files, name)
        if os.path.basename(other) > FILE
        and any(key == "Service.Slice" for key, _value in systemd.assignments(files.read_optional(other) or ""))
    ]
    boot, others = cpusets.slice_of(files, name), cpusets.slice_of(files, name, without=path)
    places = (place for place in (HOUSEKEEPING, others, boot) if files.exists(f"{cpusets.folder_of(place)}/{name}"))
    delegate = systemd.unit_lines(files, name).get("Service.Delegate", ("",))[-1]
    return Daemon(
        name=name,
        file=units.unit_file(host, name, path, SETTING, files.read_optional(path)),
        boot=boot,
        others=others,
        later=later[0] if later else "",
        runs_in=next(places, ""),
        delegated=delegate.lower() in systemd.TRUE or "cpuset" in delegate.split(),
    )


def _waits_for_systemd(
    slices: Dict[str, ConfinedSlice], daemons: Dict[str, Daemon], declaration: CpuIsolationDeclaration
) -> bool:
    """Whether it matters if systemd may read its units now."""
    files = [*(one.file for one in slices.values()), *(one.file for one in daemons.values())]
    if any(file.reload_due for file in files):
        return True
    declared = (*declaration.slices, *((HOUSEKEEPING,) if declaration.daemons else ()))
    if any(one.file.text is not None for name, one in slices.items() if name not in declared):
        return True
    return any(slices[name].effective != declaration.cpus for name in declaration.slices)


def _isolated(files: Files, last: int) -> Tuple[cpu_claims.Claim, ...]:
    """What is declared on this node for the next boot counts more than what the running kernel was given."""
    declared: Tuple[cpu_claims.Claim, ...] = ()
    with contextlib.suppress(GpuFleetError):
        declared = cpu_claims.isolated(of_file(files, cpu_claims.ISOLATED) or {}, last)
    return declared or cpu_claims.isolated_now(files)


def _with_work(files: Files, declaration: CpuIsolationDeclaration, state: CpuIsolationState) -> CpuIsolationState:
    """The same with what is in the way: all of it where something is to change, else what is told at a glance."""
    from ..._core.value import replace
    from . import work

    busy = {name: work.at_work(files, name) for name in declaration.slices}
    changing = [name for name in declaration.slices if _differs(state.slices[name], declaration)]
    starting = [name for name in declaration.slices if name in changing or busy[name]]
    moved = any(daemon.boot != HOUSEKEEPING for daemon in state.daemons.values())
    made = declaration.daemons and _differs(state.slices[HOUSEKEEPING], declaration)
    if not (changing or starting or moved or made):
        return state
    affinities = _affinities(files, declaration) if changing or moved or made else {}
    from ..._linux.cpu_topology import read_cpu_topology

    users = work.on_gpus(files, changing) if changing else {}
    return replace(
        state,
        topology=read_cpu_topology(files),
        affinities=affinities,
        launchers={name: tuple(work.launchers(files, name)) for name in starting},
        busy={name: (*busy[name], *_new(users.get(name, ()), busy[name])) for name in declaration.slices},
    )


def _affinities(files: Files, declaration: CpuIsolationDeclaration) -> Dict[str, Tuple[Affinity, ...]]:
    """By slice that is to be confined, the services that start below it with the drop-ins that are to be there."""
    from ..._linux.cpu_affinity import read_affinities

    read = read_affinities(files, without=FILE)
    found = [(one, HOUSEKEEPING if one.unit in declaration.daemons else one.slice) for one in read]
    slices = (*declaration.slices, *((HOUSEKEEPING,) if declaration.daemons else ()))
    return {name: tuple(one for one, place in found if cpusets.has(name, place)) for name in slices}


def _differs(found: ConfinedSlice, declaration: CpuIsolationDeclaration) -> bool:
    return found.allowed != declaration.cpus or (found.there and found.effective != declaration.cpus)


def _new(users: Iterable[Tuple[str, str]], known: Iterable[Tuple[str, str]]) -> List[Tuple[str, str]]:
    """Those that are not known by their name yet."""
    names = [name for name, _what in known]
    return [(name, what) for name, what in users if name not in names]
