# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Huge pages: the steps to what is declared."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, List, Optional, Tuple

from ..._core.change import Change, RoomAction, Step
from ..._core.errors import InUse
from ..._core.planning import effective_change
from ..._core.setting import BOOT, NOW, REBOOT, Setting
from ..._core.value import frozen
from ..._kinds.own_files import header_of
from ..._kinds.tunables import tmpfiles_text, write_step
from ..._linux.numa import parse_meminfo
from ..._machine import processes
from . import spec
from .command_line import parse_pages
from .next_boot import NextBoot
from .patterns import spread_total
from .spec import HugepagesDesired
from .state import NAME, SHORT, TMPFILES, HugepagesState, Pool, names_of

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from ..._core.protocols import Files

AT_BOOT = "the kernel reserves pages of this size at boot"


@frozen
class Grow(RoomAction):
    """More pages in these pools: (pool, wanted). What to do when the kernel has fewer is in the other fields."""

    targets: Tuple[Tuple[Pool, int], ...]
    drop_caches: bool
    on_shortage: str
    permanent: bool


def plan_steps(
    state: HugepagesState, desired: HugepagesDesired, boot: NextBoot, settings: List[Setting], scope: Scope
) -> Tuple[Step, ...]:
    """The next boot first, then the running system. Raises ``InUse`` or ``DeclarationError``."""
    shrink, tunables, grow = _effective(settings, state, desired, scope)
    return (*_boot_steps(state, boot, settings, scope), *shrink, *tunables, *grow)


def below_use(state: HugepagesState, desired: HugepagesDesired, scope: Scope) -> Optional[InUse]:
    """The error when the declaration takes pages away that somebody uses, or that are promised to somebody."""
    if not scope.immediate:
        return None
    wanted = {want.tunable: int(want.value or 0) for want in desired.wants if state.pools.get(want.tunable) is not None}
    hint = "stop what uses them, or declare at least {} pages there"
    for size_kb in state.sizes:
        pools = state.of_size(size_kb)
        shrinking = [pool for pool in pools if wanted.get(pool.tunable, pool.lasting) < pool.lasting]
        by = f", by {', '.join(state.holders[:5])}" if state.holders else ""
        for pool in shrinking:
            if wanted[pool.tunable] < pool.in_use:
                return InUse(
                    f"shrink {pool.setting}",
                    object=pool.node.name,
                    cause=f"{pool.in_use} of {pool.pages} pages are in use{by}",
                    found=pool.lasting,
                    wanted=wanted[pool.tunable],
                    hint=hint.format(pool.in_use),
                )
        promised = sum(pool.in_use for pool in pools) + state.reserved[size_kb]
        left = sum(wanted.get(pool.tunable, pool.lasting) + pool.surplus for pool in pools)
        if shrinking and left < promised:
            return InUse(
                f"shrink {pools[0].setting}",
                cause=f"{promised} pages on all nodes are in use or reserved{by}",
                found=sum(pool.lasting for pool in pools),
                wanted=left,
                hint=hint.format(promised).replace(" there", " in all"),
            )
    return None


def read_holders(files: Files) -> Tuple[str, ...]:
    """The processes that hold huge pages, most first: ``HugetlbPages`` in proc_pid_status(5)."""
    found: List[Tuple[int, str]] = []
    for pid in processes.ids(files):
        text = processes.text_of(files, pid, "status")
        held = parse_meminfo(text).get("HugetlbPages", 0)
        if held:
            name = re.search(r"^Name:\s*(.+)$", text, re.MULTILINE)
            found.append((held, f"{name[1] if name else '?'} (pid {pid}, {held // 1024} MiB)"))
    return tuple(text for _held, text in sorted(found, reverse=True))


def why_pending(pool: Pool, wanted: int, state: HugepagesState, desired: HugepagesDesired) -> str:
    """Why growth that the next boot brings has to wait for it; empty when it has not to."""
    if spec.is_gigantic(pool):
        asked = parse_pages(state.running, state.default_kb).get(pool.size_kb, {})
        here = spread_total(asked[None], state.nodes) if None in asked else asked
        if here.get(pool.node.number, 0) < wanted:
            return AT_BOOT
    known = f"{pool.node.name} {pool.setting} {wanted}" in _reasons(state.awaited)
    return SHORT if known and desired.on_shortage == spec.REBOOT else ""


def _reasons(text: str) -> List[str]:
    """What each reason for a reboot is about, without the value that was found then."""
    found = []
    for line in text.splitlines():
        match = re.match(r"(\S+ \S+) is \S+, wanted (\S+): ", line)
        if match:
            found.append(f"{match[1]} {match[2]}")
    return found


def _boot_steps(state: HugepagesState, boot: NextBoot, settings: List[Setting], scope: Scope) -> List[Step]:
    if not scope.permanent:
        return []
    pending = {setting.identity for setting in settings if setting.pending}
    lines: List[Change] = []
    arguments: List[Change] = []
    for tunable, (value, _line) in boot.after.items():
        object_, setting = names_of(tunable, state)
        pool = state.pools.get(tunable)
        if boot.now[tunable][0] != value:
            effect = REBOOT if tunable in pending else NOW
            change = Change(object_, setting, boot.now[tunable][0], value, BOOT, effect)
            (arguments if pool is not None and spec.is_gigantic(pool) else lines).append(change)
    text = tmpfiles_text(header_of(NAME), boot.lines)
    steps: List[Step] = []
    if text != state.file.text and (lines or text is None):
        steps.append(state.file.step(text, lines or [Change(TMPFILES, state.file.setting, "present", None, BOOT)]))
    if arguments or boot.arguments.differs:
        steps += boot.arguments.steps(arguments, probe=TMPFILES)
    return steps


def _effective(
    settings: List[Setting], state: HugepagesState, desired: HugepagesDesired, scope: Scope
) -> Tuple[List[Step], List[Step], List[Step]]:
    """The steps on the running system: fewer pages, then transparent huge pages, then more pages.

    Growth is last because it is what can fall short, which then leaves nothing else undone.
    """
    shrink: List[Step] = []
    tunables: List[Step] = []
    growing: List[Tuple[Pool, int, Change]] = []
    for row in settings:
        if not row.effective_matters or row.effective == row.wanted or row.pending:
            continue
        change = effective_change(row)
        pool = state.pools.get(row.identity)
        if pool is None:
            tunables.append(write_step(row.identity, change))
        elif int(row.wanted or 0) < pool.lasting:
            shrink.append(write_step(pool.tunable, change))
        else:
            growing.append((pool, int(row.wanted or 0), change))
    below = below_use(state, desired, scope)
    if below:
        raise below
    if not growing:
        return shrink, tunables, []
    # The largest pages first: they need the longest pieces of memory.
    growing.sort(key=lambda row: -row[0].size_kb)
    targets = tuple((pool, wanted) for pool, wanted, _change in growing)
    action = Grow(targets, desired.drop_caches, desired.on_shortage, scope.permanent)
    return (
        shrink,
        tunables,
        [Step(action, tuple(change for _pool, _wanted, change in growing), probes=(targets[0][0].tunable,))],
    )
