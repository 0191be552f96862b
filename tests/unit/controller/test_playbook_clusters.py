# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The playbooks where no cluster is declared, and where what is declared of one is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

import pytest

pytest.importorskip("ansible.plugins.action", reason="the controller's side needs Ansible's controller, Python 3.11")

from ansible_collections.gpufleet.node.plugins.plugin_utils.scope import PARTS, excluded, left_out
from ansible_collections.gpufleet.node.tests.unit.controller.playbook_runs import ansible_playbook, replaying

ENTRY: Dict[str, Any] = {
    **{name: [] for name in ("settings", "needs", "conflicts", "unmanaged", "changes", "reboot_reasons")},
    "status": "in_sync",
    "settings_in_sync": 1,
    "unmanaged_total": 0,
}
LISTS = ("drifted", "pending", "unknown", "invalid", "waiting", "orphaned", "to_converge", "managed")
LOOK: Dict[str, Any] = {
    "changed": False,
    "concerns": {"hugepages": ENTRY},
    "in_sync": ["hugepages"],
    "reboot_noted": {},
    **{name: [] for name in LISTS},
}
# How a cluster is reached may stand in the inventory for all hosts.
WAY = {"device_plugin_kubeconfig": "/nowhere", "device_plugin_namespace": "gpu-operator"}


@pytest.mark.parametrize("playbook", ["site", "audit", "remove"])
def test_without_a_host_that_declares_something_no_cluster_is_asked(tmp_path: Path, playbook: str) -> None:
    # It has no facts, so that nobody asks for them either.
    inventory = {"hosts": {"a": replaying(tmp_path / "a", {"node_state": LOOK})}, "vars": WAY}
    output = ansible_playbook(tmp_path, inventory, f"gpufleet.node.{playbook}")
    assert output.endswith("ends with 0"), output
    assert "TASK [gpufleet.node.device_plugin" not in output


def test_what_is_wrong_about_a_cluster_is_refused_before_any_node_is_asked(tmp_path: Path) -> None:
    inventory = {
        "hosts": {"a": replaying(tmp_path / "a", {})},
        "vars": {**WAY, "device_plugin_replicas": "three", "device_plugin_poll": 0},
    }
    output = ansible_playbook(tmp_path, inventory, "gpufleet.node.site")
    assert output.endswith("ends with 2"), output
    assert "device_plugin_replicas (on a): it is three, and must be a whole number from 1 to 50000." in output
    assert "device_plugin_poll (on a): it is 0, and must be a whole number from 1 to 3600." in output
    assert "TASK [Look at the node]" not in output


@pytest.mark.parametrize(
    ("only", "skip", "tags", "skip_tags", "without"),
    [
        ([], [], ["all"], [], False),
        (["hugepages"], [], ["all"], [], True),
        ("device_plugin, hugepages", [], ["all"], [], False),
        ([], ["device_plugin"], ["all"], [], True),
        ([], [], ["hugepages"], [], True),
        ([], [], ["device_plugin"], [], False),
        ([], [], ["all"], ["device_plugin"], True),
    ],
)
def test_a_run_is_limited_to_clusters_as_to_concerns(
    only: Any, skip: Any, tags: Any, skip_tags: Any, without: bool
) -> None:
    assert left_out(["device_plugin"], only, skip, tags, skip_tags) == (["device_plugin"] if without else [])
    assert "device_plugin" not in excluded(only, skip, tags, skip_tags)
    assert "device_plugin" in PARTS
