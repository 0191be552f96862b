# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The switches that variables of hosts make."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest

pytest.importorskip("ansible.plugins.action", reason="the controller's side needs Ansible's controller, Python 3.11")

from ansible.errors import AnsibleFilterError
from ansible_collections.gpufleet.node.plugins.filter.slurm_switches import slurm_switches

HOSTS: Dict[str, Dict[str, Any]] = {
    "h1.example.org": {"rack": "r1", "row": "west"},
    "h2.example.org": {"rack": "r1", "row": "west"},
    "h10.example.org": {"rack": "r2", "row": "west"},
    "other.example.org": {"rack": "r10", "row": "east", "drain_slurm_node": "h11"},
    "login": {},
}
NODES = [host for host in HOSTS if host != "login"]
RACKS = [{"name": "r1", "nodes": "h[1-2]"}, {"name": "r2", "nodes": "h10"}, {"name": "r10", "nodes": "h11"}]


def test_one_variable_makes_leaves_that_suit_blocks_too() -> None:
    assert slurm_switches(NODES, HOSTS, ["rack"]) == RACKS


def test_one_variable_need_be_no_list() -> None:
    assert slurm_switches(NODES, HOSTS, "rack") == RACKS


def test_a_root_is_above_all() -> None:
    assert slurm_switches(NODES, HOSTS, ["rack"], root="core") == [*RACKS, {"name": "core", "switches": "r[1-2,10]"}]


def test_each_variable_is_a_level() -> None:
    assert slurm_switches(NODES, HOSTS, ["rack", "row"], root="core") == [
        *RACKS,
        {"name": "east", "switches": "r10"},
        {"name": "west", "switches": "r[1-2]"},
        {"name": "core", "switches": "east,west"},
    ]


def test_the_order_of_hosts_does_not_count() -> None:
    assert slurm_switches(list(reversed(NODES)), HOSTS, ["rack"]) == RACKS


def test_a_number_is_a_name() -> None:
    assert slurm_switches(["a"], {"a": {"rack": 7}}, ["rack"]) == [{"name": "7", "nodes": "a"}]


@pytest.mark.parametrize(
    ("hosts", "levels", "root", "cause"),
    [
        (list(HOSTS), ["rack"], "", "Cannot make the switches of Slurm from rack: login has no variable rack"),
        (NODES, ["rack", "hall"], "", "h1.example.org has no variable hall"),
        ([], ["rack"], "", "there are no hosts"),
        (NODES, [], "", "no variables are given"),
        (NODES, ["rack", "rack"], "", "r1 is a rack and a rack"),
        (NODES, ["rack"], "r1", "r1 is already a switch of a host, so it cannot be the root"),
    ],
)
def test_hosts_without_a_clear_place_are_refused(hosts: List[str], levels: List[str], root: str, cause: str) -> None:
    with pytest.raises(AnsibleFilterError, match=cause):
        slurm_switches(hosts, HOSTS, levels, root=root)


@pytest.mark.parametrize("value", [True, ["r1"], {"name": "r1"}, 1.5])
def test_a_variable_that_is_no_name_is_refused(value: Any) -> None:
    with pytest.raises(AnsibleFilterError, match="a has not a name in its variable rack"):
        slurm_switches(["a"], {"a": {"rack": value}}, ["rack"])


def test_a_rack_in_two_rows_is_refused() -> None:
    hosts = {"a": {"rack": "r1", "row": "west"}, "b": {"rack": "r1", "row": "east"}}
    with pytest.raises(AnsibleFilterError, match="rack r1 is in row west and east"):
        slurm_switches(["a", "b"], hosts, ["rack", "row"])
