# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Services that stand still while GPUs are reset. Where systemd does not run there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Sequence, Tuple

from ..._core.errors import GpuFleetError
from ..._linux import systemd, systemd_apply
from .journal import journal

if TYPE_CHECKING:
    from ..._core.errors import Refused
    from ..._core.protocols import Host

# systemd kills a service that does not stop after 90 s, unless its unit says otherwise.
SECONDS = 120.0
SERVICE = "service"
RUNNING = ("active", "activating", "reloading", "refreshing")


def running(host: Host, units: Sequence[str]) -> Tuple[str, ...]:
    """Those of the units that run, by the names that systemd has for them; it may know one by several.

    A unit that does not exist does not run. Raises ``CannotLook`` where systemd does not respond.
    """
    if not units or not systemd.running(host.files):
        return ()
    return tuple(name for name, state in systemd.states(host, units).items() if state.active in RUNNING)


def stop(host: Host, units: Sequence[str]) -> None:
    """Stop those that run. When one does not stop, those before it are started again.

    Raises ``Refused`` with what systemd said, and ``CannotLook``.
    """
    to_stop = running(host, units)
    for count, unit in enumerate(to_stop, start=1):
        error = _attempt_each(host, "stop", [unit])
        if error is not None:
            try:
                # That one, too: it may be on its way down.
                start(host, to_stop[:count])
            except GpuFleetError as other:
                error.args = (f"{error} {other}",)
            raise error


def start(host: Host, units: Sequence[str]) -> None:
    """Start all of them. One that does not start keeps none of the others; the error names all such."""
    if systemd.running(host.files):
        error = _attempt_each(host, "start", units)
        if error is not None:
            raise error


def _attempt_each(host: Host, verb: str, units: Sequence[str]) -> Optional[Refused]:
    def tell(unit: str, verb: str) -> None:
        before, after = ("running", "stopped") if verb == "stop" else ("stopped", "running")
        done = "stopped" if verb == "stop" else "started"
        journal(host, f"{unit} was {done}", object=unit, setting=SERVICE, before=before, after=after)

    return systemd_apply.attempt_each(host, verb, units, seconds=SECONDS, tell=tell)
