# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kind *foreign values*: what services, scripts and other software give, at boot, to settings that the boot service
applies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from .._core.change import THEM, US, WINNER_UNKNOWN, Conflict
from .._core.errors import OwnedByAnother, refuse_all
from .._core.value import frozen

if TYPE_CHECKING:
    from .._core.contract import Scope
    from .._core.protocols import Files
    from .._core.setting import Scalar
    from .._linux.boot_writers import BootWrite

Key = Tuple[str, str]
"""Object and setting of a row."""
Finding = Tuple[Conflict, "Scalar"]
"""A conflict, and the value that is wanted."""


@frozen
class Said:
    """The part of a line that is about one setting of one object; ``value`` is None where it is not known before."""

    object: str
    setting: str
    value: Optional[str]
    in_doubt: bool = False


@frozen
class ForeignValue:
    """A line by which ``owner`` gives a setting a value. ``wins`` is as ``Conflict`` has it."""

    owner: str
    path: str
    line: Optional[int]
    object: str
    setting: str
    value: Optional[str]
    wins: str


def read(
    files: Files,
    scope: Scope,
    lines: Iterable[Tuple[BootWrite, Iterable[Said]]],
    *,
    lasting: Sequence[str] = (),
    early: Sequence[str] = (),
) -> Tuple[ForeignValue, ...]:
    """The values of lines, without those that a later line of the same owner undoes for certain.

    ``lasting`` are owners that set it again later, whatever the boot service did, ``early`` those that set it as soon
    as the device appears. Between the boot service and the others, the order of their units counts.
    """
    order: Dict[str, str] = {}
    found: Dict[Tuple[str, str, str], List[ForeignValue]] = {}
    for write, parts in lines:
        for said in parts:
            in_doubt = write.in_doubt or said.in_doubt or said.value is None
            if write.owner not in order:
                order[write.owner] = _wins(files, scope, write.owner, lasting=lasting, early=early)
            values = found.setdefault((write.owner, said.object, said.setting), [])
            if not in_doubt:
                values.clear()
            wins = WINNER_UNKNOWN if in_doubt else order[write.owner]
            values.append(
                ForeignValue(write.owner, write.path, write.line, said.object, said.setting, said.value, wins)
            )
    return tuple(one for values in found.values() for one in values)


def _wins(files: Files, scope: Scope, owner: str, *, lasting: Sequence[str], early: Sequence[str]) -> str:
    from .boot_order import carrier_of, last_word

    if owner in lasting:
        return THEM
    carrier = carrier_of(files, scope)
    if owner in early:
        return US if carrier else THEM
    return last_word(files, owner, carrier)


def find_conflicts(values: Sequence[ForeignValue], wanted: Mapping[Key, Scalar], scope: Scope) -> Tuple[Conflict, ...]:
    """Those that are about what is wanted, and another value. Raises ``OwnedByAnother`` where one would undo at boot
    what is to stay.
    """
    others = [
        one
        for one in values
        if wanted.get((one.object, one.setting)) is not None and one.value != str(wanted[one.object, one.setting])
    ]
    findings = [
        (
            Conflict(one.owner, one.path, one.line, one.object, one.setting, one.value or "", one.wins),
            wanted[one.object, one.setting],
        )
        for one in others
    ]
    return conflicts_of(findings, scope)


def conflicts_of(findings: Sequence[Finding], scope: Scope) -> Tuple[Conflict, ...]:
    """The conflicts. Raises ``OwnedByAnother``, which has them all, where one would undo at boot what is to stay."""
    conflicts = tuple(conflict for conflict, _wanted in findings)
    refusals = [
        OwnedByAnother(
            f"set {one.setting}",
            object=one.object,
            cause=f"{one.owner} sets another value after gpufleet at each boot ({one.place})",
            found=one.value,
            wanted=wanted,
            hint="delete that line, declare its value, or set permanent: false",
        )
        for one, wanted in findings
        if scope.permanent and one.wins == THEM
    ]
    refuse_all(refusals, conflicts)
    return conflicts
