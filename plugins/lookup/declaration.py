# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: declaration
short_description: What the variables of a role declare
version_added: 0.1.0
description:
  - Makes the declaration of a concern from the public variables of its role, in one step. A look reads the variables of
    all roles, and a template for each of them is most of what it costs the controller.
  - A default that asks the profile of the host is what P(gpufleet.node.profile#filter) says.
positional: _terms
options:
  _terms:
    description: The name of the role, and the names of the options, which are those of the variables without it.
    type: list
    elements: str
    required: true
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Show what is declared of kernel modules
  ansible.builtin.debug:
    msg: "{{ lookup('gpufleet.node.declaration', 'kernel_modules', 'state', 'load', 'block') }}"
"""

RETURN = r"""
_raw:
  description: The values by option.
  type: list
  elements: dict
"""

from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible.errors import AnsibleLookupError
from ansible.plugins.lookup import LookupBase

from ..plugin_utils.profiles import VARIABLE, ProfileError, asked, value_of


class LookupModule(LookupBase):
    def run(
        self, terms: Sequence[str], variables: Optional[Mapping[str, Any]] = None, **kwargs: Any
    ) -> List[Dict[str, Any]]:
        role, *options = terms
        known = variables or {}
        profile = self._templar.template(known.get(VARIABLE, ""))
        try:
            return [{option: self._value(known[f"{role}_{option}"], profile) for option in options}]
        except ProfileError as error:
            raise AnsibleLookupError(str(error)) from None

    def _value(self, raw: Any, profile: Any) -> Any:
        default = asked(raw)
        return self._templar.template(raw) if default is None else value_of(profile, *default)
