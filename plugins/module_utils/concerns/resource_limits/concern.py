# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``resource_limits``: how much a session or service may lock in memory, open, start, run in real time.

pam_limits reads /etc/security/limits.conf and then limits.d, by the names of its files, each time that it opens a
session (limits.conf(5) and pam_limits.c of Linux-PAM). Of lines of the same domain the last counts.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Dict, Iterator, Mapping, Optional, Sequence, Tuple, cast

from ..._core.change import Plan, Step, Unmanaged
from ..._core.errors import DeclarationError
from ..._core.registration import Registration
from ..._core.value import field, frozen, replace
from ..._kinds.open_files import CONF, FOLDER, NrOpen, NrOpenTooLow, fields_of, read_limits, read_nr_open
from ..._kinds.own_files import FilesDeclaration, FilesDesired, FilesState, Key, Line, OwnFilesConcern, header_of
from ..._kinds.service_values import DEFAULT, ServicesState
from .options import OPTIONS
from .services import SERVICES, refuse_impossible
from .spec import ALL_USERS, HARD, ITEMS, ROOT, TYPES, UNLIMITED, LimitsDeclaration, parse

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Files, Host

# As pam_limits reads a value that is no number.
WORDS = ("-1", UNLIMITED, "infinity")
# What those have whom a line "name -" takes out of pam_limits.
EXEMPT = "exempt"


@frozen
class LimitsState(FilesState):
    """The limits of sessions and of services as they were found, and what ``fs.nr_open`` lets them have."""

    services: ServicesState = field(default_factory=ServicesState)
    nr_open: NrOpen = NrOpen(None, None)
    uncovered: Tuple[Tuple[str, str], ...] = ()
    """The services whose sessions pam_limits does not limit, each with the reason."""


@frozen
class LimitsDesired(FilesDesired):
    """What is wanted of sessions, and of services."""

    services: Mapping[Key, Optional[str]] = field(default_factory=dict)


class ResourceLimits(OwnFilesConcern):
    """``convergence.Concern`` for the limits of sessions and services."""

    name = "resource_limits"
    options = OPTIONS
    path = f"{FOLDER}/99-gpufleet-resource_limits.conf"
    setting = "limits"
    owner = "limits.d"
    registration = Registration(after=("kernel_tunables",), cures=("nofile_too_high",))

    def parse(self, params: Mapping[str, Any]) -> LimitsDeclaration:
        return parse(params)

    def knobs(self, declaration: LimitsDeclaration) -> Tuple[str, ...]:
        return tuple(f"Limit{item.upper()} of {unit}" for unit, item in declaration.services if unit != DEFAULT)

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> LimitsDeclaration:
        # Those of services are found by our files.
        keys = (key for key in super().everything(params, baseline).values if key[1] not in ITEMS)
        return LimitsDeclaration(dict.fromkeys(keys))

    def read(self, files: Files) -> Mapping[str, str]:
        return read_limits(files)

    def place(self, path: str) -> Tuple[bool, str]:
        return path != CONF, os.path.basename(path)

    def lines(self, path: str, text: str) -> Iterator[Line]:
        for number, fields in fields_of(text):
            if len(fields) == 2 and fields[1] == "-" and fields[0] != ALL_USERS:
                yield from (Line(path, number, fields[0], f"{kind} {item}", EXEMPT) for kind in TYPES for item in ITEMS)
            elif len(fields) >= 4:
                domain, kind, item, value = fields[0], *(field.lower() for field in fields[1:4])
                limit = _limit(value)
                if item in ITEMS and kind in (*TYPES, "-") and limit:
                    kinds = TYPES if kind == "-" else (kind,)
                    yield from (Line(path, number, domain, f"{one} {item}", limit) for one in kinds)

    def render(self, values: Mapping[Key, Optional[str]]) -> str:
        return header_of(self.name) + "".join(
            f"{domain} {setting} {value}\n" for (domain, setting), value in values.items()
        )

    def winners(self, lines: Sequence[Line]) -> Mapping[Key, Line]:
        """Who is exempt is so whatever other lines say."""
        return {**super().winners(lines), **super().winners([line for line in lines if line.value == EXEMPT])}

    def exceptions(self, lines: Sequence[Line], values: Mapping[Key, Optional[str]]) -> Iterator[Line]:
        """A line for a user or a group is stronger than one for all, wherever it stands."""
        for line in lines:
            if line.object not in (ALL_USERS, ROOT) and line.value != values.get((ALL_USERS, line.setting), line.value):
                yield line

    def observe(self, host: Host, declaration: FilesDeclaration, scope: Scope) -> LimitsState:
        state = super().observe(host, declaration, scope)
        is_there = host.files.is_folder(os.path.dirname(FOLDER))
        facts = {FOLDER: int(is_there)}
        wanted = declaration.services if isinstance(declaration, LimitsDeclaration) else {}
        services = SERVICES.observe(host, wanted)
        matters = any(key[1].endswith("nofile") for key in (*state.keys, *services.keys))
        nr_open = read_nr_open(host.files) if matters else NrOpen(None, None)
        uncovered: Tuple[Tuple[str, str], ...] = ()
        if declaration.values and is_there and not scope.restoring:
            from ..._linux.pam_stacks import without_limits

            uncovered = tuple(without_limits(host.files, CONF))
        return LimitsState(state.keys, state.texts, state.file, facts, services, nr_open, uncovered)

    def resolve(self, declaration: FilesDeclaration, state: FilesState) -> LimitsDesired:
        declaration = cast(LimitsDeclaration, declaration)
        state = cast(LimitsState, state)
        lacking = state.services.lacking
        for unit in lacking:
            if any(unit == one for one, _item in declaration.services) and unit not in declaration.optional:
                raise DeclarationError(
                    "set limits of {}",
                    object=unit,
                    cause="this machine has no such unit",
                    hint="leave it out, or set optional: true for it",
                )
        wanted = {key: value for key, value in declaration.services.items() if key[0] not in lacking}
        refuse_impossible(wanted, state.nr_open)
        if declaration.values and not state.facts[FOLDER]:
            reason = f"{os.path.dirname(FOLDER)} does not exist, so pam_limits is not installed"
            return LimitsDesired({}, None, tuple(Unmanaged(*key, reason) for key in declaration.values), wanted)
        for (domain, setting), value in declaration.values.items():
            fault = state.nr_open.fault(int(value or 0)) if setting.endswith(" nofile") else ""
            if fault:
                raise NrOpenTooLow(
                    f"set {setting}",
                    object=domain,
                    cause=f"{fault}, so pam_limits would refuse every new session",
                    wanted=value,
                    hint="raise fs.nr_open first, also for the next boot, as kernel_tunables does, or lower nofile",
                )
        of_sessions = super().resolve(declaration, state)
        unmanaged = tuple(
            Unmanaged(
                f"sessions of {service}",
                "limits",
                why,
                hint="correct the PAM stack or sshd_config, or set strict: false",
            )
            for service, why in state.uncovered
        )
        return LimitsDesired(of_sessions.values, of_sessions.text, unmanaged, wanted)

    def restore(self, baseline: Baseline, state: FilesState) -> LimitsDesired:
        return LimitsDesired({}, None)

    def plan(self, state: FilesState, desired: FilesDesired, scope: Scope) -> Plan:
        of_sessions = super().plan(state, desired, scope)
        if not (scope.immediate or scope.permanent):
            return of_sessions
        state = cast(LimitsState, state)
        desired = cast(LimitsDesired, desired)
        self._refuse_uncovered(state, desired)
        rows, steps, conflicts = SERVICES.plan(state.services, desired.services, scope)
        return replace(
            of_sessions,
            settings=(*of_sessions.settings, *rows),
            steps=(*of_sessions.steps, *steps),
            conflicts=(*of_sessions.conflicts, *conflicts),
        )

    def _refuse_uncovered(self, state: LimitsState, desired: LimitsDesired) -> None:
        """Raise ``NrOpenTooLow`` where a foreign line with a limit that no session can have would decide again."""
        if desired.text == state.file.text:
            return
        for line in self.deciding_after(state, desired):
            fault = state.nr_open.fault(int(line.value)) if line.value.isdecimal() else ""
            if line.path != self.path and line.setting == f"{HARD} nofile" and line.key in state.keys and fault:
                raise NrOpenTooLow(
                    f"leave {line.setting} to another line",
                    object=line.object,
                    cause=f"{line.path}:{line.number} sets it to {line.value}; {fault}, so pam_limits would refuse"
                    " every new session",
                    hint="lower it there, or raise fs.nr_open first, also for the next boot, as kernel_tunables does",
                )

    def perform(self, step: Step, host: Host) -> None:
        from ..._kinds import steps

        steps.perform(step, host)

    def report(self, state: FilesState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        state = cast(LimitsState, state)
        effective, boot = super().report(state)
        now: Dict[str, Dict[str, Optional[str]]] = {}
        later: Dict[str, Dict[str, Optional[str]]] = {}
        for unit, item in state.services.keys:
            target = state.services.targets[unit]
            now.setdefault(unit, {})[item] = target.effective.get(item)
            later.setdefault(unit, {})[item] = target.value(item)[0] or None
        return {**effective, "services": now}, {**boot, "services": later}


CONCERN = ResourceLimits()


def _limit(value: str) -> str:
    """As pam_limits reads it: the number that it begins with, decimal. Empty where it has none, and the line does not
    count.
    """
    if value in WORDS:
        return UNLIMITED
    number = re.match(r"[+-]?[0-9]+", value)
    return str(int(number[0])) if number else ""
