# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Other owners that may set a setting at boot, and those that the inventory accepts.

Where another owner may set a setting, its value after the next boot is unknown, and the setting is not in sync. An
operator who has read the script accepts it in the inventory, with a reason and if need be a date. What is accepted is
counted separately from what is in sync, so that no report hides it.
"""

from __future__ import annotations

import re
import time
from typing import Any, Dict, Iterable, List, Mapping, Sequence, Tuple

from .change import THEM, WINNER_UNKNOWN, Conflict, Plan
from .errors import DeclarationError
from .setting import Setting
from .value import frozen, replace

OPTION = "accepted"
_OPEN = (THEM, WINNER_UNKNOWN)
_Key = Tuple[str, str]


@frozen
class Acceptance:
    """An entry of the option. ``object``, ``setting`` and ``owner`` are shell globs; ``until`` is the last day on
    which it counts, as ``YYYY-MM-DD`` in UTC, and empty if it never expires.
    """

    object: str
    setting: str
    owner: str
    reason: str
    until: str

    def is_about(self, conflict: Conflict) -> bool:
        from fnmatch import fnmatchcase

        return all(fnmatchcase(getattr(conflict, name), getattr(self, name)) for name in ("object", "setting", "owner"))

    def has_expired(self, today: str) -> bool:
        return bool(self.until) and self.until < today

    @property
    def words(self) -> str:
        return f"until {self.until}: {self.reason}" if self.until else self.reason


def parse(entries: Iterable[Mapping[str, Any]], *, called: str = OPTION) -> Tuple[Acceptance, ...]:
    """``called`` is the name of the list. Raises ``DeclarationError`` for an entry without a reason, or with a date
    that the calendar does not have.
    """
    found = []
    for number, entry in enumerate(entries):
        until, where = str(entry.get("until") or ""), f"{called}[{number}]"
        if until and not _is_date(until):
            cause, hint = f"until is {until}, but must be a date such as 2027-03-31", "correct it in the inventory"
            raise DeclarationError("read {}", object=where, cause=cause, hint=hint)
        if not str(entry["reason"]).strip():
            raise DeclarationError("read {}", object=where, cause="reason is empty", hint="write why it is accepted")
        names = {name: str(entry.get(name) or "*") for name in ("object", "setting", "owner")}
        found.append(Acceptance(reason=str(entry["reason"]).strip(), until=until, **names))
    return tuple(found)


def judge(plan: Plan, acceptances: Sequence[Acceptance], *, permanent: bool, today: str = "") -> Plan:
    """The plan, in which a setting is unknown that another owner may set, and accepted where the inventory says so.

    A conflict that is about no setting of the plan gets one without values. Without ``permanent`` the next boot is not
    what the run is about, and nothing becomes unknown.
    """
    if all(one.wins not in _OPEN for one in plan.conflicts):
        return plan
    day = today or time.strftime("%Y-%m-%d", time.gmtime())
    doubts: Dict[_Key, List[str]] = {}
    accepted: Dict[_Key, List[str]] = {}
    conflicts: List[Conflict] = []
    for conflict in plan.conflicts:
        about = [one for one in acceptances if conflict.wins in _OPEN and one.is_about(conflict)]
        counts = next((one for one in about if not one.has_expired(day)), None)
        conflicts.append(conflict if counts is None else replace(conflict, accepted=counts.words))
        key = (conflict.object, conflict.setting)
        if counts is not None:
            accepted.setdefault(key, []).append(_accepted(conflict, counts))
        elif permanent and conflict.wins == WINNER_UNKNOWN:
            doubts.setdefault(key, []).append(_doubt(conflict, about))
    judged = {**doubts, **accepted}
    known = {(row.object, row.setting) for row in plan.settings}
    lacking = [Setting(*key, None, None, None, key[0], False, False) for key in judged if key not in known]
    rows: List[Setting] = []
    for row in (*plan.settings, *lacking):
        key = (row.object, row.setting)
        if key in judged:
            row = replace(row, doubt="; ".join(doubts.get(key, ())), accepted="; ".join(accepted.get(key, ())))
        rows.append(row)
    return replace(plan, settings=tuple(rows), conflicts=tuple(conflicts))


def _accepted(conflict: Conflict, counts: Acceptance) -> str:
    """Of another owner that wins the value may be a sentence, such as what a daemon does."""
    said = f"{conflict.owner} may set it, see {conflict.place}"
    if conflict.wins == WINNER_UNKNOWN:
        said = _doubt(conflict, ())
    return f"{said}; accepted{' ' if counts.until else ': '}{counts.words}"


def _doubt(conflict: Conflict, expired: Sequence[Acceptance]) -> str:
    to = f" to {conflict.value}" if conflict.value else ""
    said = f"{conflict.owner} may set it{to} at boot, see {conflict.place}"
    return f"{said}; the acceptance expired on {expired[0].until} ({expired[0].reason})" if expired else said


def _is_date(text: str) -> bool:
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return False
    try:
        time.strptime(text, "%Y-%m-%d")
    except ValueError:
        return False
    return True
