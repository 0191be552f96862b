# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: decompress
short_description: The facts of a node that were returned as one text
version_added: 0.1.0
description:
  - Takes a result of M(gpufleet.node.gpu_node_info), with or without O(gpufleet.node.gpu_node_info#module:compress),
    and gives the facts in it.
options:
  _input:
    description: The result.
    type: dict
    required: true
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Read the facts of the node
  gpufleet.node.gpu_node_info:
    compress: true
  register: info

- name: Stop where a GPU is sick
  ansible.builtin.assert:
    that: info | gpufleet.node.decompress | gpufleet.node.sick_gpus | length == 0
"""

RETURN = r"""
_value:
  description: The facts, as RV(gpufleet.node.gpu_node_info#module:node).
  type: dict
"""

from typing import Any, Callable, Dict, Mapping

from ansible.errors import AnsibleFilterError

from ..plugin_utils.report.facts import facts_in


def decompress(info: Mapping[str, Any]) -> Mapping[str, Any]:
    found = facts_in(info, whole_answer=True)
    if found.answer is None:
        raise AnsibleFilterError(f"Cannot read the facts of the node: {found.missing}.")
    return found.answer


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"decompress": decompress}
