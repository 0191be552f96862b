#!/usr/bin/python
# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: slurm_topology
short_description: The topology (switches or blocks) by which Slurm places jobs
version_added: 0.1.0
author:
  - gpufleet contributors (@gpufleet)
description:
  - Keeps either C(topology.conf) with C(TopologyPlugin=) in C(slurm.conf), or C(topology.yaml), as the inventory
    declares them, on the host of slurmctld. With a topology, Slurm places a job on nodes that are near each other.
  - C(scontrol show topology), and C(scontrol show topoconf) for C(topology.yaml), say what is in effect, not the file.
    Host lists are compared by the nodes in them, and a file that means the same is left as it is.
  - What slurmctld would refuse, or only warn of, is refused before anything changes, such as an unknown node, a node in
    two places, an unknown switch, a loop, and block sizes that are not a power of two times the smallest.
  - If something changes, slurmctld is restarted once. Running jobs survive that. If it does not come up, its former
    files are restored, it is started with them, and the run fails with what slurmctld said.
  - Lines of others in C(topology.conf) and C(topology.yaml) are commented out, and come back with O(state=absent).
  - Slurm 25.05 and newer ignore C(topology.conf) where there is a C(topology.yaml). So O(switches) and O(blocks) are
    refused there, unless this module wrote the C(topology.yaml). Then it is removed.
  - On a host without slurmctld the topology is listed in RV(unmanaged), so all hosts may have the same declaration.
  - The files of other hosts are not managed. slurmd and the commands of Slurm read these files as well, so give all
    hosts the same, or run slurmd in configless mode (C(--conf-server)).
extends_documentation_fragment:
  - gpufleet.node.contract
  - gpufleet.node.contract.attributes
options:
  switches:
    description:
      - The switches of a tree (C(topology/tree)). Each has nodes below it, or other switches.
      - Each node and each switch is below one switch only. Without a switch above all others, a job gets nodes from
        only one part of the cluster.
      - P(gpufleet.node.slurm_switches#filter) makes them from variables of the hosts, such as the rack.
      - One of O(switches), O(blocks) and O(topologies) is required, unless O(state=absent).
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description:
          - The name, which must be unique.
        type: str
        required: true
      nodes:
        description:
          - The nodes below this switch, by their names in Slurm, such as C(h[001-016],h031).
        type: str
      switches:
        description:
          - The switches below this one, such as C(leaf[1-4]).
        type: str
  blocks:
    description:
      - Blocks of nodes that are near each other (C(topology/block)), such as those of an NVLink domain. Slurm joins
        neighbours in the list to larger blocks, so their order counts.
      - Needs Slurm 24.05 or newer. Before 25.05, each block must have at least as many nodes as the smallest of
        O(block_sizes).
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description:
          - The name, which must be unique.
        type: str
        required: true
      nodes:
        description:
          - The nodes of the block, by their names in Slurm.
        type: str
        required: true
  block_sizes:
    description:
      - The sizes of the blocks with which Slurm plans, in nodes, the smallest first. Each of the others is the smallest
        times a power of two.
      - If empty, the smallest size is that of the first block, and slurmctld joins up to 16 of them.
    type: list
    elements: int
    default: []
  topologies:
    description:
      - Several topologies for the partitions of one cluster, in C(topology.yaml) (Slurm 25.05 and newer). A partition
        has one by C(Topology=) in its line of C(slurm.conf), and else the default.
      - Each is a tree (O(topologies[].switches)), blocks (O(topologies[].blocks)) or flat. Not together with
        O(switches) or O(blocks).
      - C(topology.conf) and C(TopologyPlugin) stay as they are, because Slurm ignores them then.
      - Refused if Slurm was built without YAML, and if C(slurm.conf) names a topology that is not declared.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description:
          - The name, which must be unique.
        type: str
        required: true
      cluster_default:
        description:
          - Whether this is the topology of partitions that name none, and of everything that is not about one
            partition. Exactly one topology must have it, unless there is only one.
        type: bool
        default: false
      switches:
        description:
          - The switches of a tree, as in O(switches).
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description:
              - The name, which must be unique in its topology.
            type: str
            required: true
          nodes:
            description:
              - The nodes below this switch.
            type: str
          switches:
            description:
              - The switches below this one.
            type: str
      blocks:
        description:
          - The blocks, as in O(blocks).
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description:
              - The name, which must be unique in its topology.
            type: str
            required: true
          nodes:
            description:
              - The nodes of the block.
            type: str
            required: true
      block_sizes:
        description:
          - The sizes of blocks, as in O(block_sizes).
        type: list
        elements: int
        default: []
      flat:
        description:
          - Whether it is one without switches and blocks, for all nodes.
        type: bool
        default: false
  folder:
    description:
      - The folder of C(slurm.conf), C(topology.conf) and C(topology.yaml).
    type: path
    default: /etc/slurm
seealso:
  - name: topology.conf(5)
    description: The topology of a cluster in Slurm.
    link: https://slurm.schedmd.com/topology.conf.html
  - name: topology.yaml(5)
    description: Several topologies of a cluster in Slurm.
    link: https://slurm.schedmd.com/topology.yaml.html
  - module: gpufleet.node.slurm_gpus
  - plugin: gpufleet.node.slurm_switches
    plugin_type: filter
"""

EXAMPLES = r"""
- name: Place jobs on the nodes of one rack if they fit into it
  gpufleet.node.slurm_topology:
    switches:
      - name: spine
        switches: rack[1-2]
      - name: rack1
        nodes: h[001-016]
      - name: rack2
        nodes: h[017-032]

- name: The same from the variable rack of each host
  gpufleet.node.slurm_topology:
    switches: "{{ groups['gpu'] | gpufleet.node.slurm_switches(hostvars, ['rack'], root='spine') }}"

- name: Plan with NVLink domains of 18 nodes, of which Slurm uses 16
  gpufleet.node.slurm_topology:
    blocks:
      - name: nvl1
        nodes: h[001-018]
      - name: nvl2
        nodes: h[019-036]
    block_sizes: [16, 32]

- name: A tree for the cluster, and blocks for the partition that has Topology=nvl in slurm.conf
  gpufleet.node.slurm_topology:
    topologies:
      - name: racks
        cluster_default: true
        switches:
          - name: rack1
            nodes: h[001-036]
      - name: nvl
        blocks:
          - name: nvl1
            nodes: h[001-018]
          - name: nvl2
            nodes: h[019-036]
        block_sizes: [16]

- name: Restore what was there before
  gpufleet.node.slurm_topology:
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
      description:
        - The switch, the block or the file; in C(topology.yaml) the topology, or what is in it as C(nvl/nvl1).
      type: str
      sample: rack1
    setting:
      description:
        - C(nodes), C(switches), C(TopologyPlugin), C(order of blocks), C(cluster_default) and others.
      type: str
      sample: nodes
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
  description: Always empty.
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
      description: Who it is, such as C(topology.conf).
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
  description: The topology that slurmctld has.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    slurmctld:
      description: C(running), C(stopped), C(failed), or C(null) if it is not installed.
      type: str
      sample: running
    plugin:
      description: The plugin with which slurmctld runs; C(null) without a topology, or if it does not run.
      type: str
      sample: topology/tree
    lines:
      description: Its switches or blocks, as lines of C(topology.conf). C(BlockSizes) has only the sizes in use.
      type: list
      elements: str
      sample: ["SwitchName=spine Switches=rack[1-2]", "SwitchName=rack1 Nodes=h[001-016]"]
    topologies:
      description:
        - What slurmctld has of C(topology.yaml), by name, each with C(plugin), C(cluster_default) and C(lines). It is
          empty without such a file. C(plugin) and C(lines) beside it are then those of the default.
      type: dict
boot:
  description: The same at the next start of slurmctld.
  returned: always, unless the declaration was refused
  type: dict
  contains:
    plugin:
      description: The plugin in C(slurm.conf); C(null) for none.
      type: str
      sample: topology/tree
    lines:
      description: The lines of C(topology.conf) that count for it.
      type: list
      elements: str
      sample: ["SwitchName=spine Switches=rack[1-2]", "SwitchName=rack1 Nodes=h[001-016]"]
    topologies:
      description:
        - What is in C(topology.yaml), by name, each with C(plugin), C(cluster_default) and C(lines). It is empty
          without such a file. C(plugin) and C(lines) beside it are then those of the default.
      type: dict
"""

from ansible_collections.gpufleet.node.plugins.module_utils._node.module import run
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.slurm_topology.concern import CONCERN


def main() -> None:
    run(CONCERN)


if __name__ == "__main__":
    main()
