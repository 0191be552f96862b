# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: ends_jobs
short_description: Whether what a look found to do would end jobs, or waits for their end
version_added: 0.1.0
description:
  - Takes a result of M(gpufleet.node.node_state). True where instances or the mode of a GPU are to change, where
    something waits for a GPU that nobody uses, and where Docker is to be restarted, with which containers end.
  - Clocks, limits, interrupts, queues and pages change under a job, and a node keeps its work for them.
options:
  _input:
    description: The look.
    type: dict
    required: true
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Take the node out of service where jobs would end
  ansible.builtin.include_role:
    name: gpufleet.node.drain
  when: look | gpufleet.node.ends_jobs
"""

RETURN = r"""
_value:
  description: Whether a node with jobs is to be drained first.
  type: bool
"""

from typing import Any, Callable, Dict, Mapping

from .to_relayout import IDLE_GPU, divides_anew

# What `needs` names that ends jobs when it is seen to.
ENDING = {IDLE_GPU, "restart_docker"}


def ends_jobs(look: Mapping[str, Any]) -> bool:
    needs = (need for result in look["concerns"].values() for need in result["needs"])
    return divides_anew(look) or not ENDING.isdisjoint(needs)


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"ends_jobs": ends_jobs}
