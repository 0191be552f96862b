#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: job_environment
short_description: Set environment variables for all jobs, and the node's defaults of NCCL
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Sets environment variables where jobs get them from, which is a different file for each kind of job. O(places)
    chooses among them, O(units) names services, and O(nccl) is what NCCL itself reads.
  - Sessions (ssh, su, cron, console login) get what pam_env reads from C(/etc/environment). Lines of this module stand
    there between two comments, and nothing else in it is touched. C(/etc/profile.d) is not used, because only
    login shells read it, and C(ssh host command) and cron do not.
  - Services get C(DefaultEnvironment=) of systemd, and named services C(Environment=) in a drop-in of their unit.
    systemd is re-executed or reloaded to read it. No service is restarted. The module reads from C(/proc/PID/environ)
    what a running service was started with. A variable that it gets only at its next start is pending, with that
    restart in RV(needs). For C(services), only the services that start the processes of others are checked (slurmd,
    container engines, kubelet, sshd, cron). Nothing is said about a service that has overwritten its environment, as
    sshd does.
  - Jobs of Slurm do not have the environment of slurmd. They get what
    C(/etc/slurm/gpufleet-task_prolog.sh) prints, if C(slurm.conf) names that script as C(TaskProlog), or a script that
    runs it. C(slurm.conf) is only read, because it is the same on all nodes of a cluster and has its own owner. Until
    it names the script, this is listed in RV(unmanaged). The script does not change what a job has set itself.
  - Containers get none of these. They get the variables, and C(/etc/nccl.conf), if they request the CDI device
    C(gpufleet.node/environment=job), which is in C(/etc/cdi/gpufleet-job_environment.json).
  - C(/etc/nccl.conf) is read and written by the rules of NCCL, which trims nothing and uses the first of several lines
    with one name. So the lines of this module stand before those of others, which stay.
  - Names are compared with a table of the variables of NCCL, OpenMP, UCX, PyTorch, TensorFlow and allocators. A name
    that no release reads is still set, and is listed in RV(unmanaged) with the nearest name or its successor. A value
    that the program would misread, such as a word where NCCL expects a number, is an error.
  - A change applies to processes that start from now on. Running processes keep their environment.
  - With O(state=absent), the lines and files of this module are removed. The files of others are then as they were.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  variables:
    description:
      - The variables with their values, for everything in O(places).
      - Values are strings or integers. A boolean is refused, because programs differ in how they spell one.
      - These are refused too. Variables that belong to one process or one job (such as C(PATH), C(CUDA_VISIBLE_DEVICES)
        and C(MASTER_ADDR)). C(LD_PRELOAD) and others that load code into every program. Names that look like those of
        secrets (such as C(HF_TOKEN)), because every user of the node could read them.
    type: dict
  places:
    description:
      - Who gets O(variables). V(sessions) through C(/etc/environment), V(services) through C(DefaultEnvironment=) of
        systemd, V(slurm) through the TaskProlog, V(containers) through CDI.
      - With V(services), every service of the node gets them, including those that run no jobs.
    type: list
    elements: str
    choices: [sessions, services, slurm, containers]
    default: [sessions]
  units:
    description:
      - Variables of named services, whatever O(places) contains.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description:
          - The service, with the suffix C(.service).
        type: str
        required: true
      variables:
        description:
          - Its variables, as in O(variables).
        type: dict
        required: true
      optional:
        description:
          - Whether a machine may lack the service. Otherwise that is an error.
        type: bool
        default: false
  nccl:
    description:
      - The lines of C(/etc/nccl.conf). NCCL uses them for variables that the environment of a process does not set,
        wherever the process was started. In a container they apply only with V(containers) in O(places), and if it
        requests the CDI device.
      - Variables of other libraries that NCCL loads, such as C(UCX_TLS), may be set here too.
      - C(NCCL_SOCKET_IFNAME) must match an interface of the machine. Otherwise every job on several nodes would fail.
    type: dict
seealso:
  - name: Environment variables of NCCL
    description: What they do, since which release, and which of them are for debugging only.
    link: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
  - name: pam_env(8)
    description: What a session gets from C(/etc/environment).
    link: https://man7.org/linux/man-pages/man8/pam_env.8.html
  - name: systemd.exec(5)
    description: What C(Environment=) does.
    link: https://www.freedesktop.org/software/systemd/man/latest/systemd.exec.html
  - name: Prolog and epilog of Slurm
    description: What slurmd takes from a TaskProlog.
    link: https://slurm.schedmd.com/prolog_epilog.html
  - module: gpufleet.node.resource_limits
"""

EXAMPLES = r"""
- name: Let NCCL use one interface for its sockets, and log warnings
  gpufleet.node.job_environment:
    nccl:
      NCCL_SOCKET_IFNAME: "=bond0"
      NCCL_DEBUG: WARN

- name: Set the allocator of PyTorch for jobs of all kinds
  gpufleet.node.job_environment:
    variables:
      # Releases differ in which of the two names they read.
      PYTORCH_ALLOC_CONF: expandable_segments:True
      PYTORCH_CUDA_ALLOC_CONF: expandable_segments:True
    places: [sessions, slurm, containers]

- name: Give one service a variable
  gpufleet.node.job_environment:
    units:
      - name: inference.service
        variables:
          TF_FORCE_GPU_ALLOW_GROWTH: "true"

- name: Restore what was there before
  gpufleet.node.job_environment:
    state: absent
"""

RETURN = r"""
# What the modules of all concerns return. `make docs` keeps the keys, not the sentences and samples.
status:
  description: What was found before the run, one of C(in_sync), C(drifted) and C(pending).
  returned: success
  type: str
  sample: drifted
changes:
  description: The plan, which check mode and real mode share.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    object:
      description: The place, C(nccl), C(services) for all services, a unit, or the file.
      type: str
      sample: nccl
    setting:
      description: The variable, or C(variables) for the file.
      type: str
      sample: NCCL_DEBUG
    before:
      description: What was found.
      type: raw
      sample: null
    after:
      description: What was declared.
      type: raw
      sample: WARN
    scope:
      description: C(effective) for what starts now, C(boot) for what starts after the next boot.
      type: str
      sample: effective
    takes_effect:
      description: Always C(now).
      type: str
      sample: now
needs:
  description:
    - What must still happen, such as C(restart of containerd.service), C(daemon-reload), C(daemon-reexec)
      or nothing.
  returned: always, unless the declaration was refused
  type: list
  elements: str
  sample: []
pending_reasons:
  description:
    - For each setting that waits for what RV(needs) says, one sentence with the value that is in effect,
      the declared one, and why it waits.
  returned: always, unless the declaration was refused
  type: list
  elements: str
unmanaged:
  description:
    - Places that nothing on this machine reads, and names that no release reads or that were replaced
      by others.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    object:
      description: The place or unit.
      type: str
      sample: nccl
    setting:
      description: The variable, or what is missing.
      type: str
      sample: NCCL_COLLECTIVE_ENABLE
    reason:
      description: Why.
      type: str
      sample: NCCL never had it; it has NCCL_COLLNET_ENABLE
conflicts:
  description: What else sets these variables.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    owner:
      description: C(environment), C(profile), C(nccl) or C(systemd).
      type: str
      sample: nccl
    path:
      description: The file.
      type: str
      sample: /root/.nccl.conf
    line:
      description: The line in it, C(null) for systemd.
      type: int
      sample: 1
    object:
      description: The object that it is about, as in RV(changes).
      type: str
    setting:
      description: Whose variable, and which.
      type: str
      sample: nccl NCCL_DEBUG
    value:
      description: The value that the line sets.
      type: str
      sample: INFO
    wins:
      description: C(them) for what is stronger or comes later, C(us) otherwise.
      type: str
      sample: them
    accepted:
      description: Why O(accepted) accepts it, empty where it does not.
      type: str
reboot_required:
  description: Always false.
  returned: always, unless the declaration was refused
  type: bool
  sample: false
reboot_reasons:
  description: Always empty.
  returned: always, unless the declaration was refused
  type: list
  elements: str
  sample: []
failure:
  description: What went wrong, for programs.
  returned: failure
  type: dict
  contains:
    code:
      description:
        - C(declaration), C(conflict), C(not_permitted), C(refused), C(not_in_effect) or C(cannot_look).
      type: str
      sample: conflict
    object:
      description: What it was about.
      type: str
      sample: nccl
    found:
      description: The value that was found.
      type: raw
      sample: INFO
    wanted:
      description: The value that was wanted.
      type: raw
      sample: WARN
    hint:
      description: The next step.
      type: str
# End of what all return.
effective:
  description: The variables of this module, as a process that starts now gets them.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    nccl:
      description: What NCCL reads from C(/etc/nccl.conf).
      type: dict
      sample: {"NCCL_DEBUG": "WARN"}
    sessions:
      description: What a new session gets.
      type: dict
      sample: {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    slurm:
      description: What a task of Slurm gets, empty as long as C(slurm.conf) does not name the script.
      type: dict
      sample: {}
    containers:
      description: What a container gets with the CDI device.
      type: dict
      sample: {}
    services:
      description: What C(services) and each unit have, read from the process where one runs.
      type: dict
      sample: {"inference.service": {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}}
boot:
  description: The same after the next boot.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    nccl:
      description: As in RV(effective).
      type: dict
      sample: {"NCCL_DEBUG": "WARN"}
    sessions:
      description: As in RV(effective).
      type: dict
      sample: {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}
    slurm:
      description: As in RV(effective).
      type: dict
      sample: {}
    containers:
      description: As in RV(effective).
      type: dict
      sample: {}
    services:
      description: What the files of systemd have. V(null) where none sets the variable.
      type: dict
      sample: {"inference.service": {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}}
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.job_environment.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
