#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: drift_report
short_description: Show what a look at the fleet found, as a table
version_added: 0.1.0
description:
  - Collects the registered results of M(gpufleet.node.node_state) of all hosts of the play and prints one table, with
    node, object, setting, wanted, in effect, at boot and status. Hosts with the same finding share one line, where they
    are folded into ranges such as C(h[001-200]). Interrupts, drives and files of this collection are counted.
  - A second table has a line for each device with interrupts that are declared, of hosts where
    M(gpufleet.node.numa_irq_affinity) is not in sync. It has those of all hosts if they were assessed with
    O(gpufleet.node.node_state#module:detail=devices).
  - Runs once on the controller and contacts no host.
author:
  - gpufleet contributors (@gpufleet)
options:
  register:
    description: The name under which the look was registered.
    type: str
    required: true
  fail_on_drift:
    description: Fail if a setting is neither in sync nor only waiting for a reboot, or if a host did not respond.
    type: bool
    default: false
  title:
    description: The line above the table.
    type: str
    default: Drift
  detail:
    description:
      - V(brief) has one line for a finding that many hosts, or many objects of a kind, have in common. Of several hosts
        it counts the lines that do not fit on a screen, unless the task is in diff mode.
      - V(devices) adds the table of devices, which is always there for a single host.
      - V(full) has one line per setting and host, and one for each reason why something cannot be set.
    type: str
    choices: [brief, devices, full]
    default: brief
  files:
    description:
      - In diff mode, also show how files of other software would change, each difference once for all hosts that have
        the same, if RV(differences_folded). A forecast shows it anyway.
    type: bool
    default: false
  forecast:
    description:
      - Instead of the table, print what this playbook would do to the hosts, for check mode; what would be changed,
        restarted, reset, drained and rebooted, and where the run would fail.
    type: str
    choices: [site, mig_repartition, reboot, remove]
  clusters:
    description: What was found in the clusters of the hosts, by host, from P(gpufleet.node.plugin_findings#filter).
    type: dict
    default: {}
extends_documentation_fragment:
  - gpufleet.node.controller
  - gpufleet.node.contract.attributes
"""

EXAMPLES = r"""
- name: Show what is not in sync
  gpufleet.node.drift_report:
    register: look
    fail_on_drift: true
"""

RETURN = r"""
rows:
  description: One entry for each setting that is not in sync. What cannot be set is only in RV(counts).
  returned: always
  type: list
  elements: dict
  contains:
    node:
      description: The host.
      type: str
    concern:
      description: The concern it was found by.
      type: str
      sample: nvme_scheduler
    object:
      description: What the setting belongs to.
      type: str
    setting:
      description: The setting.
      type: str
    wanted:
      description: What is declared.
      type: raw
    effective:
      description: What is in effect.
      type: raw
    boot:
      description: What the next boot will bring.
      type: raw
    status:
      description: V(in_sync), V(drifted), V(pending), V(unknown) or V(invalid).
      type: str
devices:
  description: One entry a line of the second table, the devices of RV(rows) that have many settings.
  returned: always
  type: list
  elements: dict
  contains:
    node:
      description: The host.
      type: str
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
counts:
  description: The number of settings of each status. V(unknown) and V(invalid) also count concerns whose settings could
    not be seen, V(accepted) is what another owner may set and C(gpufleet_accepted) accepts, and V(unmanaged) what
    cannot be set, such as the GPUs of a host without any.
  returned: always
  type: dict
nodes:
  description: The names of the hosts by the worst status found there; V(unreachable) are those without an answer.
  returned: always
  type: dict
verdicts:
  description:
    - The worst status of each host that is drifted, unknown, invalid or unreachable, with a sentence about it.
  returned: always
  type: dict
  sample: {"h1": {"status": "drifted", "sentence": "h1 has drifted: hugepages"}}
differences_folded:
  description:
    - Whether the differences are for the tables of this action, and tasks need not show them for each host. So it is
      for several hosts with O(detail=brief), and where C(gpufleet_no_diff) hides a file.
  returned: always
  type: bool
unforeseen:
  description:
    - The concerns that a run would converge although the look could not say what would change, by host. Their tasks are
      the first to know their differences.
  returned: always
  type: dict
  sample: {"h1": ["container_runtime"]}
failing:
  description: The hosts on which the run would fail, by O(forecast); C(how) is said of the host, and has the C(causes).
  returned: always
  type: dict
  sample: {"h1": {"how": "failed", "causes": ["hugepages: Cannot read the declaration of hugepages: ..."]}}
"""
