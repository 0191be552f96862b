# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Other owners of which it is not known what they do at boot, and those that the inventory accepts.

Where another owner may set a setting, what the next boot brings is not known, and the setting is not in sync. An
operator who has read the script says so in the inventory, with a reason and if need be a date. What is accepted is
counted apart from what is in sync, so that a report never hides it.
"""

from __future__ import annotations

import re
import time
from typing import Any, Iterable, List, Mapping, Optional, Sequence, Tuple

from .change import THEM, WINNER_UNKNOWN, Conflict, Plan
from .errors import DeclarationError
from .setting import Setting
from .value import frozen, replace

OPTION = "accepted"


@frozen
class Acceptance:
    """An entry of the option. ``object``, ``setting`` and ``owner`` are shell globs; ``until`` is the last day that it
    counts, as ``YYYY-MM-DD`` in UTC, and empty without an end.
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


def parse(entries: Iterable[Mapping[str, Any]], *, first: int = 0) -> Tuple[Acceptance, ...]:
    """``first`` is the number of the first entry.

    Raises ``DeclarationError`` for an entry without a reason, or with a day that the calendar does not have.
    """
    found = []
    for number, entry in enumerate(entries, first):
        until, where = str(entry.get("until") or ""), f"{OPTION}[{number}]"
        if until and not _is_day(until):
            cause, hint = f"until is {until}, and must be a day such as 2027-03-31", "correct it in the inventory"
            raise DeclarationError("read {}", object=where, cause=cause, hint=hint)
        if not str(entry["reason"]).strip():
            raise DeclarationError("read {}", object=where, cause="reason is empty", hint="say why it is accepted")
        names = {name: str(entry.get(name) or "*") for name in ("object", "setting", "owner")}
        found.append(Acceptance(reason=str(entry["reason"]).strip(), until=until, **names))
    return tuple(found)


def judge(plan: Plan, acceptances: Sequence[Acceptance], *, permanent: bool, today: str = "") -> Plan:
    """The plan, in which a setting is unknown that another owner may set, and accepted where the inventory says so.

    Without ``permanent`` the next boot is not what the run is about, and nothing becomes unknown.
    """
    open_ones = [one for one in plan.conflicts if one.wins in (THEM, WINNER_UNKNOWN)]
    if not open_ones:
        return plan
    day = today or time.strftime("%Y-%m-%d", time.gmtime())
    settings = {(row.object, row.setting): row for row in plan.settings}
    conflicts: List[Conflict] = []
    for conflict in plan.conflicts:
        about = [one for one in acceptances if one.is_about(conflict)] if conflict in open_ones else []
        counts = next((one for one in about if not one.has_expired(day)), None)
        key = (conflict.object, conflict.setting)
        if counts is not None:
            conflicts.append(replace(conflict, accepted=counts.words))
        else:
            conflicts.append(conflict)
        row = settings.get(key)
        if row is not None and (counts is not None or (permanent and conflict.wins == WINNER_UNKNOWN)):
            settings[key] = _judged(row, conflict, counts, about[:1])
    rows = tuple(settings.pop((row.object, row.setting), row) for row in plan.settings)
    return replace(plan, settings=rows, conflicts=tuple(conflicts))


def _judged(row: Setting, conflict: Conflict, counts: Optional[Acceptance], expired: Sequence[Acceptance]) -> Setting:
    """``counts`` is the entry that accepts the conflict, ``expired`` those that did so before."""
    said = f"{conflict.owner} {'sets' if conflict.wins == THEM else 'may set'} it"
    said += f" to {conflict.value}" if conflict.value else ""
    said += f" at boot, see {conflict.path}" + ("" if conflict.line is None else f":{conflict.line}")
    if counts is not None:
        text = f"{said}; accepted{' ' if counts.until else ': '}{counts.words}"
        return replace(row, accepted="; ".join(filter(None, (row.accepted, text))))
    for one in expired:
        said += f"; this was accepted {one.words}"
    return replace(row, doubt="; ".join(filter(None, (row.doubt, said))))


def _is_day(text: str) -> bool:
    if not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", text):
        return False
    try:
        time.strptime(text, "%Y-%m-%d")
    except ValueError:
        return False
    return True
