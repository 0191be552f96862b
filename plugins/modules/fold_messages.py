#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fold_messages
short_description: (internal) Print a message once for all hosts that have it
version_added: 0.1.0
description:
  - Internal to the playbooks of this collection; its options and results may change with any release.
  - Prints the texts that hosts have in variables, each once, with the hosts that have it as ranges such as
    C(h[001-200]).
  - Runs once, for the hosts of the play, or of its batch, that did not fail, unless O(include_failed=true). Contacts no
    host.
author:
  - gpufleet contributors (@gpufleet)
options:
  variables:
    description:
      - The names of facts or of registered results that hold a text or a list of strings, also of parts of them,
        such as V(look.refused). For each host the first that it has is used.
      - They are taken as they are, and are no templates.
    type: list
    elements: str
    required: true
  title:
    description: The line above the texts. Without it nothing is printed.
    type: str
  least:
    description: How many hosts must have a text alike for it to be printed here.
    type: int
    default: 1
  include_failed:
    description: Print the texts of all hosts of the play, also of those that failed or became unreachable.
    type: bool
    default: false
extends_documentation_fragment:
  - gpufleet.node.controller
  - gpufleet.node.contract.attributes
"""

EXAMPLES = r"""
- name: Find what several nodes have in common
  gpufleet.node.fold_messages:
    variables: [why]
    least: 2
  register: folded
  run_once: true

- name: Fail, and say why, once for all nodes
  block:
    - name: Fail
      ansible.builtin.fail:
        msg: "{{ 'The reason is below.' if why in folded.told else why }}"
      when: why is defined
  always:
    - name: Say why
      gpufleet.node.fold_messages:
        variables: [why]
        title: Why nodes failed
        include_failed: true
      run_once: true
"""

RETURN = r"""
told:
  description: The texts that as many hosts have, with single spaces between their words, those of the most hosts first.
  returned: always
  type: list
  elements: str
"""
