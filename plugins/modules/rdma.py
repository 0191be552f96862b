#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: rdma
short_description: RDMA devices that are ready, their RoCE mode and lossless priorities, GPUDirect RDMA, ports of jobs
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Converges settings of RDMA devices to the declaration, and sees to it that they reach the memory of GPUs
    (GPUDirect RDMA). What is in effect is read from the kernel.
  - The RoCE mode and the type of service are what C(rdma_cm) gives to connections that programs make through it. They
    are read and set in its configfs, C(/sys/kernel/config/rdma_cm). For that C(rdma_cm) is loaded, and the device gets
    a folder there; until it has one, nothing shows what is set. NCCL chooses by itself, by C(NCCL_IB_GID_INDEX) and
    C(NCCL_IB_TC) (P(gpufleet.node.job_environment#role)), unless the traffic class is set.
  - PFC and the priorities of DSCPs are read and set by C(dcb) of iproute2, which must be installed where they are
    declared. Where the firmware of the card agrees on them with the switch (DCBX), to change them is an error, and
    C(lldpad), which does the same, is in RV(conflicts).
  - Services, timers and scripts that run C(dcb), C(mlnx_qos), C(cma_roce_mode) or C(cma_roce_tos) at boot, or write to
    the same files, are read. If one is ordered after the boot service and sets another value, the module fails and
    names the file and the line, unless O(permanent=false). Others are listed in RV(conflicts), and if it is unknown
    which runs last, RV(status) is V(unknown).
  - Nothing of this survives a reboot by itself. The boot service (P(gpufleet.node.node_tools#role)) applies the
    declaration, and C(gpufleet-rdma.service) sets devices that come later, which the rule
    C(/etc/udev/rules.d/99-gpufleet-rdma.rules) starts. Both load C(nvidia_peermem) once there are an RDMA device and
    the NVIDIA driver, for which C(modules-load.d) comes too early.
  - A port that is down is reported, and nothing is done about it. With O(devices[].ready) it is not in sync, and
    C(link) is in RV(needs).
  - What a device, its driver or the kernel does not have is in RV(unmanaged), with the reason.
  - With O(job_ports) the firewall of this machine lets jobs of other nodes connect. In C(firewalld), the default zone
    and each active zone get rich rules, in effect and permanently, without a reload. In C(ufw), the rules come before
    all others. Chains of C(nft) and C(iptables) are read as well. If one that neither of them manages would drop the
    connections, it is left alone, because only its owner knows where in it a rule has to stand, and is listed in
    RV(unmanaged) with the rule to add. Without a firewall, nothing is done. What a switch or the security groups of a
    cloud filter is not seen.
  - RV(effective) also says whether a device may let its writes overtake each other (relaxed ordering), and which PCI
    bridges above it send what it says to a GPU to the CPU first (ACS). Both are set by firmware, virtualization or
    kernel arguments. Jobs register memory with a device only as far as they may lock it, which
    P(gpufleet.node.resource_limits#role) sets.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  devices:
    description:
      - Entries of what is set on which RDMA devices. Each device goes by the first entry that matches it, with all of
        its ports.
    type: list
    elements: dict
    default: []
    suboptions:
      match:
        description:
          - What a device must be to be meant. All keys must agree. Each is a string or a list of strings, of which one
            must agree, with shell wildcards. Without a key every card is meant.
          - C(name) is that of the device, such as V(mlx5_0) or V(rocep59s0), C(driver) that of its card, such as
            V(mlx5_core), C(pci_address) that of its function, such as V(0000:3b:00.0), C(netdev) its network interface,
            and C(numa_node) the number of the NUMA node that it is on.
          - Devices that software makes, such as those of C(rdma_rxe), are meant only by C(name), which must not begin
            with a wildcard.
        type: dict
        default: {}
      optional:
        description:
          - Whether the entry may match no device.
        type: bool
        default: false
      ready:
        description:
          - Whether its ports have to be active. What makes them so is the cable, the switch, and on InfiniBand the
            subnet manager.
        type: bool
        default: false
      roce_mode:
        description:
          - The RoCE mode of connections through C(rdma_cm). V(v2) can be routed, V(v1) cannot.
        type: str
        choices: [v1, v2]
      roce_tos:
        description:
          - The type of service of connections through C(rdma_cm), from 0 to 255. It is four times the DSCP, so that 104
            is DSCP 26; 106 has the ECN bits too, as NVIDIA recommends it.
        type: int
      traffic_class:
        description:
          - The traffic class of all traffic of the device, whatever a program asks for, from 0 to 255, counted as
            O(devices[].roce_tos). Only drivers of MLNX_OFED and DOCA have it.
        type: int
      pfc:
        description:
          - The priorities with flow control of their own (PFC) on the network interface of the device, each from 0 to
            7; all others are without. An empty list is none.
          - Without the same on the switches it does harm, because nobody obeys the pauses.
        type: list
        elements: int
      dscp_priorities:
        description:
          - The priority, from 0 to 7, of what arrives and leaves with a DSCP, from 0 to 63, on the network interface of
            the device. Other DSCPs are left alone. Drivers trust DSCP as soon as one has a priority.
        type: dict
        default: {}
      ecn:
        description:
          - Priorities whose congestion is marked and obeyed (ECN, DCQCN) by the network interface of the device, each
            from 0 to 7. Others are left alone. Only drivers of MLNX_OFED and DOCA have it.
        type: list
        elements: int
        default: []
  gpudirect:
    description:
      - How RDMA devices reach the memory of GPUs. V(dma_buf) is a way of the kernel, which needs Linux 5.12, the open
        kernel modules of the NVIDIA driver, and a card whose driver takes it; nothing has to be loaded. V(peermem) is
        the module C(nvidia_peermem). V(auto) is the first of them that this machine can have, and V(ignore) leaves it
        alone.
      - C(nvidia_peermem) loads only if the NVIDIA driver was built after an RDMA stack with peer memory, such as
        MLNX_OFED or DOCA. C(nv_peer_mem), which came before it, must be removed.
    type: str
    choices: [auto, dma_buf, peermem, ignore]
    default: ignore
  job_ports:
    description:
      - The TCP ports to which jobs of other nodes connect on this one. NCCL, MPI and PMIx listen on ephemeral ports,
        those of C(net.ipv4.ip_local_port_range), so these are always included. When that range changes, the next run
        changes the rules too.
      - A rule that is no longer declared is removed, unless it was there before this module. RDMA needs no rule,
        because the card takes its packets before a firewall sees them. Only devices made by software, such as those of
        C(rdma_rxe), are behind the firewall. They use UDP port 4791, which this option does not open.
    type: dict
    default: {}
    suboptions:
      networks:
        description:
          - The networks of the other nodes, such as V(10.20.0.0/16) or V(fd00:20::/64). Every machine in them may
            connect, so declare only networks of the cluster. V(0.0.0.0/0) and V(::/0) are refused.
        type: list
        elements: str
        default: []
      ports:
        description:
          - Further TCP ports, each a port such as V(29500), the default of C(torchrun), or a range such as
            V(29500-29599).
        type: list
        elements: str
        default: []
seealso:
  - name: Configfs of rdma_cm
    description: The RoCE mode and the type of service, in the documentation of the kernel.
    link: https://www.kernel.org/doc/Documentation/ABI/testing/configfs-rdma_cm
  - name: InfiniBand in sysfs
    description: Devices, ports and their states, in the documentation of the kernel.
    link: https://www.kernel.org/doc/Documentation/ABI/stable/sysfs-class-infiniband
  - name: GPUDirect RDMA
    description: DMA-BUF and nvidia_peermem, in the documentation of NVIDIA.
    link: https://docs.nvidia.com/cuda/gpudirect-rdma/
"""

EXAMPLES = r"""
- name: Lossless RoCE v2 with DSCP 26 on all ConnectX cards, whose ports have to be active
  gpufleet.node.rdma:
    devices:
      - match: {driver: mlx5_core}
        ready: true
        roce_mode: v2
        roce_tos: 106
        traffic_class: 106
        pfc: [3]
        dscp_priorities: {26: 3}
        ecn: [3]
    gpudirect: auto

- name: Let jobs of the other nodes connect, whichever firewall is there
  gpufleet.node.rdma:
    job_ports:
      networks: [10.20.0.0/16]
      ports: ["29500"]

- name: The cards of the first NUMA node only
  gpufleet.node.rdma:
    devices:
      - match: {numa_node: "0", driver: mlx5_core}
        roce_tos: 106

- name: Restore what was there before
  gpufleet.node.rdma:
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
    - What must still happen. C(link) while the link of a port is down, C(daemon-reload) while systemd
      cannot reload its units without taking GPUs from running containers, and C(readback) if O(state=absent)
      could not read back a setting, for example because C(dcb) is missing. The values from before the
      first change stay recorded until then; run O(state=absent) again.
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
      description: Who it is, such as C(lldpad) or the name of a service.
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
  description:
    - Under C(devices), what each device that is declared is, and what is set on each of its ports, by the names of the
      options. Under C(gpudirect), where it is declared, which ways to GPU memory there are. Under C(job_ports), where
      it is declared, the range of ephemeral ports, and which of the rules are in effect in each zone of
      C(firewalld) and in C(ufw).
  returned: always, unless the declaration was refused
  type: dict
  sample:
    devices:
      mlx5_0:
        driver: mlx5_core
        identity: "0000:3b:00.0"
        netdevs: [eth2]
        numa_node: "0"
        relaxed_ordering: true
        redirecting_bridges: []
        ports:
          "1": {state: ACTIVE, rate: 400 Gb/sec (4X NDR), link_layer: Ethernet, roce_mode: v2, roce_tos: 106}
    gpudirect: {peermem: false, dma_buf: true, dma_buf_lacks: []}
    job_ports: {range: 32768-60999, accepted: {ufw: [tcp 32768-60999 from 10.20.0.0/16]}}
boot:
  description: What is set on each port at the next boot.
  returned: always, unless the declaration was refused
  type: dict
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.rdma.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
