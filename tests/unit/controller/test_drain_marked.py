# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict

import pytest

pytest.importorskip("ansible.plugins.action", reason="the controller's side needs Ansible's controller, Python 3.11")

from ansible.errors import AnsibleFilterError
from ansible_collections.gpufleet.node.plugins.action.drain_delegates import asked, needed
from ansible_collections.gpufleet.node.plugins.filter.drain_marked import drain_marked
from ansible_collections.gpufleet.node.tests.unit.controller.playbook_runs import ansible_playbook, statistics

SLURM, KUBERNETES = ["slurm", "controller"], ["kubernetes", "localhost", False, "", ""]
QUESTIONS = {
    "a.example": {"way": SLURM, "node": "a"},
    "b": {"way": KUBERNETES, "node": "b"},
    "c.example": {"way": SLURM, "node": "c"},
    "e": {"way": KUBERNETES, "node": "e"},
}
HOSTS = ["a.example", "b", "c.example", "d", "e"]

PLAY = [
    {
        "hosts": "all",
        "gather_facts": False,
        "tasks": [
            {
                "ansible.builtin.include_role": {"name": "gpufleet.node.drain", "tasks_from": "marked_delegates.yml"},
                "run_once": True,
            },
            {"ansible.builtin.set_stats": {"data": {"hosts": "{{ __drain_asked.hosts }}"}}, "run_once": True},
        ],
    }
]


def answered(**answers: Any) -> Dict[str, Dict[str, Any]]:
    """The variables of all hosts."""
    found: Dict[str, Dict[str, Any]] = {host: {} for host in HOSTS}
    found["a.example"]["__drain_answer"] = answers["a"]
    found["b"]["__drain_answer"] = answers["b"]
    return found


def test_the_first_host_of_each_way_asks_for_the_others() -> None:
    delegates = {host: entry["delegate"] for host, entry in asked(QUESTIONS).items()}
    assert delegates == {"a.example": "a.example", "b": "b", "c.example": "a.example", "e": "b"}


def test_who_asks_is_needed_and_one_that_would_miss_an_answer() -> None:
    assert needed(asked(QUESTIONS)) == ["a.example", "b", "c.example"]
    alone = {host: {"way": ["slurm", host], "node": host} for host in HOSTS}
    assert needed(asked(alone)) == HOSTS


def test_a_host_is_marked_by_the_name_that_its_own_scheduler_has_for_it() -> None:
    variables = answered(a=["c", "e", "nobody-of-us"], b=["b", "a"])
    assert drain_marked(HOSTS, variables, asked(QUESTIONS)) == ["b", "c.example"]


def test_those_that_are_not_in_the_play_any_more_are_named_all_the_same() -> None:
    variables = answered(a=["c"], b=["e"])
    assert drain_marked(["a.example", "b"], variables, asked(QUESTIONS)) == ["c.example", "e"]


def test_without_schedulers_nobody_is_marked() -> None:
    assert (asked({}), needed({}), drain_marked(["d"], {"d": {}}, {})) == ({}, [], [])


def test_an_answer_that_did_not_come_is_an_error_for_those_that_need_it() -> None:
    # What an earlier question got does not count: the host is not in the play any more.
    variables = answered(a=["c"], b=[])
    with pytest.raises(AnsibleFilterError, match=r"on c\.example: a\.example asked for them and failed"):
        drain_marked(["b", "c.example", "d", "e"], variables, asked(QUESTIONS))


def test_a_host_that_asks_for_itself_alone_and_is_gone_keeps_nobody_waiting() -> None:
    alone = {host: {"way": ["slurm", host], "node": host} for host in ("a.example", "b")}
    assert drain_marked(["b"], answered(a=["a.example"], b=["b"]), asked(alone)) == ["b"]


def test_the_questions_are_made_of_the_variables_of_each_host_and_of_the_defaults_of_the_role(tmp_path: Path) -> None:
    named = {"drain_backend": "slurm", "drain_slurm_host": "{{ controller }}", "controller": "head"}
    hosts = {
        "n1.example": named,
        "n2.example": {**named, "drain_slurm_node": "second"},
        "n3.example": {"drain_backend": "slurm"},
        "k1": {"drain_backend": "kubernetes"},
        "k2": {"drain_backend": "kubernetes", "drain_kubernetes_context": "other"},
        "none": {},
    }
    (tmp_path / "play.json").write_text(json.dumps(PLAY))
    output = ansible_playbook(tmp_path, {"hosts": hosts}, str(tmp_path / "play.json"))
    assert output.endswith("\nends with 0"), output
    assert statistics(output)["hosts"] == {
        "n1.example": {"delegate": "n1.example", "node": "n1"},
        "n2.example": {"delegate": "n1.example", "node": "second"},
        "n3.example": {"delegate": "n3.example", "node": "n3"},
        "k1": {"delegate": "k1", "node": "k1"},
        "k2": {"delegate": "k2", "node": "k2"},
    }
