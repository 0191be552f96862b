# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who else sets what is declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Sequence, Tuple

from ..._core.change import THEM, US, WINNER_UNKNOWN, Conflict
from ..._core.errors import OwnedByAnother, refuse_all
from ..._kinds.boot_arguments import COMMAND_LINE
from ..._kinds.tunables import BootAssignment
from .next_boot import NextBoot
from .patterns import is_total, touches
from .spec import HugepagesDesired
from .state import HugepagesState, names_of

if TYPE_CHECKING:
    from ..._core.contract import Scope


def find_conflicts(
    others: Sequence[BootAssignment], state: HugepagesState, desired: HugepagesDesired, boot: NextBoot, scope: Scope
) -> Tuple[Conflict, ...]:
    """Other owners that set another value. Raises ``OwnedByAnother`` if the declared value would not stay."""
    found: List[Conflict] = []
    refusals: List[OwnedByAnother] = []
    chosen = {want.tunable: want.value for want in desired.wants}
    for line in others:
        for want in desired.wants:
            if not touches(line, want.tunable, state):
                continue
            object_, setting = names_of(want.tunable, state)
            pool = state.pools.get(want.tunable)
            wanted = want.value
            after, source = boot.after[want.tunable]
            if pool is not None and is_total(line, pool, state):
                object_ = "all nodes"
                tunables = [other.tunable for other in state.of_size(pool.size_kb)]
                wanted = sum(int(chosen.get(tunable, boot.after[tunable][0]) or 0) for tunable in tunables)
            if line.value == str(wanted):
                continue
            wins = THEM if source == line else WINNER_UNKNOWN if line.in_doubt else US
            conflict = Conflict(line.owner, line.path, line.line, object_, setting, line.value, wins)
            if conflict not in found:
                found.append(conflict)
            # A count on the command line is somebody's declaration; a policy there is only the kernel's first value.
            stays = (
                (line.later and not line.in_doubt)
                or (line.owner == COMMAND_LINE and pool is not None)
                # What another line overrules is not what keeps ours from staying.
                or (after != want.value and source in (line, None))
            )
            if scope.permanent and stays:
                refusals.append(
                    OwnedByAnother(
                        f"set {setting}",
                        object=object_,
                        cause=f"{line.owner} sets it too, at {line.place}",
                        found=line.value,
                        wanted=wanted,
                        hint="remove it there, or declare the same value",
                    )
                )
    refuse_all(refusals, tuple(found))
    return tuple(found)
