#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nvme_of
short_description: NVMe subsystems of other machines, connected now and at boot
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Converges connections to NVMe subsystems over TCP, RDMA or a loop to the declaration. Reads back from
    C(/sys/class/nvme) which connections exist, their state, and what the target and the kernel agreed on.
  - Connections that are not declared, and that this module did not make, are left alone, as are
    C(/etc/nvme/config.json), C(/etc/nvme/discovery.conf) and nvme-stas. nvme-cli is not needed.
  - With O(discovery), whatever a discovery controller tells of is connected, in a run, at boot, and when the target
    says that its log has changed. What it no longer tells of is disconnected if this module made it and nobody uses it.
  - At boot, C(gpufleet-nvme-of.service) connects once the network is online, before remote file systems are mounted. A
    target that does not respond delays the boot and the other connections no longer than the kernel takes to give up.
  - Targets know a host by C(/etc/nvme/hostnqn) and C(/etc/nvme/hostid). Files that exist are not changed. A missing one
    is made from the UUID of the machine, so that the host has the same name after a reinstall.
  - A connection that is no longer declared is disconnected if this module made it. That is refused while the connection
    is the last path to a disk that is mounted, used for swap, or part of another device.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  subsystems:
    description:
      - The subsystems.
    type: list
    elements: dict
    default: []
    suboptions:
      nqn:
        description:
          - The name of the subsystem, such as V(nqn.2024-01.com.example:data).
        type: str
        required: true
      transport:
        description:
          - How the subsystem is reached. V(loop) is a target on this machine, for tests.
        type: str
        choices: [loop, rdma, tcp]
        default: tcp
      paths:
        description:
          - The ports of the target, each of which gets a connection. Not for V(loop).
        type: list
        elements: dict
        default: []
        suboptions:
          address:
            description:
              - The IP address.
            type: str
            required: true
          port:
            description:
              - The TCP port, or that of RDMA.
            type: int
            default: 4420
          host_address:
            description:
              - The IP address of this host from which it is connected. Without it, the kernel chooses one.
            type: str
          host_interface:
            description:
              - The network interface over which it is connected. Only for V(tcp).
            type: str
      io_queues:
        description:
          - The number of I/O queues, at most one for each CPU. The target may allow fewer.
        type: int
      queue_size:
        description:
          - The number of entries in a queue, from 16 to 1024. The target may allow fewer.
        type: int
      keep_alive_seconds:
        description:
          - The keep-alive timeout. A connection without a sign of life for that long is lost.
        type: int
      reconnect_seconds:
        description:
          - How long the kernel waits between two attempts to reconnect to a lost target.
        type: int
      loss_seconds:
        description:
          - How long the kernel tries to reconnect before it gives up and removes the disk. With V(-1) it never gives
            up.
        type: int
      fail_seconds:
        description:
          - How long requests to a lost target wait before they fail.
        type: int
      dhchap_key_file:
        description:
          - A file on the node with the secret by which this host proves to the target who it is (DH-HMAC-CHAP), in the
            form that C(nvme gen-dhchap-key) prints. Its owner must be root, and nobody else may read it. The secret
            stays there.
        type: str
      dhchap_ctrl_key_file:
        description:
          - The same for the secret by which the target proves to this host who it is.
        type: str
      io_policy:
        description:
          - How the kernel chooses among several paths. V(queue-depth) needs Linux 6.11.
        type: str
        choices: [numa, queue-depth, round-robin]
  discovery:
    description:
      - The discovery controllers. Each stays connected, and tells when its log changes. What it tells of is connected
        as well, by the same way, and so is a discovery controller that it refers to. Needs the role
        P(gpufleet.node.node_tools#role), whose program asks it at boot and later.
      - A subsystem that is declared under O(subsystems) too has the values from there.
    type: list
    elements: dict
    default: []
    suboptions:
      transport:
        description:
          - How the discovery controller is reached.
        type: str
        choices: [rdma, tcp]
        default: tcp
      address:
        description:
          - The IP address.
        type: str
        required: true
      port:
        description:
          - The TCP port, or that of RDMA. A target of Linux has it at the port of its subsystems, such as V(4420).
        type: int
        default: 8009
      host_address:
        description:
          - The IP address of this host from which it is connected. Without it, the kernel chooses one.
        type: str
      host_interface:
        description:
          - The network interface over which it is connected. Only for V(tcp).
        type: str
      match:
        description:
          - Which of the subsystems are connected, by C(nqn) and C(address). Each is a value or a list of alternatives,
            with shell globs, and both must agree. Without it, all are connected.
        type: dict
        default: {}
      io_queues:
        description:
          - The number of I/O queues of each connection, at most one for each CPU. The target may allow fewer.
        type: int
      queue_size:
        description:
          - The number of entries in a queue, from 16 to 1024. The target may allow fewer.
        type: int
      keep_alive_seconds:
        description:
          - The keep-alive timeout. A connection without a sign of life for that long is lost.
        type: int
      reconnect_seconds:
        description:
          - How long the kernel waits between two attempts to reconnect to a lost target.
        type: int
      loss_seconds:
        description:
          - How long the kernel tries to reconnect before it gives up and removes the disk. With V(-1) it never gives
            up.
        type: int
      fail_seconds:
        description:
          - How long requests to a lost target wait before they fail.
        type: int
      dhchap_key_file:
        description:
          - A file on the node with the secret by which this host proves to the target who it is (DH-HMAC-CHAP), in the
            form that C(nvme gen-dhchap-key) prints. Its owner must be root, and nobody else may read it. The secret
            stays there.
        type: str
      dhchap_ctrl_key_file:
        description:
          - The same for the secret by which the target proves to this host who it is.
        type: str
      io_policy:
        description:
          - How the kernel chooses among several paths. V(queue-depth) needs Linux 6.11.
        type: str
        choices: [numa, queue-depth, round-robin]
seealso:
  - name: NVMe over Fabrics
    description: Native multipath, in the documentation of the kernel.
    link: https://docs.kernel.org/admin-guide/nvme-multipath.html
  - name: nvme-connect
    description: The parameters of a connection, as nvme-cli explains them.
    link: https://github.com/linux-nvme/nvme-cli/blob/master/Documentation/nvme-connect.txt
"""

EXAMPLES = r"""
- name: A data set on a target with two ports
  gpufleet.node.nvme_of:
    subsystems:
      - nqn: nqn.2024-01.com.example:data
        paths:
          - {address: 10.10.0.5}
          - {address: 10.11.0.5}
        io_policy: round-robin
        loss_seconds: -1

- name: Whatever two discovery controllers tell of, each over its own network card
  gpufleet.node.nvme_of:
    discovery:
      - address: 10.10.0.5
        host_interface: ens1f0
        match: {nqn: "nqn.2024-01.com.example:*"}
        io_policy: round-robin
      - address: 10.11.0.5
        host_interface: ens2f0
        match: {nqn: "nqn.2024-01.com.example:*"}

- name: Restore what was there before
  gpufleet.node.nvme_of:
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
      description: The connection, the subsystem, the unit, or the file.
      type: str
    setting:
      description:
        - C(connection), C(authentication), the option, or C(host identity) for the files in C(/etc/nvme).
          What a discovery controller tells of is not known before it is connected, so check mode does
          not have it then.
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
    - What must still happen. C(target) until a lost target or a discovery controller responds, C(reconnect)
      where a value is agreed on only when the connection is made, and C(daemon-reload) where systemd
      must not read its units yet.
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
  description: Always empty.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    owner:
      description: Who it is.
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
  description: Always C(false).
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
  description:
    - Under C(connections) each connection with its controller, its state and its numbers, under C(discovery) the same
      of each discovery controller, with what it C(tells_of) or the C(error), under C(io_policies) how the kernel
      chooses among the paths to each subsystem, and in C(host_nqn) the name of this host.
  returned: always, unless the declaration was refused
  type: dict
boot:
  description:
    - Under C(connections), the connections that the next boot makes, and under C(discovery) the discovery controllers.
      What those tell of is connected too.
  returned: always, unless the declaration was refused
  type: dict
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nvme_of.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
