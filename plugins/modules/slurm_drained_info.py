#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_drained_info
short_description: The Slurm nodes that this collection has drained
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Lists the nodes of the cluster that M(gpufleet.node.slurm_node) has drained and not yet resumed, with one query to
    slurmctld. It runs on any host where C(scontrol) works.
  - A node that someone else has drained is not among them, nor is one that someone has taken over by setting another
    reason.
options: {}
extends_documentation_fragment:
  - gpufleet.node.contract.attributes
attributes:
  check_mode:
    support: full
    description: It only reads.
  diff_mode:
    support: N/A
    description: It changes nothing.
  idempotent:
    support: full
requirements:
  - Python 3.9 or newer on the host
  - scontrol and squeue of Slurm
seealso:
  - module: gpufleet.node.slurm_node
"""

EXAMPLES = r"""
- name: Ask for the nodes that are still drained
  gpufleet.node.slurm_drained_info:
  delegate_to: slurm-controller
  run_once: true
  register: drained

- name: Name them
  ansible.builtin.debug:
    msg: "{{ drained.nodes | map(attribute='name') }}"
  run_once: true
"""

RETURN = r"""
nodes:
  description: The nodes, in the order of slurmctld.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The name in C(slurm.conf).
      type: str
      sample: h100-007
    node_state:
      description: The state as slurmctld has it.
      type: str
      sample: IDLE+DRAIN
    reason:
      description: The whole reason of the drain.
      type: str
      sample: 'gpufleet: new MIG layout'
    drained_by:
      description: The user who ran the module that drained it.
      type: str
      sample: root
    since:
      description: When it was drained, as slurmctld writes it.
      type: str
      sample: '2026-11-22T04:33:41'
failure:
  description: What went wrong, for programs.
  returned: failure
  type: dict
  contains:
    code:
      description: C(cannot_look) or C(not_permitted).
      type: str
      sample: cannot_look
    object:
      description: What it was about.
      type: str
    found:
      description: The value that was found.
      type: raw
    wanted:
      description: Nothing; it is there as for the other modules.
      type: raw
    hint:
      description: The next step.
      type: str
      sample: 'check slurmctld: scontrol ping'
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._node.module import host_of
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.slurm.procedure import drained_nodes


def main() -> None:
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    try:
        result = drained_nodes(host_of(module))
    except GpuFleetError as error:
        module.fail_json(msg=str(error), failure=error.failure())
    module.exit_json(**result)


if __name__ == "__main__":
    main()
