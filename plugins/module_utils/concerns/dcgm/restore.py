# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""DCGM and its exporter as they were before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List

from ..._core.baseline import damaged
from ..._core.change import Unmanaged
from ..._kinds.units import RUNNING, SERVICE, START, STOPPED
from ..._linux.systemd import DISABLED, ENABLED, MASKED, NOT_FOUND, STATIC
from .observation import HEALTH
from .spec import NAME
from .state import HEALTH as WATCHES
from .state import DcgmDesired, DcgmState, Service, flags_of

if TYPE_CHECKING:
    from ..._core.baseline import Baseline

GONE = "the unit is no longer installed"
KNOWN = (ENABLED, DISABLED, STATIC, MASKED, NOT_FOUND)


def restore(baseline: Baseline, state: DcgmState) -> DcgmDesired:
    """Without files of ours; units start at boot and run as they did where that was changed here."""
    starts: Dict[str, str] = {}
    services: Dict[str, str] = {}
    unmanaged: List[Unmanaged] = []
    exporter = state.exporter
    there = [state.engine, exporter.service, *([state.twin] if state.twin else [])]
    by_name = {service.name: service for service in there}
    for (name, setting), value in baseline.values.items():
        if setting == START and str(value.boot) not in KNOWN:
            raise damaged(NAME, f"{value.boot!r} is not what a boot makes of a unit")
        if setting == SERVICE and value.effective not in (RUNNING, STOPPED):
            raise damaged(NAME, f"{value.effective!r} is not the state of a unit")
        if setting not in (START, SERVICE) or name == HEALTH:
            continue
        service = by_name.get(name)
        if name == exporter.service.name and not exporter.shipped and exporter.unit.text is None:
            # Our unit, which has gone.
            continue
        if service is None or not service.there:
            unmanaged.append(Unmanaged(name, setting, GONE))
        elif setting == START:
            starts[name] = _start(service, str(value.boot))
        elif service.active is not None:
            services[name] = str(value.effective)
    if not exporter.shipped and exporter.unit.text is not None:
        starts[exporter.service.name] = DISABLED
        services[exporter.service.name] = STOPPED
    if state.health.text is not None:
        starts[HEALTH] = DISABLED
    watches, flags = None, ""
    known = baseline.values.get((state.engine.name, WATCHES))
    if known is not None and known.effective is not None:
        try:
            flags = flags_of(str(known.effective))
        except KeyError as error:
            raise damaged(NAME, f"{known.effective!r} are no health watches") from error
        if state.engine.active and services.get(state.engine.name) != STOPPED:
            watches = str(known.effective)
    gone = tuple(one for number, one in enumerate(unmanaged) if one not in unmanaged[:number])
    return DcgmDesired(starts=starts, services=services, watches=watches, flags=flags, unmanaged=gone)


def _start(service: Service, before: str) -> str:
    """Its status from before; whether it can be enabled at all is a matter of its package today."""
    return service.off if before in (DISABLED, STATIC, NOT_FOUND) else before
