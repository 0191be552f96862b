#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_node_info
short_description: Facts of a GPU node, in one read
version_added: 0.1.0
description:
  - Reads the GPUs, where they and the network cards and NVMe drives are, their links, interrupts, block queues, memory,
    driver, firmware, container engines, CDI devices, orchestrator, other owners of the settings of this collection, and
    the health of the GPUs and of the ports of the network cards.
  - What cannot be read is null, and the object it belongs to says why in C(unavailable), by the name of the field. It
    never fails the rest. A driver that hangs makes null what the driver would have said.
  - It works on a host without a GPU or driver, in a container and for any user. Some fields are for root alone.
  - GPUs that are on the bus and that the driver does not know are listed with what the bus says.
  - It asks the driver through C(nvidia-ml-py), in a process of its own, dockerd and CRI-O at their sockets where they
    run, and runs no program but C(dmesg), for the health.
author:
  - gpufleet contributors (@gpufleet)
options:
  gather:
    description:
      - Which parts to read.
      - V(all) is all of them. V(holders) looks at the open files of all processes, and V(gds) runs NVIDIA's
        C(gdscheck). These two are not read unless they are named.
    type: list
    elements: str
    choices:
      - all
      - block
      - cdi
      - driver
      - engines
      - firmware
      - gds
      - gpus
      - health
      - holders
      - interrupts
      - memory
      - network
      - orchestrator
      - owners
      - topology
    default:
      - block
      - cdi
      - driver
      - engines
      - firmware
      - gpus
      - health
      - interrupts
      - memory
      - network
      - orchestrator
      - owners
      - topology
  compress:
    description:
      - Whether to return the facts as one text, RV(compressed), and no RV(node).
      - Ansible keeps what is registered for all hosts until the end of a run. The facts of a thousand nodes take it
        gigabytes, and these texts megabytes. The filter P(gpufleet.node.decompress#filter) reads them.
    type: bool
    default: false
  binding:
    description:
      - The text of a C(pynvml.py), as the controller packs it. It is used in memory where the node has no suitable
        nvidia-ml-py.
      - Only the action plugin of this module sets it, when the node answered that it has none. A task must not set it.
    type: str
    default: ""
extends_documentation_fragment:
  - gpufleet.node.contract.attributes
attributes:
  check_mode:
    support: full
    details: The module only ever reads.
  diff_mode:
    support: none
    details: There is no difference to show.
  idempotent:
    support: full
  action:
    description: Has an action plugin, so that part of it runs on the controller.
    support: full
    details: Where this release's program is on the node, that program reads the facts, and no module is sent.
notes:
  - Without persistence mode the driver initialises every GPU when it is asked, which takes seconds, and shows the
    values of that moment.
  - NVML cannot tell whether clocks are locked. What was declared is in C(/etc/gpufleet/declared.d/).
  - An idle GPU lowers the speed of its link; that does not count as degraded.
  - Sysfs does not say which rate a port could have. So a port is compared with the ports of equal cards on the node.
  - The growth of error counters is measured from C(/run/gpufleet/ports.json), which this module only reads. The boot
    service and C(gpufleet health) save the counters there, at most once an hour. If the file does not exist, growth is
    measured from the boot.
  - Frames of priority flow control are not in sysfs, and are not read. The counters C(roce_slow_restart),
    C(out_of_sequence) and C(packet_seq_err) show a congested RoCE network.
requirements:
  - Python 3.9 or newer on the node
  - nvidia-ml-py on the node or on the controller, for what the driver reports
seealso:
  - name: NVML
    description: The meaning of what the driver reports.
    link: https://docs.nvidia.com/deploy/nvml-api/
  - name: Xid errors
    description: The numbers in the log of the kernel.
    link: https://docs.nvidia.com/deploy/xid-errors/
"""

EXAMPLES = r"""
- name: Read all about the node
  gpufleet.node.gpu_node_info:
  register: info

- name: Stop where a GPU is sick
  ansible.builtin.assert:
    that: info.node.health.gpus | rejectattr('healthy') | list | length == 0
    fail_msg: "{{ info.node.health.gpus | map(attribute='problems') | flatten | join(', ') }}"

- name: Read all about many nodes
  gpufleet.node.gpu_node_info:
    compress: true
  register: info

- name: Show their GPUs
  ansible.builtin.debug:
    msg: "{{ (info | gpufleet.node.decompress).gpus | map(attribute='model') }}"

- name: Stop where a port of a network card is sick
  ansible.builtin.assert:
    that: info.node.network.ports | rejectattr('healthy') | list | length == 0
    fail_msg: "{{ info.node.network.ports | map(attribute='problems') | flatten | join(', ') }}"

- name: See what blocks a reset
  gpufleet.node.gpu_node_info:
    gather: [holders]
  register: holders

- name: Show the network cards that share a switch with the first GPU
  ansible.builtin.debug:
    msg: >-
      {{ info.node.topology.distances | selectattr('gpu', 'equalto', info.node.gpus[0].pci_address)
      | selectattr('level', 'equalto', 'PIX') | map(attribute='nic') | list }}
"""

RETURN = r"""
looked_by:
  description: "What read the facts: the program or the module."
  returned: always
  type: str
  sample: program
not_by_program:
  description: Why the program on the node did not read them.
  returned: when the module did
  type: str
  sample: gpufleet_look_by is module
read_with_binding:
  description: An empty list if what the driver reports was read with the controller's nvidia-ml-py.
  returned: when the controller's was sent, because the node has no suitable one
  type: list
  elements: str
node:
  description: The facts. A part that was not requested is missing; one that could not be read is null.
  returned: success, without O(compress)
  type: dict
  contains:
    system:
      description: The machine as a whole; there always.
      type: dict
      contains:
        distribution:
          description: The C(ID) of os-release.
          type: str
          sample: ubuntu
        distribution_version:
          description: The C(VERSION_ID) of os-release.
          type: str
          sample: "24.04"
        kernel:
          description: The release of the running kernel.
          type: str
          sample: "6.8.0-60-generic"
        command_line:
          description: The command line of the running kernel.
          type: str
          sample: BOOT_IMAGE=/vmlinuz ro iommu=pt
        boot_id:
          description: What the kernel calls this boot.
          type: str
          sample: 3b2f9f0c-6f0e-4a4e-8c0f-1d9c2a7e5b61
        reboot_reasons:
          description: What waits for a reboot, as the runs of this collection noted it since the last one.
          type: list
          elements: str
          sample: []
        cpus:
          description: How many CPUs are online.
          type: int
          sample: 224
        container:
          description: Whether this is the inside of a container.
          type: bool
          sample: false
        root:
          description: Whether the module ran as root.
          type: bool
          sample: true
        unavailable:
          description: Why a field of this object is null, by the name of the field.
          type: dict
          sample: {}
    nvml_gpus:
      description:
        - How many GPUs the NVIDIA driver knows; null with the reason when it did not respond. There when a part that
          asks the driver is gathered.
      type: int
      sample: 8
    gpus:
      description: The GPUs of NVIDIA, those that the driver does not know too, in the order of the driver.
      type: list
      elements: dict
      contains:
        index:
          description: The number that the driver gives it.
          type: int
          sample: 0
        uuid:
          description: Its UUID.
          type: str
          sample: GPU-785275a8-873d-5466-ba75-70089f1b0fa4
        serial:
          description: The serial number of the board.
          type: str
          sample: "1652266980512"
        model:
          description: Its name.
          type: str
          sample: NVIDIA H100 80GB HBM3
        board_part_number:
          description: The part number of the board.
          type: str
          sample: "692-2G520-0200-000"
        brand:
          description: The product line.
          type: str
          sample: nvidia
        architecture:
          description: The architecture.
          type: str
          sample: hopper
        cuda_capability:
          description: The CUDA compute capability.
          type: str
          sample: "9.0"
        minor:
          description: The number of its device file.
          type: int
          sample: 0
        pci_address:
          description: Its PCI address.
          type: str
          sample: "0000:1b:00.0"
        pci_id:
          description: Vendor and device on PCI.
          type: str
          sample: "10de:2330"
        pci_subsystem_id:
          description: Vendor and device of the board on PCI.
          type: str
          sample: "10de:16c1"
        kernel_driver:
          description: The kernel module that has it.
          type: str
          sample: nvidia
        lost:
          description: Whether it has fallen off the bus.
          type: bool
          sample: false
        link:
          description: The link of the device on PCI Express.
          type: dict
          contains:
            speed_gts:
              description: The speed of a lane now, in GT/s.
              type: float
              sample: 32.0
            max_speed_gts:
              description: The highest speed of the device, in GT/s.
              type: float
              sample: 32.0
            slot_max_speed_gts:
              description: The highest speed of the port that it is plugged into, in GT/s.
              type: float
              sample: 32.0
            width:
              description: The lanes in use.
              type: int
              sample: 16
            max_width:
              description: The lanes that the device has.
              type: int
              sample: 16
            slot_max_width:
              description: The lanes that the port has.
              type: int
              sample: 16
            degraded:
              description:
                - Whether the link is slower or narrower than the device could be. The speed of a GPU is measured by
                  what its slot can do too, and does not count while the GPU is idle or unknown to the driver.
              type: bool
              sample: false
            causes:
              description: What is degraded, V(slow) and V(narrow).
              type: list
              elements: str
              sample: []
            note:
              description: What else is to be known; empty mostly.
              type: str
              sample: ""
            unavailable:
              description: Why a field of this object is null, by the name of the field.
              type: dict
              sample: {}
        memory:
          description: The memory of the GPU.
          type: dict
          contains:
            total_mib:
              description: All of it, in MiB.
              type: int
              sample: 81559
            used_mib:
              description: What programs use, in MiB.
              type: int
              sample: 4
            reserved_mib:
              description: What the driver keeps for itself, in MiB.
              type: int
              sample: 551
            unavailable:
              description: Why a field of this object is null, by the name of the field.
              type: dict
              sample: {}
        mig:
          description: Multi-instance GPU; null where the GPU cannot do it.
          type: dict
          contains:
            current:
              description: Whether it is on.
              type: bool
              sample: false
            pending:
              description: Whether it is on after the next reset.
              type: bool
              sample: false
            instances:
              description: The GPU instances in the order of their memory.
              type: list
              elements: dict
              contains:
                gpu_instance:
                  description: The number of the instance.
                  type: int
                  sample: 1
                profile_id:
                  description: The number of its profile.
                  type: int
                  sample: 9
                profile:
                  description: The name of its profile.
                  type: str
                  sample: "3g.40gb"
                start:
                  description: The first slice of memory it has.
                  type: int
                  sample: 4
                size:
                  description: How many slices of memory it has.
                  type: int
                  sample: 4
                memory_mib:
                  description: Its memory, in MiB.
                  type: int
                  sample: 40448
                compute_instances:
                  description: What it is divided into.
                  type: list
                  elements: dict
                  contains:
                    compute_instance:
                      description: The number of the instance.
                      type: int
                      sample: 0
                    slices:
                      description: How many compute slices it has.
                      type: int
                      sample: 3
                    start:
                      description: The first of them.
                      type: int
                      sample: 0
                    uuid:
                      description: Its UUID.
                      type: str
                      sample: MIG-5f3a2c1e-7d24-5b9a-9c3e-0d8f6a4b2c10
                    unavailable:
                      description: Why a field of this object is null, by the name of the field.
                      type: dict
                      sample: {}
                unavailable:
                  description: Why a field of this object is null, by the name of the field.
                  type: dict
                  sample: {}
            unavailable:
              description: Why a field of this object is null, by the name of the field.
              type: dict
              sample: {}
        persistence:
          description: Whether the driver stays initialised while the GPU is idle.
          type: bool
          sample: true
        clocks:
          description: The clocks, in MHz.
          type: dict
          contains:
            graphics_mhz:
              description: The clock of graphics now.
              type: int
              sample: 345
            sm_mhz:
              description: The clock of the multiprocessors now.
              type: int
              sample: 345
            memory_mhz:
              description: The clock of the memory now.
              type: int
              sample: 2619
            video_mhz:
              description: The clock of the video engines now.
              type: int
              sample: 765
            max_graphics_mhz:
              description: The highest clock of graphics.
              type: int
              sample: 1980
            max_sm_mhz:
              description: The highest clock of the multiprocessors.
              type: int
              sample: 1980
            max_memory_mhz:
              description: The highest clock of the memory.
              type: int
              sample: 2619
            max_video_mhz:
              description: The highest clock of the video engines.
              type: int
              sample: 1545
            locked:
              description: Always null, since NVML cannot tell whether the clocks are locked.
              type: raw
              sample: {}
            unavailable:
              description: Why a field of this object is null, by the name of the field.
              type: dict
              sample: {}
        power:
          description: Power, in W.
          type: dict
          contains:
            draw_watts:
              description: What it draws now.
              type: float
              sample: 71.2
            limit_watts:
              description: The limit that is set.
              type: float
              sample: 700.0
            enforced_limit_watts:
              description: The limit that is in effect, whoever sets it.
              type: float
              sample: 700.0
            default_limit_watts:
              description: The limit without a setting.
              type: float
              sample: 700.0
            min_limit_watts:
              description: The lowest limit that can be set.
              type: float
              sample: 200.0
            max_limit_watts:
              description: The highest limit that can be set.
              type: float
              sample: 700.0
            unavailable:
              description: Why a field of this object is null, by the name of the field.
              type: dict
              sample: {}
        ecc:
          description: Error correction of the memory; null where there is none.
          type: dict
          contains:
            current:
              description: Whether it is on.
              type: bool
              sample: true
            pending:
              description: Whether it is on after the next reset.
              type: bool
              sample: true
        compute_mode:
          description: V(default), V(exclusive_process) or V(prohibited).
          type: str
          sample: default
        addressing_mode:
          description: How it shares addresses with the CPUs, V(none), V(hmm) or V(ats).
          type: str
          sample: none
        virtualization_mode:
          description: V(none), V(passthrough), V(vgpu), V(host_vgpu) or V(host_vsga).
          type: str
          sample: none
        temperature_celsius:
          description: The temperature of the chip, in degrees Celsius.
          type: int
          sample: 31
        performance_state:
          description: From V(P0), the highest, to V(P15).
          type: str
          sample: P0
        throttle_reasons:
          description: Why its clocks are not higher.
          type: list
          elements: str
          sample: ["gpu_idle"]
        processes:
          description: The processes that the driver knows on it.
          type: list
          elements: dict
          contains:
            pid:
              description: The process.
              type: int
              sample: 4711
            types:
              description: V(compute), V(graphics) and V(mps).
              type: list
              elements: str
              sample: ["compute"]
            name:
              description: The program.
              type: str
              sample: /usr/bin/python3
            memory_mib:
              description: What it uses, in MiB.
              type: int
              sample: 1024
            gpu_instance:
              description: The MIG instance it uses.
              type: int
              sample: 1
            compute_instance:
              description: The compute instance it uses.
              type: int
              sample: 0
            unavailable:
              description: Why a field of this object is null, by the name of the field.
              type: dict
              sample: {}
        vbios:
          description: The version of its VBIOS.
          type: str
          sample: "96.00.89.00.01"
        inforom:
          description: The version of the image of its InfoROM.
          type: str
          sample: G520.0200.00.05
        gsp_firmware:
          description: The version of the firmware of its system processor.
          type: str
          sample: "550.54.15"
        unavailable:
          description: Why a field of this object is null, by the name of the field.
          type: dict
          sample: {}
    topology:
      description: Where the devices are.
      type: dict
      contains:
        nodes:
          description: The NUMA nodes.
          type: list
          elements: dict
          contains:
            node:
              description: Its number.
              type: int
              sample: 0
            cpus:
              description: Its CPUs, as a list; empty where it has memory alone.
              type: str
              sample: "0-55,112-167"
            memory_mib:
              description: Its memory, in MiB.
              type: int
              sample: 1031996
            distances:
              description: The distances to all nodes, in the order of their numbers.
              type: list
              elements: int
              sample: [10, 21]
            unavailable:
              description: Why a field of this object is null, by the name of the field.
              type: dict
              sample: {}
        devices:
          description: The GPUs, network cards and NVMe drives.
          type: list
          elements: dict
          contains:
            kind:
              description: V(gpu), V(nic) or V(nvme).
              type: str
              sample: nic
            pci_address:
              description: Its PCI address.
              type: str
              sample: "0000:18:00.0"
            pci_id:
              description: Vendor and device on PCI.
              type: str
              sample: "15b3:1021"
            names:
              description:
                - What the kernel calls it. RDMA device and interfaces of a network card, the controller of an NVMe
                  drive; none of a GPU.
              type: list
              elements: str
              sample: ["mlx5_0", "ibp24s0"]
            kernel_driver:
              description: The kernel module that has it.
              type: str
              sample: mlx5_core
            numa_node:
              description: Its NUMA node. For a GPU whose memory is a node of the system, that node.
              type: int
              sample: 0
            numa_source:
              description:
                - Who says so. V(nvml_numa_id), else V(nvml_cpu_affinity), else V(sysfs_numa_node), else
                  V(sysfs_local_cpulist), each where the kernel shows that node. Else V(nvml_numa_id) or
                  V(nvml_memory_affinity) of a node that the kernel does not show, as in a container.
              type: str
              sample: sysfs_numa_node
            cpus:
              description: The CPUs near it, as a list.
              type: str
              sample: "0-55,112-167"
            cpus_source:
              description:
                - Who says so. V(nvml_cpu_affinity), else V(sysfs_local_cpulist), else V(numa_node), which is the
                  nearest node that has CPUs.
              type: str
              sample: sysfs_local_cpulist
            cpu_node:
              description: The NUMA node of these CPUs.
              type: int
              sample: 0
            link:
              description: The link of the device on PCI Express.
              type: dict
              contains:
                speed_gts:
                  description: The speed of a lane now, in GT/s.
                  type: float
                  sample: 32.0
                max_speed_gts:
                  description: The highest speed of the device, in GT/s.
                  type: float
                  sample: 32.0
                slot_max_speed_gts:
                  description: The highest speed of the port that it is plugged into, in GT/s.
                  type: float
                  sample: 32.0
                width:
                  description: The lanes in use.
                  type: int
                  sample: 16
                max_width:
                  description: The lanes that the device has.
                  type: int
                  sample: 16
                slot_max_width:
                  description: The lanes that the port has.
                  type: int
                  sample: 16
                degraded:
                  description:
                    - Whether the link is slower or narrower than the device could be. The speed of a GPU is
                      measured by what its slot can do too, and does not count while the GPU is idle or unknown to
                      the driver.
                  type: bool
                  sample: false
                causes:
                  description: What is degraded, V(slow) and V(narrow).
                  type: list
                  elements: str
                  sample: []
                note:
                  description: What else is to be known; empty mostly.
                  type: str
                  sample: ""
                unavailable:
                  description: Why a field of this object is null, by the name of the field.
                  type: dict
                  sample: {}
            unavailable:
              description: Why a field of this object is null, by the name of the field.
              type: dict
              sample: {}
        distances:
          description: How each GPU reaches each network card.
          type: list
          elements: dict
          contains:
            gpu:
              description: The PCI address of the GPU.
              type: str
              sample: "0000:1b:00.0"
            nic:
              description: The PCI address of the card.
              type: str
              sample: "0000:18:00.0"
            level:
              description:
                - In the words of C(nvidia-smi topo -m). V(PIX) through at most one switch, V(PXB) through several,
                  V(PHB) through a host bridge, V(NODE) between host bridges of a NUMA node, V(SYS) between NUMA
                  nodes.
              type: str
              sample: PIX
            unavailable:
              description: Why a field of this object is null, by the name of the field.
              type: dict
              sample: {}
        cpu_owners:
          description:
            - Which CPUs of the machine are set aside, and for what. Empty if none are.
          type: list
          elements: dict
          contains:
            kind:
              description:
                - V(isolated) for an argument of the running kernel that isolates them, V(system) for a slice of the
                  system that is confined to them, V(gpu) for a slice of M(gpufleet.node.gpu_slices), V(slice) for
                  another slice at the top level that does not have all CPUs.
              type: str
              sample: system
            name:
              description: The argument or the slice.
              type: str
              sample: system.slice
            cpus:
              description: The CPUs. For a slice of a GPU in which nothing runs, they come from its unit file.
              type: str
              sample: "0-1,56-57"
        unavailable:
          description: Why a field of this object is null, by the name of the field.
          type: dict
          sample: {}
    interrupts:
      description: The interrupts of the GPUs, network cards and NVMe drives.
      type: dict
      contains:
        total:
          description: How many numbered interrupts the machine has.
          type: int
          sample: 176
        default_cpus_mask:
          description: Where a new interrupt may go, as a mask of CPUs.
          type: str
          sample: ffffffff,ffffffff
        declared:
          description:
            - By device where the interrupts that M(gpufleet.node.numa_irq_affinity) declares on this node belong and
              are. Where each of them belongs that module returns.
            - Null where nothing is declared, or this machine cannot have it.
          type: list
          elements: dict
          contains:
            device:
              description: Its interface, or its PCI address.
              type: str
              sample: ens1f0np0
            pci_address:
              description: Its PCI address.
              type: str
              sample: "0000:17:00.0"
            numa_node:
              description: Its NUMA node, null where it is not known.
              type: int
              sample: 0
            interrupts:
              description: How many interrupts it has.
              type: int
              sample: 17
            wanted:
              description: The CPUs that those of them which can be moved belong on, together; null without such.
              type: str
              sample: 0-15
            effective:
              description: The CPUs that they may be delivered to, together.
              type: str
              sample: 0-15,32
            elsewhere:
              description: How many of them are elsewhere than they belong.
              type: int
              sample: 1
            unmanaged:
              description: How many cannot be moved, by the reason.
              type: dict
              sample: {"the kernel places the interrupts of NVMe queues itself": 16}
        devices:
          description: By device.
          type: list
          elements: dict
          contains:
            pci_address:
              description: Its PCI address.
              type: str
              sample: "0000:18:00.0"
            kind:
              description: V(gpu), V(nic) or V(nvme).
              type: str
              sample: nic
            names:
              description: What the kernel calls it.
              type: list
              elements: str
              sample: ["mlx5_0", "ibp24s0"]
            irqs:
              description: Its interrupts.
              type: list
              elements: dict
              contains:
                irq:
                  description: The number, which changes from boot to boot.
                  type: int
                  sample: 301
                name:
                  description: The name of its handler; null where the driver has not requested it.
                  type: str
                  sample: "mlx5_comp0@pci:0000:18:00.0"
                cpus:
                  description:
                    - Where it may go, as a list of CPUs. Where it belongs say C(gpufleet status) on the node and
                      M(gpufleet.node.numa_irq_affinity), which know the declaration.
                  type: str
                  sample: "0"
                managed:
                  description: Why it cannot be moved, such as that the kernel places it; empty where it can.
                  type: str
                  sample: ""
                unavailable:
                  description: Why a field of this object is null, by the name of the field.
                  type: dict
                  sample: {}
        unavailable:
          description: Why a field of this object is null, by the name of the field.
          type: dict
          sample: {}
    network:
      description: The ports of the network cards. Virtual functions are left out, except inside of a virtual machine.
      type: dict
      contains:
        since:
          description: >-
            From when the growth of error counters is measured. V(record) is the sample that the boot service or
            C(gpufleet health) saved, V(boot) the boot.
          type: str
          sample: record
        seconds:
          description: How long ago that was, in seconds.
          type: int
          sample: 5400
        note:
          description: Why the saved sample cannot be used, empty if it can.
          type: str
          sample: ""
        ports:
          description: Each InfiniBand or RoCE port, and each Ethernet interface that belongs to none of them.
          type: list
          elements: dict
          contains:
            name:
              description: RDMA device and number of the port, or the interface.
              type: str
              sample: mlx5_0/1
            kind:
              description: V(infiniband), V(roce), V(ethernet), or V(other), such as Elastic Fabric Adapters.
              type: str
              sample: infiniband
            pci_address:
              description: Its card.
              type: str
              sample: "0000:18:00.0"
            interfaces:
              description: Its network interfaces.
              type: list
              elements: str
              sample: [ibp24s0]
            healthy:
              description: Whether there is no problem, by the defaults of C(preflight_port_limits).
              type: bool
              sample: true
            problems:
              description: What is wrong with it, in words.
              type: list
              elements: str
              sample: []
            state:
              description: V(active), V(down), V(init), V(armed), or V(disabled) for an interface that is switched off.
              type: str
              sample: active
            physical_state:
              description: >-
                V(link_up), V(polling), V(disabled), V(sleep), V(training), V(link_error_recovery) or V(phy_test); null
                without RDMA.
              type: str
              sample: link_up
            was_active:
              description: Whether it has had a link since its driver was loaded.
              type: bool
              sample: true
            rate_gbps:
              description: Its rate, in Gb/s.
              type: float
              sample: 400.0
            best_rate_gbps:
              description: The highest rate of an active port in the same place of an equal card on this node.
              type: float
              sample: 400.0
            peers:
              description: How many other such ports there are.
              type: int
              sample: 7
            peers_active:
              description: How many of those are active.
              type: int
              sample: 7
            pci_gbps:
              description: What the PCI Express link of the card carries each way, in Gb/s.
              type: float
              sample: 504.1
            best_pci_gbps:
              description: What card and slot support.
              type: float
              sample: 504.1
            errors:
              description: Its error counters that are not 0, and those that could not be read.
              type: list
              elements: dict
              contains:
                counter:
                  description: Its name in sysfs.
                  type: str
                  sample: symbol_error
                total:
                  description: Its value.
                  type: int
                  sample: 3
                growth:
                  description: >-
                    By how much it has grown in RV(node.network.seconds). After a reset, its whole value. Null where it
                    could not be read now, or when the sample was saved.
                  type: int
                  sample: 0
                unavailable:
                  description: Why a field of this object is null, by the name of the field.
                  type: dict
                  sample: {}
            counters_complete:
              description: Whether all counters could be read in time.
              type: bool
              sample: true
            unavailable:
              description: Why a field of this object is null, by the name of the field.
              type: dict
              sample: {}
        unavailable:
          description: Why a field of this object is null, by the name of the field.
          type: dict
          sample: {}
    block:
      description: The NVMe disks, and devices of md and device mapper.
      type: list
      elements: dict
      contains:
        name:
          description: The name of the disk.
          type: str
          sample: nvme0n1
        model:
          description: Its model.
          type: str
          sample: SAMSUNG MZQL23T8HCLS-00A07
        serial:
          description: Its serial number.
          type: str
          sample: S64GNE0R123456
        pci_address:
          description: The PCI address of its controller.
          type: str
          sample: "0000:19:00.0"
        size_bytes:
          description: Its size, in bytes.
          type: int
          sample: 3840755982336
        queues:
          description: Its queue, and those of its hidden paths where it has any.
          type: list
          elements: dict
          contains:
            device:
              description: The disk itself, or a hidden path of it.
              type: str
              sample: nvme0n1
            schedulers:
              description: The schedulers that are loaded.
              type: list
              elements: str
              sample: ["none", "mq-deadline"]
            scheduler:
              description: The one in use.
              type: str
              sample: none
            nr_requests:
              description: How many requests it holds.
              type: int
              sample: 1023
            wbt_lat_usec:
              description: The latency at which write-back is throttled, in microseconds.
              type: int
              sample: 2000
            max_sectors_kb:
              description: The largest request, in KiB.
              type: int
              sample: 128
            read_ahead_kb:
              description: What is read ahead, in KiB.
              type: int
              sample: 128
            rq_affinity:
              description: Where a request completes.
              type: int
              sample: 1
            nomerges:
              description: Which merges are not tried.
              type: int
              sample: 0
            io_timeout_ms:
              description: When a request counts as lost, in milliseconds.
              type: int
              sample: 30000
            unavailable:
              description: Why a field of this object is null, by the name of the field.
              type: dict
              sample: {}
        unavailable:
          description: Why a field of this object is null, by the name of the field.
          type: dict
          sample: {}
    memory:
      description: The memory of the machine.
      type: dict
      contains:
        total_mib:
          description: All of it, in MiB.
          type: int
          sample: 2063992
        available_mib:
          description: What programs can still have, in MiB.
          type: int
          sample: 2035712
        swap_mib:
          description: Swap, in MiB.
          type: int
          sample: 0
        default_hugepage_kb:
          description: The default size of a huge page, in KiB.
          type: int
          sample: 2048
        hugepages:
          description: The pools, by size and NUMA node.
          type: list
          elements: dict
          contains:
            size_kb:
              description: The size of a page, in KiB.
              type: int
              sample: 2048
            node:
              description: The NUMA node; null where there are none.
              type: int
              sample: 0
            pages:
              description: How many there are.
              type: int
              sample: 512
            free:
              description: How many are idle.
              type: int
              sample: 512
            surplus:
              description: How many go when they are no longer used.
              type: int
              sample: 0
            unavailable:
              description: Why a field of this object is null, by the name of the field.
              type: dict
              sample: {}
        transparent_enabled:
          description: Who gets transparent huge pages.
          type: str
          sample: madvise
        transparent_defrag:
          description: How hard the kernel tries for them.
          type: str
          sample: madvise
        transparent_shmem_enabled:
          description: The same for shared memory.
          type: str
          sample: never
        numa_balancing:
          description: Whether the kernel moves pages between nodes by itself.
          type: int
          sample: 1
        unavailable:
          description: Why a field of this object is null, by the name of the field.
          type: dict
          sample: {}
    driver:
      description: The NVIDIA driver.
      type: dict
      contains:
        version:
          description: Its version.
          type: str
          sample: "550.54.15"
        nvml_version:
          description: The version of its library NVML.
          type: str
          sample: "12.550.54.15"
        cuda_version:
          description: The version of CUDA that it supports.
          type: str
          sample: "12.4"
        kernel_module_version:
          description: The version of the kernel module that is loaded.
          type: str
          sample: "550.54.15"
        kernel_module_open:
          description: Whether that is the open one.
          type: bool
          sample: true
        branch:
          description: The branch of the driver.
          type: int
          sample: 550
        cuda_fit:
          description: The highest major version of CUDA that the branch runs, in all its minor versions.
          type: int
          sample: 12
        confidential_computing:
          description: Whether the GPUs run in confidential computing mode.
          type: bool
          sample: false
        modules:
          description: Which of the kernel modules around the driver are loaded, C(nouveau) among them.
          type: list
          elements: str
          sample: ["nvidia", "nvidia_uvm"]
        services:
          description:
            - Its services, by C(persistenced), C(fabricmanager), C(imex), C(dcgm) and C(dcgm_exporter); each has
              the following.
          type: dict
          contains:
            unit:
              description: The file of the unit.
              type: str
              sample: /usr/lib/systemd/system/nvidia-persistenced.service
            running:
              description: Whether it has processes.
              type: bool
              sample: true
            unavailable:
              description: Why a field of this object is null, by the name of the field.
              type: dict
              sample: {}
        checkpoint:
          description: What cuda-checkpoint and CRIU need.
          type: dict
          contains:
            ready:
              description: Whether nothing is missing.
              type: bool
              sample: false
            lacking:
              description: What is missing, in words.
              type: list
              elements: str
              sample: [persistence mode, CRIU 4.0 or newer]
            driver:
              description: Whether the driver has the steps that CRIU needs (C(--action)), from R555 on.
              type: bool
              sample: true
            toggle:
              description: Whether C(cuda-checkpoint --toggle) works, from R550 on.
              type: bool
              sample: true
            nvml_programs:
              description: Whether programs that use NVML, such as PyTorch, can be frozen as well, from R570 on.
              type: bool
              sample: false
            persistence:
              description: Whether persistence mode is on for all GPUs.
              type: bool
              sample: true
            cuda_checkpoint:
              description: Where the program is.
              type: str
              sample: /usr/local/bin/cuda-checkpoint
            criu:
              description: Where the program is.
              type: str
              sample: /usr/sbin/criu
            criu_cuda_plugin:
              description: Where its plugin is.
              type: str
              sample: /usr/lib/criu/cuda_plugin.so
            libcuda:
              description: Where the library of the driver is.
              type: str
              sample: /usr/lib/x86_64-linux-gnu/libcuda.so.1
            criu_version:
              description: Its version, where dpkg keeps one. The plugin came with 4.0.
              type: str
              sample: 4.1-1
            unavailable:
              description: Why a field of this object is null, by the name of the field.
              type: dict
              sample: {}
        unavailable:
          description: Why a field of this object is null, by the name of the field.
          type: dict
          sample: {}
    firmware:
      description: Versions of firmware; those of the GPUs are with them.
      type: dict
      contains:
        machine:
          description: The machine.
          type: dict
          contains:
            vendor:
              description: Who made it.
              type: str
              sample: Supermicro
            product:
              description: What it is.
              type: str
              sample: SYS-821GE-TNHR
            serial:
              description: Its serial number, which only root may read.
              type: str
              sample: A12345678
            board:
              description: The main board.
              type: str
              sample: X13DEG-OAD
            bios_vendor:
              description: Who made the BIOS.
              type: str
              sample: American Megatrends International, LLC.
            bios_version:
              description: Its version.
              type: str
              sample: "2.1"
            bios_date:
              description: Its date.
              type: str
              sample: "11/29/2023"
            microcode:
              description: The microcode of the CPUs.
              type: str
              sample: "0x2b0005c0"
            unavailable:
              description: Why a field of this object is null, by the name of the field.
              type: dict
              sample: {}
        nvme:
          description: The NVMe drives.
          type: list
          elements: dict
          contains:
            pci_address:
              description: Its PCI address.
              type: str
              sample: "0000:19:00.0"
            name:
              description: Its controller.
              type: str
              sample: nvme0
            model:
              description: Its model.
              type: str
              sample: SAMSUNG MZQL23T8HCLS-00A07
            serial:
              description: Its serial number.
              type: str
              sample: S64GNE0R123456
            firmware:
              description: The version of its firmware.
              type: str
              sample: GDC5602Q
            unavailable:
              description: Why a field of this object is null, by the name of the field.
              type: dict
              sample: {}
        nics:
          description: The network cards.
          type: list
          elements: dict
          contains:
            pci_address:
              description: Its PCI address.
              type: str
              sample: "0000:18:00.0"
            names:
              description: What the kernel calls it.
              type: list
              elements: str
              sample: ["mlx5_0", "ibp24s0"]
            firmware:
              description: The version of its firmware; known of RDMA devices.
              type: str
              sample: "28.39.3560"
            board_id:
              description: The id of its board; known of RDMA devices.
              type: str
              sample: MT_0000000838
            unavailable:
              description: Why a field of this object is null, by the name of the field.
              type: dict
              sample: {}
    engines:
      description: The container engines that are installed.
      type: list
      elements: dict
      contains:
        name:
          description:
            - V(docker), V(containerd), V(crio), V(podman), V(apptainer), V(k3s), V(rke2) or V(nvidia-container-
              toolkit).
          type: str
          sample: docker
        binary:
          description: Where the program is.
          type: str
          sample: /usr/bin/dockerd
        version:
          description: The version of its package, where dpkg keeps one.
          type: str
          sample: "5:28.1.1-1~ubuntu.24.04~noble"
        running:
          description: Whether its daemon runs; null where it has none.
          type: bool
          sample: true
        files:
          description: The files of its configuration that are there, in the order in which it reads them.
          type: list
          elements: str
          sample: [/etc/docker/daemon.json]
        runtimes:
          description: The runtimes as its daemon reports them, or as its files define them if no daemon runs.
          type: list
          elements: dict
          contains:
            name:
              description: How containers ask for it.
              type: str
              sample: nvidia
            path:
              description: The program, with its arguments if there are any.
              type: str
              sample: /usr/bin/nvidia-container-runtime
        default_runtime:
          description: The runtime of containers that request none; null if it is the engine's own.
          type: str
          sample: nvidia
        cdi:
          description: Whether it looks up CDI devices.
          type: bool
          sample: true
        daemon_version:
          description:
            - The version that its daemon says of itself, as that of Docker does. After an upgrade it is the old one
              until the daemon is restarted.
          type: str
          sample: 28.1.1
        containers:
          description: How many containers run in it; null where its daemon does not report it, as that of CRI-O.
          type: int
          sample: 3
        not_taken_up:
          description: The settings of its files that its daemon does not have yet, or of which that is not known.
          type: list
          elements: str
          sample: [runtime nvidia]
        unavailable:
          description: Why a field of this object is null, by the name of the field.
          type: dict
          sample: {}
    cdi:
      description: The specifications of the Container Device Interface.
      type: dict
      contains:
        state:
          description:
            - V(current) or V(missing), or what is wrong with the specification of the GPUs. Null where it is not known.
          type: str
          sample: current
        devices:
          description: The devices that engines find.
          type: list
          elements: str
          sample: [nvidia.com/gpu=0, nvidia.com/gpu=all]
        unresolvable:
          description: The devices that no engine finds, because two files of one folder define them.
          type: list
          elements: str
          sample: []
        duplicates:
          description: The files of NVIDIA in C(/etc/cdi) whose devices a generated one defines as well.
          type: list
          elements: str
          sample: []
        oci_hooks:
          description: The hooks of older releases, which put the GPUs into a container a second time.
          type: list
          elements: str
          sample: []
        specifications:
          description: The files.
          type: list
          elements: dict
          contains:
            path:
              description: The file.
              type: str
              sample: /var/run/cdi/nvidia.yaml
            devices:
              description: The devices that it defines.
              type: list
              elements: str
              sample: [nvidia.com/gpu=0, nvidia.com/gpu=all]
            kind:
              description: The kind of its devices; null where it cannot be read.
              type: str
              sample: nvidia.com/gpu
            unavailable:
              description: Why a field of this object is null, by the name of the field.
              type: dict
              sample: {}
        unavailable:
          description: Why a field of this object is null, by the name of the field.
          type: dict
          sample: {}
    orchestrator:
      description: What schedules work on this node.
      type: list
      elements: dict
      contains:
        name:
          description: V(kubelet), V(k3s), V(rke2), V(slurmd) or V(nomad).
          type: str
          sample: slurmd
        unit:
          description: The file of its unit.
          type: str
          sample: /usr/lib/systemd/system/slurmd.service
        configuration:
          description: Its configuration.
          type: str
          sample: /etc/slurm/slurm.conf
        running:
          description: Whether it has processes.
          type: bool
          sample: true
        unavailable:
          description: Why a field of this object is null, by the name of the field.
          type: dict
          sample: {}
    owners:
      description: What else sets what this collection sets.
      type: list
      elements: dict
      contains:
        owner:
          description:
            - Who, such as V(tuned), V(irqbalance), V(sysctl.d), V(tmpfiles.d), V(udev), V(kernel command line),
              V(gpu-operator) or V(nvidia-mig-manager).
          type: str
          sample: irqbalance
        setting:
          description: What it sets.
          type: str
          sample: interrupt affinity
        path:
          description: Where that is written.
          type: str
          sample: /usr/lib/systemd/system/irqbalance.service
        line:
          description: The line in it.
          type: int
          sample: 3
        value:
          description: The value that it sets, or whether it runs.
          type: str
          sample: running
        unavailable:
          description: Why a field of this object is null, by the name of the field.
          type: dict
          sample: {}
    health:
      description: What has gone wrong with the GPUs.
      type: dict
      contains:
        xids:
          description: The Xid errors in the log of the kernel since boot.
          type: list
          elements: dict
          contains:
            pci_address:
              description: The GPU.
              type: str
              sample: "0000:1b:00.0"
            xid:
              description: The number of the error.
              type: int
              sample: 79
            count:
              description: How often.
              type: int
              sample: 1
            last:
              description: The text of the last one.
              type: str
              sample: pid=1234, GPU has fallen off the bus.
        gpus:
          description: The GPUs.
          type: list
          elements: dict
          contains:
            pci_address:
              description: The GPU.
              type: str
              sample: "0000:1b:00.0"
            healthy:
              description: Whether there is no problem; null where the driver does not respond.
              type: bool
              sample: true
            problems:
              description: What is wrong with it, in words.
              type: list
              elements: str
              sample: []
            ecc_volatile_corrected:
              description: Corrected memory errors since the driver was loaded.
              type: int
              sample: 0
            ecc_volatile_uncorrected:
              description: Uncorrected memory errors since the driver was loaded.
              type: int
              sample: 0
            ecc_aggregate_corrected:
              description: Corrected memory errors in the life of the GPU.
              type: int
              sample: 0
            ecc_aggregate_uncorrected:
              description: Uncorrected memory errors in the life of the GPU.
              type: int
              sample: 0
            remapped_rows:
              description: Rows of memory that were replaced; null on GPUs that retire pages instead.
              type: dict
              contains:
                correctable:
                  description: After correctable errors.
                  type: int
                  sample: 0
                uncorrectable:
                  description: After uncorrectable errors.
                  type: int
                  sample: 0
                pending:
                  description: Whether one waits for a reset.
                  type: bool
                  sample: false
                failure:
                  description: Whether one could not be replaced.
                  type: bool
                  sample: false
            retired_pages_pending:
              description: Whether pages are retired at the next reset.
              type: bool
              sample: false
            pcie_replays:
              description: Replays on PCI Express.
              type: int
              sample: 0
            throttle_reasons:
              description: Why its clocks are not higher.
              type: list
              elements: str
              sample: ["gpu_idle"]
            nvlinks:
              description: Its NVLinks.
              type: dict
              contains:
                total:
                  description: How many it has, which the driver says.
                  type: int
                  sample: 18
                inactive:
                  description: Those that are down.
                  type: list
                  elements: int
                  sample: []
                crc_errors:
                  description: Errors of checksums on all of them.
                  type: int
                  sample: 0
                replay_errors:
                  description: Replays on all of them.
                  type: int
                  sample: 0
                recovery_errors:
                  description: Recoveries on all of them.
                  type: int
                  sample: 0
                unavailable:
                  description: Why a field of this object is null, by the name of the field.
                  type: dict
                  sample: {}
            fabric:
              description: Its place in the NVLink fabric.
              type: dict
              contains:
                state:
                  description: V(not_started), V(in_progress) or V(completed).
                  type: str
                  sample: completed
                status:
                  description: The code of NVML with which it ended; 0 is good.
                  type: int
                  sample: 0
                cluster_uuid:
                  description: The UUID of the cluster.
                  type: str
                  sample: "8d6b3f0e-51d4-4a0e-9c55-0b6c1f2d9e77"
                clique:
                  description: The number of its clique.
                  type: int
                  sample: 0
                ready:
                  description:
                    - Whether CUDA can use it. On a single machine the UUID of the cluster is all zeros. In an NVL72
                      rack it must not be.
                  type: bool
                  sample: true
                health:
                  description: What is wrong with it by its health mask, in words. Empty if nothing is.
                  type: list
                  elements: str
                  sample: []
            unavailable:
              description: Why a field of this object is null, by the name of the field.
              type: dict
              sample: {}
        unavailable:
          description: Why a field of this object is null, by the name of the field.
          type: dict
          sample: {}
    gds:
      description: Whether GPUDirect Storage is possible, and what stands in its way.
      type: dict
      contains:
        nvidia_fs:
          description: The release of the kernel module C(nvidia_fs), if it is loaded.
          type: str
          sample: 2.24.3
        p2pdma_lacks:
          description: What P2PDMA of the kernel needs and this node does not have.
          type: list
          elements: str
          sample: ["the kernel 6.12.0-amd64 was built without CONFIG_PCI_P2PDMA"]
        iommu:
          description:
            - C(off), C(passthrough) or C(translated). GPUDirect Storage is fastest with an IOMMU that is off, and most
              machines need one that does not translate.
          type: str
          sample: passthrough
        redirecting_bridges:
          description:
            - The PCI bridges above GPUs, network cards and NVMe drives on which ACS sends the traffic between two
              devices through the CPU.
          type: list
          elements: dict
          contains:
            pci_address:
              description: The bridge.
              type: str
              sample: "0000:15:01.0"
            redirects:
              description: C(request_redirect), C(completion_redirect), C(upstream_forwarding).
              type: list
              elements: str
              sample: [request_redirect, completion_redirect]
        gdscheck:
          description: What C(gdscheck -p) says, if it is installed.
          type: dict
          contains:
            program:
              description: Which one was run.
              type: str
              sample: /usr/local/cuda/gds/tools/gdscheck
            release:
              description: The release of GPUDirect Storage.
              type: str
              sample: 1.13.1.3
            platform:
              description: C(succeeded) or C(failed).
              type: str
              sample: succeeded
            sections:
              description:
                - The sections of its output, such as C(driver configuration), each with C(values) by their names and
                  C(lines) that are no pairs. That a file system is C(Supported) means that its driver is registered.
              type: dict
              sample: {driver configuration: {lines: [], values: {NVMe: Supported}}}
        unavailable:
          description: Why a field of this object is null, by the name of the field.
          type: dict
          sample: {}
    holders:
      description: The processes that have the device files of the GPUs open.
      type: dict
      contains:
        processes:
          description: The processes, whether the driver lists them or not.
          type: list
          elements: dict
          contains:
            pid:
              description: The process.
              type: int
              sample: 1234
            command:
              description: Its name.
              type: str
              sample: dcgm-exporter
            unit:
              description: The unit of systemd it belongs to.
              type: str
              sample: dcgm-exporter.service
            container:
              description: The id of the container it is in.
              type: str
              sample: f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0f0
            gpus:
              description: The PCI addresses of the GPUs that it has open.
              type: list
              elements: str
              sample: ["0000:1b:00.0"]
            devices:
              description: The device files.
              type: list
              elements: str
              sample: ["/dev/nvidia0", "/dev/nvidiactl"]
            unavailable:
              description: Why a field of this object is null, by the name of the field.
              type: dict
              sample: {}
        hidden_processes:
          description: How many processes could not be looked into, as only root may.
          type: int
          sample: 0
    unavailable:
      description: Why a field of this object is null, by the name of the field.
      type: dict
      sample: {}
compressed:
  description: The facts, that is RV(node), as JSON that is compressed by zlib, in base64.
  returned: success, with O(compress)
  type: str
  sample: eJyrViquLC5JzVWyqlYqys8vUbIqKSpNrdVRyivLzYlPLygtVrKy0FEqzUssS8zMSUzKSQWqrK0FAC5fE/k=
"""

from typing import Any, Mapping

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._node.facts.collect import answer_for
from ansible_collections.gpufleet.node.plugins.module_utils._node.module import host_of

# Made by `make docs` from the options above: change them there.
OPTIONS: Mapping[str, Any] = {
    "gather": {
        "type": "list",
        "elements": "str",
        "choices": [
            "all",
            "block",
            "cdi",
            "driver",
            "engines",
            "firmware",
            "gds",
            "gpus",
            "health",
            "holders",
            "interrupts",
            "memory",
            "network",
            "orchestrator",
            "owners",
            "topology",
        ],
        "default": [
            "block",
            "cdi",
            "driver",
            "engines",
            "firmware",
            "gpus",
            "health",
            "interrupts",
            "memory",
            "network",
            "orchestrator",
            "owners",
            "topology",
        ],
    },
    "compress": {"type": "bool", "default": False},
    "binding": {"type": "str", "default": "", "no_log": True},
}
# End of what is made.


def main() -> None:
    module = AnsibleModule(
        argument_spec=OPTIONS,
        supports_check_mode=True,
    )
    try:
        answer = answer_for(module.params, host_of(module))
    except GpuFleetError as error:
        module.fail_json(msg=str(error), failure=error.failure())
    module.exit_json(**answer)


if __name__ == "__main__":
    main()
