#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_gpus
short_description: The GPUs, MIG instances and shares that Slurm allocates on a compute node
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Keeps C(gres.conf), the node's C(Gres=) in C(slurm.conf) and C(cgroup.conf) of a compute node in step with the GPUs
    and MIG instances that the driver has. A MIG layout that Slurm does not know leaves the node C(INVAL) and drained.
  - What is in effect is what slurmctld says of the node, and whether slurmd started after its files were written.
  - If something changes, slurmctld is restarted where it runs on this node, then slurmd. C(scontrol reconfigure) does
    not take up a changed count. Running jobs survive a restart of these daemons. A run that changes which GPUs there
    are fails while jobs are on the node, also suspended ones, since Slurm would end them.
  - A drain that slurmctld set because the node registered too few GPUs is ended once it registers them. Any other
    drain stays, those of C(gpufleet.node.drain) too, which that role ends.
  - Lines of others for GPUs in C(gres.conf) are commented out, and come back with O(state=absent).
  - A slurmd that gets its configuration from the controller (C(--conf-server)) reads no local file. Such a node is
    listed in RV(unmanaged) with the C(Gres=) that the controller needs.
  - It manages neither the C(slurm.conf) of other hosts nor a line there that stands for several nodes. A run fails with
    the value that such a line must have.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  devices:
    description:
      - V(explicit) writes a line for each GPU and each MIG instance, which every build of Slurm takes.
      - V(nvml) writes C(AutoDetect=nvml), and slurmd finds the devices, cores and links by itself. It is refused where
        Slurm has no C(gpu_nvml.so), as in the packages of Debian and Ubuntu.
      - Required, unless O(state=absent).
    type: str
  folder:
    description:
      - The folder of C(slurm.conf), C(gres.conf) and C(cgroup.conf).
    type: path
    default: /etc/slurm
  node_name:
    description:
      - The C(NodeName) of this node. Without it, the part of its host name before the first dot.
    type: str
  types:
    description:
      - Names for the C(Type) of GPUs, tried in order for each GPU. Without one it is the model as Slurm itself names
        it, such as C(nvidia_h100_80gb_hbm3). The type of a MIG instance is that with its profile, such as
        C(h100_1g.10gb).
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
      type:
        description:
          - The name, of letters, digits, dots, hyphens and underscores.
        type: str
        required: true
      optional:
        description:
          - Whether it is fine if the entry wins no GPU. Otherwise that is an error.
        type: bool
        default: false
  cores:
    description:
      - Whether lines have the C(Cores) near a GPU. Slurm takes whole sockets only, so these are the cores of the
        sockets that the GPU is near. They are left out if that is all sockets, and if C(slurm.conf) has other sockets
        and cores than this machine, which RV(unmanaged) then says.
      - With C(numa_node_as_socket) or C(l3cache_as_socket) in C(SlurmdParameters), a socket is what these say.
      - Only for O(devices=explicit).
    type: bool
    default: true
  links:
    description:
      - Whether lines have the number of NVLinks to each other GPU. They are left out where no GPU has a direct link to
        another one, as with NVSwitches, and where a GPU is in MIG mode.
      - Only for O(devices=explicit).
    type: bool
    default: true
  shards:
    description:
      - Into how many shards each GPU is divided, which jobs ask for with C(--gres=shard:1). Slurm allocates a GPU
        either as a whole or in shards, and does not limit what a shard takes.
      - Refused while a GPU is in MIG mode, and together with O(mps).
    type: int
  mps:
    description:
      - The C(Count) of C(gres/mps) of each GPU, mostly 100 for percent of its threads.
      - Refused while a GPU is in MIG mode, and together with O(shards).
    type: int
  constrain_devices:
    description:
      - Whether C(cgroup.conf) has C(ConstrainDevices=yes), so that a job can open its own GPUs only. It works with
        C(task/cgroup) in C(TaskPlugin); without that it is listed in RV(unmanaged).
      - With V(false) it is left as it is.
    type: bool
    default: true
seealso:
  - name: gres.conf(5)
    description: The files of generic resources in Slurm.
    link: https://slurm.schedmd.com/gres.conf.html
  - module: gpufleet.node.mig_layout
  - module: gpufleet.node.slurm_node
"""

EXAMPLES = r"""
- name: Keep the GPUs in Slurm as they are in the driver
  gpufleet.node.slurm_gpus:
    devices: explicit
    types:
      - match:
          model: NVIDIA H100*
        type: h100
        optional: true

- name: Divide each GPU into eight shards
  gpufleet.node.slurm_gpus:
    devices: explicit
    shards: 8

- name: Restore what was there before
  gpufleet.node.slurm_gpus:
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
      description: The node, the device or the file.
      type: str
      sample: /dev/nvidia0
    setting:
      description: C(Gres), C(gpu), C(shard), C(mps), C(AutoDetect), C(ConstrainDevices) and others.
      type: str
      sample: gpu
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
      description: C(now).
      type: str
needs:
  description:
    - What must still happen, C(restart_slurmctld) where that runs on another host. It stays until it
      was done.
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
      description: What the setting was declared for.
      type: str
    setting:
      description: The setting that it does not have, or that is not restored.
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
      description: Who it is, such as C(gres.conf).
      type: str
    path:
      description: The file.
      type: str
    line:
      description: The line in it, where there is one.
      type: int
    object:
      description: The object that it is about, as in RV(changes).
      type: str
    setting:
      description: What it sets.
      type: str
    value:
      description: The value it sets.
      type: str
    wins:
      description: Whose value stays in the end. One of C(us), C(them) and C(unknown).
      type: str
    accepted:
      description: Why O(accepted) accepts it, empty where it does not.
      type: str
reboot_required:
  description: Always C(false).
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
        - C(declaration), C(conflict), C(not_permitted), C(refused), C(not_in_effect) or C(cannot_look).
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
  description: The state of the node in slurmctld, and the lines that slurmd has read.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    node:
      description: The name of the node in Slurm.
      type: str
      sample: h001
    slurmd:
      description: Whether slurmd runs, C(running), C(stopped), C(failed), or C(null) where it is not installed.
      type: str
      sample: running
    state:
      description: The state of the node, C(null) where slurmd does not run.
      type: str
      sample: IDLE
    gres:
      description: The generic resources that slurmctld has of it.
      type: str
      sample: gpu:h100:8
boot:
  description: The same at the next start of the daemons.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    gres:
      description: What C(slurm.conf) has of the node.
      type: str
      sample: gpu:h100:8
    lines:
      description: The lines of this module in C(gres.conf).
      type: list
      elements: str
      sample: ["Name=gpu Type=h100 File=/dev/nvidia0 Cores=0-31"]
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.slurm_gpus.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
