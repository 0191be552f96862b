# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
from typing import Any, Dict, List

from ansible import context
from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: record_changes
type: aggregate
short_description: Write down what every task of this collection says it changes, and who looked
description:
  - Appends one line of JSON a playbook to the file that the environment variable C(GPUFLEET_RUNS) names.
  - A line has C(playbook), C(check), C(results), a list of C(host), C(task) and C(changes), and C(looks), a list of
    C(host) and C(by).
  - The tests compare what check mode predicted with what the next run did, see C(molecule/shared/runs.py).
author:
  - gpufleet contributors (@gpufleet)
requirements:
  - none
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "record_changes"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._playbook = ""
        self._results: List[Dict[str, Any]] = []
        self._looks: List[Dict[str, str]] = []

    def v2_playbook_on_start(self, playbook: Any) -> None:
        self._playbook = os.path.basename(str(playbook._file_name))

    def v2_runner_on_ok(self, result: Any) -> None:
        self._record(result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._record(result)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        path = os.environ.get("GPUFLEET_RUNS")
        if path:
            run = {
                "playbook": self._playbook,
                "check": bool(context.CLIARGS.get("check")),
                "results": self._results,
                "looks": self._looks,
            }
            with open(path, "a", encoding="utf-8") as file:
                file.write(json.dumps(run) + "\n")

    def _record(self, result: Any) -> None:
        # Attributes that both the oldest and the newest ansible-core have.
        task, host, answer = result._task, result._host, result._result
        if "looked_by" in answer:
            self._looks.append({"host": host.get_name(), "by": answer["looked_by"]})
        if "changes" in answer and str(task.action).startswith("gpufleet.node."):
            self._results.append(
                {
                    "host": host.get_name(),
                    "task": f"{task.action}: {task.get_name()}",
                    "changes": answer["changes"],
                }
            )
