# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A small concern for tests of the boot service, and the verdict of systemd-analyze on units."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any, Dict, List, Mapping, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.baseline import Baseline
from ansible_collections.gpufleet.node.plugins.module_utils._core.change import (
    Change,
    Plan,
    ReplaceFile,
    Step,
    WriteAttribute,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Params, Scope
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Host
from ansible_collections.gpufleet.node.plugins.module_utils._core.setting import BOOT, EFFECTIVE, Setting
from ansible_collections.gpufleet.node.plugins.module_utils._core.steps import perform
from ansible_collections.gpufleet.node.plugins.module_utils._linux.boot_service import UNIT


def verify(folder: Path, units: Mapping[str, str], checked: str = UNIT) -> List[str]:
    """What systemd says of these units, all wanted by the target that a boot starts."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("there is no systemd-analyze here")
    for target in ("multi-user.target", "sockets.target"):
        (folder / f"{target}.wants").mkdir(exist_ok=True)
    for name, text in units.items():
        (folder / name).write_text(text)
        target = "sockets.target" if name.endswith(".socket") else "multi-user.target"
        (folder / f"{target}.wants" / name).symlink_to(folder / name)
    environment = {**os.environ, "SYSTEMD_UNIT_PATH": f"{folder}:", "LC_ALL": "C"}
    command = ["systemd-analyze", "verify", "--man=no", "multi-user.target", checked]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    ours = [*units, "ordering cycle"]
    return [line for line in done.stderr.splitlines() if any(word in line for word in ours)]


class Tunable:
    """A concern of one tunable and one file. ``trouble`` comes in place of a plan, ``step`` in the place
    of a step.
    """

    def __init__(self, name: str, *, trouble: Any = None, step: Any = None) -> None:
        self.name = name
        self.options: Mapping[str, Any] = {"value": {"type": "str", "default": "7"}}
        self.apply_at_boot = True
        self.trouble = trouble
        self.step = step

    def parse(self, params: Params) -> str:
        return str(params["value"])

    def everything(self, params: Params, baseline: Baseline) -> str:
        raise AssertionError("nothing is restored at boot")

    def observe(self, host: Host, declaration: str, scope: Scope) -> str:
        if callable(self.trouble):
            self.trouble()
        return host.files.read(f"/sys/{self.name}").strip()

    def resolve(self, declaration: str, state: str) -> str:
        if isinstance(self.trouble, Exception):
            raise self.trouble
        return declaration

    def restore(self, baseline: Baseline, state: str) -> str:
        raise AssertionError("nothing is restored at boot")

    def plan(self, state: str, desired: str, scope: Scope) -> Plan:
        found = state
        setting = Setting(self.name, "value", desired, found, None, self.name, scope.immediate, False)
        steps: Tuple[Step, ...] = ()
        if scope.immediate and found != desired:
            steps += (
                Step(
                    WriteAttribute(f"/sys/{self.name}", desired),
                    (Change(self.name, "value", found, desired, EFFECTIVE),),
                ),
            )
        if scope.permanent:
            steps += (
                Step(ReplaceFile(f"/etc/{self.name}", desired), (Change(self.name, "file", None, desired, BOOT),)),
            )
        return Plan(settings=(setting,), steps=steps)

    def perform(self, step: Step, host: Host) -> None:
        if self.step is not None:
            self.step()
        perform(step, host)

    def report(self, state: Any) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        return {}, {}


def declaration(name: str, *, at_boot: bool = True, **options: Any) -> str:
    return json.dumps(
        {
            "schema": 1,
            "collection_version": "0.1.0",
            "concern": name,
            "apply_at_boot": at_boot,
            "declaration": options,
        }
    )
