# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: slurm_switches
short_description: Make the switches or blocks of Slurm from variables of hosts
version_added: 0.1.0
description:
  - Makes a value for O(gpufleet.node.slurm_topology#module:switches) or O(gpufleet.node.slurm_topology#module:blocks)
    from a variable of each host that names its leaf switch, rack or NVLink domain.
  - The name of a host in Slurm is its C(drain_slurm_node) or C(slurm_gpus_node_name) if one is set, else the part of
    its inventory name before the first dot.
  - Fails if a host does not have the variable, or if a switch is below two others.
options:
  _input:
    description: The hosts, such as those of a group.
    type: list
    elements: str
    required: true
  _hostvars:
    description: C(hostvars).
    type: dict
    required: true
  _levels:
    description:
      - The variables that name the switches above a host, from the leaf up, such as V([rack, row]).
      - With one variable and without O(root), the result can also be used for blocks.
    type: list
    elements: str
    required: true
  root:
    description: The name of one switch above all those of the highest level. If empty, there is none.
    type: str
    default: ""
positional: _hostvars, _levels
seealso:
  - module: gpufleet.node.slurm_topology
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Racks in rows, and a switch above all rows
  hosts: slurm_controllers
  become: true
  roles:
    - role: gpufleet.node.slurm_topology
      vars:
        levels: [rack, row]
        slurm_topology_switches: "{{ groups['gpu'] | gpufleet.node.slurm_switches(hostvars, levels, root='core') }}"

- name: A block for each NVLink domain
  hosts: slurm_controllers
  become: true
  roles:
    - role: gpufleet.node.slurm_topology
      vars:
        slurm_topology_blocks: "{{ groups['gpu'] | gpufleet.node.slurm_switches(hostvars, ['nvlink_domain']) }}"
        slurm_topology_block_sizes: [16]
"""

RETURN = r"""
_value:
  description: The switches, each with C(name) and C(nodes) or C(switches), the leaves first, sorted by name.
  type: list
  elements: dict
"""

from typing import Any, Callable, Dict, List, Mapping, Sequence

from ansible.errors import AnsibleFilterError

from ..plugin_utils.slurm_switches import NoPlace, switches_of


def slurm_switches(
    hosts: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]], levels: Sequence[str], root: str = ""
) -> List[Dict[str, str]]:
    """The switches that are above these hosts."""
    try:
        return switches_of(hosts, hostvars, levels, root)
    except NoPlace as error:
        raise AnsibleFilterError(f"Cannot make the switches of Slurm from {', '.join(levels)}: {error}") from error


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"slurm_switches": slurm_switches}
