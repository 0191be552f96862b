# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How often, and in which order, the roles for Slurm restart its daemons: Ansible itself, on nodes that are files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List, Sequence

from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.tests.unit.controller.playbook_runs import ansible_playbook

# Slurm on a host: its slurmctld has another InvocationID after each start, and every restart is a line of the log.
CONNECTION = '''
import json
import re
from pathlib import Path

from ansible.plugins.connection import ConnectionBase

DOCUMENTATION = """
name: slurm_host
short_description: A host of a cluster of Slurm
description: It is a file.
options:
  host:
    description: Its name.
    vars: [{name: slurm_host}]
  cluster:
    description: Where the files are.
    vars: [{name: slurm_folder}]
extends_documentation_fragment: [connection_pipelining]
"""


class Connection(ConnectionBase):
    transport = "slurm_host"
    has_pipelining = True

    def _connect(self):
        return self

    def exec_command(self, cmd, in_data=None, sudoable=True):
        module = re.search(rb"ansible_module='([\\w.]+)'", in_data)[1].decode().split(".")[-1]
        if module.startswith("systemd"):
            (unit,) = set(re.findall(rb"(slurm[a-z]+)\\.service", in_data))
            restarts = b"restarted" in in_data
            answer = {"changed": restarts, "status": self.unit(unit.decode(), restarts)}
        elif module == "slurm_topology":
            self.unit("slurmctld", True)
            answer = {"changed": True, "needs": []}
        else:
            answer = {"changed": True, "needs": self.needs()}
        return 0, json.dumps(answer).encode(), b""

    def needs(self):
        return [] if self.get_option("host").startswith("ctl") else ["restart_slurmctld"]

    def unit(self, name, restarts):
        folder, host = Path(self.get_option("cluster")), self.get_option("host")
        starts = folder / f"{host} {name}"
        count = int(starts.read_text()) if starts.exists() else 0
        if restarts:
            starts.write_text(str(count + 1))
            with open(folder / "log", "a") as log:
                log.write(f"{name} of {host}\\n")
        return {"InvocationID": f"{host}{count}"}

    def put_file(self, in_path, out_path):
        raise NotImplementedError

    def fetch_file(self, in_path, out_path):
        raise NotImplementedError

    def close(self):
        pass
'''
GPUS, TOPOLOGY = "gpufleet.node.slurm_gpus", "gpufleet.node.slurm_topology"
TREE = [{"name": "leaf", "nodes": "n[1-3]"}]


def restarts(tmp_path: Path, nodes: Dict[str, List[str]], roles: Sequence[Dict[str, Any]]) -> List[str]:
    """The units that were restarted, in their order. ``nodes`` are the hosts of the play with their controllers."""
    plugins = tmp_path / "connection"
    plugins.mkdir()
    (plugins / "slurm_host.py").write_text(CONNECTION)
    folder = tmp_path / "cluster"
    folder.mkdir()
    hosts: Dict[str, Any] = {}
    for name in dict.fromkeys([*nodes, *(one for found in nodes.values() for one in found)]):
        hosts[name] = {
            "ansible_connection": "slurm_host",
            "slurm_host": name,
            "slurm_folder": str(folder),
            "ansible_pipelining": True,
            "ansible_python_interpreter": "/usr/bin/python3",
            "slurm_gpus_devices": "explicit",
            "slurm_gpus_controllers": nodes.get(name, []),
            "slurm_topology_switches": TREE,
        }
    play = {"hosts": ":".join(nodes), "gather_facts": False, "roles": list(roles)}
    (tmp_path / "play.yml").write_text(json.dumps([play]))
    text = ansible_playbook(tmp_path, {"hosts": hosts}, "play.yml", connection_plugins=str(plugins))
    assert text.endswith("ends with 0"), text
    log = folder / "log"
    return log.read_text().splitlines() if log.exists() else []


def test_slurmctld_is_restarted_once_for_all_its_nodes_and_then_their_slurmd(tmp_path: Path) -> None:
    found = restarts(tmp_path, {"n1": ["ctl"], "n2": ["ctl"], "n3": ["ctl"]}, [{"role": GPUS}])
    assert found[0] == "slurmctld of ctl"
    assert sorted(found[1:]) == ["slurmd of n1", "slurmd of n2", "slurmd of n3"]


def test_each_cluster_has_its_own_slurmctld(tmp_path: Path) -> None:
    found = restarts(tmp_path, {"n1": ["ctl1"], "n2": ["ctl2"], "n3": []}, [{"role": GPUS}])
    assert found[:2] == ["slurmctld of ctl1", "slurmctld of ctl2"]
    assert sorted(found[2:]) == ["slurmd of n1", "slurmd of n2"]


def test_a_slurmctld_that_its_topology_restarts_is_not_restarted_again(tmp_path: Path) -> None:
    topology = {"role": TOPOLOGY, "when": "inventory_hostname == 'ctl'"}
    found = restarts(tmp_path, {"ctl": [], "n1": ["ctl"], "n2": ["ctl"]}, [{"role": GPUS}, topology])
    assert found[0] == "slurmctld of ctl"
    assert sorted(found[1:]) == ["slurmd of n1", "slurmd of n2"]


def test_where_nobody_noted_since_when_slurmctld_runs_it_is_restarted(tmp_path: Path) -> None:
    """The first host of the play, which notes it for all, does not have the role."""
    gpus = {"role": GPUS, "when": "inventory_hostname != 'ctl'"}
    found = restarts(tmp_path, {"ctl": [], "n1": ["ctl"], "n2": ["ctl"]}, [gpus])
    assert found[0] == "slurmctld of ctl"
    assert sorted(found[1:]) == ["slurmd of n1", "slurmd of n2"]


def test_the_topology_comes_before_the_counts_that_slurmctld_takes_up_with_it() -> None:
    names = [entry.name for entry in REGISTRY]
    assert names.index("slurm_topology") < names.index("slurm_gpus")
