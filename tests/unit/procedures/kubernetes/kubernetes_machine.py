# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The recorded API server without HTTP and without the client of Kubernetes, and a clock that only moves in pauses."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core import procedure
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._machine.kubernetes_client import Refusal
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.kubernetes.answers import ANNOTATION
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.kubernetes.options import OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.kubernetes.procedure import KubernetesDrain
from ansible_collections.gpufleet.node.tests.kubernetes.api_server import Cluster
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build

NODE = "h100-007"
DEFAULTS = {
    **{name: argument.get("default") for name, argument in OPTIONS.items()},
    "name": NODE,
    "state": "drained",
}


class Machine(Cluster):
    """``run`` is the module. ``away``: nobody answers. ``pause`` runs in every pause, ``now`` is the time."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(NODE)
        self.host: FakeHost = build(root, {})
        self.now = 0.0
        self.looks = 0
        self.pause: Callable[[], None] = lambda: None
        monkeypatch.setattr(procedure, "time", self)

    def run(self, *, check_mode: bool = False, **given: Any) -> Dict[str, Any]:
        """The result of the module, as ``main`` would make it."""
        try:
            drain = KubernetesDrain(lambda access: self.ask)
            return procedure.run_through(drain, {**DEFAULTS, **given}, self.host, check_mode=check_mode)
        except GpuFleetError as error:
            return {"failed": True, "changed": False, "msg": str(error), "failure": error.failure()}

    def ask(
        self, method: str, path: str, query: Mapping[str, str], body: Optional[Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        self.looks += method == "GET"
        if self.away:
            raise Refusal(0, "no response from https://api: Connection refused")
        code, reply = self.answer(method, path, {name: [value] for name, value in query.items()}, dict(body or {}))
        if code >= 300:
            causes = reply.get("details", {}).get("causes", ())
            raise Refusal(code, reply["message"], [(cause["reason"], cause["message"]) for cause in causes])
        return copy.deepcopy(reply)

    def cordon(self, mark: str = "") -> None:
        self.node["spec"]["unschedulable"] = True
        if mark:
            self.node["metadata"]["annotations"][ANNOTATION] = mark
        self.touch()

    def uncordon(self) -> None:
        self.node["spec"].pop("unschedulable", None)
        self.touch()

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.pause()
