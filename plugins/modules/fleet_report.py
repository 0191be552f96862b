#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: fleet_report
short_description: Write what a look at the fleet found as files for people and for programs
version_added: 0.1.0
description:
  - Collects the registered results of M(gpufleet.node.node_state), and of M(gpufleet.node.gpu_node_info) where they
    are there, of all hosts of the play, and writes them down in up to four files.
  - C(gpufleet-report.html) is a page for people in one file, which loads nothing from the network. It has the nodes by
    concerns, what is wrong in how many places, versions that differ among nodes with the same GPUs, sick GPUs and
    ports, and slow links, and a page for each node with a drawing of it.
  - C(gpufleet-report.json) has the same for programs, C(gpufleet-report.junit.xml) for whoever shows runs of tests, and
    C(gpufleet.prom) for the textfile collector of the node exporter of Prometheus.
  - Hosts without an answer are in the report too. Runs once on the controller and contacts no host.
author:
  - gpufleet contributors (@gpufleet)
options:
  look:
    description: The name under which the look was registered.
    type: str
    required: true
  info:
    description:
      - The name under which the facts were registered. Without them there is no drawing, no health and no version.
    type: str
  dest:
    description:
      - A folder on the controller, which is created if it does not exist, or an C(http) or C(https) address that ends
        in V(/). To that each file is sent by C(PUT), for controllers that leave nothing behind.
      - Files are replaced as a whole, so that no half of one is ever read.
    type: str
    required: true
  formats:
    description: Which files to write.
    type: list
    elements: str
    choices: [json, html, junit, prometheus]
    default: [json, html, junit, prometheus]
  headers:
    description: Headers of the requests to an address, such as C(Authorization).
    type: dict
    default: {}
  title:
    description: What the report is called.
    type: str
    default: GPU fleet
  clusters:
    description: What was found in the clusters of the hosts, by host, from P(gpufleet.node.plugin_findings#filter).
    type: dict
    default: {}
extends_documentation_fragment:
  - gpufleet.node.controller
  - gpufleet.node.contract.attributes
attributes:
  check_mode:
    support: full
    details: The report is written in check mode too. It changes no node, and what check mode found is what it is about.
  diff_mode:
    support: none
    details: Each report is a new one.
  idempotent:
    support: full
    details: Never reports a change; the files show the moment in which they were written.
notes:
  - The files have the names, serial numbers and UUIDs of the fleet in them. They are readable for all users of the
    controller.
seealso:
  - module: gpufleet.node.drift_report
  - module: gpufleet.node.node_state
  - module: gpufleet.node.gpu_node_info
"""

EXAMPLES = r"""
- name: Write the report
  gpufleet.node.fleet_report:
    look: look
    info: info
    dest: reports
  register: report

- name: Keep the summary where AWX shows it
  ansible.builtin.set_stats:
    data:
      gpufleet_report: "{{ report.summary }}"
  run_once: true

- name: Leave only metrics, for the node exporter of the controller
  gpufleet.node.fleet_report:
    look: look
    dest: /var/lib/prometheus/node-exporter
    formats: [prometheus]

- name: Send it away from a controller that is thrown away
  gpufleet.node.fleet_report:
    look: look
    info: info
    dest: https://files.example.com/reports/gpu/
    headers:
      Authorization: Bearer {{ reports_token }}
"""

RETURN = r"""
files:
  description: Where the files are, as paths or addresses. After a failure those that were written before it.
  returned: always
  type: list
  elements: str
  sample: [/srv/reports/gpufleet-report.json]
summary:
  description: The whole in a few numbers and names.
  returned: when the options are valid
  type: dict
  contains:
    title:
      description: What the report is called.
      type: str
      sample: Audit
    generated:
      description: When it was made, in UTC.
      type: str
      sample: "2026-01-02T03:04:05Z"
    nodes_total:
      description: The number of nodes.
      type: int
      sample: 3
    nodes:
      description: The names of the nodes by the worst status found there; V(unreachable) are those without an answer.
      type: dict
      sample:
        right: [n1]
        pending: []
        not_installed: []
        drifted: [n2]
        unknown: []
        invalid: []
        unreachable: [n3]
    settings:
      description: The number of settings of each status; V(unknown) and V(invalid) include concerns that
        could not be read.
      type: dict
      sample: {"in_sync": 193, "not_installed": 0, "drifted": 3, "pending": 0, "unknown": 0, "invalid": 0}
    needs_reboot:
      description: The nodes on which something waits for a reboot.
      type: list
      elements: str
      sample: []
    sick_gpus:
      description: The GPUs with a problem.
      type: list
      elements: dict
      contains:
        node:
          description: The node.
          type: str
          sample: n2
        index:
          description: The number of the GPU; null where the driver does not know it.
          type: int
          sample: 3
        pci_address:
          description: Its PCI address.
          type: str
          sample: "0000:61:00.0"
        problems:
          description: What is wrong with it.
          type: list
          elements: str
          sample: ["Xid 79 since boot, 1 times"]
    sick_ports:
      description: The ports of network cards with a problem.
      type: list
      elements: dict
      contains:
        node:
          description: The node.
          type: str
          sample: n2
        name:
          description: RDMA device and number of the port, or the interface.
          type: str
          sample: mlx5_3/1
        pci_address:
          description: Its card.
          type: str
          sample: "0000:5e:00.0"
        problems:
          description: What is wrong with it.
          type: list
          elements: str
          sample: ["it has lost its link (polling)"]
    degraded_links:
      description: The devices whose link is slower or narrower than they could have it.
      type: list
      elements: dict
      contains:
        node:
          description: The node.
          type: str
          sample: n2
        kind:
          description: V(gpu), V(nic) or V(nvme).
          type: str
          sample: nvme
        pci_address:
          description: Its PCI address.
          type: str
          sample: "0000:41:00.0"
        causes:
          description: V(slow) and V(narrow).
          type: list
          elements: str
          sample: [slow]
    skew:
      description: The versions that differ among nodes with the same GPUs.
      type: list
      elements: dict
      contains:
        group:
          description: The GPUs of these nodes.
          type: str
          sample: 8 x NVIDIA H100 80GB HBM3
        component:
          description: What has the version.
          type: str
          sample: NIC firmware
        of:
          description: What it belongs to, where a node has several kinds of it.
          type: str
          sample: MT_0000000838
        versions:
          description: The number of nodes by version.
          type: dict
          sample: {"28.39.3560": 7, "28.39.1002": 1}
failure:
  description: On failure the error in parts.
  returned: failure
  type: dict
"""
