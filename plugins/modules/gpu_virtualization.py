#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_virtualization
short_description: GPUs for virtual machines, passed through as a whole or as vGPUs
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Binds GPUs to C(vfio-pci), now and at every boot, so that virtual machines can have them as they are (passthrough),
    or returns them to the driver of the host.
  - Or divides GPUs into vGPUs on their virtual functions (O(gpus[].vgpus)). C(current_vgpu_type) of each function says
    what is in effect. vGPUs do not survive a reboot, so the boot service creates them again. Only vGPUs beyond the
    declared count are removed, and never one that a virtual machine uses.
  - RV(effective) is what sysfs says about the driver and the IOMMU group of each GPU. The other functions in the slot
    of a GPU, such as sound and USB, are bound with it. Any other device in its IOMMU group that is bound to a driver is
    an error, because a virtual machine gets a whole group or nothing.
  - At boot, the unit C(gpufleet-passthrough.service) binds the GPUs before systemd-udevd handles any device, and so
    before the driver of the host is loaded. It binds a PCI address only if the device there still has the same vendor
    and device ID. If the initramfs loads the driver of the host, that driver gets the GPUs first, and the boot service
    C(gpufleet-boot.service) moves them afterwards.
  - A GPU that is in use is never unbound. The kernel would not refuse that, but would wait in a process that cannot be
    killed until the last user ends. The processes and virtual machines that have its device files open are named, and
    O(when_busy) says what happens. Before an unbind, the driver is told to admit no new clients, and the GPU is checked
    once more.
  - Without an IOMMU, no GPU can be passed to a virtual machine. The error says what has to change. If
    M(gpufleet.node.kernel_cmdline) declares C(intel_iommu=on) on this node, the change is pending until the reboot.
  - The console of the machine, and a GPU whose virtual functions are enabled, are refused as well.
  - Mediated devices (mdev), vGPUs that are backed by MIG, partitions of NVSwitch boards, and the GPUs of Grace machines
    (GH200, GB200), which need C(nvgrace-gpu-vfio-pci), are not managed.
  - With O(state=absent), everything is bound to its former driver again, with the former vGPUs, once it is not in use.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  gpus:
    description:
      - The entries, tried in order for each GPU. The first that matches wins the GPU. A GPU that no entry matches is
        left alone, and returns to its former driver if an earlier declaration bound it.
      - Required, unless O(state=absent).
    type: list
    elements: dict
    default: []
    suboptions:
      match:
        description:
          - Which GPUs the entry is for. All keys must agree; each has one value or a list of alternatives, as shell
            globs. Without keys the entry is for all GPUs.
          - The keys are C(pci_address) (such as C(0000:17:00.0)) and C(pci_id) (vendor and device, such as
            C(10de:2330)). There are no others, because no driver reports the model of a GPU that is bound to
            C(vfio-pci). Put both in quotes, because YAML reads some of them as numbers.
        type: dict
        default: {}
      driver:
        description:
          - V(vfio-pci) for a GPU that one virtual machine gets as a whole.
          - V(nvidia) for a GPU of the host. Then another owner that binds it to C(vfio-pci) at boot is an error.
          - Either this or O(gpus[].vgpus) is required.
        type: str
        choices: [vfio-pci, nvidia]
      vgpus:
        description:
          - The vGPUs that each of the GPUs is to have. The GPU stays with the driver of the host, which must be
            NVIDIA's driver for vGPU hosts.
          - Only vGPUs as in Linux 6.8 and vGPU 17 or newer, with C(current_vgpu_type) in sysfs, and only time-sliced
            ones. Mediated devices and types that are backed by MIG are refused.
          - vGPUs of a GPU that is no longer declared stay until the next boot, which does not create them.
        type: list
        elements: dict
        suboptions:
          type:
            description:
              - The type, as C(nvidia-smi vgpu -s) names it, with or without the name of the vendor.
            type: str
            required: true
          count:
            description:
              - How many vGPUs of this type.
            type: int
            required: true
      optional:
        description:
          - Whether the entry may win no GPU. Otherwise that is an error.
        type: bool
        default: false
  when_busy:
    description:
      - What happens if a GPU has to be unbound while it is in use.
      - V(fail) ends the run before anything is changed, and names what uses the GPU.
      - V(wait) polls until nothing uses it, for up to O(busy_timeout), and then plans again. After that it is like
        V(fail).
      - V(skip) leaves the GPU and the rest of its IOMMU group as they are for now, and changes only the next boot. The
        change is pending, with C(idle_gpu) in RV(needs). A GPU that is no longer declared returns to the host at the
        next boot.
    type: str
    choices: [fail, wait, skip]
    default: fail
  busy_timeout:
    description:
      - How long O(when_busy=wait) waits, in seconds.
    type: int
    default: 600
requirements:
  - nvidia-smi, to unbind a GPU from NVIDIA's driver
  - for vGPUs, nvidia-ml-py, which the role P(gpufleet.node.nvml#role) installs, and sriov-manage of the driver
seealso:
  - module: gpufleet.node.kernel_cmdline
  - name: VFIO
    description: IOMMU groups, and what has to be bound to pass a device to a virtual machine.
    link: https://docs.kernel.org/driver-api/vfio.html
"""

EXAMPLES = r"""
- name: Give all GPUs to virtual machines
  gpufleet.node.gpu_virtualization:
    gpus:
      - driver: vfio-pci

- name: Keep the first for the host
  gpufleet.node.gpu_virtualization:
    gpus:
      - match:
          pci_address: "0000:17:00.0"
        driver: nvidia
      - driver: vfio-pci
    when_busy: wait
    busy_timeout: 3600

- name: Divide GPUs into four vGPUs each
  gpufleet.node.gpu_virtualization:
    gpus:
      - vgpus:
          - type: NVIDIA L40S-12Q
            count: 4

- name: Return the GPUs to the drivers that they had
  gpufleet.node.gpu_virtualization:
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
      description: The PCI address of the function, the unit, or the file.
      type: str
      sample: '0000:17:00.0'
    setting:
      description:
        - C(driver), C(driver override), C(virtual functions), C(vGPUs), C(new clients), C(start at boot)
          or C(unit).
      type: str
      sample: driver
    before:
      description:
        - The value that was found. Null for no driver, or no override.
      type: raw
      sample: nvidia
    after:
      description: The value that was declared.
      type: raw
      sample: vfio-pci
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
    - What must still happen. C(idle_gpu) where a GPU is in use, C(reboot) where the IOMMU comes with
      the next boot, C(daemon-reload) where systemd must not read its units yet.
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
  description: What is not restored, with the reason.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    object:
      description: The PCI address of the function.
      type: str
      sample: '0000:17:00.0'
    setting:
      description: Always C(driver).
      type: str
      sample: driver
    reason:
      description: Why.
      type: str
      sample: the GPU is missing
conflicts:
  description: Other software that binds a declared GPU to another driver.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    owner:
      description:
        - C(driverctl), C(modprobe.d), C(kernel command line), C(libvirt) or C(GPU Operator).
      type: str
      sample: libvirt
    path:
      description: The file.
      type: str
      sample: /etc/libvirt/qemu/one.xml
    line:
      description: The line in the file, else null.
      type: int
    object:
      description: The object that it is about, as in RV(changes).
      type: str
    setting:
      description: What it has a say in.
      type: str
      sample: 0000:17:00.0 driver
    value:
      description: What it says.
      type: str
      sample: managed='yes'
    wins:
      description: Always C(them). With driverctl, modprobe.d and the command line it is an error too.
      type: str
      sample: them
    accepted:
      description: Why O(accepted) accepts it, empty where it does not.
      type: str
reboot_required:
  description: Whether the IOMMU comes with the next boot.
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
          C(no_driver), C(no_binding), C(driver_hangs) or C(no_iommu).
      type: str
      sample: in_use
    object:
      description: What it was about.
      type: str
      sample: '0000:17:00.0'
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
  description: The GPUs as sysfs shows them.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    gpus:
      description:
        - By PCI address the C(driver), null for none, and the C(iommu_group), null without an IOMMU. C(devices) are the
          files by which a virtual machine gets a GPU that is bound to C(vfio-pci). C(vgpus) are how many there are of
          each type, where they are declared.
      type: dict
      sample:
        '0000:17:00.0':
          driver: vfio-pci
          iommu_group: '12'
          devices: [/dev/vfio/12, /dev/vfio/devices/vfio0]
boot:
  description: The GPUs as the next boot binds them.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    gpus:
      description:
        - By PCI address the C(driver), null where it is not known, and the declared C(vgpus).
      type: dict
      sample:
        '0000:17:00.0': {driver: vfio-pci}
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_virtualization.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
