#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kubernetes_drained_info
short_description: The Kubernetes nodes that this collection has drained
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Lists the nodes of the cluster that M(gpufleet.node.kubernetes_node) has cordoned and not yet uncordoned, with one
    request to the API server. It runs on any host that can reach the API server.
  - A node that someone else has cordoned is not among them, nor is one that someone has taken over by removing the
    annotation.
extends_documentation_fragment:
  - gpufleet.node.kubernetes
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
notes:
  - The user must be allowed to list nodes.
seealso:
  - module: gpufleet.node.kubernetes_node
"""

EXAMPLES = r"""
- name: Ask for the nodes that are still drained
  gpufleet.node.kubernetes_drained_info:
  delegate_to: localhost
  run_once: true
  register: drained

- name: Name them
  ansible.builtin.debug:
    msg: "{{ drained.nodes | map(attribute='name') }}"
  run_once: true
"""

RETURN = r"""
nodes:
  description: The nodes, in the order of the API server.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: The name of the node.
      type: str
      sample: h100-007
    reason:
      description: The annotation, whole.
      type: str
      sample: 'gpufleet: new MIG layout'
failure:
  description: What went wrong, for programs.
  returned: failure
  type: dict
  contains:
    code:
      description:
        - C(cannot_look) or C(not_permitted).
      type: str
      sample: cannot_look
    object:
      description: What it was about.
      type: str
    found:
      description: The value that was found.
      type: raw
    wanted:
      description: The value that was wanted.
      type: raw
    hint:
      description: The next step.
      type: str
      sample: Check the route from this host to the API server
"""

import sys

from ansible.module_utils.basic import AnsibleModule, env_fallback
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._machine.kubernetes_client import (
    access_arguments,
    connect,
)
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.kubernetes.procedure import cordoned_nodes


def main() -> None:
    module = AnsibleModule(argument_spec=access_arguments(env_fallback), supports_check_mode=True)
    try:
        result = cordoned_nodes(connect(module.params, sys.executable))
    except GpuFleetError as error:
        module.fail_json(msg=str(error), failure=error.failure())
    module.exit_json(**result)


if __name__ == "__main__":
    main()
