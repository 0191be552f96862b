#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_facts
short_description: Write the facts of the fleet as one JSON document
version_added: 0.1.0
description:
  - Collects the registered results of M(gpufleet.node.gpu_node_info) of all hosts of the play, and writes them as
    C(gpufleet-facts.json), with a line for each node.
  - Hosts without facts are in it too, with the reason. Runs once on the controller and contacts no host.
author:
  - gpufleet contributors (@gpufleet)
options:
  info:
    description: The name under which the facts were registered.
    type: str
    required: true
  dest:
    description:
      - A folder on the controller, which is created if it does not exist, or an C(http) or C(https) address that ends
        in V(/). To that the file is sent by C(PUT), for controllers that leave nothing behind.
      - The file is replaced as a whole, so that no half of one is ever read. Its mode is C(0640).
    type: str
    required: true
  headers:
    description: Headers of the request to an address, such as C(Authorization).
    type: dict
    default: {}
extends_documentation_fragment:
  - gpufleet.node.controller
  - gpufleet.node.contract.attributes
attributes:
  check_mode:
    support: full
    details: Writes nothing in check mode, and reports what it would write.
  diff_mode:
    support: none
    details: Each document is a new one.
  idempotent:
    support: full
    details: Never reports a change; the document shows the moment in which it was written.
notes:
  - The document has the serial numbers, UUIDs and kernel command lines of the fleet in it, and with the part
    V(holders) of O(gpufleet.node.gpu_node_info#module:gather) also command lines of programs.
seealso:
  - module: gpufleet.node.gpu_node_info
  - module: gpufleet.node.fleet_report
"""

EXAMPLES = r"""
- name: Read the facts of the node
  gpufleet.node.gpu_node_info:
  register: info

- name: Write them down for all nodes
  gpufleet.node.fleet_facts:
    info: info
    dest: facts
"""

RETURN = r"""
file:
  description: Where the document is, or would be, as a path or an address.
  returned: success
  type: str
  sample: /srv/facts/gpufleet-facts.json
nodes_total:
  description: The number of nodes in it.
  returned: always
  type: int
  sample: 3
missing:
  description: Why a node has no facts, of those that have none.
  returned: always
  type: dict
  sample: {"n3": "Connection timed out"}
failure:
  description: On failure the error in parts.
  returned: failure
  type: dict
"""
