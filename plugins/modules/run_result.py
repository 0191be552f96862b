#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: run_result
short_description: (internal) Keep the result of a run in its statistics
version_added: 0.1.0
description:
  - Internal to the playbooks of this collection; its options may change with any release.
  - Sets the statistic C(gpufleet_run), as M(ansible.builtin.set_stats) does, so that AWX has it among the artifacts of
    the job, for workflows and webhooks. It has the same fields for every playbook.
  - Runs once, for all hosts of the play. Contacts no host.
author:
  - gpufleet contributors (@gpufleet)
options:
  playbook:
    description: The name of the playbook.
    type: str
    required: true
  register:
    description: The name under which the last look was registered; without it nothing was looked at.
    type: str
  clusters:
    description: What was found in the clusters of the hosts, by host, from P(gpufleet.node.plugin_findings#filter).
    type: dict
    default: {}
  foreseen:
    description: Why the run would fail on hosts, as M(gpufleet.node.drift_report) returns it as C(failing), in
      check mode.
    type: dict
    default: {}
  finished:
    description: Whether the playbook came to its end. Ansible ends it early when no host of a batch is left.
    type: bool
    default: true
extends_documentation_fragment:
  - gpufleet.node.controller
  - gpufleet.node.contract.attributes
"""

EXAMPLES = r"""
- name: Keep the result
  gpufleet.node.run_result:
    playbook: site
    register: look
"""

RETURN = r"""
result:
  description: The statistic C(gpufleet_run).
  returned: always
  type: dict
  contains:
    schema:
      description: The number of this format. It increases when a field is removed or changes its meaning.
      type: int
      sample: 1
    playbook:
      description: The name of the playbook.
      type: str
      sample: site
    check_mode:
      description: Whether the run only predicted.
      type: bool
      sample: false
    finished:
      description: Whether the playbook came to its end. If it is false, Ansible ended it early.
      type: bool
      sample: true
    nodes_total:
      description: The number of nodes.
      type: int
      sample: 3
    nodes:
      description: The names of the nodes by the worst status that the last look found; V(unreachable) are those without
        an answer.
      type: dict
      sample: {"in_sync": [n1], "pending": [], "drifted": [n2], "unknown": [], "invalid": [], "unreachable": [n3]}
    settings:
      description: The number of settings of each status.
      type: dict
      sample: {"in_sync": 193, "drifted": 3, "pending": 0, "unknown": 0, "invalid": 0, "accepted": 0, "unmanaged": 2}
    failed:
      description: The cause of each node that failed, by its name.
      type: dict
      sample: {"n3": "did not respond: timed out"}
    not_started:
      description: The nodes of the batches that were not started because too many nodes had failed.
      type: list
      elements: str
      sample: []
    drained:
      description: The nodes that are still drained.
      type: list
      elements: str
      sample: []
    perhaps_drained:
      description: The nodes whose drain failed, and which may be drained all the same.
      type: list
      elements: str
      sample: []
    needs:
      description: The nodes that still need something, by what they need, such as V(reboot).
      type: dict
      sample: {"reboot": [n2]}
    report:
      description: Where the files of the report are, as paths or addresses; empty if none was written.
      type: list
      elements: str
      sample: ["https://reports.example.com/gpufleet/gpufleet-report.json"]
failures:
  description:
    - For each node that failed, C(lines) with its causes, one each, and the C(sentence) that it is to fail with, which
      leaves out the causes that other nodes have too.
  returned: always
  type: dict
  sample: {"n3": {"lines": ["did not respond: timed out"], "sentence": "n3 did not respond: timed out"}}
"""
