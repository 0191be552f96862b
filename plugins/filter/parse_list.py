# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: parse_list
short_description: A list or a mapping that may have been given as text
version_added: 0.1.0
description:
  - The command line and surveys of AWX pass text. Text that is YAML of a list or a mapping becomes that, any other text
    a list of the items between its commas. What is not a string stays as it is.
options:
  _input:
    description: The value of a variable.
    type: raw
    required: true
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Change a few nodes at a time, also with -e batches=1,10%
  hosts: gpu
  serial: "{{ batches | default([1, '10%']) | gpufleet.node.parse_list }}"
  tasks: []
"""

RETURN = r"""
_value:
  description: The list or the mapping.
  type: raw
"""

from typing import Any, Callable, Dict

from ..plugin_utils.playbooks import parse_list


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"parse_list": parse_list}
