# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What four concerns declare of the same CPUs, on every recorded machine: what fits together, and what does not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, FrozenSet, Mapping

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._linux import cpulist
from ansible_collections.gpufleet.node.plugins.module_utils._linux.cpu_claims import contradictions
from ansible_collections.gpufleet.node.plugins.module_utils._linux.cpu_topology import CpuTopology, read_cpu_topology
from ansible_collections.gpufleet.node.plugins.module_utils._node.assessment import assess_node
from ansible_collections.gpufleet.node.plugins.module_utils._node.look import validated
from ansible_collections.gpufleet.node.tests.nodes import nodetree
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedHost
from ansible_collections.gpufleet.node.tests.unit.support import snapshot

SYSTEM, ISOLATING, INTERRUPTS = "cpu_isolation", "kernel_cmdline", "numa_irq_affinity"
KUBELET = "kubelet_config"
TREES = sorted(path.stem for path in nodetree.FOLDER.glob("*.tree"))


@dataclass(frozen=True)
class Divided:
    """A recorded machine, the first core of each of its NUMA nodes for the system, and all other CPUs for jobs."""

    root: Path
    host: RecordedHost
    topology: CpuTopology
    system: FrozenSet[int]
    jobs: FrozenSet[int]

    def refusals(self, **declared: Mapping[str, Any]) -> Dict[str, str]:
        return {name: str(error) for name, error in contradictions(declared, self.host.files).items()}


@pytest.fixture(scope="module", params=TREES)
def divided(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Divided:
    root = nodetree.expand(request.param, tmp_path_factory.mktemp(request.param) / "root")
    host = RecordedHost(str(root))
    topology = read_cpu_topology(host.files)
    nodes = [cpus & topology.online for cpus in topology.nodes.values() if cpus & topology.online]
    firsts = {min(cpus) for cpus in nodes or [topology.online]}
    system = frozenset().union(*(core for core in topology.siblings if core & firsts)) or frozenset(firsts)
    return Divided(root, host, topology, system, topology.online - system)


def housekeeping(cpus: FrozenSet[int]) -> Dict[str, Any]:
    return {SYSTEM: {"housekeeping_cpus": cpulist.render(cpus)}}


def isolating(cpus: FrozenSet[int], name: str = "nohz_full") -> Dict[str, Any]:
    return {ISOLATING: {"arguments": {name: cpulist.render(cpus)}}}


def interrupts(reserved: FrozenSet[int] = frozenset(), **entry: Any) -> Dict[str, Any]:
    return {INTERRUPTS: {"interrupts": [entry], "reserved_cpus": cpulist.render(reserved)}}


def test_lists_that_fit_together_are_not_refused(divided: Divided) -> None:
    right = {**housekeeping(divided.system), **isolating(divided.jobs, "isolcpus")}
    assert divided.refusals(**right, **interrupts(cpus=cpulist.render(divided.system))) == {}
    assert divided.refusals(**right, **interrupts()) == {}
    assert divided.refusals(**housekeeping(divided.system), **interrupts(divided.jobs)) == {}


def test_interrupts_on_isolated_cpus_are_refused_with_both_variables_unless_they_are_meant(divided: Divided) -> None:
    cpu = frozenset((max(divided.jobs),))
    declared = {**isolating(divided.jobs), **interrupts(cpus=cpulist.render(divided.system | cpu))}
    found = divided.refusals(**declared)
    assert set(found) == {ISOLATING, INTERRUPTS}
    wanted = cpulist.render(divided.system | cpu)
    assert found[INTERRUPTS] == (
        "Cannot declare interrupts[0].cpus of numa_irq_affinity: interrupts would go to isolated CPUs, since "
        f"{cpulist.render(cpu)} is in kernel argument nohz_full of kernel_cmdline too (found kernel argument nohz_full "
        f"{cpulist.render(divided.jobs)}, wanted {wanted}). Take these CPUs out of one of the two lists, or set "
        "isolated: true in the entry for CPUs that are to do nothing but these interrupts."
    )
    meant = interrupts(cpus=cpulist.render(divided.system | cpu), isolated=True)
    assert divided.refusals(**isolating(divided.jobs), **meant) == {}


def test_cpus_for_the_system_that_no_interrupt_may_use_are_refused(divided: Divided) -> None:
    """Which is the list of the system in the place of that of the jobs."""
    found = divided.refusals(**housekeeping(divided.system), **interrupts(divided.system))
    assert set(found) == {SYSTEM, INTERRUPTS}
    assert "no interrupt could use any of the CPUs for the system" in found[INTERRUPTS]
    assert "in housekeeping_cpus of cpu_isolation too" in found[INTERRUPTS]
    assert found[INTERRUPTS].startswith("Cannot declare reserved_cpus of numa_irq_affinity: ")
    # Some of them may be kept free, and those of one node too, as long as there are others.
    more = divided.system | {min(divided.jobs)}
    assert divided.refusals(**housekeeping(more), **interrupts(divided.system)) == {}


def test_a_node_is_left_with_a_cpu_for_its_interrupts(divided: Divided) -> None:
    found = divided.refusals(**isolating(divided.jobs), **interrupts(divided.system))
    assert set(found) == {ISOLATING, INTERRUPTS}
    assert "is left for the interrupts of its devices" in found[ISOLATING]
    assert "the others are in kernel argument nohz_full of kernel_cmdline" in found[ISOLATING]
    # Where all entries name CPUs, nobody goes by the node.
    named = interrupts(divided.system, cpus=cpulist.render(divided.jobs), isolated=True)
    assert divided.refusals(**isolating(divided.jobs), **named) == {}


def test_swapped_lists_are_refused_by_each_concern_and_in_one_look(divided: Divided) -> None:
    before = snapshot(divided.root, leave_out=())
    declared = {**housekeeping(divided.jobs), **isolating(divided.system)}
    answer = assess_node(declared, divided.host, validate=validated, full=False)
    assert answer["invalid"] == [ISOLATING, SYSTEM]
    assert "looks inverted" in answer["concerns"][SYSTEM]["msg"]
    assert "CPU 0 boots the machine" in answer["concerns"][ISOLATING]["msg"]
    assert snapshot(divided.root, leave_out=()) == before


def test_one_look_refuses_all_that_contradict_each_other_before_anything_changes(divided: Divided) -> None:
    declared = {**housekeeping(divided.system), **interrupts(divided.system)}
    before = snapshot(divided.root, leave_out=())
    answer = assess_node(declared, divided.host, validate=validated, full=False)
    assert sorted(answer["invalid"]) == [SYSTEM, INTERRUPTS]
    assert snapshot(divided.root, leave_out=()) == before


@pytest.mark.parametrize(
    "declared",
    [
        {**housekeeping(frozenset((0,))), INTERRUPTS: {"interrupts": [], "reserved_cpus": "0"}},
        {**housekeeping(frozenset((0,))), INTERRUPTS: {"state": "absent", "reserved_cpus": "0"}},
        {**isolating(frozenset((1,))), **interrupts(cpus="local")},
        {**isolating(frozenset((1,))), **interrupts(cpus="0-999999999")},
        {**isolating(frozenset((1,))), INTERRUPTS: {"interrupts": "1"}},
        {**isolating(frozenset((1,))), INTERRUPTS: {"interrupts": [{"cpus": "three"}, 7]}},
        {ISOLATING: {"arguments": ["nohz_full"]}, **interrupts(cpus="1")},
    ],
    ids=["no entry", "given back", "local", "too many", "no list", "no CPUs", "no arguments"],
)
def test_what_says_nothing_of_cpus_or_is_wrong_contradicts_nothing(divided: Divided, declared: Any) -> None:
    assert divided.refusals(**declared) == {}


def reserving(cpus: FrozenSet[int]) -> Dict[str, Any]:
    return {KUBELET: {"reserved_system_cpus": cpulist.render(cpus)}}


def test_a_kubelet_keeps_all_cpus_of_the_system_from_pods_and_none_of_those_isolated(divided: Divided) -> None:
    assert divided.refusals(**housekeeping(divided.system), **reserving(divided.system)) == {}
    some = frozenset((max(divided.jobs),))
    found = divided.refusals(**housekeeping(divided.system | some), **reserving(divided.system))
    assert set(found) == {KUBELET}
    assert (
        f"{cpulist.render(some)} is in housekeeping_cpus of cpu_isolation, and the kubelet would give" in found[KUBELET]
    )
    found = divided.refusals(**isolating(divided.jobs), **reserving(divided.system | some))
    assert set(found) == {KUBELET}
    assert f"{cpulist.render(some)} is in kernel argument nohz_full of kernel_cmdline too" in found[KUBELET]
