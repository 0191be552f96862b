# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: declaration
short_description: What the variables of a role declare
version_added: 0.1.0
description:
  - Makes the declaration of a concern from the public variables of its role, in one step. It is the one that
    M(gpufleet.node.node_state) gets.
  - Of the role C(device_plugin), which has no concern, it is what M(gpufleet.node.device_plugin) gets.
  - A default that depends on the profile of the host comes from P(gpufleet.node.profile#filter).
options:
  _terms:
    description: The name of the role, which is that of the concern.
    type: list
    elements: str
    required: true
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Show what is declared of kernel modules
  ansible.builtin.debug:
    msg: "{{ lookup('gpufleet.node.declaration', 'kernel_modules') }}"
"""

RETURN = r"""
_raw:
  description: The options of the concern's module, one dictionary for each role.
  type: list
  elements: dict
"""

from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ..plugin_utils import clusters
from ..plugin_utils.declarations import declaration_of
from ..plugin_utils.profiles import ProfileError


class LookupModule(LookupBase):
    def run(
        self, terms: Sequence[str], variables: Optional[Mapping[str, Any]] = None, **kwargs: Any
    ) -> List[Dict[str, Any]]:
        found, template = variables or {}, self._templar.template
        try:
            return [
                clusters.declaration_of(found, template)
                if role == clusters.ROLE
                else declaration_of(role, found, template)
                for role in terms
            ]
        except ProfileError as error:
            raise AnsibleLookupError(str(error)) from None
