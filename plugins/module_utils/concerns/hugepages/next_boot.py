# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the next boot brings of huge pages: as it is, and as the plan leaves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core.setting import Scalar
from ..._core.value import frozen
from ..._kinds.boot_arguments import BootArguments
from ..._kinds.tunables import BootAssignment, of_tmpfiles, tmpfiles_line
from ..._linux.tmpfiles_d import TmpfilesLine, in_effect
from . import spec
from .command_line import parse_assignments, wanted_arguments
from .observation import HUGEPAGE
from .patterns import assign_all
from .spec import HugepagesDesired
from .state import TMPFILES, HugepagesState, Pool, Values, assign

if TYPE_CHECKING:
    from ..._core.contract import Scope


def boot_values(state: HugepagesState, *, ours: Sequence[TmpfilesLine], command_line: str) -> Values:
    """What each tunable is after the next boot, and who says so; None where nobody does and the kernel's default stays.

    The command line comes first, tuned, services and scripts last; systemd-sysctl and systemd-tmpfiles between do not
    wait for each other.
    """
    values: Values = {}
    values.update((path, (0, None)) for path in state.pools)
    values.update((path, (None, None)) for path in state.tunables)
    at_boot = [line for line in state.others if line.at_boot and not line.in_doubt]
    # Sorted by file name as read: all names that sort before ours stay before it.
    earlier = [line for line in state.foreign if line.path.rpartition("/")[2] < TMPFILES.rpartition("/")[2]]
    later = [line for line in state.foreign if line not in earlier]
    for line in [
        *command_line_assignments(state, command_line),
        *(line for line in at_boot if line.is_early),
        *map(of_tmpfiles, in_effect([*earlier, *ours, *later])),
        *(line for line in at_boot if not line.is_early),
    ]:
        if line.tunable in values:
            assign(values, line.tunable, line, state)
        else:
            assign_all(values, line, state)
    return values


def command_line_assignments(state: HugepagesState, command_line: str) -> List[BootAssignment]:
    """What a command line says, as assignments."""
    if HUGEPAGE not in command_line:
        return []
    return parse_assignments(state, command_line)


@frozen
class NextBoot:
    """The next boot as it is and as the plan leaves it: our lines, our arguments, and each tunable's value."""

    lines: Tuple[TmpfilesLine, ...]
    arguments: BootArguments
    now: Mapping[str, Tuple[Scalar, Optional[BootAssignment]]]
    after: Mapping[str, Tuple[Scalar, Optional[BootAssignment]]]

    def changes(self, state: HugepagesState) -> bool:
        """Whether anything of it is still to be done."""
        file = bool(self.lines) != (state.file.text is not None)
        return (
            file or self.arguments.differs or any(value[0] != self.after[path][0] for path, value in self.now.items())
        )


def plan_next_boot(state: HugepagesState, desired: HugepagesDesired, scope: Scope) -> NextBoot:
    """Our lines and arguments for the next boot: for each tunable that would not come right, or that we carry
    already.
    """
    arguments = BootArguments(state.loader, state.loader.ours)
    now = boot_values(state, ours=state.ours, command_line=state.loader.command_line)
    if not scope.permanent:
        return NextBoot(state.ours, arguments, now, now)
    lines: List[TmpfilesLine] = []
    wanted: Tuple[str, ...] = ()
    if not scope.restoring:
        without = boot_values(state, ours=(), command_line=arguments.others)
        carried = {line.target for line in in_effect(state.ours)}
        gigantic: Dict[int, Dict[Pool, int]] = {}
        for want in desired.wants:
            pool = state.pools.get(want.tunable)
            if pool is not None and spec.is_gigantic(pool):
                gigantic.setdefault(pool.size_kb, {})[pool] = int(want.value or 0)
            elif without[want.tunable][0] != want.value or want.tunable in carried:
                lines.append(tmpfiles_line(TMPFILES, want.tunable, want.value))
        if gigantic:
            wanted = wanted_arguments(gigantic, without, arguments.others, state)
    arguments = BootArguments(state.loader, wanted)
    after = boot_values(state, ours=lines, command_line=arguments.command_line)
    return NextBoot(tuple(lines), arguments, now, after)
