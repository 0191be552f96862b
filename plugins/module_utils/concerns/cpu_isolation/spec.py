# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of CPUs for the system, and what is wrong whatever the machine."""

from __future__ import annotations

import re
from typing import Any, Dict, FrozenSet, Mapping, Sequence, Tuple

from ..._core.errors import DeclarationError
from ..._core.regex import regex
from ..._core.value import frozen
from ..._linux.cpu_topology import expand
from ..._linux.cpusets import SYSTEM
from ..._linux.systemd import LONGEST, is_service, is_template

FAIL, WAIT, SKIP = "fail", "wait", "skip"
HOUSEKEEPING = "housekeeping.slice"
OPTION = "housekeeping_cpus"
CONFINE = "confine {}"
HINT = 'write CPUs and ranges of them, such as housekeeping_cpus: "0-3,32-35"'
_RANGE = r"[0-9]{1,5}(?:-[0-9]{1,5})?"
_LIST = regex(rf"{_RANGE}(?:,{_RANGE})*", re.ASCII)
_SLICE = regex(r"[A-Za-z0-9:_.\\]+(?:-[A-Za-z0-9:_.\\]+)*\.slice", re.ASCII)


@frozen
class CpuIsolationDeclaration:
    """``cpus`` are those for the system, ``slices`` and ``daemons`` what is confined to them.

    ``optional`` are daemons that a machine may lack. ``known`` are slices and services that were ever changed, for
    ``state: absent``.
    """

    cpus: FrozenSet[int] = frozenset()
    slices: Tuple[str, ...] = ()
    daemons: Tuple[str, ...] = ()
    optional: FrozenSet[str] = frozenset()
    most_housekeeping: bool = False
    when_busy: str = FAIL
    busy_timeout: int = 0
    known: Tuple[str, ...] = ()


def parse(params: Mapping[str, Any]) -> CpuIsolationDeclaration:
    """Raises ``DeclarationError`` on what no machine could have."""
    if not params["permanent"]:
        raise DeclarationError(
            "confine the system to some CPUs",
            cause="systemd has it from a drop-in, which counts at the next boot too, and permanent: false forbids that",
            hint="set permanent: true",
        )
    daemons = _daemons(params["daemons"])
    slices = params["slices"] or (() if daemons else (SYSTEM,))
    return CpuIsolationDeclaration(
        cpus=_cpus(params[OPTION]),
        slices=_slices(slices),
        daemons=tuple(daemons),
        optional=frozenset(name for name, optional in daemons.items() if optional),
        most_housekeeping=params["most_housekeeping"],
        when_busy=params["when_busy"],
        busy_timeout=params["busy_timeout"],
    )


def _cpus(text: Any) -> FrozenSet[int]:
    goal = "declare {}"
    if text is None:
        raise _wrong(goal, OPTION, "no CPU is declared", "", f"{HINT}, or set state: absent")
    if not text.strip():
        raise _wrong(goal, OPTION, "the list is empty, and the system needs CPUs", "", HINT)
    if not _LIST.fullmatch(text):
        # systemd would ignore the whole line with no more than a warning, and confine nothing.
        raise _wrong(goal, OPTION, "it is not a list of CPUs, and systemd would ignore it", text, HINT)
    try:
        return expand(text, 0)
    except ValueError as error:
        raise _wrong(goal, OPTION, f"{error}, and systemd would drop it", text, HINT) from error


def _slices(names: Sequence[str]) -> Tuple[str, ...]:
    for name in names:
        if not _SLICE.fullmatch(name) or len(name) > LONGEST:
            hint = "write it as system.slice; the root slice has all CPUs, and slices have no instances"
            raise _wrong(CONFINE, name, "it is not the name of a slice below the root slice", "", hint)
        if name == HOUSEKEEPING:
            raise _wrong(CONFINE, name, "it is made for daemons", "", "list services in daemons")
        if names.count(name) > 1:
            raise _wrong(CONFINE, name, "it is declared twice", "", "remove one of them from slices")
    return tuple(names)


def _daemons(entries: Sequence[Mapping[str, Any]]) -> Dict[str, bool]:
    found: Dict[str, bool] = {}
    for entry in entries:
        name = entry["name"]
        if not is_service(name) or is_template(name):
            raise _wrong(CONFINE, name, "it is not the name of a service", "", "write it as chrony.service")
        if name in found:
            raise _wrong(CONFINE, name, "it is declared twice", "", "remove one of them from daemons")
        found[name] = entry["optional"]
    return found


def _wrong(goal: str, object: str, cause: str, wanted: str, hint: str) -> DeclarationError:
    return DeclarationError(goal, object=object, cause=cause, wanted=wanted or None, hint=hint)
