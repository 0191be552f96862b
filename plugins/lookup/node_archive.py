# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: node_archive
short_description: The SHA-256 sum of the program that this controller installs on nodes
version_added: 0.1.0
description:
  - Builds the archive of the command C(gpufleet) from the installed collection, in memory, and returns its sum. The
    same release gives the same sum on every controller.
author:
  - gpufleet contributors (@gpufleet)
seealso:
  - module: gpufleet.node.node_tools
"""

EXAMPLES = r"""
- name: Show which program the nodes should have
  ansible.builtin.debug:
    msg: "{{ lookup('gpufleet.node.node_archive') }}"
"""

RETURN = r"""
_raw:
  description: The sum.
  type: list
  elements: str
"""

from hashlib import sha256
from typing import Any, List, Optional, Sequence

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

from ..plugin_utils.archive import build


class LookupModule(LookupBase):
    """Takes no terms."""

    def run(self, terms: Sequence[Any], variables: Optional[Any] = None, **kwargs: Any) -> List[str]:
        if terms or kwargs:
            raise AnsibleError("Cannot use the lookup node_archive with terms or options: it takes none.")
        return [sha256(build()).hexdigest()]
