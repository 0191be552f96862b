# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
from typing import Any, Dict, List

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: outcomes
type: aggregate
short_description: Write down what each host came to in each play
description:
  - Writes a list as JSON to the file that the environment variable C(GPUFLEET_OUTCOMES) names.
  - An entry has C(play), C(host), C(ok), whether its last task was, C(changed), how many of its tasks changed
    something, and C(said), the messages of all its tasks.
author:
  - gpufleet contributors (@gpufleet)
requirements:
  - none
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "outcomes"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._play = ""
        self._outcomes: Dict[str, Dict[str, Any]] = {}
        self._all: List[Dict[str, Any]] = []

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self._play = play.get_name()
        self._outcomes = {}

    def v2_runner_on_ok(self, result: Any) -> None:
        self._note(result, ok=True)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._note(result, ok=False)

    def v2_runner_item_on_failed(self, result: Any) -> None:
        self._note(result, ok=False)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._note(result, ok=False)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        with open(os.environ["GPUFLEET_OUTCOMES"], "w", encoding="utf-8") as file:
            json.dump(self._all, file)

    def _note(self, result: Any, *, ok: bool) -> None:
        # Attributes that both the oldest and the newest ansible-core have.
        host, answer = result._host.get_name(), result._result
        if host not in self._outcomes:
            self._outcomes[host] = {"play": self._play, "host": host, "changed": 0, "said": []}
            self._all.append(self._outcomes[host])
        outcome = self._outcomes[host]
        outcome["ok"] = ok
        outcome["changed"] += bool(answer.get("changed"))
        if "msg" in answer:
            outcome["said"].append(str(answer["msg"]))
