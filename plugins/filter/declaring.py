# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: declaring
short_description: The declarations of a host that ask for something
version_added: 0.1.0
description:
  - Leaves out the concerns that declare nothing on a host.
  - A concern that serves others, such as C(nvml), is kept where one of them declares something.
options:
  _input:
    description: The declarations of a host, by concern.
    type: dict
    required: true
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Look at what is declared
  gpufleet.node.node_state:
    declared: "{{ declarations | gpufleet.node.declaring }}"
"""

RETURN = r"""
_value:
  description: The declarations that remain.
  type: dict
"""

from typing import Any, Callable, Dict, Mapping

from ..module_utils._node.registry import REGISTRY

ENTRIES = {entry.name: entry for entry in REGISTRY}


def declares_something(concern: str, declaration: Mapping[str, Any]) -> bool:
    """Whether a role was given anything to do: by an option that is empty without it, or by another state.

    What is there and of the wrong type counts, so that the look refuses it.
    """
    entry = ENTRIES[concern]
    empty = [name for name, option in entry.concern.options.items() if option.get("default") in (None, [], {})]
    given = not entry.serves and any(declaration.get(name) not in (None, [], {}) for name in empty)
    return given or declaration.get("state", "present") != "present"


def declaring(declarations: Mapping[str, Mapping[str, Any]]) -> Dict[str, Mapping[str, Any]]:
    names = {name for name, declaration in declarations.items() if declares_something(name, declaration)}
    return {
        name: declaration
        for name, declaration in declarations.items()
        if name in names or names.intersection(ENTRIES[name].serves)
    }


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"declaring": declaring}
