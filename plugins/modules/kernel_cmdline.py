#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_cmdline
short_description: Arguments on the kernel's command line
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Converges arguments of the kernel for the next boot, through the boot loader that is installed (GRUB, loader entries
    with grubby or sdbootutil, systemd-boot, rpm-ostree), and reads back what the entry that boots by default has then.
    An entry that lacks them is a failure, and the file of this module is as it was before. A boot loader whose program
    is not installed is refused before anything changes, in check mode too.
  - What is in effect is what the running kernel was given, and what it made of it, where it tells
    (C(/sys/devices/system/cpu/isolated), C(nohz_full), the types of the IOMMU groups). The rest is pending until a
    reboot, which this module never does.
  - Only the exact arguments that this module set are its own. Arguments of other owners stay, also with
    O(state=absent). The change is refused, with file and line, if an argument of another owner would override the
    declared one. Of C(isolcpus) and C(nohz_full) the kernel takes the first, of most others the last. C(iommu), C(pci)
    and some others are read item by item, and the last item that sets a kernel variable counts. Arguments of different
    names can set the same variable too, such as C(quiet) and C(loglevel), or C(iommu=pt) and C(iommu.passthrough). If
    the declared argument takes effect, the other one is listed in RV(conflicts).
  - With GRUB the arguments go to a drop-in or a marked line that appends to C(GRUB_CMDLINE_LINUX_DEFAULT). Entries for
    recovery do not get them, so what booted before can still be chosen in the menu. The change is refused, with file
    and line, if a later file sets this variable again. With loader entries all entries get them; there the line can be
    edited in the menu.
  - Where sdbootutil makes the entries (grub2-bls and systemd-boot on SUSE), the arguments go to C(/etc/kernel/cmdline)
    and to the entries of the running snapshot. If another snapshot boots by default, the change is refused.
  - Arguments that only a rescue system could repair (C(root), C(init), C(console), C(net.ifnames) and the like) are
    refused, and so is a name that is nearly a known one, since the kernel ignores unknown names silently.
  - Lists of CPUs are checked against the machine before anything changes. Refused are CPUs that it does not have, CPU 0
    or a whole NUMA node isolated, one thread of a core isolated without the other, and lists that look inverted.
  - A crash kernel is loaded with a line of its own. RV(boot) says where that is decided, and which arguments it gets
    too. It has them when the service of kdump has loaded it again, after the reboot.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  arguments:
    description:
      - The arguments by name, where C(-) and C(_) are equal. With V(true) an argument is there without a value, with a
        string or a number it has that value, and with V(false) it must not be there. It is an error where another
        owner sets what is V(false).
      - Words that YAML takes for booleans are to be quoted, as in C(mitigations) with V("off").
      - An argument that is no longer declared is removed where it is ours. C(hugepages) and C(hugepagesz) belong to the
        module M(gpufleet.node.hugepages).
    type: dict
  most_isolated:
    description:
      - Whether C(isolcpus) and C(nohz_full) may isolate more than half of the CPUs. Otherwise such a list is refused,
        since it is most often that of the CPUs for the system.
    type: bool
    default: false
seealso:
  - name: The kernel's command-line parameters
    description: What each argument does.
    link: https://docs.kernel.org/admin-guide/kernel-parameters.html
"""

EXAMPLES = r"""
- name: Pass devices through the IOMMU, and keep the tick away from most CPUs
  gpufleet.node.kernel_cmdline:
    arguments:
      iommu: pt
      nohz_full: 8-15,24-31
      nosmt: false
      mitigations: "off"

- name: Restore what was there before
  gpufleet.node.kernel_cmdline:
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
      description: What it is set on.
      type: str
    setting:
      description: What is set on it.
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
      description: C(now), or C(reboot) when it has to wait for that.
      type: str
needs:
  description: What must still happen, C(reboot) or nothing. It stays until it was done.
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
      description: Who it is, such as C(sysctl.d), C(tuned) or C(kernel command line).
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
  description: Whether RV(needs) has a reboot.
  returned: always, unless the declaration was refused
  type: bool
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
  description: What the running kernel was given, and what it made of it.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    arguments:
      description: The arguments that are declared or ours, by name. Null for one that is not there.
      type: dict
    isolated:
      description: The CPUs that the scheduler leaves alone, where C(isolcpus) is declared.
      type: str
    nohz_full:
      description: The CPUs without a tick, where that is declared.
      type: str
    iommu:
      description: The types of IOMMU groups, where that is declared. Null without an IOMMU.
      type: str
boot:
  description: What the next boot gives the kernel.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    arguments:
      description: The same arguments, as the entry that boots by default has them.
      type: dict
    ours:
      description: The arguments that this module set.
      type: list
      elements: str
    boot_loader:
      description: The boot loader through which they go.
      type: str
    crash_kernel:
      description: What decides the line of the crash kernel, where memory is reserved for one.
      type: dict
      contains:
        path:
          description: The file.
          type: str
        command_line:
          description: The line that it has instead of that of the running kernel, if any.
          type: str
        appended:
          description: What is added to its line.
          type: str
        inherited:
          description: The arguments of this module that it gets too.
          type: list
          elements: str
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kernel_cmdline.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
