#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: batch_gate
short_description: (internal) Say whether the next batch of a play may start
version_added: 0.1.0
description:
  - Internal to the playbooks of this collection; its options and results may change with any release.
  - Stands at the beginning of a play with C(serial), where it runs once in each batch, and says which hosts of the
    previous batch failed. A host failed when a task failed, when it is unreachable, or when a rescue noted so.
  - C(max_fail_percentage) ends a batch in its middle, and does not count unreachable hosts. With this the
    others of a batch finish, and no further batch starts.
  - It fails nothing. The play is ended by M(ansible.builtin.meta) where RV(stop) says so, after the hosts were printed.
  - When all of a batch failed or are unreachable, Ansible itself ends the run, and this does not run any more.
author:
  - gpufleet contributors (@gpufleet)
options:
  batches:
    description: What the play has as C(serial). It may be a text, as for P(gpufleet.node.parse_list#filter).
    type: raw
    required: true
  max_failed:
    description: How many hosts of a batch may fail before the next one is not started.
    type: int
    default: 0
  failed_variable:
    description: The name of the variable that a host has when it failed and was rescued.
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
      gpufleet.node.batch_gate:
        batches: [1, "10%"]
        failed_variable: gpufleet_failure
      register: gate

    - name: End here where a node failed
      ansible.builtin.meta: end_play
      when: gate.stop
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
failed_hosts:
  description: The hosts of the previous batch that failed.
  returned: always
  type: list
  elements: str
not_begun:
  description: The hosts of this batch and of those after it.
  returned: always
  type: list
  elements: str
stop:
  description: Whether more hosts failed than may.
  returned: always
  type: bool
"""
