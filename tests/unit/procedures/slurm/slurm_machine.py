# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A cluster of one node behind ``scontrol`` and ``squeue``, with their output as Slurm 24.11 has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core import procedure
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.slurm.procedure import PROCEDURE
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, Killed, build

NODE = "n1"
LINE = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUEfctv=2 CPUTot=2 CPULoad=0.00 "
    "AvailableFeatures=(null) ActiveFeatures=(null) Gres=gpu:8 NodeAddr={name} NodeHostName={name} Version=24.11.5 "
    "OS=Linux 6.1.0-28-amd64 #1 SMP  RealMemory=1 AllocMem=0 FreeMem=9009 Sockets=2 Boards=1 State={state} "
    "ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A {next}Partitions=gpu  AllocTRES= CurrentWatts=0 "
    "AveWatts=0 {reason}\n"
)
DEFAULTS = {"name": NODE, "state": "drained", "reason": "maintenance", "timeout": 3600, "poll": 15}
UNREACHABLE = "slurm_load_node error: Unable to contact slurm controller (connect failure)\n"


class Cluster:
    """``base``, ``flags``, ``reason``, ``user`` and ``jobs`` are the node's. Time passes only while somebody sleeps.

    ``then`` runs in every pause. ``broken`` is what every program says instead of an answer. ``orders`` are the updates
    that were asked for; the run is killed before the one of number ``kill_at``. ``keeps_reason``: after a resume, as
    Slurm 24.11 does.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.host: FakeHost = build(root, {})
        self.base = "IDLE"
        self.flags: Set[str] = set()
        self.reason = ""
        self.user = "root"
        self.jobs: List[Tuple[str, str, str, str, str]] = []
        self.broken = ""
        self.orders: List[str] = []
        self.kill_at: Optional[int] = None
        self.deaf = False
        self.keeps_reason = False
        self.asked = {"scontrol": 0, "squeue": 0}
        self.now = 0.0
        self.then: Callable[[Cluster], None] = lambda cluster: None
        self.host.commands.programs.update(scontrol=self.scontrol, squeue=self.squeue, env=self.env)
        monkeypatch.setattr(procedure, "time", self)

    def run(self, *, check_mode: bool = False, **given: Any) -> Dict[str, Any]:
        """The result of the module, as ``main`` would make it."""
        try:
            return procedure.run_through(PROCEDURE, {**DEFAULTS, **given}, self.host, check_mode=check_mode)
        except GpuFleetError as error:
            return {"failed": True, "changed": False, "msg": str(error), "failure": error.failure()}

    def drained(self, reason: str, user: str = "root") -> None:
        self.flags.add("DRAIN")
        self.reason, self.user = reason, user

    def add_job(self, number: int, state: str = "RUNNING", user: str = "ada") -> None:
        self.jobs.append((str(number), state, user, "gpu", "9:57"))
        self._settle()

    def end_jobs(self) -> None:
        self.jobs.clear()
        self._settle()

    def _settle(self) -> None:
        # As slurmctld has it: a node with nothing but suspended jobs is idle.
        self.base = "MIXED" if any(job[1] in ("RUNNING", "COMPLETING") for job in self.jobs) else "IDLE"

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.then(self)

    @property
    def state(self) -> str:
        return "+".join([self.base, *sorted(self.flags)])

    def env(self, argv: Sequence[str]) -> Completed:
        words = list(argv[1:])
        while words[0] == "-u":
            del words[:2]
        return self.host.commands.programs[words[0]](words)

    def squeue(self, argv: Sequence[str]) -> Completed:
        self.asked["squeue"] += 1
        if self.broken:
            return Completed(1, "", self.broken)
        return Completed(0, "".join("|".join(job) + "\n" for job in self.jobs), "")

    def scontrol(self, argv: Sequence[str]) -> Completed:
        self.asked["scontrol"] += 1
        if self.broken:
            return Completed(1, "", self.broken)
        if argv[1] == "update":
            return self._update(dict(word.split("=", 1) for word in argv[2:]))
        if argv[-1] not in (NODE, "nodes"):
            return Completed(1, f"Node {argv[-1]} not found\n", "")
        reason = f" Reason={self.reason} [{self.user}@2026-11-22T04:33:41]" if self.reason else ""
        following = "NextState=RESUME " if self.flags & {"REBOOT_REQUESTED"} else ""
        return Completed(0, LINE.format(name=NODE, state=self.state, reason=reason, next=following), "")

    def _update(self, order: Dict[str, str]) -> Completed:
        self.orders.append(order.get("State", "REASON"))
        if self.kill_at is not None and len(self.orders) >= self.kill_at:
            raise Killed
        if not self.deaf:
            if "State" not in order:
                self.reason = order["Reason"]
            elif order["State"] == "DRAIN":
                self.drained(order["Reason"])
            else:
                self.flags.discard("DRAIN")
                self.reason = self.reason if self.keeps_reason else ""
                self.base = "IDLE" if self.base == "DOWN" else self.base
        return Completed(0, "", "")
