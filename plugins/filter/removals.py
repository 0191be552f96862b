# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: removals
short_description: The declarations that restore a node
version_added: 0.1.0
description:
  - Takes names of concerns, and returns a declaration with C(state=absent) for each that this release has, in the order
    in which they are restored. What others need is restored after them, and the tools on the node last.
positional: _input
options:
  _input:
    description: Names of concerns, as RV(gpufleet.node.node_state#module:managed) has them.
    type: list
    elements: str
    required: true
  needed:
    description:
      - Whether to include concerns that others still need. One of those others may have to wait, such as for the next
        boot, and is restored by a later run.
    type: bool
    default: true
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: See what would be restored
  gpufleet.node.node_state:
    declared: "{{ left.managed | gpufleet.node.removals }}"
"""

RETURN = r"""
_value:
  description: The declarations by the names of the concerns.
  type: dict
"""

from typing import Any, Callable, Container, Dict

from ansible_collections.gpufleet.node.plugins.module_utils._core.value import replace

from ..module_utils._node.order import in_order
from ..module_utils._node.registry import REGISTRY


def removals(managed: Container[str], needed: bool = True) -> Dict[str, Dict[str, Any]]:
    # What a concern needs must stay until that concern is restored, in whatever order they are listed.
    servers = {
        entry.name: [other.name for other in REGISTRY if entry.name in other.registration.serves] for entry in REGISTRY
    }
    built = in_order(
        replace(
            entry,
            registration=replace(entry.registration, after=(*entry.registration.after, *servers[entry.name])),
        )
        for entry in REGISTRY
    )
    served = {entry.name for entry in REGISTRY if entry.name in managed and not entry.registration.serves}
    excluded = set() if needed else {entry.name for entry in REGISTRY if served.intersection(entry.registration.serves)}
    names = [entry.name for entry in reversed(built) if entry.name in managed and entry.name not in excluded]
    return {name: {"state": "absent"} for name in names}


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"removals": removals}
