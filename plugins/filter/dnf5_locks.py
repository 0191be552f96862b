# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: dnf5_locks
short_description: The file in which dnf 5 holds packages, with entries of one owner
version_added: 0.1.0
description:
  - Makes the text of C(/etc/dnf/versionlock.toml) with these packages held in one version. Entries of others stay. If
    nothing changes, the text stays as it is; otherwise comments outside entries are lost, as when dnf writes the file.
  - It fails on a file that dnf cannot read either.
options:
  _input:
    description: The text of the file; empty if there is none.
    type: str
    required: true
  _packages:
    description: The packages.
    type: list
    elements: str
    required: true
  _version:
    description:
      - The version with its epoch and release, such as V(0:1.18.1-1).
      - If empty, the entries of the owner are removed.
    type: str
    required: true
  _comment:
    description: The C(comment) of the entries, by which the owner is known.
    type: str
    required: true
positional: _packages, _version, _comment
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Hold a package in its version
  ansible.builtin.copy:
    dest: /etc/dnf/versionlock.toml
    content: "{{ locks.content | b64decode | gpufleet.node.dnf5_locks(['bash'], '0:5.2.15-5', 'by the playbook') }}"
    mode: "0644"
"""

RETURN = r"""
_value:
  description: The text of the file.
  type: str
"""

from typing import Any, Callable, Dict, Sequence

from ansible.errors import AnsibleFilterError

from ..module_utils._core.errors import GpuFleetError
from ..plugin_utils.dnf5_locks import with_locks


def dnf5_locks(text: str, packages: Sequence[str], version: str, comment: str) -> str:
    """The text of the file with these packages held."""
    try:
        return with_locks(text, packages, version, comment)
    except GpuFleetError as error:
        raise AnsibleFilterError(str(error)) from error


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"dnf5_locks": dnf5_locks}
