#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: resource_limits
short_description: Resource limits (ulimits) of sessions, through pam_limits, and of services, through systemd
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Sets the limits that pam_limits applies to each new session (ssh, su, sudo, cron, console login), for all users.
    Root gets its own lines, as C(*) does not apply to root.
  - The limits are written to C(/etc/security/limits.d/99-gpufleet-resource_limits.conf). The effective limits are
    computed from C(/etc/security/limits.conf) and all files of C(limits.d), in the order in which pam_limits reads them
    each time a session begins. So new sessions get the limits as soon as the file is written, and after a reboot too,
    if O(immediate) or O(permanent) is true. Running sessions keep theirs until they log in again.
  - A later file that sets another limit for C(*) or C(root) is an error, which names file and line. A line for a user,
    a group or a range of IDs takes precedence over C(*) for those it names, and is listed in RV(conflicts).
  - Services are not sessions, and get their limits from systemd. O(services) are those of all services that set none
    themselves, written to C(/etc/systemd/system.conf.d/99-gpufleet-resource_limits.conf). systemd is re-executed to
    read them, which no service notices. O(units) are those of named services, each in a drop-in of its unit.
  - No service is restarted. What is in effect for a service that runs is read from C(/proc/PID/limits), and a limit
    that it gets only with its next start is pending, and RV(needs) says which service has to be restarted.
  - While containers would lose their GPUs by it, systemd is neither re-executed nor reloaded, and the limit is pending
    with C(daemon-reexec) or C(daemon-reload).
  - With O(state=absent), the files are removed and systemd reads that. A service that runs keeps its limits until it is
    restarted.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  sessions:
    description:
      - The limits of a session, soft and hard. A limit that is not given is left alone.
      - Each is one value for both, or C(soft:hard), such as V(1024:1048576).
    type: dict
    suboptions:
      memlock:
        description:
          - How much memory a process may lock. Buffers that are registered for RDMA and memory locked with mlock(2)
            count towards it.
          - A size with its unit, V(K), V(M), V(G) or V(T), or V(unlimited).
        type: str
      nofile:
        description:
          - How many files a process may have open. It must not exceed the sysctl C(fs.nr_open), now and after the next
            boot, because pam_limits would then refuse every new session, and services would get less. To raise both,
            also declare C(fs.nr_open) in M(gpufleet.node.kernel_tunables), which is converged first.
        type: str
      nproc:
        description:
          - How many processes and threads a user may have, or V(unlimited).
        type: str
      rtprio:
        description:
          - The highest real-time priority that a process may give itself, from V(0) to V(99).
        type: str
  services:
    description:
      - The limits of all services that set none in their unit. A limit that is not given is left alone.
      - Services that run already keep theirs until they are restarted, and are not looked at. Name those that matter in
        O(units).
    type: dict
    suboptions:
      memlock:
        description: As in O(sessions).
        type: str
      nofile:
        description: As in O(sessions).
        type: str
      nproc:
        description: As in O(sessions).
        type: str
      rtprio:
        description: As in O(sessions).
        type: str
  units:
    description:
      - The limits of named services, such as C(slurmd.service), whether or not their units set others.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description:
          - The service, with the suffix C(.service).
        type: str
        required: true
      memlock:
        description: As in O(sessions).
        type: str
      nofile:
        description: As in O(sessions).
        type: str
      nproc:
        description: As in O(sessions).
        type: str
      rtprio:
        description: As in O(sessions).
        type: str
      optional:
        description:
          - Whether a machine may lack the service. Otherwise that is an error.
        type: bool
        default: false
seealso:
  - name: systemd.exec(5)
    description: What C(LimitMEMLOCK=) and the like do.
    link: https://www.freedesktop.org/software/systemd/man/latest/systemd.exec.html
  - name: limits.conf(5)
    description: Which line counts for whom.
    link: https://man7.org/linux/man-pages/man5/limits.conf.5.html
"""

EXAMPLES = r"""
- name: Let every session lock as much memory as it wants
  gpufleet.node.resource_limits:
    sessions:
      memlock: unlimited
      nofile: "1048576"

- name: Set a soft limit that a program may raise up to the hard limit
  gpufleet.node.resource_limits:
    sessions:
      memlock: 8G:unlimited

- name: Let Slurm and its jobs lock memory too, after its next restart
  gpufleet.node.resource_limits:
    units:
      - name: slurmd.service
        memlock: unlimited
        nofile: "1048576"

- name: Restore what was there before
  gpufleet.node.resource_limits:
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
      description: C(*) for all users but root, C(root), C(services) for all services, a unit, or the
        file.
      type: str
      sample: root
    setting:
      description: The limit, for sessions with its type, or C(limits) for the file.
      type: str
      sample: hard memlock
    before:
      description: What was found.
      type: raw
      sample: null
    after:
      description: What was declared.
      type: raw
      sample: unlimited
    scope:
      description: C(effective) for sessions that begin now, C(boot) for those after the next boot.
      type: str
      sample: effective
    takes_effect:
      description: Always C(now).
      type: str
      sample: now
needs:
  description:
    - What must still happen, such as C(restart of slurmd.service), C(daemon-reload), C(daemon-reexec)
      or nothing.
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
    - Limits that do not take effect, because pam_limits is not installed, or sessions of a service do
      not get them.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    object:
      description: C(*), C(root), or the sessions of a service, such as C(sessions of sshd).
      type: str
      sample: root
    setting:
      description: The limit and its type, or C(limits) for all.
      type: str
      sample: hard memlock
    reason:
      description: Why.
      type: str
      sample: /etc/security does not exist, so pam_limits is not installed
conflicts:
  description: What else sets these limits.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    owner:
      description: C(limits.d) or C(systemd).
      type: str
      sample: limits.d
    path:
      description: The file.
      type: str
      sample: /etc/security/limits.conf
    line:
      description: The line in it, C(null) for systemd.
      type: int
      sample: 57
    object:
      description: The object that it is about, as in RV(changes).
      type: str
    setting:
      description: Whose limit, and which.
      type: str
      sample: '@gpu hard memlock'
    value:
      description: The limit that the line sets.
      type: str
      sample: '65536'
    wins:
      description: C(them) for a line about a user or a group, C(us) otherwise.
      type: str
      sample: them
    accepted:
      description: Why O(accepted) accepts it, empty where it does not.
      type: str
reboot_required:
  description: Always false.
  returned: always, unless the declaration was refused
  type: bool
  sample: false
reboot_reasons:
  description: Always empty.
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
        - C(declaration), C(conflict), C(not_permitted), C(refused), C(not_in_effect) or C(cannot_look).
      type: str
      sample: conflict
    object:
      description: What it was about.
      type: str
      sample: '*'
    found:
      description: The limit that was found.
      type: raw
      sample: '65536'
    wanted:
      description: The limit that was wanted.
      type: raw
      sample: unlimited
    hint:
      description: The next step.
      type: str
# End of what all return.
effective:
  description: The declared limits, as a session that begins now gets them.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    limits:
      description: The limits of C(*) and of C(root); C(memlock) is in KiB. V(null) where no file sets the limit.
      type: dict
      sample: {"*": {"soft memlock": "unlimited", "hard memlock": "unlimited"}}
    services:
      description: C(soft:hard) for C(services) and each unit, of its process where one runs; C(memlock) is in bytes.
      type: dict
      sample: {"slurmd.service": {"memlock": "8388608:8388608"}}
boot:
  description: The same after the next boot.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    limits:
      description: As in RV(effective).
      type: dict
      sample: {"*": {"soft memlock": "unlimited", "hard memlock": "unlimited"}}
    services:
      description: C(soft:hard) as the files have it. V(null) where none sets the limit.
      type: dict
      sample: {"slurmd.service": {"memlock": "infinity:infinity"}}
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.resource_limits.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
