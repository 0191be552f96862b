# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: plugin_messages
short_description: What is still to be known after device_plugin
version_added: 0.1.0
description:
  - Takes results of M(gpufleet.node.device_plugin), and says which nodes do not offer what is declared, which declared
    values the plugin ignores, which nodes could not be checked, what was left to others, and whose GPUs the DRA driver
    allocates too. What is alike on many nodes is one line.
options:
  _input:
    description: The results of a loop.
    type: list
    elements: dict
    required: true
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Show what the cluster does not offer yet
  ansible.builtin.debug:
    msg: "{{ converged.results | gpufleet.node.plugin_messages }}"
  run_once: true
"""

RETURN = r"""
_value:
  description: The lines; empty if there is nothing to be known.
  type: list
  elements: str
"""

from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence

from ..plugin_utils.fleet_text import where


def plugin_messages(results: Sequence[Mapping[str, Any]]) -> List[str]:
    return [line for result in results for line in _lines(result)]


def _lines(result: Mapping[str, Any]) -> Iterator[str]:
    alike: Dict[str, List[str]] = {}
    for one in result.get("pending", ()):
        said = f"offers {_listed(one['allocatable'])}, and must offer {_listed(one['expected'])}"
        alike.setdefault(said, []).append(one["name"])
    for said, names in alike.items():
        yield f"{where(names)}: {said}. It is pending until the plugin has read its configuration."
    left: Dict[str, List[str]] = {}
    for one in result.get("ignored", ()):
        left.setdefault(one["what"], []).append(one["name"])
    for what, names in left.items():
        yield f"{where(names)}: the device plugin ignores {what}."
    if result.get("unverified"):
        yield f"{where(result['unverified'])}: its GPUs are not known, so what it offers was not checked."
    for part in (result, result.get("rdma", {})):
        if part.get("owner"):
            yield f"{part['config_map']}: {part['owner']} manages this ConfigMap too, and may undo what was written."
        if part.get("left"):
            yield f"Left alone: {part['left']}."
    dra = result.get("dra", {})
    if dra.get("twice"):
        yield (
            f"{where(dra['twice'])}: the DRA driver and the device plugin both offer its GPUs, so a GPU may be "
            "allocated twice. Turn one of them off there."
        )
    if dra.get("unknown"):
        yield f"Whether the DRA driver offers GPUs too is not known: {dra['unknown']}"


def _listed(resources: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(resources.items())) or "nothing"


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"plugin_messages": plugin_messages}
