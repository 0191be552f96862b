# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether GPUs can be shared as it is declared, by what ``gpu_node_info`` says of them. Pure."""

from __future__ import annotations

from typing import Any, Iterator, Mapping, Sequence, Tuple

from .._core.regex import regex

TIME_SLICING = "time_slicing"
MPS = "mps"
# The first compute capability that can take a GPU away from a kernel that runs.
PASCAL = (6, 0)
NUMBER = regex(r"\d+")


def misfits(gpus: Sequence[Mapping[str, Any]], *, strategy: str, replicas: int, memory_mib: int) -> Iterator[str]:
    """Why GPUs cannot be shared by so many that need so much memory each; 0 is not checked.

    What the driver does not tell of a GPU is no reason.
    """
    for gpu in gpus:
        capability = gpu.get("cuda_capability")
        if strategy == TIME_SLICING and capability and capability_of(capability) < PASCAL:
            cause = f"time slicing needs Pascal or newer, but its compute capability is {capability}"
            yield f"GPU {gpu['pci_address']}: {cause}"
        instances = [one.get("memory_mib") for one in (gpu.get("mig") or {}).get("instances") or ()]
        sizes = instances or [(gpu.get("memory") or {}).get("total_mib")]
        known = [size for size in sizes if size]
        if known and replicas * memory_mib > min(known):
            whose = "its smallest GPU instance" if instances else "it"
            need = f"{replicas} replicas with {memory_mib} MiB each need {replicas * memory_mib} MiB"
            yield f"GPU {gpu['pci_address']}: {need}, but {whose} has {min(known)}"


def capability_of(text: str) -> Tuple[int, ...]:
    return tuple(int(part) for part in NUMBER.findall(str(text)))
