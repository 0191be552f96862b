# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What it takes beside the placing itself: irqbalance must leave our devices alone, and devices that come later must be
placed too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional, Sequence, Tuple

from .._core.change import Conflict, Setting, Step
from .._host.systemd import ENABLED
from . import hotplug, irqbalance
from .spec import COOPERATE, IGNORE, NAME

if TYPE_CHECKING:
    from .._core.before import Before
    from .._host.protocols import Host


@dataclass(frozen=True)
class Around:
    """irqbalance, and the files for devices that come later, None where this run is not about them.

    ``found`` are the values from before the first change, None unless irqbalance may be off because of us.
    """

    daemon: irqbalance.Daemon
    later: Optional[hotplug.Hotplug]
    found: Optional[Before]


@dataclass(frozen=True)
class Goal:
    """What irqbalance shall be, and the text of the unit for devices that come later, None for no file of ours.

    ``mode`` is None where irqbalance is not at odds with us, as nothing is placed.
    """

    balancing: irqbalance.Wanted
    unit: Optional[str] = None
    mode: Optional[str] = None


def observe(host: Host, *, permanent: bool) -> Around:
    daemon = irqbalance.observe(host)
    is_off = daemon.startable and (daemon.status != ENABLED or daemon.process is None)
    return Around(
        daemon=daemon,
        later=hotplug.observe(host) if permanent else None,
        found=_found(host) if is_off else None,
    )


def _found(host: Host) -> Before:
    from .._core import before

    return before.load(host.files, NAME)


def wanted(around: Around, mode: str, addresses: Sequence[str], *, entries: bool) -> Goal:
    """``addresses`` are those of the devices whose interrupts we place; without ``entries`` we never place any.

    Raises ``OwnedByAnother`` where irqbalance cannot be told to leave them alone.
    """
    if not entries and mode == COOPERATE:
        return restore(around, around.found)
    irqbalance.refuse_impossible(around.daemon, mode)
    told = mode == COOPERATE and around.daemon.startable
    return Goal(
        balancing=irqbalance.wanted(around.daemon, mode, addresses, around.found),
        unit=hotplug.unit_text(irqbalance=told) if entries else None,
        mode=None if mode == IGNORE and not entries else mode,
    )


def restore(around: Around, found: Optional[Before]) -> Goal:
    """Neither a file of ours nor a word of ours to irqbalance."""
    return Goal(irqbalance.restore(around.daemon, found))


def settings(around: Around, goal: Goal, *, immediate: bool, permanent: bool) -> Tuple[Setting, ...]:
    """Those of irqbalance, then those of the files for later."""
    made = irqbalance.settings(around.daemon, goal.balancing, immediate=immediate, permanent=permanent)
    if around.later is None:
        return made
    return (*made, *hotplug.settings(around.later, unit=goal.unit, immediate=immediate))


def conflicts(around: Around, goal: Goal, made: Sequence[Setting]) -> Tuple[Conflict, ...]:
    return () if goal.mode is None else irqbalance.conflicts(around.daemon, goal.mode, made)


def steps_of(around: Around, goal: Goal, made: Tuple[Setting, ...]) -> Tuple[Tuple[Step, ...], Tuple[Step, ...]]:
    """The steps that come before the placing, which irqbalance would undo, and those after it."""
    from . import hotplug_plan, irqbalance_apply

    boot, running = irqbalance_apply.steps_of(around.daemon, goal.balancing, made)
    return (*boot, *running), () if around.later is None else hotplug_plan.steps_of(around.later, made, unit=goal.unit)
