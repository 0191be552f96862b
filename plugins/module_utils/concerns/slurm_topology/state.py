# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller of a cluster as it is, as slurmctld has it, and what is wanted of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Optional, Tuple

from ..._core.value import field, frozen
from ..._text.slurm_conf import value_of
from . import topology_yaml
from .topology import BLOCK, TREE, Topologies, Topology
from .topology_conf import parse

if TYPE_CHECKING:
    from typing import FrozenSet

    from ..._core.change import Unmanaged
    from ..._machine.processes import Process

SLURMCTLD = "slurmctld.service"
# The files of a slurmctld that runs, noted before they change.
NOTE = "/run/gpufleet/slurm_topology.json"
FAILED = "failed"
PLUGIN = "TopologyPlugin"
# The first release that reads topology.yaml, and then no topology.conf (topology_g_init in src/interfaces/topology.c).
HAS_YAML = (25, 5)
# What slurmctld calls no topology, by release.
NO_TOPOLOGY = ("", "none", "default", "flat", "topology/none", "topology/default", "topology/flat")


@frozen
class Daemon:
    """``installed`` says whether there is a unit of slurmctld. ``process`` is it, ``failed``: systemd gave it up.

    ``words`` is its command line, without a process that of its unit.
    """

    installed: bool
    process: Optional[Process] = None
    failed: bool = False
    words: Tuple[str, ...] = ()


@frozen
class TopologyState:
    """What was seen.

    ``text`` is that of topology.conf, and ``confs`` are slurm.conf and the files that it includes, in their order; both
    are empty where they are not there. ``plugin`` is what these have as TopologyPlugin, and ``elsewhere`` the included
    file that has it. ``known`` are the nodes of slurm.conf, None where nodes may come by themselves.

    ``live`` is what slurmctld has, None where it does not run. ``registered`` are the nodes that it has itself, asked
    for where nodes may come by themselves, for of a switch newer releases tell those alone. ``former`` are the files
    with which it last ran, where a run was killed after it wrote them. ``version`` is that of Slurm, (0, 0) where
    nobody needs it.

    ``yaml`` is the text of topology.yaml, None where it is not there, and ``live_topologies`` are what slurmctld has of
    such a file, None where it was not asked. ``lacks_yaml`` says that Slurm was built without its reader of YAML.
    """

    folder: str
    daemon: Daemon
    text: Optional[str] = None
    confs: Mapping[str, str] = field(default_factory=dict)
    plugin: Optional[str] = None
    elsewhere: str = ""
    known: Optional[FrozenSet[str]] = None
    live: Optional[Topology] = None
    registered: Optional[FrozenSet[str]] = None
    former: Mapping[str, Optional[str]] = field(default_factory=dict)
    version: Tuple[int, int] = (0, 0)
    yaml: Optional[str] = None
    live_topologies: Optional[Topologies] = None
    lacks_yaml: bool = False

    @property
    def path(self) -> str:
        return f"{self.folder}/topology.conf"

    @property
    def slurm_path(self) -> str:
        return f"{self.folder}/slurm.conf"

    @property
    def yaml_path(self) -> str:
        return f"{self.folder}/topology.yaml"

    def ignores_conf(self, yaml: Optional[str]) -> bool:
        """Whether slurmctld reads this topology.yaml, and neither topology.conf nor TopologyPlugin."""
        return yaml is not None and self.version >= HAS_YAML

    @property
    def slurm(self) -> Optional[str]:
        return self.confs.get(self.slurm_path)

    def value(self, key: str) -> Optional[str]:
        """What slurm.conf and the files that it includes have of a key; of several the last."""
        return next(filter(None, (value_of(text, key) for text in reversed(tuple(self.confs.values())))), None)

    @property
    def at_start(self) -> Topology:
        """What slurmctld would have from the files."""
        return in_effect(self.text, self.plugin)

    @property
    def topologies_at_start(self) -> Topologies:
        """What slurmctld would have from topology.yaml."""
        return topology_yaml.parse(self.yaml) if self.ignores_conf(self.yaml) else Topologies()


@frozen
class TopologyDesired:
    """What is wanted. ``plugin`` is the value of slurm.conf, None for none, which counts where ``sets_plugin``.

    ``yaml`` is the text of topology.yaml, None for no such file. ``topologies`` are what it says, None where slurmctld
    reads topology.conf.
    """

    topology: Topology = Topology()
    text: Optional[str] = None
    plugin: Optional[str] = None
    sets_plugin: bool = False
    managed: bool = False
    unmanaged: Tuple[Unmanaged, ...] = ()
    yaml: Optional[str] = None
    topologies: Optional[Topologies] = None


def in_effect(text: Optional[str], plugin: Optional[str]) -> Topology:
    """What comes of topology.conf with this plugin: no other one reads it as we do."""
    return parse(text, plugin) if plugin in (TREE, BLOCK) else Topology(known_as(plugin))


def known_as(plugin: Optional[str]) -> Optional[str]:
    """A plugin by the name that it has in all releases: None for none."""
    return None if (plugin or "").lower() in NO_TOPOLOGY else plugin
