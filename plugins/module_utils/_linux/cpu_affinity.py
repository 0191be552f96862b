# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Services that bind themselves to CPUs at each start, by ``CPUAffinity=`` (systemd.exec(5)).

systemd moves the new process into the control group of its service and then calls sched_setaffinity(2) (its execute.c,
in newer releases exec-invoke.c). The kernel keeps those of the CPUs that the cpuset has: a list that is partly outside
is narrowed, and where nothing is left the call fails with EINVAL (``__sched_setaffinity()`` in kernel/sched). The start
then fails with status 215, ``EXIT_CPUAFFINITY``.

``CPUAffinity=`` of system.conf is not read here, as no start fails by it: systemd binds only itself, ignores a failure
(``update_cpu_affinity()`` in its main.c), and its children inherit that. Kernels that remember what a process asked for
(``user_cpus_ptr``, commit da019032819a) intersect it with the cpuset that the process enters, and use the whole cpuset
where nothing is left (``__set_cpus_allowed_ptr()``). Older ones always use the whole cpuset. For the same reason a
service that runs survives every change of its cpuset.
"""

from __future__ import annotations

import contextlib
import os
import re
from typing import TYPE_CHECKING, Dict, FrozenSet, Iterable, Iterator, List, Optional, Tuple

from .._core.errors import DeclarationError
from .._core.regex import regex
from .._core.value import frozen
from .._core.wording import first_of
from . import cpulist, systemd
from .cpus import read_cpus
from .cpusets import SYSTEM, parse_allowed
from .numa import FOLDER as NODES
from .numa import node_numbers

if TYPE_CHECKING:
    from .._core.protocols import Files

WORD = "CPUAffinity"
KEY, MASK, SLICE = f"Service.{WORD}", "Service.NUMAMask", "Service.Slice"
FROM_NODES, ALL_NODES = "numa", "all"
INSTANCE = "%i"
SHOWN = 3
_LINE = regex(rf"\s*{WORD}\s*=")


@frozen
class Affinity:
    """A service, the slice in which it starts, and the CPUs to which it binds itself there, at least one.

    ``value`` is that of the last line which counts, in line ``line`` of the file ``path``.
    """

    unit: str
    slice: str
    cpus: FrozenSet[int]
    path: str
    line: int
    value: str


def read_affinities(files: Files, *, without: str = "") -> Tuple[Affinity, ...]:
    """All services that are not masked and have ``CPUAffinity=``, enabled or not. It reads every service of a machine.

    ``without`` is the name of a drop-in to leave out. Of a template the enabled instances are listed, or itself without
    any. A service with specifiers of systemd other than ``%i`` is left out, as its CPUs are not known. Raises
    ``CannotLook`` on a NUMA node whose CPUs are not a list.
    """
    found = (_affinity(files, unit, without) for unit in _mentioning(files))
    return tuple(affinity for affinity in found if affinity is not None)


def refuse(
    goal: str, slice: str, bound: Iterable[Affinity], *, cpus: FrozenSet[int], online: FrozenSet[int], hint: str
) -> None:
    """Raise ``DeclarationError`` where services could not start in a slice that has these CPUs, since no CPU of them
    would be left.

    ``hint`` is the other way than to change the service. One that has no CPU that is ``online`` does not start in any
    case.
    """
    failing = [one for one in bound if one.cpus & online and not one.cpus & cpus]
    if not failing:
        return
    lines = first_of([f"{one.unit} ({one.path}:{one.line})" for one in failing], SHOWN)
    raise DeclarationError(
        goal,
        object=slice,
        cause=f"{lines} could not start again (status 215/CPUAFFINITY), as {WORD}= has no CPU in this slice",
        found=first_of([f"{one.unit} on CPUs {cpulist.render(one.cpus)}" for one in failing], SHOWN),
        wanted=cpulist.render(cpus),
        hint=f"change or remove {WORD}= there, or {hint}",
    )


def _mentioning(files: Files) -> Tuple[str, ...]:
    """The services of which a file has the word."""
    services, drop_ins, pulled = _listing(files)
    units = {name: None for name, path in services.items() if _has_word(files, path)}
    for (unit, _file), path in drop_ins.items():
        if _has_word(files, path):
            units.update(dict.fromkeys(_named(unit, services)))
    if not units:
        return ()
    units.update(dict.fromkeys(name for name in pulled if _template(name) in units))
    # Only instances start.
    started = {_template(name) for name in units if not systemd.is_template(name)}
    unit_files = systemd.unit_files(files)
    return tuple(sorted({unit_files.real_name(name) for name in units if name not in started}))


def _listing(files: Files) -> Tuple[Dict[str, str], Dict[Tuple[str, str], str], List[str]]:
    """All services with their files, all drop-ins by unit and name, and what other units pull in.

    Of equal names the one in the strongest folder counts.
    """
    services: Dict[str, str] = {}
    drop_ins: Dict[Tuple[str, str], str] = {}
    pulled: List[str] = []
    for folder in systemd.FOLDERS:
        for name in files.names(folder):
            path = f"{folder}/{name}"
            if systemd.is_service(name):
                services.setdefault(name, path)
            elif name.endswith((".wants", ".requires")):
                pulled += filter(systemd.is_service, files.names(path))
            elif name == "service.d" or name.endswith(".service.d"):
                for file in files.names(path):
                    if file.endswith(".conf"):
                        drop_ins.setdefault((name[: -len(".d")], file), f"{path}/{file}")
    return services, drop_ins, pulled


def _has_word(files: Files, path: str) -> bool:
    # A folder may have the name of a unit.
    with contextlib.suppress(IsADirectoryError):
        return WORD in (files.read_optional(path) or "")
    return False


def _named(unit: str, services: Iterable[str]) -> Iterator[str]:
    """The services that a drop-in folder is for: one, those of a prefix (``a-.service``), or all (``service``)."""
    if unit == "service":
        yield from services
    elif unit.endswith("-.service"):
        yield from (name for name in services if name.startswith(unit[: -len(".service")]))
    else:
        yield unit


def _template(unit: str) -> str:
    """The template of an instance, empty for what is not one."""
    prefix, at, _instance = unit.partition("@")
    return f"{prefix}@.service" if at else ""


def _sources(files: Files, unit: str) -> Tuple[str, ...]:
    """The files of a service in the order in which they count. An instance has those of its template too."""
    own, template = systemd.sources(files, unit), _template(unit)
    if not template or template == unit:
        return own
    shared = systemd.sources(files, template)
    by_name = {os.path.basename(path): path for path in (*shared[1:], *systemd.drop_ins(files, unit))}
    return (*(own or shared)[:1], *(by_name[name] for name in sorted(by_name)))


def _affinity(files: Files, unit: str, without: str) -> Optional[Affinity]:
    paths = _sources(files, unit)
    # A file without any text masks the unit, and so does a link to /dev/null.
    if not paths or not files.read_optional(paths[0]):
        return None
    lines = [
        (key, value, path)
        for path in paths
        if os.path.basename(path) != without
        for key, value in systemd.assignments(files.read_optional(path) or "")
    ]
    instance = unit[: -len(".service")].partition("@")[2]
    asked = [(value.replace(INSTANCE, instance or INSTANCE), path) for key, value, path in lines if key == KEY]
    if any("%" in value for value, _path in asked):
        return None
    # A line that systemd cannot parse it ignores as a whole.
    asked = [(value, path) for value, path in asked if value == FROM_NODES or _listed(value) is not None]
    cpus = _bound_to(files, [value for value, _path in asked], [value for key, value, _path in lines if key == MASK])
    if not cpus:
        return None
    value, path = asked[-1]
    slices = [value for key, value, _path in lines if key == SLICE]
    default = f"system-{unit.partition('@')[0]}.slice" if _template(unit) else SYSTEM
    place = slices[-1] if slices and slices[-1] else default
    return Affinity(unit, place, cpus, path, _line_in(files, path), value)


def _bound_to(files: Files, values: List[str], masks: List[str]) -> FrozenSet[int]:
    """The CPUs of the lines. They add up until an empty one; after ``numa`` they are those of the nodes of the mask."""
    found: FrozenSet[int] = frozenset()
    from_nodes = False
    for value in values:
        if value == FROM_NODES:
            found, from_nodes = frozenset(), True
        else:
            found, from_nodes = _extended(found, value, _listed(value)), False
    return _of_nodes(files, masks) if from_nodes else found


def _of_nodes(files: Files, masks: List[str]) -> FrozenSet[int]:
    """The CPUs of all nodes of ``NUMAMask=``, as the kernel lists them."""
    nodes: FrozenSet[int] = frozenset()
    for value in masks:
        nodes = _extended(nodes, value, frozenset(node_numbers(files)) if value == ALL_NODES else _listed(value))
    return frozenset().union(*(read_cpus(files, f"{NODES}/node{number}/cpulist") for number in nodes))


def _listed(value: str) -> Optional[FrozenSet[int]]:
    """A list as systemd reads it, each item quoted or not."""
    return parse_allowed(re.sub("[\"']", "", value))


def _extended(found: FrozenSet[int], value: str, listed: Optional[FrozenSet[int]]) -> FrozenSet[int]:
    """The numbers with those of one more line. An empty line resets them, and one that systemd ignores adds nothing."""
    return found | (listed or frozenset()) if value.strip(", \t") else frozenset()


def _line_in(files: Files, path: str) -> int:
    """The number of the last line of a file that assigns CPUs."""
    numbered = enumerate((files.read_optional(path) or "").splitlines(), 1)
    return max((number for number, line in numbered if _LINE.match(line)), default=1)
