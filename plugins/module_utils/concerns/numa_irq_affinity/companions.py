# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What it takes beside the placing itself: irqbalance must leave our devices alone, and devices that come later must be
placed too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Sequence, Tuple

from ..._core.baseline import load as load_baseline
from ..._core.change import Conflict
from ..._core.setting import Setting
from ..._core.value import frozen
from ..._linux.systemd import ENABLED
from . import hotplug, irqbalance
from .spec import COOPERATE, IGNORE, NAME

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Host


@frozen
class Companions:
    """irqbalance, and the files for devices that come later, None where this run is not about them.

    ``baseline`` are the values from before the first change, None unless irqbalance may be off because of us.
    """

    daemon: irqbalance.IrqbalanceDaemon
    later: Optional[hotplug.Hotplug]
    baseline: Optional[Baseline]


@frozen
class WantedCompanions:
    """What irqbalance shall be, and the text of the unit for devices that come later, None for no file of ours.

    ``mode`` is None where irqbalance is not at odds with us, as nothing is placed.
    """

    balancing: irqbalance.WantedIrqbalance
    unit: Optional[str] = None
    mode: Optional[str] = None


def observe(host: Host, scope: Scope) -> Companions:
    daemon = irqbalance.observe(host)
    is_off = daemon.startable and (daemon.status != ENABLED or daemon.process is None)
    return Companions(
        daemon=daemon,
        later=hotplug.observe(host) if scope.permanent else None,
        baseline=load_baseline(host.files, NAME) if is_off else None,
    )


def wanted(companions: Companions, mode: str, addresses: Sequence[str], *, entries: bool) -> WantedCompanions:
    """``addresses`` are those of the devices whose interrupts we place; without ``entries`` we never place any.

    Raises ``OwnedByAnother`` where irqbalance cannot be told to leave them alone.
    """
    if not entries and mode == COOPERATE:
        return restore(companions, companions.baseline)
    irqbalance.refuse_impossible(companions.daemon, mode)
    cooperates = mode == COOPERATE and companions.daemon.startable
    return WantedCompanions(
        balancing=irqbalance.wanted(companions.daemon, mode, addresses, companions.baseline),
        unit=hotplug.unit_text(irqbalance=cooperates) if entries else None,
        mode=None if mode == IGNORE and not entries else mode,
    )


def restore(companions: Companions, baseline: Optional[Baseline]) -> WantedCompanions:
    """Neither a file of ours nor a word of ours to irqbalance."""
    return WantedCompanions(irqbalance.restore(companions.daemon, baseline))


def settings(companions: Companions, goal: WantedCompanions, scope: Scope) -> Tuple[Setting, ...]:
    """Those of irqbalance, then those of the files for later."""
    made = irqbalance.settings(companions.daemon, goal.balancing, immediate=scope.immediate, permanent=scope.permanent)
    if companions.later is None:
        return made
    return (*made, *hotplug.settings(companions.later, unit=goal.unit, immediate=scope.immediate))


def conflicts(companions: Companions, goal: WantedCompanions, made: Sequence[Setting]) -> Tuple[Conflict, ...]:
    return () if goal.mode is None else irqbalance.conflicts(companions.daemon, goal.mode, made)
