# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Units that shall be quiet, with what would start them again, read from their files and from one query of systemd."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterable, Iterator, List, Mapping, Set, Tuple

from ..._core.change import THEM, Conflict
from ..._kinds.units import SERVICE
from ..._linux import os_release, systemd
from ..._linux.systemd import ETC, MASKED
from .spec import DISABLE, DeclaredUnit, QuietServicesDeclaration, refuse_vital
from .state import QuietServicesState, Unit

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from ..._core.protocols import Files, Host
    from ..._linux.systemd import UnitFiles

# What matters of a unit that is not quiet yet.
PROPERTIES = ("Id", "Type", "BusName", "Triggers", "TriggeredBy", "RequiredBy", "BoundBy", "WantedBy")
TRIGGERS = ("socket", "timer", "path")
INACTIVE = ("inactive", "failed")
STARTING = "activating"
DBUS_SERVICES = "/usr/share/dbus-1/system-services"
Answers = Mapping[str, systemd.Properties]


def observe(host: Host, declaration: QuietServicesDeclaration, scope: Scope) -> QuietServicesState:
    """Raises ``DeclarationError`` for a unit that is another name of one that the node needs."""
    unit_files = systemd.unit_files(host.files)
    methods, lacking = _declared(host.files, declaration, unit_files)
    brought = _siblings(methods, unit_files)
    jobs = {_service_of(name): name for name in methods if name.endswith(".timer")}
    known = (*declaration.known, *methods, *brought)
    states: Dict[str, systemd.UnitState] = {}
    answers: Dict[str, systemd.Properties] = {}
    if systemd.running(host.files):
        # Services without a file too: a masked timer does not name its service, and to ask twice costs more.
        _look_at((*known, *jobs), host, methods, states, answers)
        for name, trigger in _more(methods, answers, jobs):
            (jobs if name.endswith(".service") else brought)[name] = trigger
        _look_at((*brought, *jobs), host, methods, states, answers)
    for trigger in brought:
        refuse_vital(trigger)
    declared = dict(methods)
    for trigger, name in brought.items():
        methods.setdefault(trigger, methods[name])
    units = {
        name: _unit(name, unit_files, states, answers, brought.get(name, ""), restoring=scope.restoring)
        for name in (*declaration.known, *methods)
    }
    running_jobs = tuple(
        _unit(name, unit_files, states, answers)
        for name in jobs
        if name not in methods and name in states and _is_active(states[name])
    )
    blocked = scope.restoring and any(unit.masked_now for unit in units.values())
    disabled = [name for name in declared if methods[name] == DISABLE and units[name].status != MASKED]
    return QuietServicesState(
        units=units,
        methods=methods,
        jobs=running_jobs,
        lacking=lacking,
        nearest=_nearest(lacking, unit_files),
        blocker=systemd.reload_blocker(host) if blocked else "",
        starters=tuple(_starters(host.files, disabled, methods, unit_files, answers)),
        in_use=_in_use(host, methods, units, answers) if scope.immediate else {},
        in_place=dict(_in_place(units, unit_files)),
        shipped={
            name: folder
            for name in methods
            for folder in unit_files.links(name)
            if not folder.startswith(ETC) and methods[name] == DISABLE and units[name].status != MASKED
        },
    )


def _declared(
    files: Files, declaration: QuietServicesDeclaration, unit_files: UnitFiles
) -> Tuple[Dict[str, str], Tuple[DeclaredUnit, ...]]:
    """The method of each declared unit by its real name, and the units that are not there."""
    families: Tuple[str, ...] = ()
    if any(unit.distributions for unit in declaration.units):
        release = os_release.parse(files.read_optional(os_release.PATH) or "")
        families = (release.get("ID", ""), *release.get("ID_LIKE", "").split())
    methods: Dict[str, str] = {}
    lacking: List[DeclaredUnit] = []
    for unit in declaration.units:
        if unit.distributions and not set(unit.distributions).intersection(families):
            continue
        if not unit_files.paths(unit.name):
            lacking.append(unit)
            continue
        name = unit_files.real_name(unit.name)
        if name != unit.name:
            refuse_vital(name)
        methods.setdefault(name, unit.method)
    return methods, tuple(lacking)


def _nearest(lacking: Iterable[DeclaredUnit], unit_files: UnitFiles) -> Dict[str, str]:
    missed = [unit.name for unit in lacking if not unit.optional]
    if not missed:
        return {}
    from ..._core.nearest import nearest

    return {name: nearest(name, unit_files.names, cutoff=0.8) for name in missed}


def _siblings(methods: Mapping[str, str], unit_files: UnitFiles) -> Dict[str, str]:
    """What starts a declared service by its name alone, loaded or not, with the service."""
    names = [name for name in methods if name.endswith(".service")]
    siblings = {f"{name[: -len('service')]}{kind}": name for name in names for kind in TRIGGERS}
    return {trigger: name for trigger, name in siblings.items() if trigger not in methods and unit_files.paths(trigger)}


def _service_of(trigger: str) -> str:
    return f"{trigger.rpartition('.')[0]}.service"


def _look_at(
    names: Iterable[str],
    host: Host,
    methods: Mapping[str, str],
    states: Dict[str, systemd.UnitState],
    answers: Dict[str, systemd.Properties],
) -> None:
    """Add the states of those that are not among them yet, and the answers about those of which more must be known.

    These are the units that are at work, and the declared ones that could be. What triggers a service may be there
    although the service is masked; what is masked triggers nothing.
    """
    found = systemd.states(host, [name for name in dict.fromkeys(names) if name not in states])
    states.update(found)
    restless = tuple(
        name
        for name, state in found.items()
        if state.active == STARTING
        or (name in methods and (name.endswith(".service") or state.load != MASKED or _is_active(state)))
    )
    if restless:
        blocks = systemd.show(host, PROPERTIES, restless)
        answers.update({block["Id"][0]: block for block in blocks if block.get("Id")})


def _more(methods: Mapping[str, str], answers: Answers, jobs: Mapping[str, str]) -> Iterator[Tuple[str, str]]:
    """What starts a declared service by a name of its own, and what a declared timer starts so."""
    for name in methods:
        for trigger in _words(answers, name, "TriggeredBy"):
            if trigger not in methods and trigger.rpartition(".")[2] in TRIGGERS:
                yield trigger, name
        if name.endswith(".timer"):
            for service in _words(answers, name, "Triggers"):
                if service not in jobs and service.endswith(".service"):
                    yield service, name


def _words(answers: Answers, name: str, *keys: str) -> List[str]:
    block = answers.get(name, {})
    return [word for key in keys for line in block.get(key, ()) for word in line.split()]


def _is_active(state: systemd.UnitState) -> bool:
    return bool(state.active) and state.active not in INACTIVE


def _unit(
    name: str,
    unit_files: UnitFiles,
    states: Mapping[str, systemd.UnitState],
    answers: Answers,
    brought_by: str = "",
    *,
    restoring: bool = False,
) -> Unit:
    status = unit_files.status(name)
    state = states.get(name)
    masked_now = state is not None and state.load == MASKED
    # systemd forgets the type of a unit when it reads the mask.
    ends_itself = masked_now or answers.get(name, {}).get("Type", []) in ([], ["oneshot"])
    return Unit(
        name=name,
        status=status,
        # What is under a mask matters to those who take it away, and takes a while to find out.
        beneath=unit_files.status(name, unmasked=True) if restoring else status,
        installable=(restoring or status != MASKED) and unit_files.installable(name),
        active=None if state is None else _is_active(state),
        masked_now=masked_now,
        brought_by=brought_by,
        job=state is not None and name.endswith(".service") and state.active == STARTING and ends_itself,
    )


def _in_place(units: Mapping[str, Unit], unit_files: UnitFiles) -> Iterator[Tuple[str, str]]:
    for name, unit in units.items():
        path = f"{ETC}/{name}"
        if unit.status != MASKED and path in unit_files.paths(name):
            yield name, path


def _in_use(host: Host, methods: Mapping[str, str], units: Mapping[str, Unit], answers: Answers) -> Dict[str, str]:
    """Of the units that are to be stopped those without which another one stops as well, with that one."""
    needed_by = {
        name: [other for other in _words(answers, name, "RequiredBy", "BoundBy") if other not in methods]
        for name in methods
        if units[name].active and not units[name].job
    }
    others: Set[str] = {other for names in needed_by.values() for other in names}
    running = {name for name, state in systemd.states(host, sorted(others)).items() if _is_active(state)}
    found = {name: next((other for other in names if other in running), "") for name, names in needed_by.items()}
    return {name: other for name, other in found.items() if other}


def _starters(
    files: Files, disabled: Iterable[str], methods: Mapping[str, str], unit_files: UnitFiles, answers: Answers
) -> Iterator[Conflict]:
    """Who starts a unit that is only disabled."""
    for name in disabled:
        for bus_name in _words(answers, name, "BusName"):
            path = f"{DBUS_SERVICES}/{bus_name}.service"
            if files.exists(path):
                yield Conflict("D-Bus", path, None, name, SERVICE, "starts it on demand", THEM)
        for other in _words(answers, name, "WantedBy", "RequiredBy"):
            if other not in methods and not other.endswith(".target"):
                path = next(iter(unit_files.paths(other)), other)
                yield Conflict("systemd", path, None, name, SERVICE, "starts it", THEM)
