# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A small concern for tests of the convergence, and its machine."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ansible_collections.gpufleet.node.plugins.module_utils._core import contract, convergence, steps
from ansible_collections.gpufleet.node.plugins.module_utils._core.baseline import Baseline
from ansible_collections.gpufleet.node.plugins.module_utils._core.change import (
    Change,
    Plan,
    RemoveFile,
    ReplaceFile,
    Step,
    WriteAttribute,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Scope
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import DeclarationError
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Host
from ansible_collections.gpufleet.node.plugins.module_utils._core.setting import BOOT, EFFECTIVE, REBOOT, Setting
from ansible_collections.gpufleet.node.plugins.module_utils._core.value import replace
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost

TUNABLES = ("/sys/kernel/fan", "/sys/kernel/lamp")
CONF = "/etc/tunables.d/99-gpufleet.conf"
LATER = "the lamp is read at boot only"


@dataclass(frozen=True)
class State:
    tunables: Tuple[Optional[str], ...]
    conf: Optional[str]


@dataclass(frozen=True)
class Desired:
    tunables: Tuple[Optional[str], ...]
    conf: Optional[str]


class Tunables:
    """Two numbers of the kernel, and one line each in a drop-in for the next boot."""

    name = "tunables"
    options: Mapping[str, Any] = {"value": {"type": "str"}}
    apply_at_boot = False

    def __init__(self, *, lamp_at_boot: bool = False) -> None:
        self.lamp_at_boot = lamp_at_boot

    def parse(self, params: Mapping[str, Any]) -> str:
        value = params["value"]
        if not str(value).isdecimal():
            raise DeclarationError("set the tunables", cause="the value is not a number", found=value)
        return str(value)

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> str:
        return ""

    def observe(self, host: Host, declaration: str, scope: Scope) -> State:
        return State(tuple(host.files.read(path).strip() for path in TUNABLES), host.files.read_optional(CONF))

    def resolve(self, declaration: str, state: State) -> Desired:
        text = "".join(f"{path} = {declaration}\n" for path in TUNABLES)
        return Desired((declaration, declaration), text)

    def restore(self, baseline: Baseline, state: State) -> Desired:
        values = [baseline.values.get((path, "value")) for path in TUNABLES]
        tunables = tuple(str(value.effective) if value else now for value, now in zip(values, state.tunables))
        return Desired(tunables, None)

    def plan(self, state: State, desired: Desired, scope: Scope) -> Plan:
        settings: List[Setting] = []
        plan: List[Step] = []
        changes: List[Change] = []
        for path, now, wanted in zip(TUNABLES, state.tunables, desired.tunables):
            later = LATER if self.lamp_at_boot and path == TUNABLES[1] else ""
            boot = re.search(rf"{path} = (\S+)", state.conf or "")
            settings.append(
                Setting(
                    object=path,
                    setting="value",
                    wanted=wanted,
                    effective=now,
                    boot=boot[1] if boot else None,
                    identity=path,
                    effective_matters=scope.immediate,
                    boot_matters=scope.permanent and desired.conf is not None,
                    pending=later,
                )
            )
            if scope.permanent and state.conf != desired.conf:
                after = wanted if desired.conf is not None else None
                takes_effect = REBOOT if later else "now"
                changes.append(Change(path, "value", boot[1] if boot else None, after, BOOT, takes_effect))
            if scope.immediate and now != wanted and not later:
                plan.append(Step(WriteAttribute(path, str(wanted)), (Change(path, "value", now, wanted, EFFECTIVE),)))
        if scope.permanent and state.conf != desired.conf:
            action = RemoveFile(CONF) if desired.conf is None else ReplaceFile(CONF, desired.conf)
            # The next boot first: it cannot be refused by a kernel that has other plans.
            plan.insert(0, Step(action, tuple(changes)))
        return Plan(settings=tuple(settings), steps=tuple(plan))

    def perform(self, step: Step, host: Host) -> None:
        steps.perform(step, host)

    def report(self, state: State) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        return {"tunables": list(state.tunables)}, {"conf": state.conf}


class Elsewhere(Tunables):
    """It also writes two foreign files, one before and one after the rest."""

    def plan(self, state: State, desired: Desired, scope: Scope) -> Plan:
        plan = super().plan(state, desired, scope)
        first, last = (Step(ReplaceFile(path, f"{desired.tunables[0]}\n")) for path in ("/etc/first", "/etc/last"))
        return replace(plan, steps=(first, *plan.steps, last))


SHARED: Dict[str, Any] = {"immediate": True, "permanent": True, "strict": False, "accepted": []}
PRESENT: Dict[str, Any] = {"state": "present", **SHARED, "value": "7"}
ABSENT: Dict[str, Any] = {**PRESENT, "state": "absent", "value": None}


def run(
    host: FakeHost, params: Optional[Mapping[str, Any]] = None, *, check_mode: bool = False, **kind: bool
) -> contract.Outcome:
    return convergence.converge(Tunables(**kind), params or PRESENT, host, check_mode=check_mode)
