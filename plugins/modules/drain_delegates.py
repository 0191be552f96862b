#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: drain_delegates
short_description: (internal) Choose which hosts query a scheduler for the others
version_added: 0.1.0
description:
  - Internal to the playbooks of this collection; its options and results may change with any release.
  - One answer of a scheduler is enough for all hosts that query it in the same way. This chooses the first of them,
    once for all hosts of the play; it contacts no host.
  - Stands in the role P(gpufleet.node.drain#role), whose variables it reads for each host.
author:
  - gpufleet contributors (@gpufleet)
options:
  backend:
    description: The name of the variable that says which scheduler a host has.
    type: str
    required: true
  questions:
    description:
      - The name of the variable with a dictionary for each scheduler that can be asked. It has C(node), the name that a
        host has there, and C(way), anything that is the same where one answer is enough.
    type: str
    required: true
extends_documentation_fragment:
  - gpufleet.node.controller
  - gpufleet.node.contract.attributes
"""

EXAMPLES = r"""
- name: Choose the delegates
  gpufleet.node.drain_delegates:
    backend: drain_backend
    questions: __drain_questions
  register: __drain_asked
"""

RETURN = r"""
hosts:
  description: The hosts whose scheduler can be queried. The others of the play are left out.
  returned: always
  type: dict
  contains:
    HOST:
      description: A host by its name.
      type: dict
      contains:
        delegate:
          description: The host that queries for it, which may be itself.
          type: str
        node:
          description: The name that the scheduler has for it.
          type: str
needed:
  description: The delegates, and the first host that has none, which must fail when no answer comes.
  returned: always
  type: list
  elements: str
"""
