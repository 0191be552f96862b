#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: hugepages
short_description: Huge pages by NUMA node, and transparent huge pages
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Converges pools of huge pages and the policy of transparent huge pages to the declaration, in the running kernel and
    for the next boot, and reads the result back from the kernel.
  - Pools are set node by node. The number for the whole machine, which would redistribute pages, is written only if the
    kernel has no NUMA nodes.
  - Pages that are in use are never removed. Shrinking below them is an error before anything changes, which names the
    processes that hold pages.
  - Pages of 1 GiB and more go to the kernel command line, through the boot loader that is installed, and are pending
    until the reboot. Everything else goes to C(/etc/tmpfiles.d/00-gpufleet-hugepages.conf), in lines that apply only at
    boot.
  - On the kernel command line only the exact arguments that this module set are its own. They are in a file or a line
    of its own if the boot loader has such, and also noted in C(/var/lib/gpufleet/hugepages.arguments). Similar
    arguments belong to others and stay, also with O(state=absent).
  - Someone else who sets the same (C(sysctl.d), C(tmpfiles.d), the kernel command line, tuned) is listed in
    RV(conflicts). If the two would undo each other, the module refuses the change and names file and line.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  pools:
    description:
      - The pools, one entry for each page size. A size that is not listed is left alone.
    type: list
    elements: dict
    suboptions:
      size:
        description:
          - The page size, such as V(2M) or V(1G). It must be one that the running kernel has.
        type: str
        required: true
      pages:
        description:
          - The number of pages on the whole machine. They are spread evenly over the NUMA nodes that have both CPUs and
            memory; the remainder goes to the first of them, and other nodes get none.
          - Exactly one of O(pools[].pages) and O(pools[].per_node) must be given.
        type: int
      per_node:
        description:
          - The number of pages on each NUMA node, by the number of the node. A node that is not named is left alone.
          - Memory without CPUs, such as that of a GPU, gets pages only this way.
        type: dict
  transparent:
    description:
      - The policy of transparent huge pages. What is not given is left alone. It affects new mappings only.
    type: dict
    suboptions:
      enabled:
        description:
          - Who gets transparent huge pages.
        type: str
        choices: [always, madvise, never]
      defrag:
        description:
          - How hard the kernel tries to find one at a page fault.
        type: str
        choices: [always, defer, defer+madvise, madvise, never]
      shmem_enabled:
        description:
          - The policy for shared memory.
        type: str
        choices: [always, within_size, advise, never, deny, force]
      khugepaged:
        description:
          - The thread that later collapses small pages into huge ones.
        type: dict
        suboptions:
          defrag:
            description:
              - Whether it may compact memory for that.
            type: bool
          pages_to_scan:
            description:
              - How many pages it scans in a pass, at least V(1).
            type: int
          scan_sleep_millisecs:
            description:
              - How many milliseconds it waits between passes.
            type: int
          alloc_sleep_millisecs:
            description:
              - How many milliseconds it waits after a failed allocation.
            type: int
          max_ptes_none:
            description:
              - How many of the small pages may be missing.
            type: int
          max_ptes_swap:
            description:
              - How many of the small pages may be in swap.
            type: int
          max_ptes_shared:
            description:
              - How many of the small pages may be shared.
            type: int
      sizes:
        description:
          - The policy for each size, where the kernel has more than one (Linux 6.8 and newer).
        type: list
        elements: dict
        suboptions:
          size:
            description:
              - The size, such as V(64K).
            type: str
            required: true
          enabled:
            description:
              - Who gets pages of this size. V(inherit) is the value of O(transparent.enabled).
            type: str
            choices: [always, inherit, madvise, never]
          shmem_enabled:
            description:
              - The policy for shared memory in this size.
            type: str
            choices: [always, inherit, within_size, advise, never]
  on_shortage:
    description:
      - What to do if the kernel allocated fewer pages than declared, even after compacting memory. In both cases the
        numbers for the next boot are written before that.
      - With V(fail) the module fails and says how many pages there are, on which node, and how much memory was free.
      - With V(reboot) the rest is pending, RV(needs) has a reboot, and the module does not try again until then.
    type: str
    choices: [fail, reboot]
    default: fail
  drop_caches:
    description:
      - Whether the page cache may be dropped if compaction was not enough. All reads on the node are slow until the
        cache is warm again.
    type: bool
    default: false
seealso:
  - name: HugeTLB pages
    description: The pools in the documentation of the kernel.
    link: https://docs.kernel.org/admin-guide/mm/hugetlbpage.html
  - name: Transparent hugepage support
    description: The policies in the documentation of the kernel.
    link: https://docs.kernel.org/admin-guide/mm/transhuge.html
  - name: tmpfiles.d(5)
    description: How the values are applied at boot.
    link: https://www.freedesktop.org/software/systemd/man/latest/tmpfiles.d.html
"""

EXAMPLES = r"""
- name: Spread 2 MiB pages over the nodes, and let programs ask for transparent ones
  gpufleet.node.hugepages:
    pools:
      - size: 2M
        pages: 4096
    transparent:
      enabled: madvise
      defrag: madvise

- name: Reserve 1 GiB pages at boot, more of them beside the GPUs
  gpufleet.node.hugepages:
    pools:
      - size: 1G
        per_node:
          0: 16
          1: 64
  register: hugepages

- name: Show what still has to happen
  ansible.builtin.debug:
    var: hugepages.needs

- name: Leave the rest to the next boot when memory is in pieces
  gpufleet.node.hugepages:
    pools:
      - size: 2M
        per_node: {0: 512, 1: 512}
    on_shortage: reboot

- name: Set the policy for one size of transparent huge pages
  gpufleet.node.hugepages:
    transparent:
      sizes:
        - size: 64K
          enabled: inherit

- name: Restore what was there before
  gpufleet.node.hugepages:
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
      description: The node, or the group of settings.
      type: str
      sample: node0
    setting:
      description: What is set on it.
      type: str
      sample: hugepages_2M
    before:
      description: The value that was found.
      type: raw
      sample: 0
    after:
      description: The value that was declared.
      type: raw
      sample: 512
    scope:
      description: C(effective) for the running system, C(boot) for the next boot.
      type: str
      sample: effective
    takes_effect:
      description: C(now), or C(reboot) when it has to wait for that.
      type: str
      sample: now
needs:
  description: What must still happen, C(reboot) or nothing. It stays until it was done.
  returned: always, unless the declaration was refused
  type: list
  elements: str
  sample: [reboot]
pending_reasons:
  description:
    - For each setting that waits for what RV(needs) says, one sentence with the value that is in effect,
      the declared one, and why it waits.
  returned: always, unless the declaration was refused
  type: list
  elements: str
unmanaged:
  description: What was declared and this kernel does not have, with the reason.
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
      description: C(sysctl.d), C(sysctl.conf), C(tmpfiles.d), C(tuned) or C(kernel command line).
      type: str
      sample: sysctl.d
    path:
      description: The file.
      type: str
      sample: /etc/sysctl.d/60-database.conf
    line:
      description: The line in it, where there is one.
      type: int
      sample: 3
    object:
      description: The object that it is about, as in RV(changes).
      type: str
    setting:
      description: What it sets.
      type: str
      sample: all nodes hugepages_2M
    value:
      description: The value it sets.
      type: str
      sample: '1024'
    wins:
      description: Whose value stays in the end. One of C(us), C(them) and C(unknown).
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
  description: Why, the same lines as in C(/run/gpufleet/reboot-required.d/hugepages).
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
        - C(declaration), C(conflict), C(in_use), C(shortage), C(not_permitted), C(refused), C(not_in_effect)
          or C(cannot_look).
      type: str
      sample: shortage
    object:
      description: What it was about.
      type: str
      sample: node0
    found:
      description: The value that was found.
      type: raw
      sample: 300
    wanted:
      description: The value that was wanted.
      type: raw
      sample: 512
    hint:
      description: The next step.
      type: str
# End of what all return.
effective:
  description: The huge pages of the running kernel, as read back.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    pools:
      description: By page size and node the pages that stay, the free ones, those in use and the surplus ones.
      type: dict
      sample: {"2M": {"node0": {"pages": 512, "free": 512, "in_use": 0, "surplus": 0}}}
    transparent:
      description: The policies, by group and setting.
      type: dict
      sample: {"transparent_hugepages": {"enabled": "madvise"}}
boot:
  description: The values at the next boot, from all sources; null if the kernel's own default applies.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    pools:
      description: Pages by page size and node.
      type: dict
      sample: {"2M": {"node0": 512}}
    transparent:
      description: The policies, by group and setting.
      type: dict
      sample: {"transparent_hugepages": {"enabled": "madvise"}}
    boot_loader:
      description: The boot loader that was found.
      type: str
      sample: GRUB
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.hugepages.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
