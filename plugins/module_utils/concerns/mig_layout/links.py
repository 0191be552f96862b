# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which GPUs have to be reset together.

GPUs that NVLink connects directly go together. Those at an NVSwitch are reset one by one while a fabric manager runs
(manual of nvidia-smi, ``--gpu-reset``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Collection, Dict, FrozenSet, List, Mapping, NamedTuple, Set, Tuple

from ..._machine import processes
from ..._nvidia.driver import pci_address

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host
    from ..._nvidia.driver import Driver, Gpu

# NVML_NVLINK_MAX_LINKS, and nvmlIntNvLinkDeviceType_t.
LINKS = 36
TO_GPU, TO_SWITCH = 0, 2
SWITCH = "an NVSwitch"
FABRIC_MANAGER, FABRIC_MANAGER_UNIT = processes.comm("nv-fabricmanager"), "nvidia-fabricmanager.service"


class Links(NamedTuple):
    """``together``: by PCI address all GPUs that are reset with it, itself among them, sorted.

    ``unmanaged``: those that are reset with others only because no fabric manager runs.
    """

    together: Mapping[str, Tuple[str, ...]]
    unmanaged: FrozenSet[str]


def read_links(host: Host) -> Links:
    """How the GPUs hang together now."""
    ends = {address: set(there) for address, there in host.nvml.ask(neighbours).items()}
    switched = frozenset(address for address, there in ends.items() if SWITCH in there)
    if switched and fabric_manager_runs(host.files):
        ends = {address: there - {SWITCH} for address, there in ends.items()}
        switched = frozenset()
    return Links({address: _connected(address, ends) for address in ends}, switched)


def fabric_manager_runs(files: Files) -> bool:
    return any(processes.daemons(files, (FABRIC_MANAGER,), (FABRIC_MANAGER_UNIT,)))


def _connected(address: str, ends: Mapping[str, Set[str]]) -> Tuple[str, ...]:
    found: Set[str] = set()
    waiting = [address]
    while waiting:
        here = waiting.pop()
        if here not in found:
            found.add(here)
            waiting.extend(ends.get(here, ()))
            waiting.extend(other for other, there in ends.items() if here in there)
    return tuple(sorted(found.intersection(ends)))


# --- in the process that asks the driver ------------------------------------------------------------------------------


def neighbours(driver: Driver) -> Dict[str, Tuple[str, ...]]:
    """A question: the other ends of the active NVLinks of every GPU, by PCI address."""
    gpus = {gpu.identity.pci_address: gpu for gpu in driver.gpus() if not gpu.identity.lost}
    return {address: tuple(sorted(set(_ends(gpu, gpus)))) for address, gpu in gpus.items()}


def _ends(gpu: Gpu, ours: Collection[str]) -> List[str]:
    found = []
    for link in range(LINKS):
        if not gpu.read("nvmlDeviceGetNvLinkState", link).value:
            continue
        kind = gpu.read("nvmlDeviceGetNvLinkRemoteDeviceType", link).value
        remote = gpu.read("nvmlDeviceGetNvLinkRemotePciInfo", link).value
        if kind == TO_SWITCH:
            found.append(SWITCH)
        elif remote is not None:
            address = pci_address(remote.busId)
            # Older drivers do not tell what it is, and some do not know.
            if kind == TO_GPU or address in ours:
                found.append(address)
    return found
