# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Services that stand still while GPUs are reset. Where systemd does not run there are none."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Sequence, Tuple

from ..._core.errors import GpuFleetError, Refused
from ..._linux import systemd
from .journal import journal

if TYPE_CHECKING:
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
        try:
            _systemctl(host, "stop", unit)
            journal(host, f"{unit} was stopped", object=unit, setting=SERVICE, before="running", after="stopped")
        except GpuFleetError as error:
            try:
                # That one, too: it may be on its way down.
                start(host, to_stop[:count])
            except GpuFleetError as other:
                error.args = (f"{error} {other}",)
            raise


def start(host: Host, units: Sequence[str]) -> None:
    """Start all of them. One that does not start keeps none of the others; the error names all such."""
    if not systemd.running(host.files):
        return
    errors: List[GpuFleetError] = []
    for unit in units:
        try:
            _systemctl(host, "start", unit)
            journal(host, f"{unit} was started", object=unit, setting=SERVICE, before="stopped", after="running")
        except GpuFleetError as error:
            errors.append(error)
    if errors:
        errors[0].args = (" ".join(str(error) for error in errors),)
        raise errors[0]


def _systemctl(host: Host, verb: str, unit: str) -> None:
    try:
        completed = host.commands.run(["systemctl", verb, unit], timeout=SECONDS)
        # The first line is what happened, the others say where to read more.
        said = (completed.errors or completed.output).strip().partition("\n")[0].rstrip(".")
        cause = f"it took longer than {SECONDS:g} s" if completed.timed_out else said or "systemd does not say why"
        if completed.status == 0:
            return
    except OSError as error:
        cause = f"systemctl: {error.strerror or error}"
    raise Refused(f"{verb} {unit}", cause=cause, hint=f"check journalctl -u {unit}")
