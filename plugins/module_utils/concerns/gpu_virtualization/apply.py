# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Giving a function another driver, once nobody uses it."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, List, Sequence, Tuple

from ..._core import steps
from ..._core.change import RunCommand, Step, WriteAttribute
from ..._core.errors import GpuFleetError, InUse, Refused
from ..._core.value import replace
from ..._kinds import steps as kinds
from ..._nvidia.gpus import PCI
from . import vgpus
from .files import CLOSED, DRIVERS, PROBE
from .observation import TOOL, holders_of, is_closed_first, read_function, with_users
from .plan import Bind, EnableFunctions, MakeVgpus, Open, in_use, vgpus_in_use
from .spec import NVIDIA

if TYPE_CHECKING:
    from ..._core.protocols import Host
    from .state import Function

AGAIN = "run again once nobody uses it"
# The files of virtual functions appear seconds after the driver was loaded.
APPEAR_SECONDS, POLL_SECONDS = 20.0, 0.5


def perform(step: Step, host: Host) -> None:
    action = step.action
    try:
        if isinstance(action, Bind):
            bind(action, step, host)
        elif isinstance(action, EnableFunctions):
            enable_functions(action, host)
        elif isinstance(action, MakeVgpus):
            make_vgpus(action, step, host)
        elif isinstance(action, Open):
            _open([read_function(host.files, address) for address in action.addresses], host)
        else:
            kinds.perform(step, host)
    except InUse as error:
        error.late = True
        raise


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
            others = [
                other
                for address, driver in action.spared
                for other in [read_function(host.files, address)]
                # One that changed already may be in use again: to leave the rest would leave it half done for good.
                if address != action.address and other.driver != driver
            ]
            error = in_use({**holders_of(host, others), **holders_of(host, [function], with_persistenced=True)}, AGAIN)
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


def enable_functions(action: EnableFunctions, host: Host) -> None:
    """NVIDIA's program binds the GPU anew for that, and fails where a process has it open.

    Raises ``InUse`` where somebody came between the plan and this, and ``Refused`` with what it said.
    """
    host.nvml.close()
    gpu = read_function(host.files, action.address)
    query = (TOOL, "-i", gpu.address, "--query-gpu=persistence_mode", "--format=csv,noheader")
    persistent = steps.run(RunCommand(query, f"query persistence mode of {gpu.address}"), host).strip() == "Enabled"
    _set_persistence(gpu, "0", host)
    try:
        _refuse_users(host, gpu)
        verb, word = ("-e", "enable") if action.enable else ("-d", "disable")
        command = RunCommand((vgpus.TOOL, verb, gpu.address), f"{word} virtual functions of {gpu.address}")
        try:
            steps.run(command, host)
        except Refused:
            # Persistence mode is off, so that whoever has it open now came after the look.
            _refuse_users(host, gpu)
            raise
    finally:
        if persistent:
            _set_persistence(gpu, "1", host)
    until = time.monotonic() + APPEAR_SECONDS
    while action.enable and not _is_ready(host, gpu.address) and time.monotonic() < until:
        time.sleep(POLL_SECONDS)


def make_vgpus(action: MakeVgpus, step: Step, host: Host) -> None:
    """Raises ``InUse`` where somebody came between the plan and this, and ``Refused`` for what the driver refuses."""
    names = {number: name for number, name, _count in action.types}
    found = replace(vgpus.read(host.files, action.address), names=names)
    found = with_users(host, read_function(host.files, action.address), found)
    goes, comes = vgpus.moves(found, {name: count for _number, name, count in action.types})
    users = [name for part in goes for name in part.holders]
    if users:
        raise vgpus_in_use(action.address, users, AGAIN)
    for part in goes:
        try:
            _write(f"{PCI}/{part.address}/{vgpus.CURRENT}", "0", step, host)
        except Refused:
            users = _users(host, read_function(host.files, action.address), part.address)
            if users:
                raise vgpus_in_use(action.address, users, AGAIN) from None
            raise
    for name in comes:
        number = found.number(name)
        # What a function takes depends on the vGPUs of all others.
        free = [part for part in vgpus.read(host.files, action.address).functions if part.current == 0]
        place = next((part.address for part in free if number in part.creatable), None)
        if place is None:
            cause = f"the driver makes no more of the type {name} on this GPU"
            raise Refused("make a vGPU on {}", object=action.address, cause=cause, hint="declare fewer, or of one type")
        _write(f"{PCI}/{place}/{vgpus.CURRENT}", str(number), step, host)


def _refuse_users(host: Host, gpu: Function) -> None:
    """Raise ``InUse`` where a process has the GPU or one of its virtual functions open."""
    users = _users(host, gpu)
    if users:
        raise vgpus_in_use(gpu.address, users, AGAIN)


def _users(host: Host, gpu: Function, part: str = "") -> List[str]:
    """The users that have the GPU and its virtual functions open, or one ``part`` of these."""
    found = with_users(host, gpu, vgpus.read(host.files, gpu.address), with_persistenced=True)
    of_functions = [name for one in found.functions if part in ("", one.address) for name in one.holders]
    return of_functions if part else [*found.users, *of_functions]


def _is_ready(host: Host, address: str) -> bool:
    """The driver shows the types some time after the functions are there."""
    functions = vgpus.read(host.files, address).functions
    return bool(functions) and all(part.current is not None for part in functions)


def _set_persistence(gpu: Function, value: str, host: Host) -> None:
    goal = f"{'enable' if value == '1' else 'disable'} persistence mode of {gpu.address}"
    steps.run(RunCommand((TOOL, "-i", gpu.address, "-pm", value), goal), host)


def _close(gpu: Function, host: Host) -> None:
    """Let the driver take no new client of a GPU, which persistence mode, a client itself, must not have open."""
    _set_persistence(gpu, "0", host)
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
