# Copyright: (c) 2026, gpufleet contributors
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
        if action == "look":
            return self.look(node, expect=task_vars["gpufleet_expect"])
        if action == "gpu_node_info":
            return {"node": {}}
        if action == "slurm_drained_info":
            if (FLEET / "no_slurm").exists():
                return {"failed": True, "msg": "slurmctld does not answer"}
            marked = [file.name for file in FLEET.glob("n?") if json.loads(file.read_text()).get("drained")]
            return {"nodes": [{"name": name} for name in marked]}
        drained = {"drained": True, "in_service": False}.get(self._task.args.get("state"))
        with open(FLEET / "log", "a") as log:
            log.write(f"{self._task.args.get('state', 'present')} {host}\n")
        if node.get("dies"):
            raise AnsibleConnectionFailure(f"{host} died")
        if action == "slurm_node":
            node["drained"] = drained
        elif node.get("breaks"):
            return {"failed": True, "msg": "the disk is full"}
        else:
            node = {"right": True, "drained": node.get("drained")}
        file.write_text(json.dumps(node))
        return {"changed": True}

    def look(self, node, expect):
        right = bool(node.get("right"))
        status = "right" if right else "differs"
        setting = {"object": "hugepages-2048kB", "setting": "node0", "wanted": 8, "effective": 0, "boot": 0}
        hugepages = {
            **{"status": status, "settings": [] if right else [{**setting, "status": "differs"}], "settings_right": 1},
            **{"changes": [], "needs": ["idle_gpu"] if node.get("jobs") else [], "conflicts": [], "reboot_reasons": []},
        }
        failed = expect == "right" and not right
        return {
            **{"concerns": {"hugepages": hugepages}, "to_run": [] if right else ["hugepages"], "waiting": []},
            **{"failed": failed, "msg": "hugepages is not as declared" if failed else "", "undeclared": []},
        }
