#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: node_swap
short_description: Swap off, now and at boot, or a swap file of a size
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Switches all swap off, in the running kernel and for the next boot, or makes a swap file.
  - What is in effect is read from C(/proc/swaps). What the next boot brings is computed from C(/etc/fstab), swap units
    of systemd, swap partitions that systemd finds by their GPT type on the disk of the root file system,
    zram-generator, and the services of zram-tools, zram-config and dphys-swapfile.
  - A line of fstab is commented out, and every byte behind the mark stays. A unit in C(/etc/systemd/system) is
    disabled, any other is masked. Then systemd reads its configuration again, and the areas are switched off.
  - Before anything changes, the module checks that what is swapped fits into the available memory with a reserve (a
    twentieth of the memory, at least 128 MiB and at most 4 GiB), and with C(vm.overcommit_memory=2) that the kernel
    would allow it. Otherwise the run fails with the numbers.
  - An agent that would make swap again at the next boot (WALinuxAgent, cloud-init on a new instance) is an error that
    names file and line. Where swap is wanted, a kubelet that would not start with it is listed in RV(conflicts).
  - Nothing that is not of this module is ever formatted. With O(state=absent) areas are on again with their priority.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  enabled:
    description:
      - Whether there is swap. V(false) switches off all of it. V(true) makes the swap file C(/swapfile_gpufleet) of
        O(size), and leaves other swap alone.
    type: bool
  size:
    description:
      - The size of the swap file, such as V(8G). It is needed with O(enabled=true) and not allowed otherwise.
      - The file is in the root file system, which must be ext4 or xfs, and which must keep 256 MiB free.
      - A file of another size is made anew.
    type: str
seealso:
  - name: swapoff(2)
    description: What the kernel checks.
    link: https://man7.org/linux/man-pages/man2/swapoff.2.html
  - name: systemd-gpt-auto-generator(8)
    description: Swap partitions that need no configuration.
    link: https://www.freedesktop.org/software/systemd/man/latest/systemd-gpt-auto-generator.html
  - name: Swap memory management of Kubernetes
    description: What kubelet does with swap.
    link: https://kubernetes.io/docs/concepts/cluster-administration/swap-memory-management/
"""

EXAMPLES = r"""
- name: Switch swap off, now and at boot
  gpufleet.node.node_swap:
    enabled: false

- name: Make a swap file
  gpufleet.node.node_swap:
    enabled: true
    size: 8G

- name: Restore what was there before
  gpufleet.node.node_swap:
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
  description:
    - What must still happen, C(reboot) for an area whose file was deleted, or C(daemon-reload). It stays
      until it was done.
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
  description: What C(/proc/swaps) lists, with the state, size and use of each area, and whether zswap is enabled.
  returned: always, unless the declaration was refused
  type: dict
  sample:
    swap: "on"
    areas: {/dev/sda2: {state: "on", size_mib: 8192, used_mib: 12}}
    zswap: "N"
boot:
  description: Whether the next boot brings swap, and from which devices of fstab and which units.
  returned: always, unless the declaration was refused
  type: dict
  sample: {swap: "on", sources: [UUID=0a1b]}
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.node_swap.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
