#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: numa_irq_affinity
short_description: Every interrupt on the CPUs next to its device
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Places the interrupts of network cards, NVMe drives and GPUs on the CPUs that are declared, by default those of the
    NUMA node of the device, in one call for the machine, and reads back where the kernel delivers them.
  - The physical cores of a node come first, then their second threads, evenly over all interrupts that share the
    CPUs. A placement that is as good already stays, so a new device moves as little as possible.
  - Isolated CPUs (C(isolcpus), C(nohz_full)) get no interrupts unless an entry names them, and O(reserved_cpus) never
    do. A declaration that leaves a device without CPUs is an error, before any change.
  - If an entry names CPUs that M(gpufleet.node.kernel_cmdline) isolates, both declarations are refused, unless the
    entry says that this is intended (O(interrupts[].isolated)). If something else isolates them, they get the
    interrupts, and are listed in RV(conflicts). O(reserved_cpus) is refused if it contains all CPUs that
    M(gpufleet.node.cpu_isolation) leaves to the system, or if it and the isolated CPUs together leave no CPU of a NUMA
    node.
  - An interrupt that the kernel itself places, such as those of the I/O queues of NVMe drives, cannot be moved. It is
    listed in RV(unmanaged) with the reason. If only the refused write shows this, the interrupt is noted in
    C(/run/gpufleet/numa_irq_affinity.json) and not tried again during this boot.
  - irqbalance would move the interrupts again. O(irqbalance) says how the two coexist.
  - Services, timers and scripts that write C(smp_affinity), C(rps_cpus) or C(xps_cpus) at boot are read. If one is
    ordered after the boot service and certainly sets other CPUs, the module fails and names the file and the line,
    unless O(permanent=false). Others, such as C(set_irq_affinity.sh) and C(mlnx_affinity) of C(mlnx-tools), are listed
    in RV(conflicts), and RV(status) is V(unknown) if it is unknown which of them runs last.
  - The numbers of interrupts change with every boot, every load of a driver and every change of the queues of a network
    card, so they are in no file. The boot service of the role P(gpufleet.node.node_tools#role) applies the declaration
    at boot, and udev starts the same code when a network interface, an InfiniBand device, an NVMe drive, or the driver
    of GPUs or of network cards appears, and when a queue is added or removed. Unless O(permanent=false), the
    declaration is refused without that role.
  - An interrupt is in sync by the set of CPUs that it may be delivered to (C(smp_affinity_list)). The CPU that it was
    last delivered to does not count, because an idle interrupt moves with its next event.
  - With O(state=absent), interrupts and queues are restored to the CPUs from before the first change, as far as the
    same device still has an interrupt of the same name; the others are listed in RV(unmanaged). irqbalance is restored
    too.
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  interrupts:
    description:
      - The entries, tried in order for each device. The first that matches wins the device with all its interrupts,
        and no later one adds to it. A device that no entry wins is left alone. One that has no interrupts at the
        moment, because it is down or unused, can be won as well.
      - At most one of O(interrupts[].cpus), O(interrupts[].numa_node) and O(interrupts[].near) says where its
        interrupts go. The default is C(cpus=local).
    type: list
    elements: dict
    default: []
    suboptions:
      match:
        description:
          - Which devices the entry is for. All keys must agree; each has one value or a list of alternatives, as
            shell globs. Without keys the entry is for all devices of the classes below. One of another class is won
            only by an entry that has another key than C(class).
          - C(class) goes by the class code of PCI. C(gpu) is a display controller of NVIDIA (0x0300, 0x0302),
            C(network) an Ethernet or other network controller (0x0200, 0x0280), C(infiniband) an InfiniBand one
            (0x0207), C(nvme) NVM Express (0x010802), and C(storage) all other mass storage (0x01xx). A card that
            speaks Ethernet as well as InfiniBand has the class of the protocol that it is set to.
          - The other keys are C(driver) (such as C(mlx5_core)), C(interface) (such as C(ens1f0np0)) and
            C(pci_address) (such as C(0000:17:00.0)). Virtual functions are devices of their own. Interrupts of the
            auxiliary devices of a function, such as subfunctions, belong to the function.
          - An interface without interrupts, such as a bond, a bridge or a VLAN, is an error that names the interfaces
            below it.
        type: dict
        default: {}
      cpus:
        description:
          - V(local) for the CPUs of the NUMA node of the device, or a list such as V(0-7,16). The node is that of the
            PCI function; if the firmware does not report it, all online CPUs are local, and for a node without CPUs
            those of the nearest node that has some.
          - All CPUs of a list must be online. It may have isolated ones (O(interrupts[].isolated)).
        type: str
      isolated:
        description:
          - Whether O(interrupts[].cpus) is meant to name isolated CPUs. Set it for CPUs that are to do nothing but the
            interrupts of a card.
        type: bool
      numa_node:
        description:
          - The CPUs of this NUMA node, whatever the node of the device is.
        type: int
      near:
        description:
          - With V(gpu) the CPUs of the NUMA node of the GPU that is the nearest to the device by the tree of PCI.
        type: str
        choices: [gpu]
      spread:
        description:
          - With V(one_per_irq) every interrupt gets one CPU, with V(all) all CPUs of the entry, of which the kernel
            chooses one.
        type: str
        choices: [one_per_irq, all]
        default: one_per_irq
      rps:
        description:
          - Whether the packets of the receive queues are spread over the CPUs of the entry (receive packet steering).
            V(false) disables it; if not given, it is left alone. For cards that have fewer queues than the node has
            CPUs.
        type: bool
      xps:
        description:
          - Whether the CPUs of the entry are distributed over the transmit queues (transmit packet steering), each to
            one queue. V(false) disables it; if not given, it is left alone.
        type: bool
      optional:
        description:
          - Whether the entry may win no device. Otherwise that is an error.
        type: bool
        default: false
  reserved_cpus:
    description:
      - A list of CPUs on which this module never places an interrupt, such as V(0,64), even if an entry names them.
      - Reserve whole cores, with all their threads. If only threads of reserved cores would be left next to a device,
        and an entry does not name them in O(interrupts[].cpus), that is an error.
    type: str
    default: ""
  irqbalance:
    description:
      - What is done about irqbalance. If it is not installed, nothing is done, whatever is declared.
      - With V(cooperate) it keeps balancing the interrupts of all other devices. A policy script of this module
        excludes those that the module places. The script goes by device, and so stays correct when interrupt numbers
        change. A running irqbalance is restarted when the devices change. Its arguments stay, and a folder of scripts
        that they name gets this script beside the others. A single script that they name is an error, because
        irqbalance takes only one.
      - With V(disable) it is stopped, and does not start at boot.
      - With V(ignore) nothing is done to it, and what an earlier declaration changed is restored.
      - An irqbalance that runs without the policy script, because of V(ignore) or because C(irqbalance.service) does
        not run it, is listed in RV(conflicts), because it undoes what is declared.
    type: str
    choices: [cooperate, disable, ignore]
    default: cooperate
seealso:
  - module: gpufleet.node.gpu_node_info
  - module: gpufleet.node.nvidia_persistence
    description: Without it the driver frees the interrupts of an idle GPU, and their placement is lost.
  - name: SMP IRQ affinity
    description: The files below /proc/irq in the documentation of the kernel.
    link: https://docs.kernel.org/core-api/irq/irq-affinity.html
  - name: Scaling in the Linux networking stack
    description: RPS and XPS in the documentation of the kernel.
    link: https://docs.kernel.org/networking/scaling.html
  - name: irqbalance(1)
    description: How it runs a policy script.
    link: https://manpages.debian.org/irqbalance/irqbalance.1.en.html
"""

EXAMPLES = r"""
- name: Every network card and NVMe drive on its own NUMA node, without the first core of each socket
  gpufleet.node.numa_irq_affinity:
    reserved_cpus: "0,32"
    interrupts:
      - match:
          class: [network, infiniband, nvme]

- name: The cards of the fabric beside the GPUs that they serve, the others anywhere on their node
  gpufleet.node.numa_irq_affinity:
    interrupts:
      - match:
          class: [network, infiniband]
          driver: mlx5_core
        near: gpu
      - match:
          class: network
        spread: all
        optional: true

- name: One card on CPUs of its own, with few queues and packet steering, and irqbalance off
  gpufleet.node.numa_irq_affinity:
    irqbalance: disable
    interrupts:
      - match:
          interface: ens1f0
        cpus: 4-7
        rps: true
        xps: true

- name: Restore what was there before
  gpufleet.node.numa_irq_affinity:
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
      description:
        - The device by its interface, or by its PCI address where it has none or several; or the file.
      type: str
      sample: ens1f0np0
    setting:
      description: What is set on it, such as C(interrupt NAME) with the name of the handler, or C(rps
        rx-0).
      type: str
      sample: interrupt mlx5_comp3@pci:0000:17:00.0
    before:
      description: The value that was found.
      type: raw
      sample: 0-127
    after:
      description: The value that is wanted.
      type: raw
      sample: '3'
    scope:
      description: C(effective) for the running system, C(boot) for the next boot.
      type: str
      sample: effective
    takes_effect:
      description: Always C(now).
      type: str
      sample: now
needs:
  description:
    - What must still happen. C(daemon-reload) after a unit has changed, if running containers would lose
      their GPUs by it now.
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
    - What was declared and cannot be set, with the reason.
    - With O(state=absent) what was changed on interrupts that do not exist now, or that only had CPUs
      that are offline now.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    object:
      description: The device.
      type: str
      sample: '0000:41:00.0'
    setting:
      description: The interrupt or the queue.
      type: str
      sample: interrupt nvme0q1
    reason:
      description: Why.
      type: str
      sample: the kernel places the interrupts of NVMe queues itself
conflicts:
  description: Who else places interrupts.
  returned: always, unless the declaration was refused
  type: list
  elements: dict
  contains:
    owner:
      description: C(irqbalance), or the name of a service.
      type: str
      sample: irqbalance
    path:
      description: The process, or the file.
      type: str
      sample: /proc/812
    line:
      description: The line in it, where there is one.
      type: int
      sample: null
    object:
      description: The object that it is about, as in RV(changes).
      type: str
    setting:
      description: What it sets.
      type: str
      sample: smp_affinity
    value:
      description: The command line of the process, or the CPUs.
      type: str
      sample: /usr/sbin/irqbalance --foreground
    wins:
      description: Whose value stays in the end. One of C(us), C(them) and C(unknown).
      type: str
      sample: them
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
      sample: declaration
    object:
      description: What it was about.
      type: str
      sample: ens1f0np0
    found:
      description: The value that was found.
      type: raw
      sample: 0-127
    wanted:
      description: The value that was wanted.
      type: raw
      sample: '3'
    hint:
      description: The next step.
      type: str
# End of what all return.
effective:
  description: Where the interrupts go, as read back.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    devices:
      description: By device its place, and by the name of the handler each of its interrupts.
      type: dict
      sample:
        ens1f0np0:
          pci_address: "0000:17:00.0"
          numa_node: 0
          interrupts:
            "mlx5_comp3@pci:0000:17:00.0": {cpus: "3", wanted: "3", managed: ""}
    irqbalance:
      description: The daemon irqbalance.
      type: dict
      contains:
        running:
          description: Whether it runs.
          type: bool
          sample: true
        start_at_boot:
          description: The state of its unit in systemd, such as C(enabled), C(disabled), C(masked) and C(not-found).
          type: str
          sample: enabled
        policy:
          description: >-
            The policy script, or the folder of scripts, that the running irqbalance uses; null if it uses none.
          type: str
          sample: /etc/gpufleet/irqbalance.d
        banned_cpus:
          description: The CPUs that its environment bans; null if it bans none.
          type: str
          sample: 0-3
        devices_left_alone:
          description: The PCI addresses of the devices that the policy script excludes.
          type: list
          elements: str
          sample: ["0000:17:00.0", "0000:41:00.0"]
boot:
  description:
    - Where the next boot brings them. That is the declaration where it is on the node and the boot service applies
      it, and null otherwise.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    devices:
      description: The same as in RV(effective).
      type: dict
      sample:
        ens1f0np0:
          pci_address: "0000:17:00.0"
          numa_node: 0
          interrupts:
            "mlx5_comp3@pci:0000:17:00.0": {cpus: "3", wanted: "3", managed: ""}
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
