#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_slices
short_description: Slices of systemd with the CPUs and memory next to each GPU, and services that the OOM killer spares
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Makes a slice for each GPU (C(gpu-0.slice)) or NUMA node (C(gpu-node0.slice)), with the CPUs and the memory of its
    NUMA node (C(AllowedCPUs=), C(AllowedMemoryNodes=)), without swap (C(MemorySwapMax=0)), and with weights and limits
    of I/O. What is started in a slice stays there with all its children, as by C(numactl --cpunodebind --membind).
  - The command C(gpufleet run --gpu 0 -- COMMAND) on the node starts a command in the slice of its GPU, with
    C(CUDA_VISIBLE_DEVICES) set to its UUID or to that of a MIG instance, and says what it set. With several GPUs the
    command gets the CPUs and memory of all of them. Containers and services can use the slices as well.
  - The NUMA node of a GPU is that of M(gpufleet.node.gpu_node_info), by the driver and by sysfs. Where nobody reports
    it, the GPU is listed in RV(unmanaged). Where the memory of the GPU itself is a NUMA node (Grace), the slice has
    that too.
  - For a slice that is loaded, RV(effective) is what its cgroup says (C(cpuset.cpus.effective),
    C(cpuset.mems.effective), C(memory.swap.max), C(io.weight), C(io.max)); for one that is not, what systemd would give
    it. The files are written if O(immediate) or O(permanent) is true, and apply to what is started in the slice from
    then on.
  - A slice in which something runs is never changed or removed under it. O(when_busy) says what happens then.
  - Before a slice is made or changed, the services in it are read. If a service would keep none of the CPUs in its
    C(CPUAffinity=), the module fails, because the service could not start again (status 215/CPUAFFINITY).
  - The kernel heeds a weight of I/O only on disks with the scheduler bfq or io.cost. On others, such as NVMe drives
    with the scheduler V(none), it is set and not enforced, which RV(unmanaged) says.
  - On a node on which Slurm or Kubernetes is enabled, no slices are made, and RV(unmanaged) says why. Both confine
    their jobs themselves. See O(beside_scheduler).
  - On a machine without cgroup v2 no slices are made, since systemd would ignore C(AllowedCPUs=) there.
  - With O(state=absent), the slices are stopped and their files removed, and protected services have the score that
    they had.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  gpus:
    description:
      - The entries, tried in order for each GPU. The first that matches wins the GPU and makes its slice. A GPU that no
        entry matches has none.
    type: list
    elements: dict
    default: []
    suboptions:
      match:
        description:
          - Which GPUs the entry is for. All keys must agree; each has one value or a list of alternatives, as shell
            globs. Without keys the entry is for all GPUs.
          - The keys are C(index) (the driver's order), C(uuid) (such as C(GPU-4f0c...)), C(pci_address) (such as
            C(0000:17:00.0)), C(pci_id) (vendor and device, such as C(10de:2330)) and C(model) (such as
            C(NVIDIA H100*)).
          - The MIG instances of a GPU share its slice.
        type: dict
        default: {}
      io_weight:
        description:
          - The share of I/O that the slice has of a disk that others want as well, from 1 to 10000. Others have 100.
        type: int
      io_limits:
        description:
          - Limits of I/O, each for a device. They hold whether others want it or not.
        type: list
        elements: dict
        suboptions:
          device:
            description:
              - The block device, such as V(/dev/nvme0n1) or a link of C(/dev/disk). A partition means its disk.
            type: str
            required: true
          read_bandwidth:
            description:
              - How many bytes a second may be read, such as V(5G). V(K), V(M), V(G) and V(T) are powers of 1000.
            type: str
          write_bandwidth:
            description: How many bytes a second may be written.
            type: str
          read_iops:
            description: How many reads a second.
            type: str
          write_iops:
            description: How many writes a second.
            type: str
      swap:
        description:
          - Whether what runs in the slice may be swapped out.
        type: bool
        default: false
      optional:
        description:
          - Whether it is fine if the entry wins no GPU. Otherwise that is an error.
        type: bool
        default: false
  numa_nodes:
    description:
      - NUMA nodes that get a slice, beside those of GPUs or in their place. C(gpufleet run) takes the slice of the node
        where a GPU has none of its own.
    type: list
    elements: dict
    default: []
    suboptions:
      node:
        description:
          - The number of the node. One without CPUs or without memory is an error.
        type: int
        required: true
      io_weight:
        description: As in O(gpus).
        type: int
      io_limits:
        description: As in O(gpus).
        type: list
        elements: dict
        suboptions:
          device:
            description: As in O(gpus).
            type: str
            required: true
          read_bandwidth:
            description: As in O(gpus).
            type: str
          write_bandwidth:
            description: As in O(gpus).
            type: str
          read_iops:
            description: As in O(gpus).
            type: str
          write_iops:
            description: As in O(gpus).
            type: str
      swap:
        description: As in O(gpus).
        type: bool
        default: false
      optional:
        description:
          - Whether a machine may lack the node. Otherwise that is an error.
        type: bool
        default: false
  reserved_cpus:
    description:
      - CPUs that no slice gets, such as those of the system, as V(0-3,64-67).
    type: str
  protected_services:
    description:
      - Services that the kernel ends late, or never, when memory is short, so that a job that needs too much does not
        take the node with it. Each gets a drop-in with C(OOMScoreAdjust=). Where C(systemd-oomd) is enabled, it has
        C(ManagedOOMPreference=avoid) too.
      - The main process of a service that runs gets its score at once. A service that logs people in, or starts their
        jobs, such as C(ssh.service) and C(cron.service), is refused, because what it starts would inherit the score.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description:
          - The service, with the suffix C(.service).
        type: str
        required: true
      oom_score_adjust:
        description:
          - From V(-1000), which is never, to V(0), which is no protection.
        type: int
        default: -900
      optional:
        description:
          - Whether a machine may lack the service. Otherwise that is an error.
        type: bool
        default: false
  launch_group:
    description:
      - The group whose members may use C(gpufleet run) beside root. It gets a rule of polkit for C(pkexec), in
        C(/etc/polkit-1/rules.d/49-gpufleet-gpu_slices.rules).
      - The rule allows one thing, that is to move one's own process into these slices. The right to start units, which
        C(systemd-run --slice) needs, would make each member root.
    type: str
  beside_scheduler:
    description:
      - Whether slices are made on a node on which Slurm or Kubernetes is enabled, for people who work there beside it.
        Its jobs do not run in them.
    type: bool
    default: false
  when_busy:
    description:
      - What happens if something runs in a slice that would change.
      - V(fail) ends the run before anything is changed and names what runs there.
      - V(wait) polls for up to O(busy_timeout) until nothing runs in the slices that change, and then plans again.
        After that it is like V(fail).
      - V(skip) leaves these slices as they are and changes the others. C(idle_slice) is then in RV(needs).
    type: str
    choices: [fail, wait, skip]
    default: fail
  busy_timeout:
    description:
      - How long O(when_busy=wait) waits, in seconds.
    type: int
    default: 600
requirements:
  - On the node, nvidia-ml-py where O(gpus) is declared, which the role P(gpufleet.node.nvml#role) installs.
seealso:
  - name: systemd.resource-control(5)
    description: What the settings of a slice mean.
    link: https://www.freedesktop.org/software/systemd/man/latest/systemd.resource-control.html
  - module: gpufleet.node.numa_irq_affinity
    description: Places the interrupts of the same devices.
"""

EXAMPLES = r"""
- name: Give each GPU a slice, and let the group gpu-users start commands in them
  gpufleet.node.gpu_slices:
    gpus: [{}]
    launch_group: gpu-users

- name: Reserve the first CPUs for the system, and limit what each GPU's slice reads from the data drive
  gpufleet.node.gpu_slices:
    gpus:
      - io_weight: 500
        io_limits:
          - device: /dev/nvme0n1
            read_bandwidth: 5G
    reserved_cpus: 0-3,64-67
    when_busy: wait

- name: Have a slice for each socket, and protect the daemons that jobs need
  gpufleet.node.gpu_slices:
    numa_nodes:
      - node: 0
      - node: 1
    protected_services:
      - name: nvidia-persistenced.service
      - name: nvidia-dcgm.service
        optional: true

- name: Restore what was there before
  gpufleet.node.gpu_slices:
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
      description: The slice, the service, or a file.
      type: str
      sample: gpu-0.slice
    setting:
      description:
        - C(CPUs), C(memory nodes), C(swap limit), C(I/O weight), or a limit such as C(read bandwidth
          of /dev/nvme0n1); C(OOM score) and C(preference of systemd-oomd); C(unit), C(drop-in) and C(rule)
          for files; C(slice) for whether one is loaded.
      type: str
      sample: CPUs
    before:
      description: What was found.
      type: raw
      sample: null
    after:
      description: What was declared.
      type: raw
      sample: 0-31
    scope:
      description: C(effective) for the running system, C(boot) for the next boot.
      type: str
      sample: effective
    takes_effect:
      description: Always C(now).
      type: str
      sample: now
needs:
  description:
    - What must still happen. C(idle_slice) where O(when_busy=skip) left a slice as it is, C(daemon-reload)
      while containers would lose their GPUs by it.
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
  description:
    - Slices that are left to a scheduler, GPUs whose NUMA node nobody reports, and weights that no disk
      heeds.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    object:
      description: The slice, the GPU, or the node.
      type: str
    setting:
      description: What is not made, or not enforced.
      type: str
    reason:
      description: Why.
      type: str
conflicts:
  description: Always empty, since a file of others that decides is an error.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    owner:
      description: Nobody.
      type: str
    path:
      description: No file.
      type: str
    line:
      description: No line.
      type: int
    object:
      description: The object that it is about, as in RV(changes).
      type: str
    setting:
      description: No setting.
      type: str
    value:
      description: No value.
      type: str
    wins:
      description: Nobody.
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
        - C(declaration), C(in_use), C(conflict), C(not_permitted), C(refused), C(not_in_effect), C(cannot_look),
          C(no_driver), C(no_binding) or C(driver_hangs).
      type: str
    object:
      description: The slice, the service or the GPU.
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
  description: The slices as the kernel has them, or as systemd would make them.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    slices:
      description:
        - By name, with C(about) for the GPU or node that it is for, C(active) for whether it is loaded, C(in_use) for
          whether something runs in it, and its settings.
      type: dict
      sample:
        gpu-0.slice:
          about: GPU 0 (GPU-11111111-2222-3333-4444-555555555555)
          active: true
          in_use: false
          CPUs: 0-31
          memory nodes: "0"
          swap limit: "0"
    services:
      description: The score, and the preference of systemd-oomd, of each protected service.
      type: dict
      sample: {"nvidia-persistenced.service": {"OOM score": "-900", "preference of systemd-oomd": "none"}}
    launch_group:
      description: The group that may use C(gpufleet run) beside root, or V(null).
      type: str
      sample: gpu-users
boot:
  description: The same as the files have it.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    slices:
      description: By name, with C(about) and the settings.
      type: dict
      sample: {"gpu-0.slice": {"about": "GPU 0 (GPU-11111111-2222-3333-4444-555555555555)", "CPUs": "0-31"}}
    services:
      description: The same of each protected service.
      type: dict
      sample: {"nvidia-persistenced.service": {"OOM score": "-900", "preference of systemd-oomd": "none"}}
    launch_group:
      description: The group that the polkit rule allows, or V(null).
      type: str
      sample: gpu-users
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_slices.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
