# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: profile
short_description: The value that a profile gives to a variable
version_added: 0.1.0
description:
  - Looks up a variable in a profile. The defaults of all roles of concerns use it, so that the value in the inventory
    always wins.
positional: _input, variable, default
options:
  _input:
    description:
      - The name of a profile of this collection, or the absolute path of another one on the controller. Empty for none.
    type: str
    required: true
  variable:
    description: The name of the variable.
    type: str
    required: true
  default:
    description: Its value when there is no profile, or when the profile does not set it.
    type: raw
    required: true
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Show which modules a node for training has loaded
  ansible.builtin.debug:
    msg: "{{ 'training' | gpufleet.node.profile('kernel_modules_load', []) }}"
"""

RETURN = r"""
_value:
  description: The value.
  type: raw
"""

from typing import Any, Callable, Dict

from ansible.errors import AnsibleFilterError

from ..plugin_utils.profiles import ProfileError, value_of


def profile(name: Any, variable: str, default: Any) -> Any:
    try:
        return value_of(name, variable, default)
    except ProfileError as error:
        raise AnsibleFilterError(str(error)) from None


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"profile": profile}
