# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The recorded API server and its device plugin without HTTP, and a clock that only moves in pauses."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional

import pytest
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible_collections.gpufleet.node.plugins.module_utils._core import procedure
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._machine.kubernetes_client import Refusal
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.device_plugin.options import OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.device_plugin.procedure import DevicePlugin
from ansible_collections.gpufleet.node.tests.kubernetes.plugin_cluster import PluginCluster
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build

FLEET = {"h100-1": 4, "h100-2": 4, "h100-3": 8}


def gpu(number: int = 0, **more: Any) -> Dict[str, Any]:
    """An H100 as ``plugin_gpus`` has it."""
    return {
        "pci_address": f"0000:{0x18 + number:02x}:00.0",
        "model": "NVIDIA H100 80GB HBM3",
        "cuda_capability": "9.0",
        "memory": {"total_mib": 81559},
        "mig": {"current": False, "instances": []},
        "numa_node": number // 2,
        "nvlink_domain": None,
        **more,
    }


def instance(profile: str, memory_mib: int, *slices: int) -> Dict[str, Any]:
    parts = slices or (int(profile[0]),)
    return {"profile": profile, "memory_mib": memory_mib, "compute_instances": [{"slices": one} for one in parts]}


def divided(number: int, *instances: Mapping[str, Any]) -> Dict[str, Any]:
    return gpu(number, mig={"current": True, "instances": list(instances)})


def gpus(number: int) -> List[Dict[str, Any]]:
    return [gpu(index) for index in range(number)]


class Machine(PluginCluster):
    """``run`` is the module, with its argument specification; ``now`` is the time."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, *, operator: bool = False) -> None:
        super().__init__(FLEET, operator=operator)
        self.host: FakeHost = build(root, {})
        self.now = 0.0
        self.looks = 0
        monkeypatch.setattr(procedure, "time", self)

    def run(self, *nodes: Mapping[str, Any], check_mode: bool = False, **given: Any) -> Dict[str, Any]:
        """The result of the module, as ``main`` would make it."""
        try:
            plugin = DevicePlugin(lambda access: self.ask)
            return procedure.run_through(plugin, self.params(*nodes, **given), self.host, check_mode=check_mode)
        except GpuFleetError as error:
            return {"failed": True, "changed": False, "msg": str(error), "failure": error.failure()}

    def params(self, *nodes: Mapping[str, Any], **given: Any) -> Dict[str, Any]:
        checked = ArgumentSpecValidator(dict(OPTIONS)).validate(
            {"namespace": self.namespace, "nodes": copy.deepcopy(list(nodes)), **given}
        )
        assert not checked.error_messages, checked.error_messages
        params: Dict[str, Any] = checked.validated_parameters
        return params

    def ask(
        self, method: str, path: str, query: Mapping[str, str], body: Optional[Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        self.looks += method == "GET"
        code, reply = self.answer(
            method, path, {name: [value] for name, value in query.items()}, copy.deepcopy(dict(body or {}))
        )
        if code >= 300:
            raise Refusal(code, reply["message"])
        return copy.deepcopy(reply)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
