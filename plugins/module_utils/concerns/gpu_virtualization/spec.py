# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of GPUs for virtual machines, and what is wrong whatever the machine."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Tuple

from ..._core import match
from ..._core.errors import DeclarationError
from ..._core.value import field, frozen
from ..._nvidia import gpus
from ..._nvidia.gpus import VFIO

NAME = "gpu_virtualization"
FAIL, WAIT, SKIP = "fail", "wait", "skip"
NVIDIA = "nvidia"
DRIVERS = (VFIO, NVIDIA)
# What sysfs says of a GPU that no driver has: not its index, its UUID or its model.
MATCH_KEYS = ("pci_address", "pci_id")


@frozen
class GpuVirtualizationDeclaration:
    """What is declared. ``entries`` are those of ``gpus``, ``drivers`` what each wants its GPUs bound to.

    For ``state: absent``, ``known`` are the drivers that functions had before we changed them, by PCI address, and
    ``touched`` are the addresses of all of which we changed something.
    """

    entries: Tuple[match.MatchEntry, ...] = ()
    drivers: Tuple[str, ...] = ()
    when_busy: str = FAIL
    busy_timeout: float = 0.0
    known: Mapping[str, Optional[str]] = field(default_factory=dict)
    touched: Tuple[str, ...] = ()


def parse(params: Mapping[str, Any]) -> GpuVirtualizationDeclaration:
    """Raises ``DeclarationError`` on what no machine could have."""
    if not params["gpus"]:
        raise DeclarationError(
            "read the declaration",
            cause="no GPU is declared",
            hint=f"set gpus: [{{driver: {VFIO}}}] for all GPUs, or state: absent",
        )
    return GpuVirtualizationDeclaration(
        entries=gpus.parse("gpus", params["gpus"], MATCH_KEYS),
        drivers=tuple(item["driver"] for item in params["gpus"]),
        **patience(params),
    )


def patience(params: Mapping[str, Any]) -> Dict[str, Any]:
    """What happens to GPUs that are in use: the part that ``state: absent`` has too."""
    if params["busy_timeout"] < 0:
        raise DeclarationError(
            "set {}", object="busy_timeout", cause="it is below 0", wanted=params["busy_timeout"], hint="set seconds"
        )
    return {"when_busy": params["when_busy"], "busy_timeout": float(params["busy_timeout"])}
