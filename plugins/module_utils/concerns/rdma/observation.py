# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Look at the RDMA devices and firewalls that are declared, or for ``state: absent`` at those that were changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Sequence

from ..._core import match
from ..._linux import boot_service
from ..._linux.boot_service import BootCarrier
from . import devices, firewalls, foreign, gpu_memory, later
from .devices import Device, Port
from .lossless import LLDPAD
from .spec import IGNORE, IN_CONFIGFS, RdmaDeclaration
from .state import RdmaState

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from ..._core.protocols import Host


def observe(host: Host, declaration: RdmaDeclaration, scope: Scope) -> RdmaState:
    files = host.files
    there = tuple(devices.read(files, name) for name in devices.names(files))
    ports = _restored(host, declaration, there) if scope.restoring else _declared(host, declaration, there)
    about_gpus = declaration.unload or declaration.gpudirect != IGNORE
    in_configfs = any(setting in port.values for port in ports for setting in IN_CONFIGFS)
    known = {port.identity for port in ports}
    return RdmaState(
        declaration=declaration,
        devices=there,
        ports=tuple(ports),
        loads_rdma_cm=in_configfs and not devices.is_loaded(files),
        gpu_memory=gpu_memory.read(files, there) if about_gpus else None,
        missing=tuple(sorted(identity for identity in declaration.before if identity not in known)),
        has_lldpad=files.exists(LLDPAD),
        carrier=boot_service.carrier(files, scope) if scope.permanent else BootCarrier(),
        later=later.observe(host) if scope.permanent else None,
        firewalls=firewalls.observe(host, declaration, scope),
        foreign=() if scope.restoring or not ports else foreign.read(files, ports, scope),
    )


def _declared(host: Host, declaration: RdmaDeclaration, there: Sequence[Device]) -> List[Port]:
    if not declaration.entries:
        return []
    entries = declaration.entries
    winners = match.select([entry.entry for entry in entries], [devices.candidate(device) for device in there])
    found = []
    for device, winner in zip(there, winners):
        if winner is not None:
            entry, shown = entries[winner], devices.with_ordering(host.files, device)
            found += [
                devices.read_port(host, shown, number, entry.settings, ready=entry.ready) for number in device.ports
            ]
    return found


def _restored(host: Host, declaration: RdmaDeclaration, there: Sequence[Device]) -> List[Port]:
    return [
        devices.read_port(host, device, number, declaration.before[f"{device.identity}:{number}"])
        for device in there
        for number in device.ports
        if f"{device.identity}:{number}" in declaration.before
    ]
