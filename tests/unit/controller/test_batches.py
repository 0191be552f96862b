# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How `site` goes through a fleet in batches: what it does when nodes fail or die, and when it is run again.

The playbook and the roles are those of the collection. What would run on a node is an action of this test, which has
the node's state in a file.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, NamedTuple

import pytest
import yaml

pytest.importorskip("ansible.plugins.action", reason="the controller's side needs Ansible's controller, Python 3.11")

from ansible_collections.gpufleet.node.plugins.action.batch_gate import in_batches
from ansible_collections.gpufleet.node.plugins.filter.is_disruptive import is_disruptive

ROOT = Path(__file__).resolve().parents[3]
HOSTS = ("n1", "n2", "n3", "n4", "n5", "n6")

# All in one: the look is at the file of the node, hugepages makes it right, and Slurm keeps its marks there.
NODE = """# Copyright: (c) 2026, gpufleet contributors
from __future__ import annotations

import json
import os
from pathlib import Path

from ansible.errors import AnsibleConnectionFailure
from ansible.plugins.action import ActionBase

FLEET = Path(os.environ["FLEET"])


class ActionModule(ActionBase):
    _supports_check_mode = True

    def run(self, tmp=None, task_vars=None):
        host = task_vars["inventory_hostname"]
        file = FLEET / host
        node = json.loads(file.read_text())
        action = self._task.action.rpartition(".")[2]
        if action == "assess_node":
            return self.look(node, expect=task_vars["gpufleet_expect"])
        if action == "gpu_node_info":
            return {"node": {}}
        if action == "slurm_drained_info":
            if (FLEET / "no_slurm").exists():
                return {"failed": True, "msg": "slurmctld does not respond"}
            marked = [file.name for file in FLEET.glob("n?") if json.loads(file.read_text()).get("drained")]
            return {"nodes": [{"name": name} for name in marked]}
        drained = {"drained": True, "in_service": False}.get(self._task.args.get("state"))
        with open(FLEET / "log", "a") as log:
            log.write(f"{self._task.args.get('state', 'present')} {host}\\n")
        if node.get("dies"):
            raise AnsibleConnectionFailure(f"{host} died")
        if action == "slurm_node":
            node["drained"] = drained
        elif node.get("breaks"):
            return {"failed": True, "msg": "the disk is full"}
        else:
            node = {"in_sync": True, "drained": node.get("drained")}
        file.write_text(json.dumps(node))
        return {"changed": True}

    def look(self, node, expect):
        right = bool(node.get("in_sync"))
        status = "in_sync" if right else "drifted"
        setting = {"object": "hugepages-2048kB", "setting": "node0", "wanted": 8, "effective": 0, "boot": 0}
        hugepages = {
            **{"status": status, "settings": [] if right else [{**setting, "status": "drifted"}]},
            **{"settings_in_sync": 1, "unmanaged": [], "unmanaged_total": 0},
            **{"changes": [], "needs": ["idle_gpu"] if node.get("jobs") else [], "conflicts": [], "reboot_reasons": []},
        }
        failed = expect == "in_sync" and not right
        return {
            **{"concerns": {"hugepages": hugepages}, "to_converge": [] if right else ["hugepages"], "waiting": []},
            **{"drifted": [] if right else ["hugepages"], "unknown": [], "invalid": []},
            **{"failed": failed, "msg": "hugepages is not as declared" if failed else "", "orphaned": []},
        }
"""


class Run(NamedTuple):
    status: int
    text: str
    log: List[str]

    def counts(self, host: str) -> Dict[str, int]:
        line = re.search(rf"^{host} +: (.*)$", self.text, flags=re.MULTILINE)
        assert line, self.text
        return {key: int(value) for key, value in (word.split("=") for word in line[1].split())}


class Fleet:
    """Nodes that are files below a folder, and a copy of the collection whose look and work are with these files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        collection = path / "collections" / "ansible_collections" / "gpufleet" / "node"
        (collection / "plugins" / "action").mkdir(parents=True)
        # Before the links to all others: one that is there would be written through.
        for name in ("assess_node", "gpu_node_info", "hugepages", "slurm_node", "slurm_drained_info"):
            (collection / "plugins" / "action" / f"{name}.py").write_text(NODE)
        for source in (*ROOT.iterdir(), *(ROOT / "plugins").iterdir(), *(ROOT / "plugins" / "action").glob("*.py")):
            target = collection / source.relative_to(ROOT)
            if not target.exists() and not source.name.startswith("."):
                target.symlink_to(source)
        (path / "nodes").mkdir()
        for host in HOSTS:
            self.set(host, in_sync=False)
        declared = {"drain_slurm_host": "n1", "hugepages_pools": [{"size": "2M", "pages": 8}]}
        inventory = {"all": {"hosts": {host: {} for host in HOSTS}, "vars": declared}}
        (path / "hosts.yml").write_text(yaml.safe_dump(inventory))

    def set(self, host: str, **state: Any) -> None:
        (self.path / "nodes" / host).write_text(json.dumps(state))

    def site(self, *arguments: str) -> Run:
        log = self.path / "nodes" / "log"
        log.write_text("")
        completed = subprocess.run(
            [
                *(str(Path(sys.executable).parent / "ansible-playbook"), "gpufleet.node.site"),
                *("-i", str(self.path / "hosts.yml"), "--forks", "2", *arguments),
            ],
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.path,
            env={
                **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
                "ANSIBLE_COLLECTIONS_PATH": str(self.path / "collections"),
                "ANSIBLE_HOME": str(self.path / "home"),
                "ANSIBLE_LOCALHOST_WARNING": "false",
                "ANSIBLE_NOCOLOR": "1",
                "FLEET": str(self.path / "nodes"),
            },
        )
        return Run(completed.returncode, completed.stdout, log.read_text().splitlines())


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Fleet:
    return Fleet(tmp_path_factory.mktemp("fleet"))


@pytest.mark.parametrize(
    ("batches", "sizes"),
    [
        (["100%"], [6]),
        ([1, "10%", "100%"], [1, 1, 4]),
        (["1", "50%"], [1, 3, 2]),
        ([4], [4, 2]),
        ([50], [6]),
    ],
)
def test_the_last_entry_of_the_batches_is_repeated_until_all_had_their_turn(batches: Any, sizes: List[int]) -> None:
    divided = in_batches(HOSTS, batches)
    assert [len(hosts) for hosts in divided] == sizes
    assert [host for hosts in divided for host in hosts] == list(HOSTS)


@pytest.mark.parametrize(
    ("concern", "result", "ends"),
    [
        ("mig_layout", {"changes": [{"scope": "effective"}], "needs": []}, True),
        ("mig_layout", {"changes": [{"scope": "boot"}], "needs": ["reboot"]}, False),
        ("gpu_settings", {"changes": [{"scope": "effective"}], "needs": ["gpu_reset"]}, False),
        ("gpu_settings", {"changes": [], "needs": ["idle_gpu"]}, True),
        ("cpu_power", {"changes": [{"setting": "smt", "after": "off", "scope": "effective"}], "needs": []}, True),
        ("cpu_power", {"changes": [{"setting": "smt", "after": "on", "scope": "effective"}], "needs": []}, False),
        ("cpu_power", {"changes": [{"setting": "turbo", "after": "off", "scope": "effective"}], "needs": []}, False),
        ("cpu_power", {"changes": [], "needs": ["idle_node"]}, True),
        ("gpu_virtualization", {"changes": [{"setting": "driver", "scope": "effective"}], "needs": []}, True),
        (
            "gpu_virtualization",
            {"changes": [{"setting": "virtual functions", "scope": "effective"}], "needs": []},
            True,
        ),
        ("gpu_virtualization", {"changes": [{"setting": "driver", "scope": "boot"}], "needs": ["reboot"]}, False),
        ("container_runtime", {"changes": [], "needs": ["restart_docker"]}, True),
        ("slurm_gpus", {"changes": [{"setting": "Gres", "scope": "effective"}], "needs": []}, True),
        ("slurm_gpus", {"changes": [{"setting": "Gres", "scope": "boot"}], "needs": ["restart_slurmctld"]}, False),
        ("slurm_gpus", {"changes": [{"setting": "ConstrainDevices", "scope": "effective"}], "needs": []}, False),
        ("container_runtime", {"changes": [], "needs": ["reload_docker", "restart_containerd"]}, False),
    ],
)
def test_a_node_is_drained_only_where_jobs_would_end(concern: str, result: Dict[str, Any], ends: bool) -> None:
    assert is_disruptive({"concerns": {concern: result}}) is ends


def test_a_batch_that_loses_nodes_is_finished_and_the_next_run_goes_on_with_those_left_drained(fleet: Fleet) -> None:
    fleet.set("n1", jobs=True)
    fleet.set("n3", dies=True)
    fleet.set("n4", jobs=True, breaks=True)
    run = fleet.site("-e", "drain_backend=slurm", "-e", '{"gpufleet_batches": [1, 3]}')
    assert run.log[:3] == ["drained n1", "present n1", "in_service n1"]
    assert sorted(run.log[3:]) == ["drained n4", "present n2", "present n3", "present n4"]
    said = (
        "Batch 2 of 3: n[3-4] failed. No further batch is started.\n  Still out of service: n4\n  Not started: n[5-6]\n"
    )
    assert said in run.text
    assert "n4 failed, and stays drained: hugepages is not as declared" in run.text
    assert run.status != 0
    assert [run.counts(host)["failed"] for host in HOSTS] == [0, 0, 0, 1, 0, 0]
    assert [run.counts(host)["unreachable"] for host in HOSTS] == [0, 0, 1, 0, 0, 0]
    # What is so after it: two are right, and four are not.
    assert "2 of 6 nodes are in sync" in run.text

    fleet.set("n3", in_sync=False)
    fleet.set("n4", in_sync=True, drained=True)
    again = fleet.site("-e", "drain_backend=slurm", "-e", "gpufleet_batches=1,3")
    assert (again.status, again.log[:2]) == (0, ["drained n4", "in_service n4"])
    assert sorted(again.log[2:]) == ["present n3", "present n5", "present n6"]
    assert "6 of 6 nodes are in sync" in again.text


def test_nothing_is_touched_where_the_scheduler_does_not_answer(fleet: Fleet) -> None:
    (fleet.path / "nodes" / "no_slurm").touch()
    run = fleet.site("-e", "drain_backend=slurm")
    (fleet.path / "nodes" / "no_slurm").unlink()
    assert (run.status, run.log) == (2, [])
    assert "slurmctld does not respond" in run.text
    assert "Look at the node" not in run.text


def test_as_many_lost_nodes_as_are_allowed_stop_nothing_and_a_batch_of_which_all_die_does(fleet: Fleet) -> None:
    fleet.set("n1", breaks=True)
    fleet.set("n2", dies=True)
    fleet.set("n3", in_sync=False)
    run = fleet.site("-e", "gpufleet_batches=1", "-e", "gpufleet_max_failed=1")
    assert (run.status, run.log) == (4, ["present n1", "present n2"])
