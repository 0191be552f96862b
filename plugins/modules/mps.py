#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: mps
short_description: The control daemon of CUDA's Multi-Process Service (MPS), and the limits of its clients
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Runs C(nvidia-cuda-mps-control) for GPUs as the unit C(gpufleet-mps.service), now and at every boot, with the share
    of threads and the memory that each client gets. Programs that are started with
    C(CUDA_MPS_PIPE_DIRECTORY=/run/nvidia-mps) compute at the same time on one GPU. MPS isolates neither their memory
    nor their faults. Where isolation matters, use MIG (M(gpufleet.node.mig_layout)).
  - All whole GPUs that are declared have one daemon. A GPU in MIG mode has one for each of its MIG devices, such as
    C(gpufleet-mps-gpu0-gi1-ci0.service) with its pipes in C(/run/nvidia-mps-gpu0-gi1-ci0), because a CUDA process sees
    only one MIG device. The UUIDs of MIG devices come from the present layout. The boot service creates the same layout
    again, so the UUIDs stay; after a change of the layout the units are written again.
  - RV(effective) is what the daemon and each of its running servers say. A server keeps the limits that it was started
    with. So a new limit takes effect when the daemon is restarted, which this module does only while it has no client.
    It never stops a daemon that has clients. O(when_busy) says what happens then.
  - The module speaks version 2 of the MPS protocol, and tells the daemon to do so too (C(CUDA_MPS_PROTOCOL_VERSION=2)).
    It was tested with the control daemons of the drivers 535.261.03, 550.163.01 and 555.58.02, without a GPU. Servers
    and clients were those of a stand-in. R615 and later, which also have version 3, were not tested.
  - The compute mode belongs to M(gpufleet.node.gpu_settings). See O(exclusive).
  - Another control daemon that serves the same GPUs is an error, whether a Slurm prolog, the device plugin of
    Kubernetes or a user started it. One on other GPUs, and C(Name=mps) in C(gres.conf) of Slurm, are listed in
    RV(conflicts).
  - With O(state=absent), the daemons are stopped once they have no client, and their units are removed. Their logs are
    kept.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  gpus:
    description:
      - The entries, tried in order for each GPU. The first that matches wins the GPU, which is then served by MPS. A
        GPU that no entry matches is not served.
      - Required, unless O(state=absent).
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
        type: dict
        default: {}
      memory_limit:
        description:
          - How much memory of the GPU each client may allocate, as a whole number followed by V(G) or V(M), such as
            V(10G). Without it a client may allocate all.
          - On a GPU in MIG mode it is listed in RV(unmanaged), because NVIDIA documents no limit for a MIG device.
        type: str
      optional:
        description:
          - Whether it is fine if the entry wins no GPU. Otherwise that is an error.
        type: bool
        default: false
  active_thread_percentage:
    description:
      - The percentage of the threads of a GPU that each client may use, above 0 and at most 100, with at most one
        decimal. No threads are reserved for a client, so the sum over all clients may exceed 100. A client may ask for
        less, and never gets more.
    type: str
    default: '100'
  multi_user:
    description:
      - Whether clients of several users share a server. Otherwise a server serves one user at a time, and clients of
        other users wait until it has ended.
      - This needs R555 or later. The daemon of an older driver ignores it, so it is an error there.
    type: bool
    default: false
  exclusive:
    description:
      - Whether no program may bypass MPS. Then it is an error if M(gpufleet.node.gpu_settings) declares another compute
        mode than V(exclusive_process) for a whole GPU. If it declares none, and the GPU is in V(default), this is
        listed in RV(unmanaged).
      - With V(false), the compute mode V(default) is accepted too. V(prohibited) never is.
      - A GPU in MIG mode has V(default) and no other mode.
    type: bool
    default: true
  when_busy:
    description:
      - What happens if a daemon has to be restarted or stopped while it has clients.
      - V(fail) ends the run before anything is changed and names the clients, with their users and jobs.
      - V(wait) polls for up to O(busy_timeout) until it has none, and then plans again. After that it is like V(fail).
      - V(skip) writes the unit and gives the running daemon its new limits, for servers that it starts from then on.
        What does not take effect before the clients end is pending, with C(idle_gpu) in RV(needs).
    type: str
    choices: [fail, wait, skip]
    default: fail
  busy_timeout:
    description:
      - How long O(when_busy=wait) waits, in seconds.
    type: int
    default: 600
requirements:
  - nvidia-ml-py, which the role C(gpufleet.node.nvml) installs
  - nvidia-cuda-mps-control, of the package nvidia-cuda-mps (Debian), nvidia-compute-utils of the driver's branch
    (Ubuntu), or nvidia-driver-cuda (EL)
seealso:
  - module: gpufleet.node.gpu_settings
  - module: gpufleet.node.mig_layout
  - name: NVIDIA Multi-Process Service
    description: When MPS helps, its limits, and the commands of the control daemon.
    link: https://docs.nvidia.com/deploy/mps/
"""

EXAMPLES = r"""
- name: Let each client use 18 GB and 40 percent of the threads of its GPU
  gpufleet.node.mps:
    gpus:
      - memory_limit: 18G
    active_thread_percentage: 40

- name: Share two GPUs among small jobs of several users, once the present clients have ended
  gpufleet.node.mps:
    gpus:
      - match:
          index: [6, 7]
    multi_user: true
    when_busy: wait
    busy_timeout: 3600

- name: Stop the daemons, and give the GPUs back
  gpufleet.node.mps:
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
      description: The unit, the GPU or MIG device, or the file.
      type: str
      sample: gpufleet-mps.service
    setting:
      description:
        - C(GPUs), C(active thread percentage), C(multi-user), C(memory limit), C(service), C(start at
          boot) or C(unit).
      type: str
      sample: active thread percentage
    before:
      description:
        - The value that was found. Where a running server has another one than its daemon, it names both.
      type: raw
      sample: '100'
    after:
      description: The value that was declared.
      type: raw
      sample: '40'
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
    - What must still happen. C(idle_gpu) where clients keep a value from taking effect, C(daemon-reload)
      where systemd must not read its units yet.
  returned: always, unless the declaration was refused
  type: list
  elements: str
  sample: [idle_gpu]
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
      description: The GPU.
      type: str
      sample: gpu0
    setting:
      description: What was declared for it.
      type: str
      sample: memory limit
    reason:
      description: Why.
      type: str
      sample: NVIDIA documents no limit for a MIG device, whose memory is its own
conflicts:
  description: Who else runs MPS on this node.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    owner:
      description:
        - C(another nvidia-cuda-mps-control), C(the device plugin of Kubernetes) or C(Slurm gres/mps).
      type: str
      sample: another nvidia-cuda-mps-control
    path:
      description: The directory of its pipes, its mark in /run, or the file.
      type: str
      sample: /tmp/nvidia-mps
    line:
      description: The line in the file, else null.
      type: int
    object:
      description: The object that it is about, as in RV(changes).
      type: str
    setting:
      description: What it sets too.
      type: str
      sample: GPUs
    value:
      description: The value that it has.
      type: str
      sample: all
    wins:
      description: C(them) if it serves a GPU that is declared here, which is an error, else C(us).
      type: str
      sample: us
    accepted:
      description: Why O(accepted) accepts it, empty where it does not.
      type: str
reboot_required:
  description: Always V(false).
  returned: always, unless the declaration was refused
  type: bool
  sample: false
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
        - C(declaration), C(conflict), C(in_use), C(not_permitted), C(refused), C(not_in_effect), C(cannot_look),
          C(no_driver), C(no_binding) or C(driver_hangs).
      type: str
      sample: in_use
    object:
      description: What it was about.
      type: str
      sample: gpufleet-mps.service
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
  description: The daemons that run, as they and their servers say.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    daemons:
      description:
        - By unit its C(pipe_directory), C(gpus), C(active_thread_percentage), C(memory_limits), C(multi_user) and
          C(servers), which have the values of each server by its process, and its C(clients).
        - A daemon that does not answer has a C(fault) in their place.
      type: dict
      sample:
        gpufleet-mps.service:
          pipe_directory: /run/nvidia-mps
          gpus: [gpu0]
          active_thread_percentage: '40'
          memory_limits: {gpu0: 10G}
          multi_user: false
          servers:
            '4711':
              active_thread_percentage: '40'
              memory_limits: {gpu0: 10G}
              clients: ['python3 (pid 4720, user alice, job 77)']
boot:
  description: The daemons that the next boot starts, as their units say with all drop-ins.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    daemons:
      description: The same without C(servers).
      type: dict
      sample:
        gpufleet-mps.service:
          pipe_directory: /run/nvidia-mps
          gpus: [gpu0]
          active_thread_percentage: '40'
          memory_limits: {gpu0: 10G}
          multi_user: false
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mps.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
