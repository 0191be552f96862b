#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_node
short_description: Drain a Slurm node, or return it to service
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Drains a node and waits until no job is on it, or resumes it. It runs on any host where C(scontrol) and C(squeue)
    work.
  - What this module drains has a reason that begins with C(gpufleet:) and a space. A node that has been drained with
    any other reason is someone else's. It is never drained again, so their reason stays, and never resumed. To take
    over a node that this module has drained, set another reason.
  - Every change is read back from slurmctld.
  - A run that was interrupted leaves the node drained. The next one keeps waiting, or resumes the node.
options:
  name:
    description:
      - The name of the node in C(slurm.conf). Exactly one node.
    type: str
    required: true
  state:
    description:
      - With V(drained) the node gets no new jobs, and the module waits until its jobs have ended. Suspended and
        completing jobs count. A node that is down or failed, or that Slurm is about to reboot, is an error, and is left
        as it is; one that is drained as well as down is drained.
      - With V(in_service) the node is resumed if this module has drained it. Before that its C(slurmd) must respond,
        and register with the resources that C(slurm.conf) has for the node.
    type: str
    choices: [drained, in_service]
    required: true
  reason:
    description:
      - Why the node is drained, one line, which follows the C(gpufleet:) mark. A node that is already drained keeps its
        reason.
    type: str
    default: maintenance
  update_reason:
    description:
      - Whether O(reason) replaces the reason of a node that this module has drained before, for example to say why it
        is not resumed. A node that someone else has drained keeps its reason.
    type: bool
    default: false
  timeout:
    description:
      - How many seconds to wait, with V(drained) for jobs to end, with V(in_service) for C(slurmd) to respond. After
        that the module fails and names the jobs, and the node stays drained. With V(in_service) the timeout applies
        twice, because slurmctld requires another response from a node that it resumes.
      - With V(0) it does not wait. The jobs that remain are in RV(jobs).
    type: int
    default: 3600
  poll:
    description:
      - The maximum number of seconds between two polls. The first ones are closer together.
    type: int
    default: 15
extends_documentation_fragment:
  - gpufleet.node.contract.attributes
attributes:
  check_mode:
    support: full
    description: Predicts the change, and does not wait.
  diff_mode:
    support: full
  idempotent:
    support: full
requirements:
  - Python 3.9 or newer on the host
  - scontrol and squeue of Slurm, as root, as the user of slurmctld or as an operator
notes:
  - Slurm cannot drain a node on the condition that it is not drained yet. If someone drains it between the check and
    the command, a fraction of a second, their reason is overwritten.
  - With power saving, Slurm may power down a node that is drained and idle, unless C(slurm.conf) says
    C(SuspendExcStates=DRAIN).
seealso:
  - name: scontrol
    description: The states of a node, and who may change them.
    link: https://slurm.schedmd.com/scontrol.html
"""

EXAMPLES = r"""
- name: Drain the node, and wait two hours at most
  gpufleet.node.slurm_node:
    name: "{{ inventory_hostname_short }}"
    state: drained
    reason: new MIG layout
    timeout: 7200
  delegate_to: slurm-controller

- name: Resume it, if it was drained by this module
  gpufleet.node.slurm_node:
    name: "{{ inventory_hostname_short }}"
    state: in_service
    timeout: 300
  delegate_to: slurm-controller
"""

RETURN = r"""
name:
  description: The node.
  returned: always, unless the state could not be read
  type: str
  sample: h100-007
owner:
  description: Whose the drain is after the run, C(ours), C(theirs), or C(nobody) if the node is not drained.
  returned: always, unless the state could not be read
  type: str
  sample: ours
node_state:
  description: The state as slurmctld has it.
  returned: always, unless the state could not be read
  type: str
  sample: MIXED+DRAIN
reason:
  description: The whole reason of the drain; empty if there is none.
  returned: always, unless the state could not be read
  type: str
  sample: 'gpufleet: new MIG layout'
drained_by:
  description: The user who drained it; empty if it is not drained.
  returned: always, unless the state could not be read
  type: str
  sample: root
since:
  description: When it was drained, as slurmctld writes it; empty if it is not drained.
  returned: always, unless the state could not be read
  type: str
  sample: '2026-11-22T04:33:41'
idle:
  description: Whether no job is on the node.
  returned: always, unless the state could not be read
  type: bool
  sample: true
jobs:
  description: The jobs that are still on the node.
  returned: always, unless the state could not be read
  type: list
  elements: dict
  contains:
    job:
      description: The number, with that in its array.
      type: str
      sample: '4711_3'
    state:
      description: The state of the job.
      type: str
      sample: RUNNING
    user:
      description: The user of the job.
      type: str
      sample: ada
    partition:
      description: Its partition.
      type: str
      sample: gpu
    time_left:
      description: What is left of its time limit.
      type: str
      sample: '1-02:30:00'
left:
  description: What was left alone because someone else set it, in words; empty if nothing was.
  returned: always, unless the state could not be read
  type: str
  sample: 'it is drained by ada since 2026-11-22T04:33:41: bad DIMM'
changes:
  description: What changed, or in check mode would.
  returned: always, unless the state could not be read
  type: list
  elements: dict
  contains:
    object:
      description: The node.
      type: str
      sample: h100-007
    setting:
      description: C(state) or C(reason).
      type: str
      sample: state
    before:
      description: The value that was found.
      type: str
      sample: in_service
    after:
      description: The new value.
      type: str
      sample: drained
    scope:
      description: Always C(effective); slurmctld keeps it across restarts.
      type: str
      sample: effective
    takes_effect:
      description: Always C(now).
      type: str
      sample: now
failure:
  description: What went wrong, for programs.
  returned: failure
  type: dict
  contains:
    code:
      description:
        - C(declaration), C(in_use), C(refused), C(not_in_effect), C(not_permitted), C(conflict) or C(cannot_look).
      type: str
      sample: in_use
    object:
      description: What it was about.
      type: str
      sample: h100-007
    found:
      description: The value that was found.
      type: raw
    wanted:
      description: The value that was wanted.
      type: raw
    hint:
      description: The next step.
      type: str
      sample: 'it stays drained: run again to keep waiting, or end them'
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run_procedure
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.slurm.procedure import PROCEDURE


def main() -> None:
    run_procedure(PROCEDURE)


if __name__ == "__main__":
    main()
