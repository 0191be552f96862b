# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``slurm_topology``: the switches or blocks by which slurmctld places jobs are those of the inventory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Tuple

from ..._core.registration import Registration
from ..._kinds.units import RUNNING, STOPPED
from .observation import observe
from .options import OPTIONS
from .plan import plan
from .resolve import resolve
from .spec import FOLDER, NAME, TopologyDeclaration, parse
from .state import FAILED, known_as
from .topology_conf import text_of

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.change import Plan, Step
    from ..._core.contract import Scope
    from ..._core.protocols import Host
    from .state import TopologyDesired, TopologyState
    from .topology import Topologies, Topology

# scontrol waits for a busy slurmctld.
DEADLINE = 75.0


class SlurmTopology:
    """``convergence.Concern`` for the topology of a cluster of Slurm, on the host of its slurmctld."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = False
    registration = Registration(deadline=DEADLINE)

    def parse(self, params: Mapping[str, Any]) -> TopologyDeclaration:
        return parse(params)

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> TopologyDeclaration:
        """The folder is in what was changed there."""
        folder = FOLDER
        for identity, _setting in baseline.values:
            path = identity.partition(":")[0]
            if path.endswith(("/topology.conf", "/topology.yaml", "/slurm.conf")):
                folder = path.rpartition("/")[0] or "/"
        return TopologyDeclaration(folder=folder)

    def observe(self, host: Host, declaration: TopologyDeclaration, scope: Scope) -> TopologyState:
        return observe(host, declaration, scope)

    def resolve(self, declaration: TopologyDeclaration, state: TopologyState) -> TopologyDesired:
        return resolve(declaration, state)

    def restore(self, baseline: Baseline, state: TopologyState) -> TopologyDesired:
        from .resolve import restore

        return restore(baseline, state)

    def plan(self, state: TopologyState, desired: TopologyDesired, scope: Scope) -> Plan:
        return plan(state, desired, scope)

    def perform(self, step: Step, host: Host) -> None:
        from .apply import perform

        perform(step, host)

    def report(self, state: TopologyState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        daemon, live, found = state.daemon, state.live, state.at_start
        plugin = known_as(state.plugin)
        topologies = state.topologies_at_start
        if topologies.default is not None:
            found = topologies.by_name[topologies.default]
            plugin = known_as(found.plugin)
        live_topologies = state.live_topologies
        if live is not None and live_topologies is not None and live_topologies.default is not None:
            live = live_topologies.by_name[live_topologies.default]
        service = RUNNING if daemon.process is not None else FAILED if daemon.failed else STOPPED
        now = {
            "slurmctld": service if daemon.installed else None,
            "plugin": known_as(live.plugin) if live is not None else None,
            "lines": _lines(live) if live is not None else [],
            "topologies": _each(live_topologies),
        }
        return now, {"plugin": plugin, "lines": _lines(found), "topologies": _each(topologies)}


def _each(topologies: Optional[Topologies]) -> Dict[str, Any]:
    """The topologies of topology.yaml by name."""
    if topologies is None:
        return {}
    return {
        name: {"plugin": topology.plugin, "cluster_default": name == topologies.default, "lines": _lines(topology)}
        for name, topology in topologies.by_name.items()
    }


def _lines(topology: Topology) -> Any:
    return text_of(topology).splitlines()


CONCERN = SlurmTopology()
