# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
import os
from collections import Counter
from typing import Any, Tuple

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: looks
type: aggregate
short_description: Write down who looked at the nodes
description:
  - Writes a list as JSON to the file that the environment variable C(GPUFLEET_BENCH_LOOKS) names.
  - An entry is who looked (C(program) or C(module)), why it was not the program, and how many looks this was so for.
author:
  - gpufleet contributors (@gpufleet)
requirements:
  - none
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "looks"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._looks: Counter[Tuple[str, str]] = Counter()

    def v2_runner_on_ok(self, result: Any) -> None:
        # An attribute that both the oldest and the newest ansible-core have.
        answer = result._result
        if "looked_by" in answer:
            self._looks[answer["looked_by"], answer.get("not_by_program", "")] += 1

    def v2_playbook_on_stats(self, stats: Any) -> None:
        with open(os.environ["GPUFLEET_BENCH_LOOKS"], "w", encoding="utf-8") as file:
            json.dump([[*key, count] for key, count in self._looks.items()], file)
