# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: from_mig_parted
short_description: Convert a mig-parted configuration to entries of mig_layout_gpus
version_added: 0.1.0
description:
  - Takes the file that C(nvidia-mig-parted) and the MIG manager of the GPU Operator read, and converts one of its
    configurations for the variable C(mig_layout_gpus) or the option C(gpus) of M(gpufleet.node.mig_layout).
  - It follows the rules of mig-parted. Of several entries for a GPU the last one counts. C(device-filter) selects
    products by their PCI ids. Three times V(1c.3g.40gb) is three compute instances in one GPU instance C(3g.40gb).
  - A GPU that the configuration does not cover fails the run, which names the configuration and the GPU, as
    C(nvidia-mig-parted assert) does. To avoid that, put an entry of your own for this GPU before these.
options:
  _input:
    description: The content of the file, as text or as parsed YAML.
    type: raw
    required: true
  _config:
    description: The name of the configuration, such as V(all-balanced).
    type: str
    required: true
positional: _config
seealso:
  - plugin: gpufleet.node.profile
    plugin_type: filter
    description: Where the defaults of all roles come from.
  - name: mig-parted
    description: The file's format.
    link: https://github.com/NVIDIA/mig-parted
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Partition GPUs by the file that mig-parted has used so far
  hosts: gpu
  become: true
  roles:
    - role: gpufleet.node.mig_layout
      vars:
        file: "{{ lookup('ansible.builtin.file', 'mig-parted.yaml') }}"
        mig_layout_gpus: "{{ file | gpufleet.node.from_mig_parted('all-balanced') }}"

- name: The same, except for a GPU that only drives a display
  hosts: workstations
  become: true
  roles:
    - role: gpufleet.node.mig_layout
      vars:
        display: [{match: {model: "*T1000*"}, mig: disabled, optional: true}]
        file: "{{ lookup('ansible.builtin.file', 'mig-parted.yaml') }}"
        mig_layout_gpus: "{{ display + (file | gpufleet.node.from_mig_parted('all-balanced')) }}"
"""

RETURN = r"""
_value:
  description: The entries. The first one that matches a GPU counts.
  type: list
  elements: dict
"""

from typing import Any, Callable, Dict, List

from ansible.errors import AnsibleFilterError

from ..plugin_utils.mig_parted import WrongFile, entries_of


def from_mig_parted(file: Any, config: str) -> List[Dict[str, Any]]:
    """The entries that a configuration of a mig-parted file is."""
    try:
        return entries_of(file, config)
    except WrongFile as error:
        raise AnsibleFilterError(f"Cannot take {config} from a mig-parted file: {error}") from error


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"from_mig_parted": from_mig_parted}
