# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Dict, Sequence

import pytest

pytest.importorskip("ansible.plugins.action", reason="the controller's side needs Ansible's controller, Python 3.11")

from ansible.errors import AnsibleFilterError
from ansible_collections.gpufleet.node.plugins.filter.drain_askers import drain_askers
from ansible_collections.gpufleet.node.plugins.filter.drain_marked import drain_marked


def asked(way: Sequence[Any], node: str) -> Dict[str, Any]:
    return {"__drain_question": {"way": way, "node": node}}


@pytest.fixture
def fleet() -> Dict[str, Dict[str, Any]]:
    slurm, other = ["slurm", "controller"], ["kubernetes", "localhost", False, "", ""]
    return {
        "a.example": asked(slurm, "a"),
        "b": asked(other, "b"),
        "c.example": asked(slurm, "c"),
        "d": {"__drain_question": {}},
        "e": asked(other, "e"),
    }


def test_the_first_host_of_each_way_asks_for_the_others(fleet: Dict[str, Any]) -> None:
    askers = {"a.example": "a.example", "b": "b", "c.example": "a.example", "e": "b"}
    assert drain_askers(list(fleet), fleet) == askers


def test_a_host_is_marked_by_the_name_that_its_own_scheduler_has_for_it(fleet: Dict[str, Any]) -> None:
    askers = drain_askers(list(fleet), fleet)
    fleet["a.example"]["__drain_answer"] = ["c", "e", "nobody-of-us"]
    fleet["b"]["__drain_answer"] = ["b", "a"]
    assert drain_marked(list(fleet), fleet, askers) == ["b", "c.example"]


def test_without_schedulers_nobody_is_marked(fleet: Dict[str, Any]) -> None:
    assert drain_askers(["d"], fleet) == {}
    assert drain_marked(["d"], fleet, {}) == []


def test_a_host_that_got_no_answer_is_an_error_for_those_that_need_it(fleet: Dict[str, Any]) -> None:
    askers = drain_askers(list(fleet), fleet)
    fleet["b"]["__drain_answer"] = []
    # What an earlier question got does not count: the host is not in the play any more.
    fleet["a.example"]["__drain_answer"] = ["c"]
    with pytest.raises(AnsibleFilterError, match=r"and 0 more: a\.example asked for them and got no answer"):
        drain_marked(["b", "c.example", "d", "e"], fleet, askers)
    assert drain_marked(["b", "d", "e"], fleet, askers) == []
