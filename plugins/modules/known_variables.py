#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: known_variables
short_description: Refuse variables that no role knows, and values that a playbook cannot take
version_added: 0.1.0
description:
  - A variable whose name begins with the name of a concern and that the concern's role does not know is a typo, and a
    typo is a setting that silently does not happen. This refuses it, with the nearest name that exists.
  - A profile (C(gpufleet_profile)) that is not there is refused as well, and one with a variable that no concern has,
    or with a value that the variable cannot have. So is a tag of the run, or one to skip, that is nearly a concern.
  - With O(playbook) the values of the variables of that playbook, and of the role by which it drains nodes, are held
    against their specifications, before anything else happens. A list or a mapping may come as a text of YAML or, a
    list, with commas, as from a survey.
  - Runs once on the controller, for all hosts of the play, and contacts none of them.
author:
  - gpufleet contributors (@gpufleet)
options:
  playbook:
    description: The playbook of this collection whose variables must have the right values, such as V(site).
    type: str
extends_documentation_fragment:
  - gpufleet.node.controller
  - gpufleet.node.contract.attributes
"""

EXAMPLES = r"""
- name: Refuse typos in the inventory
  gpufleet.node.known_variables:

- name: Refuse typos, and batches that are none
  gpufleet.node.known_variables:
    playbook: site
"""

RETURN = r"""
checked:
  description: The number of hosts whose variables were looked at.
  returned: always
  type: int
schedulers:
  description: Who gives the hosts their work, by C(drain_backend) of the role C(drain), without C(none).
  returned: always
  type: list
  elements: str
unknown:
  description: The variables that no role knows, with the nearest known name (or none) and the hosts that have them.
  returned: always
  type: list
  elements: dict
"""
