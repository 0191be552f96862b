# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: reboot_reasons
short_description: What waits for a reboot on a node
version_added: 0.1.0
description:
  - Takes a result of M(gpufleet.node.node_state), and keeps the reasons that a reboot resolves. What still has to be
    written for the next boot is not among them.
  - For concerns that were left out, or could not be read, it uses the reasons that are noted on the node.
positional: _input
options:
  _input:
    description: The result of a look; an empty one has no reasons.
    type: dict
    required: true
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Say what waits for a reboot
  ansible.builtin.debug:
    msg: "{{ look | gpufleet.node.reboot_reasons }}"
"""

RETURN = r"""
_value:
  description: The reasons, each once.
  type: list
  elements: str
"""

from typing import Any, Callable, Dict, List, Mapping

from ..module_utils._core.setting import INVALID, PENDING, UNKNOWN


def reboot_reasons(look: Mapping[str, Any]) -> List[str]:
    noted: Dict[str, List[str]] = dict(look.get("reboot_noted", {}))
    reasons: List[str] = []
    for concern, result in look.get("concerns", {}).items():
        if result["status"] in (UNKNOWN, INVALID):
            continue
        # A concern that differs has reasons too that will only be true once its role ran; those were never noted.
        known = noted.pop(concern, [])
        found = result.get("reboot_reasons", ())
        reasons += [reason for reason in found if result["status"] == PENDING or reason in known]
    for left in noted.values():
        reasons += left
    return list(dict.fromkeys(reasons))


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"reboot_reasons": reboot_reasons}
