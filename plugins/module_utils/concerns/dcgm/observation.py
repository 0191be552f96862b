# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""DCGM and its exporter, read from their files, from one query of systemd, and from what they say themselves."""

from __future__ import annotations

import os
import re
import time
from typing import TYPE_CHECKING, Dict, FrozenSet, Iterator, List, Mapping, Optional, Sequence, Tuple

from ..._core.regex import regex
from ..._core.value import replace
from ..._kinds import units
from ..._kinds.own_files import OwnFile, header_of
from ..._linux import packages, systemd, unit_command
from ..._machine import processes
from . import command_line
from .metrics import Metric, parse, served
from .spec import NAME, WATCHES, DcgmDeclaration
from .state import DcgmState, Exporter, Service, worded

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from ..._core.protocols import Files, Host

# The second is that of releases before 3.1, and deprecated since; in 4 it is another name of the first.
ENGINES = ("nvidia-dcgm.service", "dcgm.service")
# The first is NVIDIA's own, the second that of many others.
EXPORTERS = ("nvidia-dcgm-exporter.service", "dcgm-exporter.service")
HEALTH = "gpufleet-dcgm-health.service"
DROP_IN = "99-gpufleet-dcgm.conf"
PROGRAMS = ("/usr/bin/dcgm-exporter", "/usr/local/bin/dcgm-exporter")
DCGMI = "/usr/bin/dcgmi"
LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
LIBRARY = "libdcgm.so"
ACTIVE = ("active", "activating", "reloading", "refreshing")
WATCH = regex(r"^\| *([^|]*?) *\| *(On|Off) *\|", re.MULTILINE)
DCGMI_SECONDS = 3.0
# Both clocks of the kernel count in hundredths of a second.
TOLERANCE_SECONDS = 0.02


def observe(host: Host, declaration: DcgmDeclaration, scope: Scope) -> DcgmState:
    files = host.files
    unit_files = systemd.unit_files(files)
    names = _engines(unit_files)
    exporter_name, shipped = _exporter(files, unit_files)
    found = _services(host, unit_files, (*names, exporter_name, HEALTH))
    engine = found[names[0]]
    state = DcgmState(
        engine=engine,
        twin=found[names[1]] if len(names) > 1 else None,
        exporter=_files_of(host, found[exporter_name], shipped=shipped),
        health=_unit_file(host, HEALTH, f"{systemd.ETC}/{HEALTH}", "unit"),
        health_service=found[HEALTH],
        counters=OwnFile(command_line.COUNTERS, "metrics", files.read_optional(command_line.COUNTERS)),
        release=_release(files),
        packages=packages.declared(host, declaration.packages) if declaration.packages else (),
    )
    if declaration.exporter or state.counters.text is not None or state.exporter.service.active:
        state = _with_exporter(host, state, asks=declaration.writes or state.counters.text is not None)
    if engine.active and (declaration.watches or state.health.text is not None):
        state = _with_watches(host, state)
    if scope.immediate and not scope.restoring and _starts(declaration, state):
        from .owners import in_the_way

        state = replace(state, others=in_the_way(files, declaration, state))
    return state


def _engines(unit_files: systemd.UnitFiles) -> Tuple[str, ...]:
    """The host engine's unit, and its twin where that is a unit of its own."""
    there = [name for name in ENGINES if unit_files.paths(name)]
    if not there:
        return ENGINES[:1]
    return tuple(dict.fromkeys(unit_files.real_name(name) for name in there))


def _exporter(files: Files, unit_files: systemd.UnitFiles) -> Tuple[str, bool]:
    """The exporter's unit, and whether somebody else than we brought it."""
    for name in EXPORTERS:
        if any(not _is_ours(files, path) for path in unit_files.paths(name)):
            return unit_files.real_name(name), True
    return EXPORTERS[0], False


def _is_ours(files: Files, path: str) -> bool:
    return path.startswith(f"{systemd.ETC}/") and (files.read_optional(path) or "").startswith(header_of(NAME))


def _services(host: Host, unit_files: systemd.UnitFiles, names: Sequence[str]) -> Dict[str, Service]:
    answers: Dict[str, systemd.Properties] = {}
    runs = systemd.running(host.files)
    there = tuple(name for name in names if unit_files.paths(name))
    if runs and there:
        blocks = systemd.show(host, ("Id", "ActiveState", "MainPID"), there)
        answers = {block["Id"][0]: block for block in blocks if block.get("Id")}
    found = {}
    for name in names:
        block = answers.get(name, {})
        active = block.get("ActiveState", [""])[0] in ACTIVE
        pid = block.get("MainPID", ["0"])[0]
        status = unit_files.status(name)
        found[name] = Service(
            name=name,
            status=status,
            active=active if runs else None,
            pid=int(pid) if active and pid.isdecimal() else 0,
            installable=status != systemd.STATIC,
        )
    return found


def _unit_file(host: Host, unit: str, path: str, setting: str) -> units.UnitFile:
    text = host.files.read_optional(path)
    # What others have at the place of a unit of ours is none of ours.
    mine = text if text is None or text.startswith(header_of(NAME)) else None
    return units.unit_file(host, unit, path, setting, mine)


def _files_of(host: Host, service: Service, *, shipped: bool) -> Exporter:
    name = service.name
    return Exporter(
        service=service,
        shipped=shipped,
        program=next((path for path in PROGRAMS if host.files.exists(path)), ""),
        unit=_unit_file(host, name, f"{systemd.ETC}/{name}", "unit"),
        drop_in=_unit_file(host, name, f"{systemd.ETC}/{name}.d/{DROP_IN}", "drop-in"),
    )


def _with_exporter(host: Host, state: DcgmState, *, asks: bool) -> DcgmState:
    """The same with how the exporter is started, what its process has read, and what that says."""
    files, exporter = host.files, state.exporter
    name = exporter.service.name
    theirs = _their_lines(files, exporter) if exporter.shipped else {}
    commands = theirs.get("Service.ExecStart", ())
    line = commands[-1] if commands else exporter.program
    environment = unit_command.environment_of(files, name, theirs)
    words = [word for word, _place in unit_command.words_of(line, environment, name)]
    lines = systemd.unit_lines(files, name)
    merged = lines.get("Service.ExecStart", ())
    variables = unit_command.environment_of(files, name, lines)
    at_boot = [word for word, _place in unit_command.words_of(merged[-1], variables, name)] if merged else []
    exporter = replace(
        exporter,
        line=line,
        later=_later(files, exporter),
        overruled=tuple(_setters(files, exporter)),
        remote=bool(command_line.option(words, "remote", environment)),
        clashes=command_line.clashes(line, words),
        address=command_line.listens_at(command_line.option(at_boot, "address", variables) or command_line.ADDRESS),
    )
    engine_words = [word for word, _place in unit_command.read(files, state.engine.name)]
    place = command_line.option(at_boot, "counters", variables) or command_line.SHIPPED_COUNTERS
    shipped = command_line.option(words, "counters", environment) or command_line.SHIPPED_COUNTERS
    return replace(
        state,
        exporter=_with_process(host, exporter, state.counters, exporter.address if asks else ""),
        engine_address=command_line.engine_address(engine_words),
        theirs=parse(files.read_optional(shipped) or "") if shipped != command_line.COUNTERS else {},
        at_boot=_at(files, state.counters, place) if exporter.service.there else {},
    )


def _their_lines(files: Files, exporter: Exporter) -> Mapping[str, Tuple[str, ...]]:
    """The unit as it is without any file of ours."""
    name = exporter.service.name
    if exporter.unit.text is None:
        return systemd.unit_lines(files, name, without=exporter.drop_in.path)
    # A package has brought one meanwhile, which ours still hides.
    paths = [path for path in systemd.unit_files(files).paths(name) if not _is_ours(files, path)][:1]
    merged: Dict[str, List[str]] = {}
    for path in (*paths, *(path for path in systemd.drop_ins(files, name) if path != exporter.drop_in.path)):
        for key, value in systemd.assignments(files.read_optional(path) or ""):
            merged[key] = [*merged.get(key, []), value] if value else []
    return {key: tuple(values) for key, values in merged.items()}


def _at(files: Files, counters: OwnFile, place: str) -> Mapping[str, Metric]:
    return parse((counters.text if place == counters.path else files.read_optional(place)) or "")


def _later(files: Files, exporter: Exporter) -> str:
    """A drop-in that sets the command line after ours."""
    return next((path for path, _line in _setters(files, exporter) if os.path.basename(path) > DROP_IN), "")


def _setters(files: Files, exporter: Exporter) -> Iterator[Tuple[str, str]]:
    """The drop-ins of others that set the command line, each with the last that it sets."""
    for path in systemd.drop_ins(files, exporter.service.name):
        found = list(systemd.assignments(files.read_optional(path) or "")) if path != exporter.drop_in.path else []
        lines = [value for key, value in found if key == "Service.ExecStart" and value]
        if lines:
            yield path, lines[-1]


def _with_process(host: Host, exporter: Exporter, counters: OwnFile, address: str) -> Exporter:
    if not exporter.service.pid:
        return exporter
    files, pid = host.files, exporter.service.pid
    words = processes.text_of(files, str(pid), "cmdline").split("\0")
    reads = command_line.option(words, "counters") or command_line.SHIPPED_COUNTERS
    age = _age(files, pid)
    answer = _served(host, address) if address else None
    fresh = reads == counters.path and counters.text is not None and age is not None
    if fresh and age is not None:
        started = time.time() - age
        fresh = started + TOLERANCE_SECONDS >= files.modified(counters.path) / 1e9
    if fresh and answer is not None:
        # Whatever the clocks say: one that shows what the file does not have has read another one.
        fresh = set(answer).issubset(parse(counters.text or ""))
    return replace(exporter, reads=reads, age=age or 0.0, read=fresh, served=answer)


def _age(files: Files, pid: int) -> Optional[float]:
    """How many seconds ago a process was started."""
    process = processes.read(files, pid)
    uptime = (files.read_optional("/proc/uptime") or "").split()
    return float(uptime[0]) - process.start / processes.TICKS if process and uptime else None


def _served(host: Host, address: str) -> Optional[Mapping[str, str]]:
    """The metrics on /metrics, None where it does not answer, or not us: it may ask for a password."""
    try:
        return served(host.http_get(address, "/metrics")) or None
    except OSError:
        return None


def _with_watches(host: Host, state: DcgmState) -> DcgmState:
    """The same with the health watches of all GPUs; the host engine keeps them in its memory alone."""
    try:
        completed = host.commands.run([DCGMI, "health", "-f"], timeout=DCGMI_SECONDS)
    except OSError as error:
        return replace(state, no_watches=f"{DCGMI}: {error.strerror or error}")
    found = dict(WATCH.findall(completed.output))
    if completed.status != 0 or not found:
        said = (completed.output or completed.errors).strip().splitlines()
        return replace(state, no_watches=said[-1] if said else f"exit status {completed.status}")
    names: List[str] = [name for name, (_flag, tags) in WATCHES.items() if all(found.get(tag) == "On" for tag in tags)]
    on: FrozenSet[str] = frozenset(names)
    return replace(state, watches=worded(on))


def _starts(declaration: DcgmDeclaration, state: DcgmState) -> bool:
    """Whether one of them is to run and does not."""
    engine = declaration.engine and state.engine.active is False
    return bool(engine or (declaration.exporter and state.exporter.service.active is False))


def _release(files: Files) -> Tuple[int, int]:
    """Generation and minor release of DCGM, as its library is called: libdcgm.so.4 leads to libdcgm.so.4.5.3."""
    for generation in (4, 3):
        for folder in LIBRARIES:
            path = f"{folder}/{LIBRARY}.{generation}"
            if files.exists(path):
                numbers = files.link(path).rpartition(f"{LIBRARY}.")[2].split(".")
                minor = numbers[1] if len(numbers) > 1 else "0"
                return generation, int(minor) if minor.isdecimal() else 0
    return 0, 0
