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
  - A change of an interface that carries the SSH connection of this run is rolled back unless it is confirmed. A
    systemd timer undoes the change after O(confirm_timeout) seconds, unless this module runs again before that, over a
    new connection through the changed interface, and so confirms it. Until then C(confirmation) is in RV(needs). The
    role makes that connection by itself. Ports of a bond or a bridge that the connection passes count too. A connection
    that is older than the change confirms nothing. Where no card is known to carry the connection, as with Open vSwitch
    or a VPN, every change is made in this way. A change of O(interfaces[].virtual_functions) is not, nor is one by a
    run that comes over no SSH connection.
  - A change that was undone is not made again at boot. The next run over a connection fails and says what happened, and
    the one after it tries again.
  - The addresses in O(interfaces[].peers) are pinged with packets as large as the MTU that must not be fragmented.
    Until all of them answer, the interface is not in sync, and C(peer) is in RV(needs).
  - None of these settings survives a reboot by itself. The boot service (P(gpufleet.node.node_tools#role)) applies the
    declaration. Interfaces that appear later are set by C(gpufleet-nics.service), which the udev rule
    C(/etc/udev/rules.d/99-gpufleet-nic_settings.rules) starts. The files of systemd-networkd, NetworkManager, netplan,
    ifupdown, wicked, the network scripts of RHEL and C(tuned) are left alone. If one of them sets another value than
    declared (C(ETHTOOL_OPTS), an C([ethtool]) section, an C(up) command and so on), the module fails and names the file
    and the line, unless O(permanent=false). So it does for another MTU that a DHCP server gives to an interface through
    one of them, because every new lease would set it again.
  - Services, timers, scripts and C(rc.local) that run C(ethtool) or C(ip link) at boot, or write the MTU or the number
    of virtual functions to sysfs, are read too. If one is ordered after the boot service, the module fails in the same
    way. If its order is unknown, or a condition decides, it is listed in RV(conflicts), and RV(status) is V(unknown).
    C(.link) files are applied before the boot service, which overrides them.
  - Stacked interfaces, such as a VLAN on a bond, are changed in the order that the kernel accepts. The ports of a bond
    get its MTU. An MTU that is larger than that of the interface below is refused, and so is one that would reduce the
    MTU of a VLAN that is not declared.
  - A setting that the driver does not have is listed in RV(unmanaged), with the reason. A value that is larger than the
    driver accepts is refused, and the error says what the largest is.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  interfaces:
    description:
      - What is set on which interfaces. The first entry that matches an interface applies to it.
    type: list
    elements: dict
    default: []
    suboptions:
      match:
        description:
          - Which interfaces the entry is for. All keys must match. Each has one shell glob, or a list of globs of which
            one must match. Without keys the entry is for every card.
          - C(name) is the name of the interface, C(driver) the driver of its card, such as V(mlx5_core), C(pci_address)
            the address of its PCI function, such as V(0000:3b:00.0), and C(mac_address) its MAC address. Put addresses
            in quotes, because YAML reads some of them as numbers.
          - C(link_layer) is V(ethernet) or V(infiniband). V(mlx5_core) is the driver of Ethernet ports and of IPoIB
            ports, which accept a smaller MTU.
          - Interfaces that software makes, such as bonds, bridges and VLANs, match only by C(name), and only if it does
            not begin with a wildcard.
        type: dict
        default: {}
      optional:
        description:
          - Whether the entry may match no interface. Otherwise that is an error.
        type: bool
        default: false
      mtu:
        description:
          - The largest packet, in bytes, from 1280 to what the driver accepts. All hosts of a network must have the
            same, and its switches must pass packets of that size.
        type: int
      combined_channels:
        description:
          - The number of channels, each with an interrupt, that both receive and send. V(max) is the most that the
            driver supports.
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
          - The number of entries in a receive ring, or V(max). Some drivers round it up to a power of two, so declare a
            power of two.
        type: raw
      tx_ring:
        description:
          - The number of entries in a send ring, or V(max).
        type: raw
      adaptive_rx:
        description:
          - Whether the driver adapts to the load how long a receive interrupt waits for more packets.
        type: bool
      adaptive_tx:
        description:
          - The same for sent packets.
        type: bool
      rx_usecs:
        description:
          - How long a receive interrupt waits for more packets, in microseconds.
        type: int
      tx_usecs:
        description:
          - The same for sent packets.
        type: int
      rx_frames:
        description:
          - The number of received packets after which an interrupt waits no longer.
        type: int
      tx_frames:
        description:
          - The same for sent packets.
        type: int
      offloads:
        description:
          - Features by the names that C(ethtool -k) shows, or by the short names in ethtool(8), such as V(gro), each
            with V(true) or V(false).
        type: dict
        default: {}
      pause_autonegotiation:
        description:
          - Whether the two ends of the link negotiate flow control by pause frames.
        type: bool
      rx_pause:
        description:
          - Whether pause frames from the other end are obeyed.
        type: bool
      tx_pause:
        description:
          - Whether pause frames are sent when a ring is full.
        type: bool
      virtual_functions:
        description:
          - The number of virtual functions of the card (SR-IOV). A change of the number removes all of them first, so
            it is refused while one of them is up, or is given to a virtual machine or a container.
        type: int
      peers:
        description:
          - IP addresses that must answer a ping with packets as large as the MTU over this interface, such as those of
            a storage server and of the gateway.
        type: list
        elements: str
        default: []
  confirm_timeout:
    description:
      - The number of seconds after which a change that was not confirmed is undone, from 30 to 3600.
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
      - match: {driver: mlx5_core, link_layer: ethernet}
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
      description: The interface, the unit, or the file.
      type: str
    setting:
      description:
        - The option, the feature, C(path to ADDRESS) for a peer, or C(connection) for a confirmation.
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
      description: Always C(now).
      type: str
needs:
  description:
    - What must still happen. C(confirmation) until a new connection has confirmed a change, C(peer) until
      all peers answer, and C(daemon-reload) where systemd must not read its units yet.
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
  description:
    - Other owners that set another value. If such a value would win, the module fails instead, unless
      O(permanent=false).
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    owner:
      description: Who it is, such as C(NetworkManager), C(systemd.link) or the name of a service.
      type: str
      sample: tune.service
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
    - Under C(interfaces), what is set on each interface that is declared, by the names of the options and the features.
  returned: always, unless the declaration was refused
  type: dict
  sample: {interfaces: {eth1: {mtu: 9000, rx_ring: 8192}}}
boot:
  description: The same as the next boot sets it.
  returned: always, unless the declaration was refused
  type: dict
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.nic_settings.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
