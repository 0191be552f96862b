#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nvidia_persistence
short_description: Persistence mode of NVIDIA GPUs
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Converges persistence mode of all GPUs of a machine to the declaration, now and for the next boot, and reads it back
    from the driver. With it the driver keeps a GPU initialised while it is idle. Without it, a GPU loses clock locks,
    the power limit and the compute mode when its last client exits, and the next client waits until the driver has
    initialised the GPU again.
  - If the machine has C(nvidia-persistenced.service), the daemon is used. The module enables its unit, and removes
    C(--no-persistence-mode) from its command line by the drop-in
    C(/etc/systemd/system/nvidia-persistenced.service.d/gpufleet.conf), which keeps every other argument, in particular
    C(--user). A unit without an C([Install]) section that no udev rule starts gets a link in
    C(multi-user.target.wants). C(StopWhenUnneeded=true), as on Ubuntu, is overridden.
  - A running daemon is not restarted; it is told through the driver's library to hold each GPU. It is restarted only
    for a GPU that it does not know, because the GPU appeared after the daemon had started.
  - If there is no such unit, the driver's own flag is set (the legacy way, which the driver logs as deprecated), and
    the boot service of the role C(node_tools) sets it again at every boot.
  - A daemon starts with one mode for all GPUs. If the GPUs are declared with different modes, or if entries leave some
    of them alone, its default stays as it is, and the boot service sets the modes that differ from it.
  - With O(enabled=false) the daemon keeps running, and holds no GPU, now and at boot, because the drop-in then adds
    C(--no-persistence-mode).
  - Systemd is reloaded only if no running container would lose its GPUs by that. Otherwise the modes are set anyway,
    and C(daemon-reload) stays in RV(needs).
  - With O(state=absent), a GPU that is not present is listed in RV(unmanaged), because its mode was lost with it. A GPU
    whose memory would go offline keeps persistence mode until the next boot, and RV(needs) then has C(reboot). Without
    the driver everything else is restored, and the modes are listed there.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  enabled:
    description:
      - Whether persistence mode of all GPUs is on. A machine without a GPU and without the driver is in sync, and has
        its GPUs in RV(unmanaged). So is one whose GPUs are all bound to C(vfio-pci). Any other GPU without the driver
        is not in sync.
      - Exactly one of O(enabled) and O(gpus) must be given.
    type: bool
  gpus:
    description:
      - The entries, tried in order for each GPU. The first that matches wins the GPU, and no later one adds to it.
    type: list
    elements: dict
    default: []
    suboptions:
      match:
        description:
          - Which GPUs the entry is for. All keys must agree; each has one value or a list of alternatives, as shell
            globs. Without keys the entry is for all GPUs.
          - The keys are C(index) (the driver's order), C(uuid), C(pci_address) (such as C(0000:17:00.0)), C(pci_id)
            (vendor and device, such as C(10de:2330), also with those of the board) and C(model) (such as
            C(NVIDIA H100*)).
        type: dict
        default: {}
      enabled:
        description:
          - Whether persistence mode is on. Without it the entry leaves its GPUs alone.
        type: bool
      optional:
        description:
          - Whether the entry may win no GPU. Otherwise that is an error.
        type: bool
        default: false
  force:
    description:
      - Whether persistence mode may be disabled if that takes memory of the machine offline. On coherent platforms
        (such as GH200 and GB200, addressing mode ATS) the memory of a GPU is a NUMA node, which goes online and offline
        with persistence mode. Programs that use it end or fail.
    type: bool
    default: false
requirements:
  - nvidia-ml-py, which the role C(gpufleet.node.nvml) installs
seealso:
  - module: gpufleet.node.gpu_settings
  - name: Driver persistence
    description: The daemon and the legacy flag in NVIDIA's documentation.
    link: https://docs.nvidia.com/deploy/driver-persistence/
  - name: nvidia-persistenced
    description: The source of the daemon, with its options.
    link: https://github.com/NVIDIA/nvidia-persistenced
  - name: systemd.unit(5)
    description: Drop-ins and the order in which they count.
    link: https://www.freedesktop.org/software/systemd/man/latest/systemd.unit.html
"""

EXAMPLES = r"""
- name: Keep every GPU initialised
  gpufleet.node.nvidia_persistence:
    enabled: true

- name: All GPUs but the one that drives a display
  gpufleet.node.nvidia_persistence:
    gpus:
      - match:
          pci_address: "0000:c1:00.0"
        enabled: false
        optional: true
      - enabled: true
        optional: true

- name: Off on a machine whose GPU memory is memory of the machine
  gpufleet.node.nvidia_persistence:
    enabled: false
    force: true

- name: Restore what was there before
  gpufleet.node.nvidia_persistence:
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
      description: The GPU, the unit of the daemon, or the file.
      type: str
      sample: gpu0
    setting:
      description: What is set on it.
      type: str
      sample: persistence_mode
    before:
      description: The value that was found.
      type: raw
      sample: 'off'
    after:
      description: The value that was declared.
      type: raw
      sample: 'on'
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
    - What must still happen. C(daemon-reload) where systemd must not read its units yet, C(reboot) where
      memory of the machine would go offline with O(state=absent).
  returned: always, unless the declaration was refused
  type: list
  elements: str
  sample: [daemon-reload]
pending_reasons:
  description:
    - For each setting that waits for what RV(needs) says, one sentence with the value that is in effect,
      the declared one, and why it waits.
  returned: always, unless the declaration was refused
  type: list
  elements: str
unmanaged:
  description:
    - The GPUs that have no persistence mode, with the reason, as in a virtual machine with a vGPU.
    - With O(state=absent) the GPUs that are not present.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    object:
      description: The GPU, or the UUID of one that is not present.
      type: str
      sample: gpu0
    setting:
      description: Always C(persistence_mode).
      type: str
      sample: persistence_mode
    reason:
      description: Why.
      type: str
      sample: not supported by this GPU
conflicts:
  description:
    - The drop-ins of another owner that set the command line of the daemon.
    - The services, timers and scripts that set the persistence mode at boot with C(nvidia-smi).
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    owner:
      description: C(systemd drop-in), or the unit that runs C(nvidia-smi), or C(rc.local).
      type: str
      sample: systemd drop-in
    path:
      description: The file.
      type: str
      sample: /etc/systemd/system/nvidia-persistenced.service.d/override.conf
    line:
      description: The line in it, null for a drop-in.
      type: int
    object:
      description: The object that it is about, as in RV(changes).
      type: str
    setting:
      description: C(ExecStart) or C(persistence_mode).
      type: str
      sample: ExecStart
    value:
      description: The command line that a drop-in sets, or the mode.
      type: str
      sample: /usr/bin/nvidia-persistenced --no-persistence-mode
    wins:
      description:
        - C(us) if the declaration takes effect at boot anyway, else C(them), which is an error unless
          O(permanent=false).
        - C(unknown) if systemd starts it at the same time as the unit that sets the declared mode, or
          the line depends on a condition.
      type: str
      sample: us
    accepted:
      description: Why O(accepted) accepts it, empty where it does not.
      type: str
reboot_required:
  description: Whether RV(needs) has a reboot.
  returned: always, unless the declaration was refused
  type: bool
  sample: false
reboot_reasons:
  description: Why.
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
      sample: conflict
    object:
      description: What it was about.
      type: str
      sample: nvidia-persistenced.service
    found:
      description: The value that was found.
      type: raw
      sample: /usr/bin/nvidia-persistenced --no-persistence-mode
    wanted:
      description: The value that was wanted.
      type: raw
    hint:
      description: The next step.
      type: str
# End of what all return.
effective:
  description: The running system, as read back from the driver.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    through:
      description: What holds the GPUs, C(daemon) if nvidia-persistenced is listening, else C(legacy).
      type: str
      sample: daemon
    gpus:
      description: By GPU its C(persistence_mode), C(on), C(off), or null where it has none.
      type: dict
      sample: {"gpu0": {"persistence_mode": "on"}}
boot:
  description: What the next boot brings, by the unit of the daemon with all its drop-ins, and by the boot service.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    through:
      description: What holds the GPUs then, C(daemon) if something starts nvidia-persistenced, else C(legacy).
      type: str
      sample: daemon
    gpus:
      description: By GPU its C(persistence_mode), C(on), C(off), or null where it has none.
      type: dict
      sample: {"gpu0": {"persistence_mode": "on"}}
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvidia_persistence.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
