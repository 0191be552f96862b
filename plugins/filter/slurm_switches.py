# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: slurm_switches
short_description: The switches or blocks of Slurm, from variables of hosts
version_added: 0.1.0
description:
  - Makes what O(gpufleet.node.slurm_topology#module:switches) and O(gpufleet.node.slurm_topology#module:blocks) take,
    from a variable of each host that names its leaf switch, rack or NVLink domain.
  - The name of a host in Slurm is its C(drain_slurm_node) or C(slurm_gpus_node_name) if it has one, else the part of
    its name in the inventory before the first dot.
  - A host without the variable fails the run, and so does a switch below two others.
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
      - The variables that name what a host is in, from the leaf up, such as V([rack, row]).
      - With one variable and without O(root), the result suits blocks, too.
    type: list
    elements: str
    required: true
  root:
    description: The name of a switch above all of the highest level, if there is one.
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
  description: The switches, with C(name) and C(nodes) or C(switches), in the order of their names, the leaves first.
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
