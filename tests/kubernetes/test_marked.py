# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which nodes the role ``drain`` has drained: one question for each scheduler, for a whole inventory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
from ansible_collections.gpufleet.node.tests.kubernetes.api_server import Cluster, new_node, serve
from ansible_collections.gpufleet.node.tests.kubernetes.controller import Outcome, kubeconfig, play

MARK = "gpufleet.node/drained-by"
# One of them does not respond. Each writes down that it was asked.
SCONTROL = """#!/bin/sh
echo asked >> {asked}
echo 'NodeName=s1 State=IDLE+DRAIN Partitions=gpu  Reason=gpufleet: new layout [root@2026-11-22T04:33:41]'
echo 'NodeName=s2 State=IDLE+DRAIN Partitions=gpu  Reason=bad DIMM [ada@2026-11-22T04:33:41]'
echo 'NodeName=s3 State=MIXED Partitions=gpu '
"""
AWAY = """#!/bin/sh
echo 'slurm_load_node error: Unable to contact slurm controller (connect failure)' >&2
exit 1
"""


def cordoned(name: str, **annotations: str) -> Dict[str, Any]:
    node = new_node(name)
    node["spec"]["unschedulable"] = True
    if annotations:
        node["metadata"]["annotations"] = annotations
    else:
        del node["metadata"]["annotations"]
    return node


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    made = Cluster("k1")
    left_over = new_node("k4")
    left_over["metadata"]["annotations"][MARK] = "gpufleet: maintenance"
    made.others = [cordoned("k2", **{MARK: "gpufleet: maintenance"}), cordoned("k3"), left_over]
    return made


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("slurm") / "asked"


@pytest.fixture(scope="module")
def outcomes(cluster: Cluster, asked: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[List[Outcome]]:
    folder = tmp_path_factory.mktemp("controller")
    programs = {"up": SCONTROL.format(asked=asked), "away": AWAY}
    for name, text in programs.items():
        (folder / name).mkdir()
        for program in ("scontrol", "squeue"):
            (folder / name / program).write_text(text, encoding="utf-8")
            (folder / name / program).chmod(0o755)
    server = serve(cluster)
    kubernetes = {
        "drain_backend": "kubernetes",
        "drain_kubernetes_kubeconfig": kubeconfig(folder / "kubeconfig", server.server_address[1]),
    }
    slurm = {"drain_backend": "slurm", "drain_slurm_host": "localhost"}
    fleet: Dict[str, Dict[str, Any]] = {f"k{number}": dict(kubernetes) for number in (1, 2, 3, 4)}
    fleet["k9"] = {**kubernetes, "drain_kubernetes_node": "k2"}
    fleet.update({f"s{number}.example": dict(slurm) for number in (1, 2, 3)})
    fleet["other"] = {"drain_backend": "tasks"}
    fleet["nobody"] = {"drain_backend": "none"}
    groups = {"up": fleet, "away": dict.fromkeys(("s1.example", "s2.example"), slurm)}
    yield play(folder / "run", [marked(group, folder) for group in groups], groups)
    server.shutdown()
    server.server_close()


def marked(group: str, folder: Path) -> Dict[str, Any]:
    """A play that names the nodes that are marked, with the programs of Slurm from a folder of the group's name."""
    return {
        "name": group,
        "hosts": group,
        "gather_facts": False,
        "environment": {"PATH": f"{folder / group}:{os.environ['PATH']}"},
        "tasks": [
            {"ansible.builtin.include_role": {"name": "gpufleet.node.drain", "tasks_from": "marked"}},
            {"ansible.builtin.debug": {"msg": "marked are {{ drain_marked | join(' ') }}."}},
        ],
    }


def of(outcomes: List[Outcome], play: str) -> Dict[str, Outcome]:
    return {outcome.host: outcome for outcome in outcomes if outcome.play == play}


def test_every_host_knows_the_nodes_that_are_drained_with_our_mark(outcomes: List[Outcome]) -> None:
    up = of(outcomes, "up")
    assert len(up) == 10
    for outcome in up.values():
        assert outcome.ok, outcome
        assert outcome.changed == 0, outcome
        assert "marked are k2 k9 s1.example." in outcome.said, outcome


def test_each_scheduler_is_asked_once(outcomes: List[Outcome], cluster: Cluster, asked: Path) -> None:
    assert cluster.node_lists == 1
    assert asked.read_text(encoding="utf-8") == "asked\n"


def test_a_scheduler_that_does_not_answer_ends_it_for_all(outcomes: List[Outcome]) -> None:
    away = of(outcomes, "away")
    assert not any(outcome.ok for outcome in away.values()), away
    assert "Cannot ask slurmctld for its nodes: " in away["s1.example"].said
    assert "s1.example asked for them and failed" in away["s2.example"].said
    assert not any("marked are" in outcome.said for outcome in away.values())
