#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: nic_settings
short_description: MTU, rings, channels, coalescing, offloads, flow control and virtual functions of network interfaces
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Converges settings of network interfaces to the declaration, and reads back what the kernel and the driver say. MTU
    and virtual functions are read from sysfs, everything else from C(ethtool), which must be installed where it is
    declared.
  - A change of an interface that the SSH connection of this run passes has a way back. A timer of systemd undoes it
    after O(confirm_timeout) seconds, unless another connection comes through what was changed and brings a run of this
    module, which confirms it. Until then C(confirmation) is in RV(needs). The role makes that connection by itself.
    Ports of a bond or a bridge on the way count too. A connection that was there before the change confirms nothing.
    Where no card is known to carry the connection, as with Open vSwitch or a VPN, every change has a way back.
    A change of O(interfaces[].virtual_functions), and one by a run that comes over no SSH connection, has none.
  - What was undone is not made again at boot. The next run that comes over a connection fails with what happened, and
    the one after it tries again.
  - O(interfaces[].peers) are asked with packets as large as the MTU, which nobody on the way may divide. Until all of
    them answer, the interface is not in sync, and C(peer) is in RV(needs).
  - Nothing of this survives a reboot by itself. The boot service (P(gpufleet.node.node_tools#role)) applies the
    declaration, and C(gpufleet-nics.service) sets interfaces that come later, which the rule
    C(/etc/udev/rules.d/99-gpufleet-nic_settings.rules) starts. The files of systemd-networkd, NetworkManager, netplan,
    ifupdown and wicked are left alone. One that states another MTU is an error that names the file and the line, unless
    O(permanent=false).
  - What lies on each other is changed in the order that the kernel takes. The ports of a bond get its MTU. An MTU above
    that of the interface below, and one that would cut a VLAN that is not declared, are refused.
  - What the driver does not have is in RV(unmanaged), with the reason. Above what it has, a value is refused with the
    largest that it takes.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  interfaces:
    description:
      - Entries of what is set on which interfaces. Each interface goes by the first entry that matches it.
    type: list
    elements: dict
    default: []
    suboptions:
      match:
        description:
          - What an interface must be to be meant. All keys must agree. Each is a string or a list of strings, of which
            one must agree, with shell wildcards. Without a key every card is meant.
          - C(name) is that of the interface, C(driver) that of its card, such as V(mlx5_core), C(pci_address) that of
            its function, such as V(0000:3b:00.0), and C(mac_address) its address.
          - Interfaces that software makes, such as bonds, bridges and VLANs, are meant only by C(name), which must not
            begin with a wildcard.
        type: dict
        default: {}
      optional:
        description:
          - Whether the entry may match no interface.
        type: bool
        default: false
      mtu:
        description:
          - The largest packet, in bytes, from 1280 to what the driver takes. All hosts and switches of a network must
            have the same.
        type: int
      combined_channels:
        description:
          - The number of channels, each with an interrupt, that receive and send. V(max) is the largest that the driver
            has.
        type: raw
      rx_channels:
        description:
          - The number of channels that only receive, or V(max).
        type: raw
      tx_channels:
        description:
          - The number of channels that only send, or V(max).
        type: raw
      rx_ring:
        description:
          - The number of entries of a receive ring, or V(max). Some drivers round it up to a power of two, so declare
            one.
        type: raw
      tx_ring:
        description:
          - The number of entries of a send ring, or V(max).
        type: raw
      adaptive_rx:
        description:
          - Whether the driver chooses by the load how long an interrupt waits for further packets.
        type: bool
      adaptive_tx:
        description:
          - The same for what was sent.
        type: bool
      rx_usecs:
        description:
          - How long an interrupt waits for further packets, in microseconds.
        type: int
      tx_usecs:
        description:
          - The same for what was sent.
        type: int
      rx_frames:
        description:
          - After how many packets an interrupt does not wait any longer.
        type: int
      tx_frames:
        description:
          - The same for what was sent.
        type: int
      offloads:
        description:
          - Features by their names in C(ethtool -k), or by the short ones of ethtool(8), such as V(gro), with V(true)
            or V(false).
        type: dict
        default: {}
      pause_autonegotiation:
        description:
          - Whether the ends of the link agree on flow control by pause frames.
        type: bool
      rx_pause:
        description:
          - Whether pause frames of the other end are obeyed.
        type: bool
      tx_pause:
        description:
          - Whether pause frames are sent when a ring is full.
        type: bool
      virtual_functions:
        description:
          - The number of virtual functions of the card (SR-IOV). To change it all of them go away first. That is
            refused while one is given to a virtual machine or a container, or is up.
        type: int
      peers:
        description:
          - IP addresses that must answer packets as large as the MTU over this interface, such as those of a storage
            server and of the gateway.
        type: list
        elements: str
        default: []
  confirm_timeout:
    description:
      - After how many seconds a change that nobody confirmed is undone, from 30 to 3600.
    type: int
    default: 120
seealso:
  - name: ethtool
    description: The program that reads and sets most of this.
    link: https://man7.org/linux/man-pages/man8/ethtool.8.html
  - name: Interfaces in sysfs
    description: MTU and others, in the documentation of the kernel.
    link: https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-class-net
  - name: PCI Express I/O Virtualization Howto
    description: Virtual functions, in the documentation of the kernel.
    link: https://docs.kernel.org/PCI/pci-iov-howto.html
"""

EXAMPLES = r"""
- name: Jumbo frames and large rings on all ports of ConnectX cards
  gpufleet.node.nic_settings:
    interfaces:
      - match: {driver: mlx5_core}
        mtu: 9000
        rx_ring: max
        tx_ring: max
        peers: [10.10.0.1]

- name: A bond with a VLAN on it, and eight virtual functions of another card
  gpufleet.node.nic_settings:
    interfaces:
      - match: {name: [bond0, bond0.100]}
        mtu: 9000
      - match: {pci_address: "0000:3b:00.0"}
        virtual_functions: 8

- name: Restore what was there before
  gpufleet.node.nic_settings:
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
    setting:
      description: What it sets.
      type: str
    value:
      description: The value it sets.
      type: str
    wins:
      description: Whose value stays in the end, C(us) or C(them).
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
  description: Under C(interfaces), what is set on each that is declared, by the names of the options and of features.
  returned: always, unless the declaration was refused
  type: dict
  sample: {interfaces: {eth1: {mtu: 9000, rx_ring: 8192}}}
boot:
  description: The same at the next boot.
  returned: always, unless the declaration was refused
  type: dict
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nic_settings.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
