# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of GPUs for virtual machines, and what is wrong whatever the machine."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

from ..._core import match
from ..._core.errors import DeclarationError
from ..._core.value import field, frozen
from ..._nvidia import gpus
from ..._nvidia.gpus import VFIO
from . import vgpus
from .vgpus import Counts

NAME = "gpu_virtualization"
FAIL, WAIT, SKIP = "fail", "wait", "skip"
NVIDIA = "nvidia"
# What sysfs says of a GPU that no driver has: not its index, its UUID or its model.
MATCH_KEYS = ("pci_address", "pci_id")


@frozen
class GpuVirtualizationDeclaration:
    """What is declared. ``entries`` are those of ``gpus``, ``drivers`` what each wants its GPUs bound to, and
    ``counts`` which vGPUs it wants on each, None where it says nothing of them.

    For ``state: absent``, ``known`` are the drivers that functions had before we changed them, by PCI address, and
    ``touched`` are the addresses of all of which we changed something, ``shared`` those whose vGPUs we changed.
    """

    entries: Tuple[match.MatchEntry, ...] = ()
    drivers: Tuple[str, ...] = ()
    counts: Tuple[Optional[Counts], ...] = ()
    when_busy: str = FAIL
    busy_timeout: float = 0.0
    known: Mapping[str, Optional[str]] = field(default_factory=dict)
    touched: Tuple[str, ...] = ()
    shared: Tuple[str, ...] = ()


def parse(params: Mapping[str, Any]) -> GpuVirtualizationDeclaration:
    """Raises ``DeclarationError`` on what no machine could have."""
    if not params["gpus"]:
        raise DeclarationError(
            "read the declaration",
            cause="no GPU is declared",
            hint=f"set gpus: [{{driver: {VFIO}}}] for all GPUs, or state: absent",
        )
    entries = gpus.parse("gpus", params["gpus"], MATCH_KEYS)
    pairs = list(zip(entries, params["gpus"]))
    return GpuVirtualizationDeclaration(
        entries=entries,
        drivers=tuple(_driver(entry.where, item) for entry, item in pairs),
        counts=tuple(_counts(entry.where, item["vgpus"]) if item.get("vgpus") else None for entry, item in pairs),
        **patience(params),
    )


def patience(params: Mapping[str, Any]) -> Dict[str, Any]:
    """What happens to GPUs that are in use: the part that ``state: absent`` has too."""
    if params["busy_timeout"] < 0:
        raise DeclarationError(
            "set {}", object="busy_timeout", cause="it is below 0", wanted=params["busy_timeout"], hint="set seconds"
        )
    return {"when_busy": params["when_busy"], "busy_timeout": float(params["busy_timeout"])}


def _driver(where: str, item: Mapping[str, Any]) -> str:
    """A GPU with vGPUs stays with the driver of NVIDIA."""
    driver, shared = item.get("driver"), bool(item.get("vgpus"))
    if driver is None and not shared:
        hint = f"set driver: {VFIO}, driver: {NVIDIA}, or vgpus"
        raise DeclarationError("use {}", object=where, cause="it declares neither a driver nor vGPUs", hint=hint)
    if driver == VFIO and shared:
        cause = f"a GPU with vGPUs is bound to {NVIDIA}, and one that is bound to {VFIO} has none"
        raise DeclarationError("use {}", object=where, cause=cause, hint="leave out driver or vgpus")
    return driver or NVIDIA


def _counts(where: str, items: Sequence[Mapping[str, Any]]) -> Counts:
    found: Dict[str, int] = {}
    for item in items:
        name = vgpus.plain(item["type"].strip())
        if not vgpus.is_type(name):
            cause = "it is not the name of a vGPU type"
            hint = "write it as nvidia-smi vgpu -s does, such as NVIDIA H100-20C"
            raise DeclarationError("use {}", object=f"{where}.vgpus", cause=cause, found=item["type"], hint=hint)
        if vgpus.BACKED_BY_MIG.fullmatch(name):
            raise DeclarationError(
                "use {}",
                object=f"{where}.vgpus",
                cause=f"{name} is backed by MIG, and enabling virtual functions ends the GPU instances that it needs",
                hint="declare a time-sliced type, such as H100-20C",
            )
        if item["count"] < 1:
            cause = f"the count of {name} is below 1"
            raise DeclarationError("use {}", object=f"{where}.vgpus", cause=cause, found=item["count"])
        found[name] = found.get(name, 0) + item["count"]
    return found
