# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet on one controller: what is replayed to it, and what is made of the samples."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._node.look import in_brief
from ansible_collections.gpufleet.node.tests.unit.controller.playbook_runs import ansible_playbook, replaying
from ansible_collections.gpufleet.node.tests.unit.controller.report_fleet import TREES, Kind
from ansible_collections.gpufleet.node.tests.unit.repository.scripts import siblings

with siblings("tests/bench", "tests/bench/scale"):
    from bench_looks import looks_in, noting
    from scale import Sample, name_of, sentences, setting_of
    from scale_runs import AUDIT, EMPTY, GROUPS, MODULE, PROGRAM, REPORT, SCALE, SITE, WAYS, Setting
    from ssh_node import children_of

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.controller.report_fleet",)

# What the demonstration declares as well. A concern that is right says the same as any other, but for a number.
DECLARED_TOO = ("node_tools", "nvml", "container_runtime")


def test_a_setting_is_read_and_called_by_what_is_not_usual() -> None:
    assert setting_of("forks=5,strategy=free") == Setting(forks=5, strategy="free")
    assert name_of(setting_of("forks=5,slices=4")) == "forks=5,slices=4"
    assert name_of(setting_of("forks=25")) == ""


# --- what the samples say ---------------------------------------------------------------------------------------------


def sample(
    way: str,
    cpu: float,
    *,
    fleet: int = 20,
    hosts: int = 10,
    memory: float = 1.0,
    node_cpu: Optional[float] = None,
    setting: str = "",
) -> Sample:
    return Sample(way, setting, fleet, hosts, cpu, 1.0, memory, node_cpu)


def rates(samples: List[Sample]) -> List[str]:
    return [text for text in sentences(samples) if "per second and core" in text]


def test_slices_and_rounds_count_together_and_are_held_against_the_empty_module() -> None:
    samples = [sample(EMPTY, cpu, setting="slices=2") for cpu in (1.0, 3.0)]
    samples += [sample(AUDIT, cpu, setting="slices=2") for cpu in (2.0, 2.0)]
    assert rates(samples) == [
        "audit slices=2 20 hosts: 1.00 of the empty module's hosts per second and core, goal at least 1: met"
    ]
    slow = [*samples, sample(AUDIT, 0.5, hosts=0, setting="slices=2")]
    assert rates(slow) == [
        "audit slices=2 20 hosts: 0.89 of the empty module's hosts per second and core, goal at least 1: not met"
    ]


def test_fleets_of_other_sizes_are_not_taken_together() -> None:
    samples = [sample(EMPTY, 1.0), sample(EMPTY, 9.0, fleet=30), sample(AUDIT, 2.0), sample(AUDIT, 9.0, fleet=30)]
    assert [text.split(" of ")[0] for text in rates(samples)] == ["audit 20 hosts: 0.50", "audit 30 hosts: 1.00"]


@pytest.mark.parametrize(("way", "goal"), [(AUDIT, 1.0), (SITE, 0.95), (REPORT, 0.8)])
def test_each_playbook_has_its_goal_and_the_module_has_none(way: str, goal: float) -> None:
    samples = [sample(EMPTY, 1.0), sample(way, 1.0 / (goal + 0.001)), sample(f"{way}_module", 2.0)]
    (text, of_module) = rates(samples)
    assert text.endswith(f"goal at least {goal:g}: met")
    assert of_module.endswith("per second and core")
    (text, _of_module) = rates([samples[0], sample(way, 1.0 / (goal - 0.001)), samples[2]])
    assert text.endswith("not met")


def test_memory_has_a_goal_at_a_thousand_hosts_and_counts_the_most_of_all_rounds() -> None:
    def memory(fleet: int, most: float) -> str:
        samples = [sample(EMPTY, 1.0, fleet=fleet, memory=2.0), sample(AUDIT, 1.0, fleet=fleet)]
        (found,) = [t for t in sentences([*samples, sample(AUDIT, 1.0, fleet=fleet, memory=most)]) if "memory" in t]
        return found

    assert memory(1000, 3.0) == "audit 1000 hosts: 1.50 times the empty module's memory, goal at most 1.5: met"
    assert memory(1000, 3.1).endswith("not met")
    assert memory(300, 3.1).endswith("memory")


def test_a_real_node_has_a_goal_for_its_cpu_and_the_controller_then_has_none() -> None:
    samples = [sample(EMPTY, 1.0, node_cpu=1.0), sample(AUDIT, 9.0, node_cpu=0.8), sample(REPORT, 9.0, node_cpu=0.9)]
    assert [text for text in sentences(samples) if "goal" in text] == [
        "audit 20 hosts: 0.80 times the empty module's CPU on the node, goal at most 0.8: met"
    ]


# --- what is replayed -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("way", "looked_by"), [("auto", PROGRAM), ("module", MODULE)])
def test_hosts_answer_both_ways_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, looked_by: str
) -> None:
    look = json.loads((SCALE / "answers" / "single-socket.json").read_text(encoding="utf-8"))
    variables = {"kernel_modules_block": ["nouveau"], "gpufleet_look_by": way}
    hosts = {name: {**replaying(tmp_path / name, {"node_state": look}), **variables} for name in ("a", "b")}
    file = tmp_path / "looks.json"
    for name, value in noting(file).items():
        monkeypatch.setenv(name, value)
    output = ansible_playbook(tmp_path, {"hosts": hosts}, "gpufleet.node.audit")
    assert "2 of 2 nodes are in sync" in output
    assert looks_in(file, way="audit", looked_by=looked_by) == 2


@pytest.mark.parametrize("machine", GROUPS.values())
def test_what_is_replayed_is_what_a_look_answers_today(kinds: Tuple[Kind, ...], machine: str, tmp_path: Path) -> None:
    found = kinds[TREES.index(machine)].in_sync
    concerns = {**found["concerns"], **dict.fromkeys(DECLARED_TOO, found["concerns"]["hugepages"])}
    names = list(concerns)
    nothing: Dict[str, Any] = {name: [] for name in ("drifted", "pending", "unknown", "waiting", "to_converge")}
    answer = {**found, **nothing, "in_sync": names, "managed": names, "changed": False, "diff": []}
    answer["concerns"] = {name: in_brief(result, listed=False) for name, result in concerns.items()}
    recorded = SCALE / "answers" / f"{machine}.json"
    fresh = tmp_path / recorded.name
    fresh.write_text(json.dumps(answer, indent=1) + "\n", encoding="utf-8")
    assert json.loads(recorded.read_text(encoding="utf-8")) == answer, f"copy {fresh} to {recorded}"


# --- processes --------------------------------------------------------------------------------------------------------


def test_the_children_of_a_process_are_those_that_were_not_waited_for() -> None:
    before = children_of(os.getpid())
    pid = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
    try:
        assert sorted({*before, pid}) == sorted(children_of(os.getpid()))
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
    assert children_of(os.getpid()) == before


def test_every_way_but_the_empty_module_says_who_looks() -> None:
    assert {name: way.looked_by for name, way in WAYS.items()} == {
        EMPTY: "",
        **dict.fromkeys((AUDIT, SITE, REPORT), PROGRAM),
        **{f"{name}_module": MODULE for name in (AUDIT, SITE, REPORT)},
    }
