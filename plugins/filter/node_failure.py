# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: node_failure
short_description: Why a node is not in sync after its concerns were converged
version_added: 0.1.0
description:
  - Takes the look after the run of the concerns, and what made some of them fail. For a concern that failed, the cause
    is its own message, not the difference that it left behind; for the others it is what the look found.
  - A concern that failed and is in sync by now is not mentioned.
positional: _input, failures
options:
  _input:
    description: A result of M(gpufleet.node.node_state).
    type: dict
    required: true
  failures:
    description: The messages of the concerns that failed, by their names.
    type: dict
    required: true
  check_mode:
    description: Whether nothing was changed. What the run would correct is then not a failure.
    type: bool
    default: false
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Fail with the cause
  ansible.builtin.fail:
    msg: "{{ look | gpufleet.node.node_failure(failures) }}"
  when: look.refused is defined
"""

RETURN = r"""
_value:
  description: A line for each concern, those that failed first.
  type: str
"""

from typing import Any, Callable, Dict, Mapping

from ..module_utils._core.setting import IN_SYNC
from ..module_utils._node.look import objections


def node_failure(look: Mapping[str, Any], failures: Mapping[str, str], check_mode: bool = False) -> str:
    found = objections(look, expect=IN_SYNC, check_mode=check_mode)
    causes = {name: str(failures[name]) for name in found if name in failures}
    return "\n".join(f"{name}: {text}" for name, text in {**causes, **found, **causes}.items())


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"node_failure": node_failure}
