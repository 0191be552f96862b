#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nvme_scheduler
short_description: I/O schedulers and queues of NVMe disks
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Converges the block queues of all disks of a machine to the declaration, in one call, in the running kernel, for the
    next boot and for disks that are plugged in later, and reads the result back from the kernel.
  - The next boot is one file, C(/etc/udev/rules.d/99-gpufleet-nvme_scheduler.rules), which matches the disks by the
    keys of the declaration. C(udevadm verify) must accept it before anything changes, if it is available (systemd 254).
    A scheduler that is a kernel module goes to C(/etc/modules-load.d/gpufleet-nvme_scheduler.conf) as well.
  - With native multipath the disk (C(nvme0n1)) has the read-ahead, and each hidden path below it (C(nvme0c0n1)) the
    request queue. An entry that wins the disk is for both. A path that appears while the disk is already there gets the
    settings with the next event of the disk, or the next run.
  - If the kernel refuses a value, what was written to that disk in this run is restored, all other disks get their
    values, and one error at the end names every disk that refused. The files for the next boot then stay as they were,
    for all disks, so that no boot repeats what was refused. They are written by the next run that nothing refuses.
  - Other udev rules for the same settings, tuned and C(elevator=) on the kernel command line are listed in
    RV(conflicts). A rule that udev reads after ours and that sets another value is an error, which names file and line.
  - An enabled tuned sets the values of its active profile (C([disk]) and C([sysfs])) after all rules at boot. They are
    part of RV(boot). One that differs from what is declared is an error too, unless O(permanent=false).
  - With O(state=absent), a disk that is not present is listed in RV(unmanaged), because its values were lost with it.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  queues:
    description:
      - The entries, tried in order for each disk. The first that matches wins the disk, and no later one adds to it. An
        entry without settings leaves its disks alone.
      - A setting that is not given is left alone.
    type: list
    elements: dict
    default: []
    suboptions:
      match:
        description:
          - Which disks the entry is for. All keys must agree; each has one value or a list of alternatives, as shell
            globs. Without keys the entry is for all NVMe disks.
          - The keys are C(name) (such as C(nvme0n1)), C(serial), C(model) and C(pci_address) (such as C(0000:41:00.0)).
            Names may change from boot to boot, the others do not. Blanks at the end of a serial or model do not count.
          - A hidden path counts as its disk, by any of their keys. A multipath disk has the addresses of all its paths.
          - Devices of md and device mapper are matched only by C(name), and not by a glob that begins with a wildcard.
            The latter go by two names, that of the kernel (C(dm-0)) and that of the mapping; either may match.
            Partitions and other disks never are.
        type: dict
        default: {}
      scheduler:
        description:
          - The I/O scheduler, such as V(none), V(mq-deadline), V(kyber) or V(bfq). It must be one that the kernel has,
            built in or as a module.
          - A new scheduler resets C(nr_requests) in the kernel, and C(wbt_lat_usec) when V(bfq) comes or goes. Both are
            written again where declared, and otherwise listed in RV(changes).
        type: str
      read_ahead_kb:
        description:
          - How much is read ahead, in KiB, a multiple of 4.
        type: int
      nr_requests:
        description:
          - How many requests the queue may hold, at least 4. Without a scheduler at most the depth of the hardware
            queue, with one at most 2048.
        type: int
      rq_affinity:
        description:
          - Where a request completes. V(0) is the CPU that got the interrupt, V(1) the group of CPUs that issued it,
            V(2) exactly the CPU that issued it.
        type: int
        choices: [0, 1, 2]
      nomerges:
        description:
          - Which merges of requests are not tried. V(0) tries all, V(1) only the simple ones, V(2) none.
        type: int
        choices: [0, 1, 2]
      wbt_lat_usec:
        description:
          - The read latency that throttles write-back, in microseconds. V(0) disables the throttling.
        type: int
      io_timeout_ms:
        description:
          - When a request counts as lost, in milliseconds, a multiple of 20.
        type: int
      max_sectors_kb:
        description:
          - The largest request, in KiB. At most C(max_hw_sectors_kb) of the disk.
        type: int
      optional:
        description:
          - Whether the entry may win no device. Otherwise that is an error.
        type: bool
        default: false
seealso:
  - name: Queue sysfs files
    description: The settings in the documentation of the kernel.
    link: https://docs.kernel.org/block/queue-sysfs.html
  - name: Switching scheduler
    description: The I/O schedulers in the documentation of the kernel.
    link: https://docs.kernel.org/block/switching-sched.html
  - name: Linux NVMe multipath
    description: Heads and paths in the documentation of the kernel.
    link: https://docs.kernel.org/admin-guide/nvme-multipath.html
  - name: udev(7)
    description: How the values are applied at boot and at hot-plug.
    link: https://www.freedesktop.org/software/systemd/man/latest/udev.html
"""

EXAMPLES = r"""
- name: Leave all NVMe disks without a scheduler, with a large read-ahead
  gpufleet.node.nvme_scheduler:
    queues:
      - scheduler: none
        read_ahead_kb: 4096
        rq_affinity: 2

- name: One model apart, one disk left alone, then the rest
  gpufleet.node.nvme_scheduler:
    queues:
      - match:
          serial: S4YNNE0N800136
        optional: true
      - match:
          model: ["SAMSUNG MZ*", "INTEL SSDPE*"]
        optional: true
        scheduler: kyber
        nr_requests: 512
      - scheduler: none
        optional: true

- name: The disks beside the GPUs, and the array on top of them
  gpufleet.node.nvme_scheduler:
    queues:
      - match:
          pci_address: "0000:4[1-4]:00.0"
        scheduler: none
        nomerges: 1
        optional: true
      - match:
          name: md127
        read_ahead_kb: 16384
        optional: true

- name: Restore what was there before
  gpufleet.node.nvme_scheduler:
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
      description: The disk, the hidden path below it, or the file.
      type: str
      sample: nvme0n1
    setting:
      description: What is set on it.
      type: str
      sample: scheduler
    before:
      description: The value that was found.
      type: raw
      sample: mq-deadline
    after:
      description: The value that was declared, or that the kernel sets together with it.
      type: raw
      sample: none
    scope:
      description: C(effective) for the running system, C(boot) for the next boot.
      type: str
      sample: effective
    takes_effect:
      description: Always C(now).
      type: str
      sample: now
needs:
  description: What must still happen; always empty, for a queue needs no reboot.
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
    - What was declared and the device or this kernel does not have, with the reason.
    - With O(state=absent) what was changed on disks that are not present.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    object:
      description: The device, or the identity of one that is not there.
      type: str
      sample: md0
    setting:
      description: The setting that it does not have, or that is not restored.
      type: str
      sample: scheduler
    reason:
      description: Why.
      type: str
      sample: it has no request queue of its own; declare it for the disks below it
conflicts:
  description: Who else sets what is declared.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    owner:
      description: C(udev), C(tuned) or C(kernel command line).
      type: str
      sample: udev
    path:
      description: The file.
      type: str
      sample: /etc/udev/rules.d/60-ioschedulers.rules
    line:
      description: The line in it.
      type: int
      sample: 3
    object:
      description: The object that it is about, as in RV(changes).
      type: str
    setting:
      description: What it sets.
      type: str
      sample: scheduler
    value:
      description: The value it sets, or the program that may set it.
      type: str
      sample: none
    wins:
      description: Whose value stays in the end, C(us) or C(them); C(them) also where it cannot be told.
      type: str
      sample: us
    accepted:
      description: Why O(accepted) accepts it, empty where it does not.
      type: str
reboot_required:
  description: Whether RV(needs) has a reboot; always false.
  returned: always, unless the declaration was refused
  type: bool
  sample: false
reboot_reasons:
  description: Why; always empty.
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
      sample: declaration
    object:
      description: What it was about.
      type: str
      sample: nvme0n1
    found:
      description: The value that was found.
      type: raw
      sample: none
    wanted:
      description: The value that was wanted.
      type: raw
      sample: cfq
    hint:
      description: The next step.
      type: str
# End of what all return.
effective:
  description: The queues of the running kernel, as read back.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    queues:
      description: By device the settings that the declaration is about.
      type: dict
      sample: {"nvme0n1": {"scheduler": "none", "read_ahead_kb": 4096}}
boot:
  description: What the next boot brings, from all udev rules and tuned; null where the kernel's own default stays.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    queues:
      description: By device the settings that the declaration is about.
      type: dict
      sample: {"nvme0n1": {"scheduler": "none", "read_ahead_kb": 4096}}
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvme_scheduler.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
