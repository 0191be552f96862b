# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: nvml_binding
short_description: The Python binding of NVML that this controller can install on nodes
version_added: 0.1.0
description:
  - Finds nvidia-ml-py on the controller and returns its release and its sum. The file itself is neither imported nor
    returned.
  - If there is none, it returns the reason and does not fail, because not every node needs the binding.
    M(gpufleet.node.nvml) refuses a declaration with this reason.
options:
  _terms:
    description:
      - A C(pynvml.py), or a wheel of nvidia-ml-py, on the controller. Without it, or when it is empty, the one that the
        controller's own Python would import.
    type: list
    elements: str
author:
  - gpufleet contributors (@gpufleet)
seealso:
  - module: gpufleet.node.nvml
"""

EXAMPLES = r"""
- name: Show which binding the nodes would get
  ansible.builtin.debug:
    msg: "{{ lookup('gpufleet.node.nvml_binding') }}"

- name: Show what is in a wheel
  ansible.builtin.debug:
    msg: "{{ lookup('gpufleet.node.nvml_binding', '/srv/wheels/nvidia_ml_py-13.615.71-py3-none-any.whl').version }}"
"""

RETURN = r"""
_raw:
  description: >-
    One dictionary with the options C(pynvml_sha256), C(version) and C(lacking) of M(gpufleet.node.nvml), empty where
    they have nothing to say.
  type: list
  elements: dict
"""

from typing import Any, Dict, List, Optional, Sequence

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

from ..plugin_utils.binding import options_for


class LookupModule(LookupBase):
    """Takes one term at most."""

    def run(self, terms: Sequence[Any], variables: Optional[Any] = None, **kwargs: Any) -> List[Dict[str, str]]:
        if len(terms) > 1 or kwargs:
            raise AnsibleError("Cannot use the lookup nvml_binding: it takes one file at most, and no options.")
        return [options_for(str(terms[0] or "") if terms else "")]
