#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_modules
short_description: Kernel modules that are always loaded, others that never are, and parameters of modules
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Loads modules now and at every boot, such as those of the NVIDIA driver, and keeps others from ever being loaded,
    such as nouveau. What is loaded is read back from C(/proc/modules).
  - The next boot is two files, C(/etc/modules-load.d/gpufleet-kernel_modules.conf) and
    C(/etc/modprobe.d/gpufleet-kernel_modules.conf). RV(boot) is computed from all files of modules-load.d and
    modprobe.d, and from the kernel command line of the next boot.
  - The parameters of modules are a third file, C(/etc/modprobe.d/zz-gpufleet-kernel_modules.conf). What is in effect is
    read from C(/sys/module), and for the driver of NVIDIA from C(/proc/driver/nvidia/params). Values are compared as
    the kernel reads them, so V(0660) there is 432. A module takes its parameters only when it is loaded - one that is
    loaded with other values keeps them until it is loaded again, or until the next boot, and RV(reboot_reasons) says
    so. Nothing is written to a loaded module.
  - Dependencies are loaded too and are listed in RV(changes). A module that is no longer declared stays loaded until
    the next boot.
  - A blocked module that is loaded is unloaded with C(rmmod) when nothing uses it. Otherwise it stays until the next
    boot, and RV(reboot_reasons) says what uses it.
  - When the list of blocked modules or a parameter changes for a module that is on disk, the initramfs of all installed
    kernels is rebuilt with C(update-initramfs) or C(dracut), if one of them is installed, because it may contain the
    module and a copy of the file. On openSUSE and SUSE with grub2-bls or systemd-boot, C(sdbootutil mkinitrd) rebuilds
    those of the running snapshot, and on a system of rpm-ostree the initramfs is left alone.
  - The new images are then listed with C(lsinitramfs) or C(lsinitrd), if it is installed. If an image contains the
    module but not the file, as dracut builds it with C(hostonly=no), the run fails and names the option to change.
    Until that is corrected RV(status) is V(drifted), and each run builds the images again.
  - A later look only compares the size, time and inode of the images with a note in C(/var/lib/gpufleet). If dracut has
    built a new image since, or there is no note yet, RV(status) is V(drifted) until the next run lists it, without a
    build. An image of initramfs-tools is up to date if it is newer than the files.
  - A module that is to be loaded and that a file of someone else, or the kernel command line, stops at boot is an
    error, which names file and line. It is an error too if a file that sorts after ours, or the kernel command line,
    gives a declared parameter another value. Lines of others that load a blocked module, or that give a parameter
    another value and come before ours, are listed in RV(conflicts).
  - Only the modules of the running kernel count as installed. Run again after a new kernel was booted.
  - With O(state=absent), a module that was loaded here and is in use by then stays loaded, and is listed in
    RV(unmanaged).
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  load:
    description:
      - Names of modules that are loaded now and at every boot. In a name C(-) and C(_) are equal.
      - One that is built into the kernel counts as loaded. One that the running kernel does not have is listed in
        RV(unmanaged), and left out of the file.
    type: list
    elements: str
    default: []
  block:
    description:
      - Names of modules that are never loaded, neither for a device, nor by their name, nor because another module
        needs them. This kernel need not have them.
      - One that is built into the kernel cannot be blocked.
      - One that the running machine depends on is refused before any change. These are the modules behind the file
        systems of C(/), C(/usr), C(/var), C(/boot) and the EFI partition and their devices, those that drive the
        interface of a default route, and their dependencies.
    type: list
    elements: str
    default: []
  parameters:
    description:
      - Parameters of modules, by module a mapping of parameters to values. A value is a string, a number or a boolean,
        which is written as 1 or 0. Write a list as one string, such as V(1,2), and an octal number as a string with
        quotes, such as V(0660).
      - A parameter that the module does not have, and a value that is not of its type, are refused before any change
        where C(modinfo) is installed - the kernel ignores the first, and does not load a module with the second. For
        C(nvme) there may be no more poll and write queues than CPUs.
      - A module that is built into the kernel takes parameters from the kernel command line alone, and is refused
        unless the command line has the value.
      - A module that the running kernel does not have is listed in RV(unmanaged), and left out of the file. A parameter
        that a loaded module does not show is listed there too, but its value is written for the next load.
      - It needs O(permanent=true).
    type: dict
    default: {}
seealso:
  - name: modules-load.d(5)
    description: How modules are loaded at boot.
    link: https://www.freedesktop.org/software/systemd/man/latest/modules-load.d.html
  - name: modprobe.d(5)
    description: What C(blacklist), C(install) and C(options) do.
    link: https://man7.org/linux/man-pages/man5/modprobe.d.5.html
  - name: The kernel's command-line parameters
    description: C(module_blacklist=) in the documentation of the kernel.
    link: https://docs.kernel.org/admin-guide/kernel-parameters.html
"""

EXAMPLES = r"""
- name: Have the NVIDIA driver loaded from boot on, and nouveau never
  gpufleet.node.kernel_modules:
    load: [nvidia, nvidia_uvm]
    block: [nouveau]

- name: The same with GPUDirect RDMA, on nodes that must have the driver
  gpufleet.node.kernel_modules:
    load: [nvidia, nvidia_uvm, nvidia_peermem]
    block: [nouveau]
    strict: true

- name: Let everybody profile, and only the group video use GPUs
  gpufleet.node.kernel_modules:
    parameters:
      nvidia:
        NVreg_RestrictProfilingToAdminUsers: 0
        NVreg_DeviceFileMode: "0660"
        NVreg_DeviceFileGID: 44  # video on Debian and Ubuntu, 39 on Red Hat: see getent group video

- name: Have queues for polled I/O, and others for writes
  gpufleet.node.kernel_modules:
    parameters:
      nvme:
        poll_queues: 8
        write_queues: 4

- name: Prepare the next boot, and leave the running system alone
  gpufleet.node.kernel_modules:
    block: [nouveau]
    immediate: false

- name: Restore what was there before
  gpufleet.node.kernel_modules:
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
      description: The module, the file, or C(initramfs).
      type: str
      sample: nvidia_uvm
    setting:
      description:
        - C(state) or C(parameter) with its name for a module, else what the file or the initramfs holds.
      type: str
      sample: state
    before:
      description: What was found.
      type: raw
      sample: not loaded
    after:
      description: What was declared.
      type: raw
      sample: loaded
    scope:
      description: C(effective) for the running system, C(boot) for the next boot.
      type: str
      sample: effective
    takes_effect:
      description: C(now), or C(reboot) for a module or parameter that waits for it.
      type: str
      sample: now
needs:
  description: What must still happen, C(reboot) or nothing.
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
    - Modules that were to be loaded or get parameters and that the running kernel does not have, with
      the reason.
    - Parameters that a loaded module does not show.
    - With O(state=absent) modules that could not be restored.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    object:
      description: The module.
      type: str
      sample: nvidia
    setting:
      description: C(state), or C(parameter) with its name.
      type: str
      sample: state
    reason:
      description: Why.
      type: str
      sample: the NVIDIA driver is not installed for this kernel (6.8.0-45-generic)
conflicts:
  description: What else contradicts the declaration.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    owner:
      description: C(modules-load.d), C(modprobe.d) or C(kernel command line).
      type: str
      sample: modules-load.d
    path:
      description: The file.
      type: str
      sample: /etc/modules-load.d/site.conf
    line:
      description: The line in it, where it is known.
      type: int
      sample: 3
    object:
      description: The object that it is about, as in RV(changes).
      type: str
    setting:
      description: The module and what of it.
      type: str
      sample: nouveau state
    value:
      description: The content of the line.
      type: str
      sample: nouveau
    wins:
      description: Who has it in the end, C(us) or C(them).
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
  sample:
    - 'nouveau state is loaded, wanted not loaded: in use by drm_client'
failure:
  description: What went wrong, for programs.
  returned: failure
  type: dict
  contains:
    code:
      description:
        - C(declaration), C(conflict), C(in_use), C(not_permitted), C(refused), C(not_in_effect) or C(cannot_look).
      type: str
      sample: conflict
    object:
      description: What it was about.
      type: str
      sample: nvidia
    found:
      description: The value that was found.
      type: raw
      sample: blacklisted
    wanted:
      description: The value that was wanted.
      type: raw
      sample: loaded
    hint:
      description: The next step.
      type: str
# End of what all return.
effective:
  description: The modules of the running kernel.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    modules:
      description: By name C(loaded) or C(not loaded).
      type: dict
      sample: {"nvidia": "loaded", "nouveau": "not loaded"}
    parameters:
      description: With O(parameters), by module and parameter what is in effect; null where the module is not loaded,
        or does not show it.
      type: dict
      sample: {"nvidia": {"NVreg_DeviceFileMode": "432"}}
boot:
  description: What the next boot brings.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    modules:
      description:
        - By name C(loaded), when something asks for it; C(on demand), when it is loaded only if a device or another
          module needs it; C(blacklisted), when no device brings it, while others still may; C(blocked), when nothing
          does.
      type: dict
      sample: {"nvidia": "loaded", "nouveau": "blocked"}
    parameters:
      description: With O(parameters), by module and parameter what the next load brings; null for the module's default.
      type: dict
      sample: {"nvidia": {"NVreg_DeviceFileMode": "0660"}}
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kernel_modules.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
