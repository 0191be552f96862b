#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: kernel_tunables
short_description: Kernel tunables (sysctl), in effect and at boot
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Sets keys of C(/proc/sys) in the running kernel and for the next boot, and reads back what the kernel made of them.
    A value that the kernel takes and changes is an error, which names both.
  - The next boot gets them from C(/etc/sysctl.d/zz-gpufleet-kernel_tunables.conf). What a boot brings is computed from
    everyone who has a say, in their own order, that is C(sysctl.KEY=) on the kernel's command line, all folders of
    C(sysctl.d) as systemd-sysctl reads them (a file hides those of its name in weaker folders, a key goes before
    patterns), and tuned, with its C(reapply_sysctl).
  - What would win over that file is an error, which names file and line. What loses is listed in RV(conflicts), and so
    is C(/etc/sysctl.conf), which C(sysctl --system) reads last. Next to a kubelet, keys that it sets itself are refused
    unless they have its value.
  - A key of a kernel module that is not loaded, or of a network interface that is not there, is kept for when it is,
    and pending until then. For modules, C(/etc/udev/rules.d/99-gpufleet-kernel_tunables.rules) lets systemd-sysctl set
    it when the module is loaded.
  - C(vm.dirty_ratio) and C(vm.dirty_bytes), and the two of C(vm.dirty_background_), set each other to 0. Declare one of
    a pair; both are watched and restored. C(vm.min_free_kbytes) is in sync when it is at least what is declared,
    because khugepaged raises it.
  - C(fs.nr_open) is refused if any hard limit of open files in C(limits.conf) or C(limits.d) would be above it, now or
    after the next boot, because pam_limits would then refuse every session with that limit, also root's. If the
    declaration of M(gpufleet.node.resource_limits) lowers that limit, M(gpufleet.node.node_state) lists this concern as
    C(waiting), and it is converged after that one.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  sysctl:
    description:
      - The keys with their values, written as for sysctl(8). A key that is not given is left alone.
      - A number is written in decimal, in full and without a unit. Several numbers are one string, and all of them must
        be given, because the kernel would leave the others as they are.
      - A network interface with a dot in its name is written with slashes, such as
        V(net/ipv4/conf/eth0.5/rp_filter) or V(net.ipv4.conf.eth0/5.rp_filter).
    type: dict
seealso:
  - name: Documentation for /proc/sys
    description: The keys and their values.
    link: https://docs.kernel.org/admin-guide/sysctl/index.html
  - name: sysctl.d(5)
    description: The files, and which line counts.
    link: https://www.freedesktop.org/software/systemd/man/latest/sysctl.d.html
  - module: gpufleet.node.hugepages
"""

EXAMPLES = r"""
- name: Keep processes in memory and on their NUMA node
  gpufleet.node.kernel_tunables:
    sysctl:
      vm.swappiness: 0
      kernel.numa_balancing: 0

- name: Use large TCP buffers and BBR on a fast network
  gpufleet.node.kernel_tunables:
    sysctl:
      net.core.rmem_max: 536870912
      net.core.wmem_max: 536870912
      net.ipv4.tcp_rmem: 4096 87380 268435456
      net.ipv4.tcp_wmem: 4096 65536 268435456
      net.core.default_qdisc: fq
      net.ipv4.tcp_congestion_control: bbr

- name: Begin to write checkpoints to disk at 1 GiB, and hold writers up at 8 GiB
  gpufleet.node.kernel_tunables:
    sysctl:
      vm.dirty_background_bytes: 1073741824
      vm.dirty_bytes: 8589934592

- name: Restore what was there before
  gpufleet.node.kernel_tunables:
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
      description: Always C(sysctl), or the file.
      type: str
      sample: sysctl
    setting:
      description: The key, or C(file) and C(rules) for the files of this module.
      type: str
      sample: vm.swappiness
    before:
      description: The value that was found.
      type: raw
      sample: 60
    after:
      description: The value that was declared.
      type: raw
      sample: 0
    scope:
      description: C(effective) for the running system, C(boot) for the next boot.
      type: str
    takes_effect:
      description: Always C(now).
      type: str
needs:
  description:
    - What must still happen, C(load_module) or C(add_interface) where declared keys are not there yet.
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
      description: Always C(sysctl).
      type: str
    setting:
      description: The key that this kernel does not have, or that is not restored.
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
      description: C(sysctl.d), C(sysctl.conf), C(tuned) or C(kernel command line).
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
      description: C(them) for C(/etc/sysctl.conf), which C(sysctl --system) reads last, C(us) otherwise.
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
  description: The declared keys, as the kernel has them.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    sysctl:
      description: The values by key. V(null) for a key that is not there.
      type: dict
      sample: {vm.swappiness: 0, net.ipv4.tcp_rmem: 4096 87380 268435456}
boot:
  description: The same after the next boot.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    sysctl:
      description: The values by key. V(null) where nobody sets one, and the kernel's own stays.
      type: dict
      sample: {vm.swappiness: 0, net.ipv4.tcp_rmem: 4096 87380 268435456}
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.kernel_tunables.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
