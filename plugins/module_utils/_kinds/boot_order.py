# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which of two services has the last word at boot about a value that both set.

Read from their files by the rules of systemd.unit(5), systemd.target(5) and systemd.service(5) of systemd 252. Services
without an order between them start at once, so nothing is known of them. An order by way of a third unit holds only
if that is started too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Mapping, Sequence, Set

from .._core.change import THEM, US, WINNER_UNKNOWN
from .._core.declared import WANTED
from .._linux import boot_service, systemd

if TYPE_CHECKING:
    from .._core.contract import Scope
    from .._core.protocols import Files

# What a boot reaches although no link asks for it.
_TARGETS = ("multi-user.target", "graphical.target")
# These start a service again, however often. The others count from the boot, once.
_REPEATING = ("Timer.OnCalendar", "Timer.OnUnitActiveSec", "Timer.OnUnitInactiveSec")
# These have run when what is ordered behind them starts; other types may only have been started.
_COMPLETE = ("oneshot", "forking")


def carrier_of(files: Files, scope: Scope) -> str:
    """Our boot service where it applies the declaration at the next boot, empty where it does not."""
    applies = (scope.permanent or scope.declared == WANTED) and not boot_service.why_not_persisted(files)
    return boot_service.UNIT if applies else ""


def last_word(files: Files, owner: str, carrier: str) -> str:
    """``THEM`` where ``owner`` sets the value after ``carrier`` does, ``US`` where before, else ``WINNER_UNKNOWN``.

    ``carrier`` is the unit that sets the declared value at boot, empty where none does.
    """
    if not carrier or owner == carrier:
        return THEM
    units = systemd.unit_files(files)
    if _repeats(files, units, owner):
        return THEM
    # What udev or a timer starts is not part of the boot's own order.
    if not units.links(owner) or units.status(carrier) != systemd.ENABLED:
        return WINNER_UNKNOWN
    lines = {unit: systemd.unit_lines(files, unit) for unit in (owner, carrier)}
    if carrier in _before(owner, files, units, lines):
        return THEM
    is_complete = (lines[owner].get("Service.Type") or ("simple",))[-1] in _COMPLETE
    return US if is_complete and owner in _before(carrier, files, units, lines) else WINNER_UNKNOWN


def _repeats(files: Files, units: systemd.UnitFiles, owner: str) -> bool:
    for timer in units.linked:
        if not timer.endswith(".timer"):
            continue
        lines = systemd.unit_lines(files, timer)
        started = lines.get("Timer.Unit") or (f"{timer.rpartition('.')[0]}.service",)
        if started[-1] == owner and any(lines.get(key) for key in _REPEATING):
            return True
    return False


_Lines = Mapping[str, Sequence[str]]


def _before(last: str, files: Files, units: systemd.UnitFiles, known: Mapping[str, _Lines]) -> Set[str]:
    """The units that are started before ``last``, as far as After= leads, and Before= of the ``known`` ones."""
    found: Set[str] = set()
    texts: Dict[str, _Lines] = dict(known)
    todo: List[str] = [last]
    while todo:
        unit = todo.pop()
        if unit not in texts:
            texts[unit] = systemd.unit_lines(files, unit)
        names = _words(texts[unit], "Unit.After")
        names += [one for one in known if unit in _words(known[one], "Unit.Before") or _waits_for(unit, one, units)]
        fresh = [name for name in names if name not in found and _is_started(name, units)]
        found.update(fresh)
        todo += fresh
    return found


def _waits_for(target: str, unit: str, units: systemd.UnitFiles) -> bool:
    """Whether it is a target that is reached after what it wants (systemd.target(5), Default Dependencies)."""
    folders = (folder.rpartition("/")[2] for folder in units.links(unit))
    return target.endswith(".target") and any(folder.rpartition(".")[0] == target for folder in folders)


def _is_started(name: str, units: systemd.UnitFiles) -> bool:
    return name in _TARGETS or units.status(name) == systemd.ENABLED


def _words(lines: _Lines, key: str) -> List[str]:
    return [word for value in lines.get(key, ()) for word in value.split()]
