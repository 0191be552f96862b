#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout
short_description: Whether the batches of a play may go on after the last one
version_added: 0.1.0
description:
  - Stands at the beginning of a play with C(serial), where it runs once in each batch, and says which hosts the batch
    before has lost. A host is lost when it failed or is out of reach, or when a rescue noted so in a variable.
  - C(max_fail_percentage) ends a batch in its middle, and does not count hosts that are out of reach. With this the
    others of a batch finish, and no further one begins.
  - It fails nothing. The play is ended by M(ansible.builtin.meta) where RV(stop) says so, after the hosts were printed.
  - When all of a batch failed or are out of reach, Ansible itself ends the run, and this does not run any more.
author:
  - gpufleet contributors (@gpufleet)
options:
  batches:
    description: What the play has as C(serial). It may be a text, as for P(gpufleet.node.from_text#filter).
    type: raw
    required: true
  max_lost:
    description: How many hosts a batch may lose, and the next one still begins.
    type: int
    default: 0
  lost:
    description: The name of the variable that a host has when it is lost and yet did not fail.
    type: str
    required: true
extends_documentation_fragment:
  - gpufleet.node.controller
  - gpufleet.node.contract.attributes
"""

EXAMPLES = r"""
- name: Work on a few nodes at a time
  hosts: gpu
  serial: [1, "10%"]
  tasks:
    - name: Look at the batch before
      gpufleet.node.rollout:
        batches: [1, "10%"]
        lost: not_through
      register: rollout

    - name: End here where it lost a node
      ansible.builtin.meta: end_play
      when: rollout.stop
"""

RETURN = r"""
batch:
  description: The number of this batch, from 1.
  returned: always
  type: int
batches:
  description: How many there are.
  returned: always
  type: int
lost:
  description: The hosts that the batch before has lost.
  returned: always
  type: list
  elements: str
not_begun:
  description: The hosts of this batch and of those after it.
  returned: always
  type: list
  elements: str
stop:
  description: Whether more hosts are lost than may be.
  returned: always
  type: bool
"""
