# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: sick_gpus
short_description: What is wrong with the GPUs of a node
version_added: 0.1.0
description:
  - Takes what M(gpufleet.node.gpu_node_info) read with V(gpus) and V(health), and names for each GPU what keeps it from
    work. A GPU that cannot be queried is not called sick.
positional: _input, gpus
options:
  _input:
    description: The facts of a node.
    type: dict
    required: true
  gpus:
    description: How many GPUs the driver must know; 0 is any number.
    type: int
    default: 0
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Stop where a GPU is sick
  ansible.builtin.assert:
    that: info.node | gpufleet.node.sick_gpus | length == 0
"""

RETURN = r"""
_value:
  description: One sentence a problem, with the PCI address of the GPU.
  type: list
  elements: str
"""

from typing import Any, Callable, Dict, List, Mapping, Optional

DRIVER = "nvidia"


def sick_gpus(node: Mapping[str, Any], gpus: int = 0) -> List[str]:
    healths = (node.get("health") or {}).get("gpus") or ()
    found = [f"GPU {gpu['pci_address']}: {problem}" for gpu in healths for problem in gpu["problems"]]
    if node.get("nvml_gpus") is not None:
        # Concerns go by what the driver lists, and would be in sync without this one.
        found += [
            f"GPU {gpu['pci_address']}: it is on the bus, but unknown to the driver"
            for gpu in node.get("gpus") or ()
            if gpu["index"] is None and gpu["kernel_driver"] == DRIVER and not gpu.get("lost")
        ]
    miscounted = other_number(node, int(gpus))
    return [*found, miscounted] if miscounted else found


def other_number(node: Mapping[str, Any], wanted: int) -> Optional[str]:
    """What is wrong with the number of GPUs that the driver knows; None where it is ``wanted``, or where that is 0."""
    known = node.get("nvml_gpus")
    if not wanted or known == wanted:
        return None
    return f"there should be {wanted} GPUs, but the driver " + (
        "does not respond" if known is None else f"knows {known}"
    )


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"sick_gpus": sick_gpus}
