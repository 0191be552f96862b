# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers of scontrol about topologies, recorded of slurmctld and slurm-client of Debian.

The nodes are h[01-08] and login1, and the topologies ``TREE``, ``BLOCKS`` and ``TOPOLOGIES`` of topology_machine.py.
"""

from __future__ import annotations

# ``scontrol show topoconf`` of 26.05.5-1 (sid) with a topology.yaml of TOPOLOGIES, and with a topology.conf of TREE, of
# BLOCKS or none. 24.11.5-4+deb13u1 (trixie) and 22.05.8 (bookworm) end with 1: invalid entity:topoconf for keyword:show
TOPOCONF = """\
%YAML 1.1
---
- topology: racks
  cluster_default: true
  block: {}
  flat: {}
  ring: {}
  torus3d: {}
  tree:
    switches:
    - switch: root
      children: leaf[1-2]
      nodes:
    - switch: leaf1
      children:
      nodes: h[01-04]
    - switch: leaf2
      children:
      nodes: h[05-08],login1
- topology: nvl
  cluster_default: false
  block:
    block_sizes:
    - 4
    - 8
    blocks:
    - block: b1
      nodes: h[01-04],login1
    - block: b2
      nodes: h[05-08]
  flat: {}
  ring: {}
  torus3d: {}
  tree: {}
- topology: all
  cluster_default: false
  block: {}
  flat: true
  ring: {}
  torus3d: {}
  tree: {}
...
"""
TOPOCONF_OF_CONF = """\
%YAML 1.1
---
- topology: default
  cluster_default: false
  block: {}
  flat: {}
  ring: {}
  torus3d: {}
  tree: {}
...
"""
# ``scontrol show topology`` of 22.05, 24.11 and 26.05; the LinkSpeed of a topology.yaml is 0.
SHOWN_TREE = """\
SwitchName=root Level=1 LinkSpeed=1 Nodes=h[01-08],login1 Switches=leaf[1-2]
SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=h[01-04]
SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=h[05-08],login1
"""
# Of 24.11 and 26.05; 22.05 has no such plugin.
SHOWN_BLOCKS = """\
BlockName=b1 BlockIndex=0 Nodes=h[01-04],login1 BlockSize=4
BlockName=b2 BlockIndex=1 Nodes=h[05-08] BlockSize=4
AggregatedBlock=b[1-2] BlockIndex=2 Nodes=h[01-08],login1 BlockSize=8
"""
# Of 24.11 and 26.05 without BlockSizes.
SHOWN_THREE = """\
BlockName=b1 BlockIndex=0 Nodes=h[01-02] BlockSize=2
BlockName=b2 BlockIndex=1 Nodes=h[03-04] BlockSize=2
BlockName=b3 BlockIndex=2 Nodes=h[05-06] BlockSize=2
AggregatedBlock=b[1-2] BlockIndex=3 Nodes=h[01-04] BlockSize=4
AggregatedBlock=b[1-3] BlockIndex=4 Nodes=h[01-06] BlockSize=8
"""
# What it has to say where slurmctld does not answer, with exit status 0 in all releases. Of topoconf it is silent.
NO_TOPOLOGY = "slurm_load_topo error: Unable to contact slurm controller (connect failure)\n"
# TopologyPlugin in ``scontrol show config`` where slurm.conf has none, by release.
NO_PLUGIN = {"22.05.8": "topology/none", "24.11.5": "topology/default", "26.05.5": "topology/flat"}
