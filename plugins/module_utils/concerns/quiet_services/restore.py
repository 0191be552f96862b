# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Units as they were before they were made quiet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Optional

from ..._core.baseline import damaged
from ..._core.change import Unmanaged
from ..._kinds.units import RUNNING, SERVICE, START, STOPPED
from ..._linux.systemd import DISABLED, ENABLED, MASKED, NOT_FOUND, STATIC
from .spec import NAME
from .state import QuietServicesDesired, QuietServicesState, Unit, Want

if TYPE_CHECKING:
    from ..._core.baseline import Baseline

IDLE = (DISABLED, STATIC)
GONE = "the unit is no longer installed"


def restore(baseline: Baseline, state: QuietServicesState) -> QuietServicesDesired:
    """Both what a boot makes of a unit and whether it runs, where they were changed here."""
    wants: Dict[str, Want] = {}
    unmanaged: List[Unmanaged] = []
    for name, unit in state.units.items():
        start = baseline.values.get((name, START))
        service = baseline.values.get((name, SERVICE))
        for value, known in (
            (start and start.boot, (ENABLED, *IDLE, MASKED)),
            (service and service.effective, (RUNNING, STOPPED)),
        ):
            if value is not None and value not in known:
                raise damaged(NAME, f"{value!r} is not the state of a unit")
        if unit.beneath == NOT_FOUND:
            unmanaged.append(Unmanaged(name, START, GONE))
            wants[name] = Want(NOT_FOUND if start and start.boot != MASKED else None, None)
        else:
            was = None if service is None else str(service.effective)
            wants[name] = Want(_start(unit, None if start is None else str(start.boot)), was)
    return QuietServicesDesired(wants, unmanaged=tuple(unmanaged))


def _start(unit: Unit, before: Optional[str]) -> Optional[str]:
    """Its status from before; whether it can be enabled at all is a matter of its package today."""
    if before not in IDLE:
        return before
    return DISABLED if unit.installable else STATIC
