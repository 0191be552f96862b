#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: mig_layout
short_description: MIG mode and instances of NVIDIA GPUs
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Brings the MIG mode of the GPUs of a machine, their GPU instances and their compute instances to what is declared,
    in one call, through NVML, and reads them back through a new connection to the driver.
  - Only GPUs that have drifted are touched, and of them only the instances that differ. An instance that satisfies the
    declaration stays, with its UUID and what runs on it. Of all ways to get there the module takes the one that
    destroys the fewest instances, those in use last of all.
  - The declaration of a GPU is exact. An instance that is not declared is destroyed, and so is one that has lost its
    compute instances. Instances are told apart by profile, placement and compute instances, never by their number.
  - A layout that the GPU cannot have is an error before any change, which names the nearest one that it can.
  - What is in use is never destroyed. The process, container, unit or kernel module that blocks the change is named,
    and O(when_busy) says what then happens.
  - The layouts that were found are recorded before the first step. If a step fails, the old layout and mode are
    restored, and the error says so.
  - A run that was interrupted by SIGKILL or a power cut leaves that record behind. Every look then names the GPUs that
    have neither the old nor the new layout, and changes nothing. The next run of the module, or the boot service,
    finishes what is declared and restores the previous layout of a GPU that is not declared. A GPU in use waits, and
    stays on record.
  - On GPUs before Hopper (A100, A30) a change of the mode ends every client of the GPU. The module disables persistence
    mode of that GPU meanwhile, and resets it with C(nvidia-smi) if the driver keeps the mode pending; persistence mode
    is restored whatever happens. GPUs that are joined by NVLink without a fabric manager are reset together, and no
    others. On Hopper and later the mode changes at once.
  - A reset loses clocks, power limit and compute mode. M(gpufleet.node.gpu_settings) sets them again, in the same run
    of the playbook C(gpufleet.node.site).
  - If the GPU is passed through to this virtual machine, a new mode may stay pending until the machine is restarted.
    C(reboot) is then in RV(needs) on every run, and the instances are created at that start or in the first run after
    it.
  - Instances never survive a reboot, and from Hopper on neither does the mode. So, unless O(permanent=false), the
    declaration requires the boot service of the role P(gpufleet.node.node_tools#role), which applies it before
    container engines, kubelet and slurmd start. It prefers the placements that were verified last, which are in
    C(/var/lib/gpufleet/mig_layout.json).
  - Consumers that do not know the new instances yet are in RV(needs) until they have been notified. The module restarts
    nothing; the handlers of the role P(gpufleet.node.mig_layout#role) do that.
  - With O(state=absent), the mode and the layout of the GPUs from before the first change are restored. Without the
    driver everything else is restored, and what only the driver could restore is listed in RV(unmanaged).
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  gpus:
    description:
      - The entries, tried in order for each GPU. The first that matches wins the GPU, and no later one adds to it.
        GPUs that no entry matches are left alone.
    type: list
    elements: dict
    default: []
    suboptions:
      match:
        description:
          - Which GPUs the entry is for. All keys must agree; each has one value or a list of alternatives, as shell
            globs. Without keys the entry is for all GPUs.
          - The keys are C(index) (the driver's order), C(uuid) (such as C(GPU-4f0c...)), C(pci_address) (such as
            C(0000:17:00.0)), C(pci_id) (vendor and device as C(lspci -n) shows them, such as C(10de:2330), also with
            those of the board, C(10de:2330:10de:16c1)) and C(model) (such as C(NVIDIA H100*)).
        type: dict
        default: {}
      mig:
        description:
          - The MIG mode. With V(enabled), and neither O(gpus[].layout) nor O(gpus[].instances), only the mode is
            declared, and the instances are left alone.
          - With V(disabled) a GPU that cannot do MIG is as declared. With V(enabled) it is an error.
        type: str
        choices: [enabled, disabled]
        default: enabled
      layout:
        description:
          - A named layout, which is resolved for each model, so that one entry serves GPUs of several. Either this or
            O(gpus[].instances).
          - C(all-1g), C(all-2g), C(all-3g) and so on are as many of the plain instances with so many compute slices as
            the GPU holds.
          - C(whole) is one instance that takes the whole GPU.
          - C(balanced) is one large, one middle and two small instances, C(3g), C(2g) and twice C(1g), and on GPUs
            with four slices C(2g) and twice C(1g).
          - A name that the GPU has no layout for is an error, which lists those it has.
        type: str
      instances:
        description:
          - The GPU instances, in any order. An empty list means none. Either this or O(gpus[].layout).
          - An element is the name of a profile, such as V(3g.40gb) or V(1g.10gb+me); the number of a profile, such as
            V(19); or a dictionary.
          - A name is looked up on each GPU, first as the driver spells it, then as slices alone (V(3g), V(1g+me)), then
            as another version of the driver spells it on the same board. A name of another board is an error.
          - V(1c.3g.40gb) is a GPU instance C(3g.40gb) with one compute instance C(1c) in it, and nothing else. With a
            count that is higher than the number of C(3g.40gb) that fit on the GPU, these are compute instances that
            share GPU instances, as in mig-parted. With a lower count that could mean either, it is an error that says
            how to write both.
          - A dictionary has the keys C(profile) (a name or a number, required), C(count) (how many, 1 when it is
            missing), C(placement) (the memory slice at which the instance begins, only with a count of 1) and
            C(compute_instances).
          - C(compute_instances) is a list of names (V(1c) or V(1c.3g.40gb)) or of dictionaries with the keys C(profile)
            and C(placement) (the first compute slice inside the GPU instance). Without it the instance has one compute
            instance of all its slices.
          - Without it, any placement satisfies the entry, preferably the current one.
        type: list
        elements: raw
      optional:
        description:
          - Whether the entry may win no GPU. Otherwise that is an error. With this in every entry a machine without
            GPUs and without a driver is as declared.
        type: bool
        default: false
  when_busy:
    description:
      - What happens if something is in use that the change would destroy.
      - V(fail) ends the run before anything is changed and names what blocks the change.
      - V(wait) polls for up to O(busy_timeout) until all GPUs that change are free at the same time, and then plans
        again. After that it is like V(fail). The boot service does not wait.
      - V(skip) leaves these GPUs as they are and changes the others. C(idle_gpu) is then in RV(needs).
    type: str
    choices: [fail, wait, skip]
    default: fail
  busy_timeout:
    description:
      - How long O(when_busy=wait) waits, in seconds.
    type: int
    default: 600
  stop_services:
    description:
      - Systemd units that may be stopped during the reset of a GPU because they hold it open, such as
        V(nvidia-dcgm.service). Their processes do not block the reset then. Units that ran are started again, whatever
        happens. Units that do not exist are ignored.
      - Nothing is stopped where no GPU has to be reset.
    type: list
    elements: str
    default: []
requirements:
  - nvidia-ml-py on the node, which the role P(gpufleet.node.nvml#role) installs
  - nvidia-smi on the node, where GPUs before Hopper change their mode
notes:
  - The filter P(gpufleet.node.from_mig_parted#filter) converts a configuration file of NVIDIA's mig-parted to O(gpus).
  - The playbook C(gpufleet.node.mig_repartition) does this node after node, with hooks that drain and resume each.
seealso:
  - module: gpufleet.node.gpu_node_info
  - module: gpufleet.node.gpu_settings
  - module: gpufleet.node.nvidia_persistence
  - name: NVIDIA Multi-Instance GPU User Guide
    description: Profiles, placements, and what each GPU can be divided into.
    link: https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
  - name: NVML API reference
    description: The functions that change MIG mode and instances.
    link: https://docs.nvidia.com/deploy/nvml-api/group__nvmlMultiInstanceGPU.html
"""

EXAMPLES = r"""
- name: One line for a fleet of several models
  gpufleet.node.mig_layout:
    gpus:
      - layout: balanced

- name: A mixed layout on two GPUs, and no MIG on the others
  gpufleet.node.mig_layout:
    gpus:
      - match:
          index: [0, 1]
        instances:
          - 3g.40gb
          - 2g.20gb
          - profile: 1g.10gb+me
          - profile: 1g.10gb
      - mig: disabled

- name: One instance shared by two compute instances, at a fixed place
  gpufleet.node.mig_layout:
    gpus:
      - match:
          pci_address: "0000:17:00.0"
        instances:
          - profile: 3g.40gb
            placement: 4
            compute_instances: [1c, 2c]
          - profile: 1g.10gb
            count: 4

- name: Wait for jobs to end, and let monitoring make way for the reset of an A100
  gpufleet.node.mig_layout:
    gpus:
      - match:
          model: "*A100*"
        optional: true
        layout: all-1g
    when_busy: wait
    busy_timeout: 3600
    stop_services: [nvidia-dcgm.service, nvidia-dcgm-exporter.service]

- name: Restore what was there before
  gpufleet.node.mig_layout:
    state: absent
"""

RETURN = r"""
# What the modules of all concerns return. `make docs` keeps the keys, not the sentences and samples.
status:
  description:
    - What was found before the run, one of C(in_sync), C(drifted), C(pending), C(unknown) and C(invalid).
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
      description: The GPU by the driver's index, or the file.
      type: str
      sample: gpu0
    setting:
      description:
        - C(mig), C(instances), C(declaration) for the file, C(run) for what a killed run left unfinished.
        - C(interrupted_change), in assessments, for a GPU that such a run left halfway between two layouts.
        - C(reset) for a GPU that is reset, on its own account or because another one is.
      type: str
      sample: instances
    before:
      description: The value that was found.
      type: raw
      sample: 1g.10gb@0-6
    after:
      description: The value that was declared, with the placements that the plan has found for it.
      type: raw
      sample: 1g.10gb@0-1 2g.20gb@2 3g.40gb@4
    scope:
      description: C(effective) for the running system, C(boot) for the next boot.
      type: str
      sample: effective
    takes_effect:
      description: Always C(now). A mode that stays pending is in RV(needs) after the run.
      type: str
      sample: now
needs:
  description:
    - What must still happen, on every run until it did.
    - C(reboot) where a new mode waits for one, C(idle_gpu) where O(when_busy=skip) left a GPU as it is.
    - C(cdi), C(device_plugin), C(gpu_feature_discovery), C(dra_driver), C(dcgm), C(dcgm_exporter) and
      C(slurm) where these have not heard of the instances that are there now; each only where it is on
      the machine. RV(effective.consumers) says how they are notified.
  returned: always, unless the declaration was refused
  type: list
  elements: str
  sample: [cdi, device_plugin]
pending_reasons:
  description:
    - For each setting that waits for what RV(needs) says, one sentence with the value that is in effect,
      the declared one, and why it waits.
  returned: always, unless the declaration was refused
  type: list
  elements: str
unmanaged:
  description:
    - GPUs without MIG that are declared with C(mig=disabled), with the reason; an error with O(strict=true).
    - With O(state=absent) what was changed on GPUs that are not present.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    object:
      description: The GPU, or the UUID of one that is not present.
      type: str
      sample: gpu0
    setting:
      description: The setting that it does not have, or that is not restored.
      type: str
      sample: mig
    reason:
      description: Why.
      type: str
      sample: not supported by this GPU
conflicts:
  description:
    - C(nvidia-mig-manager.service) where it is enabled, for it applies its own layout at every boot.
    - The services, timers and scripts that set another mode, or create or destroy instances, at boot
      with C(nvidia-smi).
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    owner:
      description: The unit, or C(rc.local).
      type: str
      sample: nvidia-mig-manager.service
    path:
      description: Its file, or the script.
      type: str
      sample: /usr/lib/systemd/system/nvidia-mig-manager.service
    line:
      description: The line in it, null for C(nvidia-mig-manager.service).
      type: int
    object:
      description: The object that it is about, as in RV(changes).
      type: str
    setting:
      description: What it sets as well.
      type: str
      sample: instances
    value:
      description: What it sets it to, empty where that is not known.
      type: str
      sample: the layout of its own configuration
    wins:
      description:
        - Whose value wins at boot. C(them) of what runs C(nvidia-smi) is an error unless O(permanent=false).
        - C(unknown) if systemd starts it at the same time as C(gpufleet-boot.service), or the line depends
          on a condition.
      type: str
      sample: them
    accepted:
      description: Why O(accepted) accepts it, empty where it does not.
      type: str
reboot_required:
  description: Whether a new mode waits for a reboot.
  returned: always, unless the declaration was refused
  type: bool
  sample: false
reboot_reasons:
  description: Which GPUs wait for the reboot.
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
        - C(declaration), C(in_use), C(not_permitted), C(refused), C(not_in_effect), C(cannot_look), C(no_driver),
          C(no_binding) or C(driver_hangs).
      type: str
      sample: in_use
    object:
      description: What it was about.
      type: str
      sample: gpu0
    found:
      description: The value that was found. What blocks the change is in C(msg).
      type: raw
      sample: 1g.10gb@0-6
    wanted:
      description: The value that was wanted.
      type: raw
      sample: 1g.10gb@0-1 2g.20gb@2 3g.40gb@4
    hint:
      description: The next step.
      type: str
# End of what all return.
effective:
  description: What is in effect, as the driver reports it.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    gpus:
      description:
        - By GPU its mode (C(mig), V(enabled) or V(disabled)) and its C(instances).
        - Instances are grouped by profile, with the memory slices at which they begin. Compute instances follow in
          brackets where they are not one of all slices; C([]) is an instance without any.
      type: dict
      sample: {"gpu0": {"mig": "enabled", "instances": "1g.10gb@0-1 2g.20gb@2 3g.40gb@4[1c@0 2c@1]"}}
    consumers:
      description:
        - The consumers that do not know the current instances, by their names in RV(needs).
        - Each has the C(units) to restart, the C(pids) to end where no unit of this machine runs them (their container
          engine or kubelet starts them again), and the C(files) to write where no unit does it.
      type: dict
      sample: {"cdi": {"units": ["nvidia-cdi-refresh.service"], "pids": [], "files": []},
               "device_plugin": {"units": [], "pids": [4711], "files": []}}
boot:
  description:
    - What the next boot brings. That is the declaration where it is on the node and the boot service applies it, with
      the placements that are recorded for it. Otherwise there are no instances then, and the GPU has the mode that it
      keeps itself.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    gpus:
      description: By GPU the mode and the instances, as in RV(effective.gpus).
      type: dict
      sample: {"gpu0": {"mig": "enabled", "instances": "1g.10gb@0-1 2g.20gb@2 3g.40gb@4[1c@0 2c@1]"}}
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
