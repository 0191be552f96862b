# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations


class ModuleDocFragment:
    """What filters take that choose hosts by a registered look at each of them."""

    DOCUMENTATION = r"""
options:
  _input:
    description: Names of hosts.
    type: list
    elements: str
    required: true
  hostvars:
    description: The variables of all hosts, that is P(ansible.builtin.hostvars#var).
    type: dict
    required: true
  register:
    description: The name under which the assessment was registered.
    type: str
    required: true
"""
