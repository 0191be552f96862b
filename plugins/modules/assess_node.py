#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: assess_node
short_description: (internal) Look at everything that the variables of a host declare
version_added: 0.1.0
description:
  - Internal to the playbooks of this collection; its options and results may change with any release.
  - Makes the declarations of all roles of this collection from the variables of the host, and gives them to
    M(gpufleet.node.node_state). It changes nothing.
  - It goes by the variables of the playbooks. C(gpufleet_concerns), C(gpufleet_skip) and the tags of the run limit it,
    C(gpufleet_detail) sets how much is returned, and C(gpufleet_expect) what is a failure.
  - With C(gpufleet_keep_unreachable), and if a report is going to be written, a host that does not respond stays in the
    play, so that a host is left to write the report. The report names it, and the playbook fails afterwards.
  - Where M(gpufleet.node.node_tools) keeps this release's program on the node, that program looks, in one remote
    execution that sends no code. Otherwise M(gpufleet.node.node_state) does, as it does everywhere with
    C(gpufleet_look_by=module).
  - A node that answers that it has no suitable nvidia-ml-py is asked again, with that of the controller, which is kept
    only in memory there. So the first look at a node sees its GPUs.
  - The controller makes the declarations without a template for each variable, which for a fleet is most of what a
    look would cost there.
options:
  whole:
    description: Whether it covers all that is declared, whatever the run is limited to.
    type: bool
    default: false
author:
  - gpufleet contributors (@gpufleet)
extends_documentation_fragment:
  - gpufleet.node.contract.attributes
attributes:
  check_mode:
    support: full
    details: Only ever looks.
  diff_mode:
    support: full
    details: Shows what a converge would change.
  idempotent:
    support: full
  action:
    description: Has an action plugin, so that part of it runs on the controller.
    support: full
    details: The declarations are made on the controller.
seealso:
  - module: gpufleet.node.node_state
"""

EXAMPLES = r"""
- name: Assess the node
  gpufleet.node.assess_node:
  vars:
    gpufleet_expect: nothing
  register: look
"""

RETURN = r"""
concerns:
  description: What M(gpufleet.node.node_state) answers, with everything else that it returns.
  returned: always
  type: dict
looked_by:
  description: "What looked: the program or the module."
  returned: always
  type: str
  sample: program
not_by_program:
  description: Why the program on the node did not look.
  returned: when the module looked
  type: str
  sample: gpufleet_look_by is module
read_with_binding:
  description:
    - The concerns that were read with the controller's nvidia-ml-py, because the node has no suitable one yet.
    - In check mode C(gpufleet.node.site) does not run their roles, since their modules would find none.
  returned: when the controller's was sent
  type: list
  elements: str
"""
