#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: cpu_isolation
short_description: CPUs for the daemons of the system, which leave the others to jobs
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Confines the daemons of the system to O(housekeeping_cpus) through C(AllowedCPUs=) of slices of systemd, so that
    jobs have the other CPUs for themselves. What is in effect is read from C(cpuset.cpus.effective) of the control
    group of each slice, and systemd itself applies it at boot.
  - Without O(daemons), the whole C(system.slice) is confined. It is refused where jobs or containers run below it, or
    would run. That is so with C(slurmd.service) (all jobs are in C(system.slice), unless C(CgroupSlice=) in
    C(cgroup.conf) of Slurm 25.11 and newer names another slice, which is then refused instead, below
    C(slurmstepd.scope), or C(NODENAME_slurmstepd.scope) where Slurm was built for several slurmd on a node), with
    C(docker.service) whose C(cgroup-parent) is not another slice, with batch systems whose jobs are children of their
    daemon, and with containers that run as services (Quadlet). Pods are in C(kubepods.slice) and are not affected.
  - With O(daemons), the named services are in a C(housekeeping.slice), and C(system.slice) stays as it is. A service
    that runs is moved by its next start. Until then it is pending, and RV(needs) says which service has to be
    restarted. No service is restarted by this module.
  - The list is checked against the machine before anything changes. Refused are CPUs that it does not have or that are
    offline, one thread of a core without the other, a NUMA node without any of them, all CPUs, and lists that look
    inverted.
  - If a service below a confined slice would keep none of the CPUs in its C(CPUAffinity=), by its unit file or a
    drop-in, the module fails, because the service could not start again (status 215/CPUAFFINITY). A service that keeps
    some of its CPUs starts on these. C(CPUAffinity=numa) stands for the CPUs of C(NUMAMask=). A value with specifiers
    other than C(%i) is not checked. C(CPUAffinity=) in C(system.conf) does not make a start fail, and is not checked
    either.
  - These services are read only when the CPUs of a slice or the slice of a service are to change. One that gets such a
    C(CPUAffinity=) later is not reported until then.
  - A CPU that C(isolcpus) or C(nohz_full) isolates cannot be one for the system. Where M(gpufleet.node.kernel_cmdline)
    declares it, both are refused by one look; else the message names who isolates it.
  - The kernel may keep a limit after its C(AllowedCPUs=) was removed. Such a limit is lifted if this module set it,
    with O(state=absent) too, and on C(system.slice) also if somebody else did. Where the kernel keeps a list of CPUs
    while processes run below the slice, the slice gets all CPUs that the machine may ever have.
  - C(AllowedCPUs=) is set on slices only. A unit with C(Delegate=) below one, such as containerd, is confined with its
    slice; the control groups that it made itself are not written to.
  - It needs version 2 of control groups with the C(cpuset) controller. Elsewhere systemd ignores C(AllowedCPUs=), and
    the slices are listed in RV(unmanaged). Kernel threads are not confined; that is what C(isolcpus) and C(nohz_full)
    are for. Interrupts are those of M(gpufleet.node.numa_irq_affinity).
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  housekeeping_cpus:
    description:
      - The CPUs for the system, such as V(0-3,32-35), whole cores of every NUMA node. It is required with
        O(state=present).
    type: str
  slices:
    description:
      - The slices that are confined. With an empty list that is C(system.slice) without O(daemons), and none with
        them.
      - C(user.slice) has the sessions of people, with what they start by SSH. The root slice cannot be confined.
      - A slice that is no longer declared has its CPUs again.
    type: list
    elements: str
    default: []
  daemons:
    description:
      - Services that run in C(housekeeping.slice), which has O(housekeeping_cpus).
      - One that divides its control group itself (C(Delegate=) with the C(cpuset) controller, such as Docker and
        slurmd) is refused, since what it starts there would be confined with it.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description:
          - The service, with the suffix C(.service).
        type: str
        required: true
      optional:
        description:
          - Whether a machine may lack the service. Otherwise that is an error.
        type: bool
        default: false
  most_housekeeping:
    description:
      - Whether O(housekeeping_cpus) may have more than half of the CPUs. Otherwise such a list is refused, since it is
        most often that of the CPUs for jobs.
    type: bool
    default: false
  when_busy:
    description:
      - What happens if something is at work below a slice that would lose CPUs, that is a container, a job, or a unit
        that has a GPU open and is no daemon of NVIDIA.
      - V(fail) ends the run before anything is changed and names it.
      - V(wait) polls for up to O(busy_timeout) until nothing is at work there any more, and then plans again. After
        that it is like V(fail).
      - V(skip) leaves this slice as it is. RV(needs) then says whose end it waits for.
      - What starts jobs or containers there again and again is refused in any case.
    type: str
    choices: [fail, wait, skip]
    default: fail
  busy_timeout:
    description:
      - How long O(when_busy=wait) waits, in seconds.
    type: int
    default: 600
seealso:
  - name: systemd.resource-control(5)
    description: What C(AllowedCPUs=) does.
    link: https://www.freedesktop.org/software/systemd/man/latest/systemd.resource-control.html
  - module: gpufleet.node.kernel_cmdline
    description: Isolates CPUs in the kernel.
  - module: gpufleet.node.numa_irq_affinity
    description: Places interrupts.
"""

EXAMPLES = r"""
- name: Leave all CPUs but two cores of each socket to jobs
  gpufleet.node.cpu_isolation:
    housekeeping_cpus: 0-1,32-33,64-65,96-97

- name: Confine single services on a node of Slurm, whose jobs are in system.slice
  gpufleet.node.cpu_isolation:
    housekeeping_cpus: 0-1,32-33
    daemons:
      - name: chrony.service
      - name: nvidia-dcgm.service
        optional: true

- name: Wait until what has a GPU open has ended
  gpufleet.node.cpu_isolation:
    housekeeping_cpus: 0-1,32-33
    when_busy: wait

- name: Restore what was there before
  gpufleet.node.cpu_isolation:
    state: absent
"""

RETURN = r"""
# What the modules of all concerns return. `make docs` keeps the keys, not the sentences and samples.
status:
  description: What was found before the run, one of C(in_sync), C(drifted) and C(pending).
  returned: success
  type: str
changes:
  description: The plan, which check mode and real mode share.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    object:
      description: The slice, the service, or the drop-in.
      type: str
    setting:
      description: C(CPUs) of a slice, C(slice) of a service, or C(drop-in).
      type: str
    before:
      description: The value that was found.
      type: raw
    after:
      description: The value that was declared.
      type: raw
    scope:
      description: C(effective) for the running system, C(boot) for the next boot.
      type: str
    takes_effect:
      description: Always C(now).
      type: str
needs:
  description:
    - What must still happen, such as C(restart of chrony.service), C(end of vllm.service) with O(when_busy=skip),
      or C(daemon-reload) while containers would lose their GPUs by it.
  returned: always, unless the declaration was refused
  type: list
  elements: str
pending_reasons:
  description:
    - For each setting that waits for what RV(needs) says, one sentence with the value that is in effect,
      the declared one, and why it waits.
  returned: always, unless the declaration was refused
  type: list
  elements: str
unmanaged:
  description: What was declared and this machine does not have, with the reason.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    object:
      description: The slice.
      type: str
    setting:
      description: C(CPUs).
      type: str
    reason:
      description: Why.
      type: str
conflicts:
  description: Who else sets what is declared.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    owner:
      description:
        - C(systemd), by a drop-in of somebody else, or what is at work below a slice that is confined.
      type: str
    path:
      description: The file, or the control group of the slice.
      type: str
    line:
      description: Always V(null).
      type: int
    object:
      description: The object that it is about, as in RV(changes).
      type: str
    setting:
      description: The slice with C(AllowedCPUs).
      type: str
    value:
      description: The value of the file, or what is at work.
      type: str
    wins:
      description: Always C(us).
      type: str
    accepted:
      description: Why O(accepted) accepts it, empty where it does not.
      type: str
reboot_required:
  description: Always false.
  returned: always, unless the declaration was refused
  type: bool
reboot_reasons:
  description: Always empty.
  returned: always, unless the declaration was refused
  type: list
  elements: str
failure:
  description: What went wrong, for programs.
  returned: failure
  type: dict
  contains:
    code:
      description:
        - C(declaration), C(conflict), C(in_use), C(not_permitted), C(refused), C(not_in_effect) or C(cannot_look).
      type: str
    object:
      description: What it was about.
      type: str
    found:
      description: The value that was found.
      type: raw
    wanted:
      description: The value that was wanted.
      type: raw
    hint:
      description: The next step.
      type: str
# End of what all return.
effective:
  description:
    - Whose the CPUs are. In C(cpus), C(system) are those of what is confined (V(null) without a limit), C(jobs) the
      rest of those that are C(online), and C(isolated) what C(isolcpus) and C(nohz_full) say, as declared or as the
      running kernel has it.
    - The CPUs of each slice in use, V(null) without a limit, and the slice in which each daemon runs.
  returned: always, unless the declaration was refused
  type: dict
  sample:
    cpus: {system: "0-3", jobs: "4-63", isolated: {nohz_full: "4-63"}, online: "0-63"}
    slices: {system.slice: "0-3"}
    daemons: {}
boot:
  description: What the files of systemd say of each slice and each daemon.
  returned: always, unless the declaration was refused
  type: dict
  sample: {slices: {system.slice: "0-3"}, daemons: {}}
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.cpu_isolation.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
