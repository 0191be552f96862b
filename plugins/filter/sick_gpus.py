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
  description: One sentence per problem, with the PCI address of the GPU.
  type: list
  elements: str
"""

from typing import Any, Callable, Dict

from ..module_utils._node.verdict import sick_gpus


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"sick_gpus": sick_gpus}
