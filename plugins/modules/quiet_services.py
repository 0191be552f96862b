#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: quiet_services
short_description: Units of systemd that are off on a GPU node, now and at every boot
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Stops services, sockets, timers and paths that a GPU node can do without, such as C(man-db.timer), and masks or
    disables them, so that no job shares its CPUs, memory and disks with them.
  - What would start a declared service again goes with it, that is the sockets, timers and paths that trigger it.
  - A unit that a GPU node needs is refused with the reason. Such are those of systemd and D-Bus, the login, the
    network, storage and the clock, schedulers such as C(slurmd.service) and C(kubelet.service), container engines, what
    GPUs need, and the boot service of this collection. So is one that another running unit requires.
  - A job in progress, such as the installation of updates that a timer began, is not stopped unless O(stop_jobs=true).
    Until it ends, the status is C(pending).
  - What the next boot brings is read from the files and links of all units, whether a unit runs from systemd. Where
    systemd does not run, as in an image, only the next boot is set.
  - A unit that is no longer declared stays as it is until O(state=absent), which restores what a boot makes of each
    unit and whether it runs. A timer with C(Persistent=true) then makes up for the runs that it missed at once.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  units:
    description:
      - The units. Each entry is the name of a unit with its suffix C(.service), C(.socket), C(.timer) or C(.path), or a
        mapping with the keys below. One that this machine does not have is an error, unless it is optional.
      - C(name) is the name of a unit, or a list of names. Another name of a unit means the unit itself.
      - C(distribution) is one or several of the words that C(ID) and C(ID_LIKE) have in C(/etc/os-release), such as
        V(debian), V(ubuntu), V(rhel) or V(suse). The entry counts only on those.
      - C(method) is that of O(method), for the units of this entry.
      - C(optional) is V(true) for units that a machine may lack.
      - Where several entries name a unit, the first that counts on the machine wins.
    type: list
    elements: raw
    default: []
  method:
    description:
      - How a unit is kept from starting at boot.
      - With V(mask), nothing and nobody starts it until it is unmasked. A unit whose file is in
        C(/etc/systemd/system) itself cannot be masked.
      - With V(disable), the links that start it at boot are removed. Other units, D-Bus and people can still start it;
        who would is listed in RV(conflicts). A unit that is masked already stays masked.
    type: str
    choices: [mask, disable]
    default: mask
  stop_jobs:
    description:
      - Whether a job in progress is stopped too. The installation of a package is then cut short.
    type: bool
    default: false
seealso:
  - name: systemctl(1)
    description: What C(mask) and C(disable) do.
    link: https://www.freedesktop.org/software/systemd/man/latest/systemctl.html
  - module: gpufleet.node.numa_irq_affinity
    description: Controls irqbalance.
"""

EXAMPLES = r"""
- name: Keep the daily jobs of Debian off the node, updates of packages too
  gpufleet.node.quiet_services:
    units: [apt-daily.timer, apt-daily-upgrade.timer, man-db.timer]

- name: Have no printers and no modems, where they are installed
  gpufleet.node.quiet_services:
    units:
      - name: [cups.service, cups-browsed.service, ModemManager.service]
        optional: true
      - name: dnf-makecache.timer
        distribution: [rhel, fedora]
        method: disable

- name: Restore what was there before
  gpufleet.node.quiet_services:
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
      description: The unit.
      type: str
      sample: man-db.timer
    setting:
      description: C(start at boot), C(service) for whether it runs, or C(job in progress).
      type: str
      sample: start at boot
    before:
      description: What was found.
      type: raw
      sample: enabled
    after:
      description: What was declared.
      type: raw
      sample: masked
    scope:
      description: C(effective) for the running system, C(boot) for the next boot.
      type: str
      sample: boot
    takes_effect:
      description: Always C(now).
      type: str
      sample: now
needs:
  description:
    - What must still happen, such as C(end of man-db.service), or nothing. With O(state=absent) also
      C(daemon-reload).
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
  description: With O(state=absent), units that were changed here and are no longer installed.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    object:
      description: The unit.
      type: str
    setting:
      description: Always C(start at boot).
      type: str
    reason:
      description: Why.
      type: str
conflicts:
  description: What starts a unit that is only disabled.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    owner:
      description: C(D-Bus) or C(systemd).
      type: str
    path:
      description: The file that asks for it.
      type: str
    line:
      description: Always V(null).
      type: int
    object:
      description: The object that it is about, as in RV(changes).
      type: str
    setting:
      description: The unit that it starts.
      type: str
    value:
      description: Whether it starts it at once or on demand.
      type: str
    wins:
      description: Always C(them).
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
        - C(declaration), C(in_use), C(not_permitted), C(refused), C(not_in_effect) or C(cannot_look).
      type: str
    object:
      description: The unit.
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
  description: Whether each unit runs, with the jobs in progress.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    units:
      description: C(running) or C(stopped) for each unit, V(null) where systemd does not run.
      type: dict
      sample: {"man-db.timer": "stopped"}
boot:
  description: What the next boot makes of each unit.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    units:
      description: C(masked), C(disabled), C(static) (only other units start it), C(enabled) or C(not-found).
      type: dict
      sample: {"man-db.timer": "masked"}
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.quiet_services.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
