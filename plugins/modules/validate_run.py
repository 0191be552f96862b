#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: validate_run
short_description: (internal) Refuse variables that no role has, and values that a playbook does not accept
version_added: 0.1.0
description:
  - Internal to the playbooks of this collection; its options and results may change with any release.
  - A variable whose name begins with the name of a concern and that the concern's role does not know is a typo, and a
    typo is a setting that silently does not happen. This refuses it, with the nearest name that exists. With a prefix
    that others use too, such as C(hugepages), only a variable that is close to one of this collection is refused.
  - A profile (C(gpufleet_profile)) that does not exist is refused too, and so is one with a variable that no concern
    has, or with a value that the variable cannot have, and a tag, or a tag to skip, that is close to the name of a
    concern.
  - With O(playbook) the values of the variables of that playbook, and of the role that drains nodes for it, are
    validated against their specifications before anything else happens. A list or a mapping may be given as YAML text,
    and a list also as text with commas, as from a survey.
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
  gpufleet.node.validate_run:

- name: Refuse typos, and batches that are none
  gpufleet.node.validate_run:
    playbook: site
"""

RETURN = r"""
checked:
  description: The number of hosts whose variables were checked.
  returned: always
  type: int
schedulers:
  description: Who gives the hosts their work, by C(drain_backend) of the role C(drain), without C(none).
  returned: always
  type: list
  elements: str
clustered:
  description: The hosts that declare something for M(gpufleet.node.device_plugin), if the run is about that.
  returned: always
  type: list
  elements: str
unknown:
  description: The variables that no role has, with the nearest existing name (or none) and the hosts that have them.
  returned: always
  type: list
  elements: dict
"""
