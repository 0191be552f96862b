#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: drift_report
short_description: Show what a look at the fleet found, as a table
version_added: 0.1.0
description:
  - Collects the registered results of M(gpufleet.node.node_state) of all hosts of the play and prints one table, with
    node, object, setting, wanted, in effect, at boot and status.
  - Runs once on the controller and contacts no host.
author:
  - gpufleet contributors (@gpufleet)
options:
  register:
    description: The name under which the look was registered.
    type: str
    required: true
  fail_on_drift:
    description: Fail when a setting is neither right nor only waiting for a reboot, or when a host gave no answer.
    type: bool
    default: false
  title:
    description: The line above the table.
    type: str
    default: Drift
extends_documentation_fragment:
  - gpufleet.node.contract.attributes
attributes:
  check_mode:
    support: full
    details: Only reads variables.
  diff_mode:
    support: none
    details: There is nothing to change.
  idempotent:
    support: full
  action:
    description: Has an action plugin, so that part of it runs on the controller.
    support: full
    details: All of it runs on the controller.
  bypass_host_loop:
    description: Runs once for all hosts, not once a host.
    support: full
"""

EXAMPLES = r"""
- name: Show what is not right
  gpufleet.node.drift_report:
    register: look
    fail_on_drift: true
"""

RETURN = r"""
rows:
  description: One entry a line of the table.
  returned: always
  type: list
  elements: dict
  contains:
    node:
      description: The host.
      type: str
    object:
      description: What the setting belongs to.
      type: str
    setting:
      description: The setting.
      type: str
    wanted:
      description: What is declared.
      type: raw
    effective:
      description: What is in effect.
      type: raw
    boot:
      description: What the next boot will bring.
      type: raw
    status:
      description: V(right), V(differs), V(pending) or V(unknown).
      type: str
counts:
  description: The number of settings of each status; V(unknown) counts concerns, since the settings could not be seen.
  returned: always
  type: dict
nodes:
  description: The names of the hosts by the worst status found there; V(unreachable) are those without an answer.
  returned: always
  type: dict
"""
