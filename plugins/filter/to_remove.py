# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: to_remove
short_description: The declarations that give a node back
version_added: 0.1.0
description:
  - Takes names of concerns, and answers a declaration with C(state=absent) for each that this release knows, in the
    order in which they are taken back. What others need goes after them, and the tools on the node last.
positional: _input
options:
  _input:
    description: Names of concerns, as RV(gpufleet.node.node_state#module:kept) has them.
    type: list
    elements: str
    required: true
  needed:
    description:
      - Whether those are among them that serve others which are still there. One of these may have to wait, such as for
        the next boot, and is given back by a later run.
    type: bool
    default: true
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: See what would be given back
  gpufleet.node.node_state:
    declared: "{{ left.kept | gpufleet.node.to_remove }}"
"""

RETURN = r"""
_value:
  description: The declarations by the names of the concerns.
  type: dict
"""

from dataclasses import replace
from typing import Any, Callable, Container, Dict

from ..module_utils._node.registry import REGISTRY, in_order


def to_remove(kept: Container[str], needed: bool = True) -> Dict[str, Dict[str, Any]]:
    # Who serves a concern has to be there until that one is given back, whether or not it comes after it.
    servers = {entry.name: tuple(other.name for other in REGISTRY if entry.name in other.serves) for entry in REGISTRY}
    built = in_order([replace(entry, after=(*entry.after, *servers[entry.name])) for entry in REGISTRY])
    served = {entry.name for entry in REGISTRY if entry.name in kept and not entry.serves}
    left_out = set() if needed else {entry.name for entry in REGISTRY if served.intersection(entry.serves)}
    names = [entry.name for entry in reversed(built) if entry.name in kept and entry.name not in left_out]
    return {name: {"state": "absent"} for name in names}


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"to_remove": to_remove}
