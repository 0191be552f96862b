# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Units of systemd as their files have them, and the only way of ours to make systemd read them again.

Files alone, no program runs: ``UnitFiles``, ``unit_lines``, ``drop_ins``, ``enabled``, ``links``, ``running``.
A room that changes a file of a unit plans ``AnnounceUnit`` before its first write and ``ReloadUnits`` after its last
(``systemd_apply``). A reload that is refused stays due: ``reload_due`` finds it again, and asks systemd only then.
"""

from __future__ import annotations

import contextlib
import os
import re
from functools import cached_property
from typing import TYPE_CHECKING, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from .._core.errors import CannotLook
from .._core.protocols import BusCall
from .._core.regex import regex
from .._core.snapshot import once
from .._core.value import frozen
from .._core.wording import first_of
from .dropins import ROOTS, walk_files
from .foreign_files import foreign

if TYPE_CHECKING:
    from .._core.protocols import Files, Host

# systemd.unit(5), from the strongest to the weakest.
FOLDERS = (
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    "/etc/systemd/system",
    "/etc/systemd/system.attached",
    "/run/systemd/system",
    "/run/systemd/system.attached",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator.late",
)
# What is in these is gone at the next boot, and nobody writes it again.
VOLATILE = (
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/system",
    "/run/systemd/system.attached",
)
ETC = "/etc/systemd/system"
# Files of systemd.network(5) and systemd.link(5).
NETWORK_FOLDERS = tuple(f"{root}/systemd/network" for root in ROOTS)
MARKER = "/run/gpufleet/daemon-reload"
# It is there from before a file of systemd's own configuration changes until systemd was executed anew.
REEXEC_MARKER = "/run/gpufleet/daemon-reexec"
DAEMON_RELOAD = "daemon-reload"
DAEMON_REEXEC = "daemon-reexec"

# What it reads as true, in any case of the letters: parse_boolean().
TRUE = ("1", "yes", "y", "true", "t", "on")
ENABLED = "enabled"
DISABLED = "disabled"
STATIC = "static"
MASKED = "masked"
NOT_FOUND = "not-found"


def running(files: Files) -> bool:
    """Whether systemd runs this machine, as sd_booted(3) tells it."""
    return files.exists("/run/systemd/system")


def unit_lines(files: Files, unit: str, *, without: str = "") -> Mapping[str, Tuple[str, ...]]:
    """A unit with its drop-ins merged, as ``Section.Key`` to all its values; of a single setting the last counts.

    An empty assignment resets what came before. Empty for a unit that is not there or is masked. ``without`` is a
    drop-in to leave out.
    """
    there = _there(files)
    fragment = _fragment(files, unit, there)
    if fragment is None or _is_mask(files, fragment):
        return {}
    merged: Dict[str, List[str]] = {}
    for path in (fragment, *_drop_ins(files, unit, there)):
        for key, value in assignments((files.read_optional(path) or "") if path != without else ""):
            values = merged.setdefault(key, [])
            if value:
                values.append(value)
            else:
                values.clear()
    return {key: tuple(values) for key, values in merged.items()}


def sources(files: Files, unit: str) -> Tuple[str, ...]:
    """The files that a unit is made of, in the order in which they count; none for one that is not there."""
    there = _there(files)
    fragment = _fragment(files, unit, there)
    return () if fragment is None else (fragment, *_drop_ins(files, unit, there))


def drop_ins(files: Files, unit: str) -> Tuple[str, ...]:
    """The drop-in files of a unit in the order they count, those of its prefixes (``a-.service.d``) and type too."""
    return _drop_ins(files, unit, _there(files))


def _drop_ins(files: Files, unit: str, there: Sequence[str]) -> Tuple[str, ...]:
    folders = [f"{folder}/{name}" for folder in there for name in _drop_in_folders(unit)]
    of_type = _drop_in_folder_of_type(unit)
    return tuple(walk_files(files, [*folders, *(f"{folder}/{of_type}" for folder in there)], ".conf"))


def _drop_in_folders(unit: str) -> List[str]:
    """The names of the folders of a unit and of its prefixes, the strongest first."""
    stem, _dot, kind = unit.rpartition(".")
    parts = stem.split("-")
    return [f"{unit}.d", *(f"{'-'.join(parts[:count])}-.{kind}.d" for count in range(len(parts) - 1, 0, -1))]


def _drop_in_folder_of_type(unit: str) -> str:
    return f"{unit.rpartition('.')[2]}.d"


def assignments(text: str) -> Iterator[Tuple[str, str]]:
    """The assignments of a unit file in order, as (``Section.Key``, value); continued lines are joined by a blank."""
    section = ""
    started = ""
    # The end of the file ends a line too that would go on.
    for raw in (*text.splitlines(), ""):
        line = raw.strip()
        if line.startswith(("#", ";")) or (not line and not started):
            continue
        line = f"{started} {line}" if started else line
        started = ""
        if line.endswith("\\"):
            started = line[:-1].rstrip()
        elif line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        else:
            key, equals, value = line.partition("=")
            if equals:
                yield f"{section}.{key.strip()}", value.strip()


def links(files: Files, unit: str, folders: Sequence[str] = FOLDERS) -> Tuple[str, ...]:
    """What pulls the unit in: folders such as ``multi-user.target.wants``, sorted, that hold its name."""
    found = {
        name
        for folder in folders
        for name in files.names(folder)
        if name.endswith((".wants", ".requires")) and unit in files.names(f"{folder}/{name}")
    }
    return tuple(sorted(found))


def enabled(files: Files, unit: str) -> str:
    """What a boot makes of a unit: enabled, disabled, static (nothing says how to enable it), masked, not-found."""
    return unit_files(files).status(unit)


def unit_files(files: Files) -> UnitFiles:
    """The files of all units, listed once in a look."""
    return once(files, UnitFiles)


class UnitFiles:
    """The files of all units as the next boot finds them. Each folder is listed once, however many units are asked for.

    What somebody put into /run is gone by then; what generators write there comes again.
    """

    def __init__(self, files: Files) -> None:
        self._files = files = foreign(files)
        # Most of the hundreds of names are never asked for, so that nothing is made of them.
        self._folders = [(folder, frozenset(files.names(folder))) for folder in FOLDERS if folder not in VOLATILE]

    @cached_property
    def _links(self) -> Mapping[str, List[str]]:
        """By unit. A unit that is not there is told without them, and those are most that are asked for."""
        found: Dict[str, List[str]] = {}
        for folder, names in self._folders:
            if folder.startswith("/run/"):
                continue
            for name in sorted(names):
                if name.endswith((".wants", ".requires")):
                    for unit in self._files.names(f"{folder}/{name}"):
                        found.setdefault(unit, []).append(f"{folder}/{name}")
        return found

    @property
    def names(self) -> Tuple[str, ...]:
        """All that may be the name of a unit."""
        found = dict.fromkeys(name for folder, names in self._folders for name in sorted(names))
        return tuple(name for name in found if not name.endswith((".wants", ".requires")))

    @property
    def linked(self) -> Tuple[str, ...]:
        """All that a folder such as ``multi-user.target.wants`` names."""
        return tuple(self._links)

    def has_drop_ins(self, unit: str) -> bool:
        """Whether any folder may have drop-ins of this unit."""
        names = (*_drop_in_folders(unit), _drop_in_folder_of_type(unit))
        return any(name in there for _folder, there in self._folders for name in names)

    def paths(self, unit: str) -> List[str]:
        """The files of a unit, the strongest first; of an instance without one those of its template."""
        files = self._files
        template = re.sub("@.+(?=[.])", "@", unit)
        names = dict.fromkeys((unit, template))
        found = [f"{folder}/{name}" for name in names for folder, there in self._folders if name in there]
        return [path for path in found if _is_there(files, path)]

    def links(self, unit: str) -> Sequence[str]:
        """The folders such as ``/etc/systemd/system/timers.target.wants`` that have its name."""
        return self._links.get(unit, ())

    def status(self, unit: str, *, unmasked: bool = False) -> str:
        """What ``enabled`` says; ``unmasked``: what it would say if nothing masked the unit."""
        paths = self.paths(unit)
        if unmasked:
            paths = [path for path in paths if not _is_mask(self._files, path)]
        if not paths:
            return NOT_FOUND
        if _is_mask(self._files, paths[0]):
            return MASKED
        if self.links(unit):
            return ENABLED
        return DISABLED if self.installable(unit) else STATIC

    def installable(self, unit: str) -> bool:
        """Whether the unit says how to enable it, masked or not."""
        path = next((path for path in self.paths(unit) if not _is_mask(self._files, path)), None)
        texts = map(self._files.read_optional, (*([path] if path else ()), *drop_ins(self._files, unit)))
        return any(key.startswith("Install.") for text in texts for key, _value in assignments(text or ""))

    def real_name(self, unit: str) -> str:
        """The name of the unit that this one is another name of, or the name itself."""
        for path in self.paths(unit):
            name = os.path.basename(self._files.resolve(path))
            if name != "null" and name.rpartition(".")[2] == unit.rpartition(".")[2] and "@." not in name:
                return name
        return unit


def announce(host: Host, unit: str) -> None:
    """Note that files of this unit are about to change, so that a run that is killed does not lose the reload."""
    noted = (host.files.read_optional(MARKER) or "").splitlines()
    if running(host.files) and unit not in noted:
        host.files.replace(MARKER, "".join(f"{name}\n" for name in (*noted, unit)))


def reload_due(host: Host, unit: str) -> bool:
    """Whether a file of this unit was changed by us and systemd has not read it yet."""
    noted = host.files.read_optional(MARKER)
    if noted is None or unit not in noted.splitlines():
        return False
    return needs_reload(host, unit)


def reload_blocker(host: Host) -> str:
    """Why systemd must not read its units now: which containers would lose their GPUs. Empty when it may."""
    return containers_that_lose_gpus(host)


def _there(files: Files) -> List[str]:
    """The folders of units that this machine has: most have half of them, and each is asked for several files."""
    return [folder for folder in FOLDERS if files.is_folder(folder)]


def _fragment(files: Files, unit: str, there: Sequence[str]) -> Optional[str]:
    places = (f"{folder}/{unit}" for folder in there)
    return next((path for path in places if _is_there(files, path)), None)


def _is_there(files: Files, path: str) -> bool:
    # A recorded tree may lack /dev/null itself. What is not there is no link either, which costs less to ask.
    return files.exists(path) or bool(files.link(path) and files.resolve(path) == "/dev/null")


def _is_mask(files: Files, path: str) -> bool:
    # An empty file masks as well as a link to /dev/null.
    return files.resolve(path) == "/dev/null" or not (files.read_optional(path) or "")


SCOPE = regex(r"/([^/\n]+\.scope)(?:/|$)", re.MULTILINE)
SHOWN = 3
Properties = Dict[str, List[str]]
SYSTEMD = "org.freedesktop.systemd1"
MANAGER = f"{SYSTEMD}.Manager"
MANAGER_PATH = "/org/freedesktop/systemd1"
PROPERTIES = "org.freedesktop.DBus.Properties"
# Properties that are a text, a number or a list of names, which systemctl prints as they are, with their interface.
# What mounts have under such a name is another property.
INTERFACES = {
    **dict.fromkeys(("Id", "LoadState", "ActiveState", "Triggers", "TriggeredBy"), "Unit"),
    **dict.fromkeys(("RequiredBy", "BoundBy", "WantedBy"), "Unit"),
    **dict.fromkeys(("Type", "BusName", "MainPID"), "Service"),
}


def needs_reload(host: Host, unit: str) -> bool:
    """What systemd itself says. A unit that it never loaded needs none: it is read when it is first asked for.

    252 does not notice the first drop-in of a unit that it has loaded, as it has not met the folder. So a folder
    of which it knows none counts as well; one that it knows may have links that lead nowhere.
    """
    folder = f"{ETC}/{unit}.d"
    names = (f"{folder}/{name}" for name in host.files.names(folder) if name.endswith(".conf"))
    there = {path for path in names if host.files.exists(path) and not _is_mask(host.files, path)}
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
    return f"{first_of(losing, SHOWN)} would lose its GPUs, which were not assigned by systemd"


@frozen
class UnitState:
    """What systemd has of a unit: the words of ``LoadState`` and ``ActiveState``."""

    load: str
    active: str


def states(host: Host, units: Sequence[str]) -> Dict[str, UnitState]:
    """By unit, those that systemd had not loaded included. Raises ``CannotLook``."""
    if not units:
        return {}
    try:
        (listed,) = host.ask_systemd((BusCall(MANAGER_PATH, MANAGER, "ListUnitsByNames", (tuple(units),)),))
    except OSError:
        listed = None
    if listed is not None:
        return {name: UnitState(load, active) for name, _title, load, active, *_rest in listed[0]}
    blocks = show(host, ("Id", "LoadState", "ActiveState"), tuple(units))
    return {
        "".join(block["Id"]): UnitState("".join(block.get("LoadState", ())), "".join(block.get("ActiveState", ())))
        for block in blocks
        if block.get("Id")
    }


def show(host: Host, properties: Tuple[str, ...], units: Tuple[str, ...]) -> Iterator[Properties]:
    """The properties of units, each with its values, for one may have a line for each. Raises ``CannotLook``.

    systemd itself is asked where that is enough; systemctl where not, and to say what is wrong.
    """
    if units and all(name in INTERFACES for name in properties):
        with contextlib.suppress(OSError):
            yield from _shown_by_systemd(host, properties, units)
            return
    yield from _shown_by_systemctl(host, properties, units)


def _shown_by_systemd(host: Host, properties: Tuple[str, ...], units: Tuple[str, ...]) -> List[Properties]:
    calls = [
        BusCall(_path_of(unit), PROPERTIES, "Get", (f"{SYSTEMD}.{INTERFACES[name]}", name))
        for unit in units
        for name in properties
    ]
    answers = iter(host.ask_systemd(calls))
    blocks: List[Properties] = []
    for _unit in units:
        block: Properties = {}
        for name in properties:
            answer = next(answers)
            # A timer has nothing of what services have.
            if answer is not None:
                (value,) = answer
                texts = value if isinstance(value, list) else [str(value)]
                block[name] = [" ".join(texts)] if any(texts) else []
        blocks.append(block)
    return blocks


def _path_of(unit: str) -> str:
    """The object of a unit on D-Bus: all but letters and digits is escaped, and a digit where it is the first."""
    escaped = (
        letter if letter.isascii() and letter.isalnum() and (at or letter.isalpha()) else f"_{ord(letter):02x}"
        for at, letter in enumerate(unit)
    )
    return f"{MANAGER_PATH}/unit/{''.join(escaped)}"


# Every unit has a value of these, one that does not exist too.
ALWAYS_SHOWN = ("Id", "LoadState", "ActiveState", "NeedDaemonReload")


def _is_always_shown(name: str, unit: str) -> bool:
    """Whether every release of systemd shows a value of this property. An empty ``unit`` stands for systemd itself."""
    return not unit or name in ALWAYS_SHOWN or (unit.endswith(".service") and name.startswith(("MainPID", "Limit")))


def _shown_by_systemctl(host: Host, properties: Tuple[str, ...], units: Tuple[str, ...]) -> Iterator[Properties]:
    """One block of lines for each unit, in their order, or one about systemd itself."""
    goal = "query systemd"
    try:
        completed = host.commands.run(["systemctl", "show", f"--property={','.join(properties)}", "--", *units])
    except OSError as error:
        raise CannotLook(goal, object="systemctl", cause=error.strerror or str(error)) from error
    if completed.status != 0:
        said = completed.errors.strip().splitlines()
        cause = f"exit status {completed.status}: {said[-1] if said else 'no output'}"
        raise CannotLook(goal, object="systemctl show", cause=cause)
    blocks: List[Properties] = []
    for text in re.split(r"\n\n+", completed.output.strip()):
        block: Properties = {}
        for line in text.splitlines():
            name, _equals, value = line.partition("=")
            block.setdefault(name, []).extend([value] if value else [])
        blocks.append(block)
    blocks += [{}] * (len(units) - len(blocks))
    for unit, block in zip(units or ("",), blocks):
        lacking = [name for name in properties if _is_always_shown(name, unit) and not block.get(name)]
        if lacking:
            cause = f"its answer is incomplete: {', '.join(lacking)} of {unit or 'systemd'} is missing"
            raise CannotLook(goal, object="systemctl show", cause=cause)
    yield from blocks


def _scopes_with_gpus(files: Files) -> Tuple[str, ...]:
    found: List[str] = []
    for pid in files.names("/proc"):
        if not pid.isdecimal():
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
    from .._machine import processes

    return any(path.startswith("/dev/nvidia") for path in processes.opened(files, pid))


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


_SERVICE = regex(r"[A-Za-z0-9:_.\\@-]+\.service", re.ASCII)
# UNIT_NAME_MAX of systemd, without its closing zero.
LONGEST = 255


def is_service(name: str) -> bool:
    """Whether a service can have this name, or a template of services."""
    return len(name) <= LONGEST and _SERVICE.fullmatch(name) is not None


def is_template(name: str) -> bool:
    """Of these only the instances start."""
    return name.endswith("@.service")
