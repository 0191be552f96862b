# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: from_text
short_description: A list or a mapping that may have come as a text
version_added: 0.1.0
description:
  - The command line and surveys of AWX give texts. A text that is YAML of a list or a mapping becomes that, any other a
    list of what stands between its commas. What is no text stays as it is.
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
  serial: "{{ batches | default([1, '10%']) | gpufleet.node.from_text }}"
  tasks: []
"""

RETURN = r"""
_value:
  description: The list or the mapping.
  type: raw
"""

from typing import Any, Callable, Dict

from ..plugin_utils.playbooks import from_text


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"from_text": from_text}
