# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: gpu_users
short_description: The programs that work on the GPUs of a node
version_added: 0.1.0
description:
  - Takes the GPUs as M(gpufleet.node.gpu_node_info) lists them, and names the processes that compute on them. Daemons
    that only watch are none of them.
positional: _input
options:
  _input:
    description: The GPUs of a node; null if they could not be listed, which counts as no users.
    type: list
    elements: dict
    required: true
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Show which programs use the GPUs
  ansible.builtin.debug:
    msg: "{{ info.node.gpus | gpufleet.node.gpu_users }}"
"""

RETURN = r"""
_value:
  description: Each process with its program and the numbers of its GPUs.
  type: list
  elements: str
"""

from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

WORK = frozenset(("compute", "mps"))


def gpu_users(gpus: Optional[Sequence[Mapping[str, Any]]]) -> List[str]:
    used: Dict[Tuple[int, str], List[str]] = {}
    for gpu in gpus or ():
        for process in gpu.get("processes") or ():
            if WORK.intersection(process["types"]):
                used.setdefault((process["pid"], process["name"] or "unnamed"), []).append(str(gpu["index"]))
    return [f"process {pid} ({name}) on GPU {', '.join(indices)}" for (pid, name), indices in used.items()]


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"gpu_users": gpu_users}
