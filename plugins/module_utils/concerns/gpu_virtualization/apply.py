# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Giving a function another driver, once nobody uses it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Sequence, Tuple

from ..._core import steps
from ..._core.change import RunCommand, Step, WriteAttribute
from ..._core.errors import GpuFleetError
from ..._kinds import steps as kinds
from .files import CLOSED, DRIVERS, PROBE
from .observation import TOOL, holders_of, is_closed_first, read_function
from .plan import Bind, Open, in_use
from .spec import NVIDIA

if TYPE_CHECKING:
    from ..._core.protocols import Host
    from .state import Function


def perform(step: Step, host: Host) -> None:
    if isinstance(step.action, Bind):
        bind(step.action, step, host)
    elif isinstance(step.action, Open):
        _open([read_function(host.files, address) for address in step.action.addresses], host)
    else:
        kinds.perform(step, host)


def bind(action: Bind, step: Step, host: Host) -> None:
    """Raises ``InUse`` where somebody came between the plan and this, and ``Refused`` with what the system said.

    The driver of NVIDIA does not refuse to be unbound from a GPU that is in use: the write waits in the kernel until
    the last user ends, and nobody can kill the process that waits (nv_pci_remove of the kernel modules). So a GPU first
    takes no new client, and then it is looked at once more.
    """
    # What asks the driver for other concerns has all GPUs open.
    host.nvml.close()
    function = read_function(host.files, action.address)
    if function.driver == action.driver:
        return
    if action.driver is not None and not host.files.exists(f"{DRIVERS}/{action.driver}"):
        steps.run(RunCommand(("modprobe", action.driver), f"load the module {action.driver}"), host)
    if function.driver is not None:
        closed = is_closed_first(function)
        try:
            if closed:
                _close(function, host)
            error = in_use(
                holders_of(host, [function], harmless=()), "it was not unbound; run again once nobody uses it"
            )
            if error is not None:
                raise error
            _write(f"{DRIVERS}/{function.driver}/unbind", action.address, step, host)
        except Exception:
            if closed and host.files.exists(CLOSED):
                # What went wrong first is told. Where this fails as well, the note stays, and the next look finds it.
                with contextlib.suppress(GpuFleetError):
                    _open([function], host)
            raise
    # Also one that an earlier run closed, and unbound before it was killed.
    if host.files.exists(CLOSED):
        host.files.remove(CLOSED)
    if action.driver is not None:
        _write(PROBE, action.address, step, host)


def _close(gpu: Function, host: Host) -> None:
    """Let the driver take no new client of a GPU, which persistence mode, a client itself, must not have open."""
    off = (TOOL, "-i", gpu.address, "-pm", "0")
    steps.run(RunCommand(off, f"disable persistence mode of {gpu.address}"), host)
    host.files.replace(CLOSED, f"{gpu.address}\n")
    steps.run(RunCommand(_drain(gpu, "1"), f"keep new clients away from {gpu.address}"), host)


def _open(gpus: Sequence[Function], host: Host) -> None:
    for gpu in gpus:
        if gpu.driver == NVIDIA:
            steps.run(RunCommand(_drain(gpu, "0"), f"let new clients use {gpu.address}"), host)
    host.files.remove(CLOSED)


def _drain(gpu: Function, value: str) -> Tuple[str, ...]:
    return (TOOL, "drain", "-p", gpu.address, "-m", value)


def _write(path: str, value: str, step: Step, host: Host) -> None:
    steps.perform(Step(WriteAttribute(path, value), step.changes), host)
