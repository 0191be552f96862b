# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who else sets what is declared. Imported only where somebody else has a say in huge pages."""

from __future__ import annotations

from typing import List, Sequence, Tuple

from .._core.change import Conflict
from .._core.errors import OwnedByAnother
from .look import Boot, names_of
from .owners import Assignment
from .patterns import is_total, touches
from .spec import Desired
from .state import COMMAND_LINE, TMPFILES, State


def find_conflicts(others: Sequence[Assignment], state: State, desired: Desired, boot: Boot) -> Tuple[Conflict, ...]:
    """Who else sets what is declared. Raises ``OwnedByAnother`` where the value would not stay the declared one."""
    found: List[Conflict] = []
    chosen = {want.knob: want.value for want in desired.wants}
    for line in others:
        for want in desired.wants:
            if not touches(line, want.knob, state):
                continue
            object_, setting = names_of(want.knob, state)
            pool = state.pools.get(want.knob)
            wanted = want.value
            after, source = boot.after[want.knob]
            if pool is not None and is_total(line, pool, state):
                object_ = "all nodes"
                knobs = [other.knob for other in state.of_size(pool.size_kb)]
                wanted = sum(int(chosen.get(knob, boot.after[knob][0]) or 0) for knob in knobs)
            wins = "us" if source is not None and source.path == TMPFILES else "them"
            conflict = Conflict(line.owner, line.path, line.line, f"{object_} {setting}", line.value, wins)
            if conflict not in found:
                found.append(conflict)
            # A count on the command line is somebody's declaration; a policy there is only the kernel's first value.
            stays = line.later or (line.owner == COMMAND_LINE and pool is not None) or after != want.value
            if desired.permanent and line.value != str(wanted) and stays:
                where = line.path if line.line is None else f"{line.path}:{line.line}"
                raise OwnedByAnother(
                    f"set {setting}",
                    object=object_,
                    cause=f"{line.owner} sets it too, at {where}",
                    found=line.value,
                    wanted=wanted,
                    hint="remove it there, or declare the same value",
                )
    return tuple(found)
