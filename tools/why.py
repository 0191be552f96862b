# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why a command failed, in one line out of the thousands that it wrote."""

from __future__ import annotations

import json
import re
from typing import Any, List, Optional, Sequence

# As ansible-playbook, pytest and ansible-test say it.
TASK = re.compile(r"(?:fatal|failed): \[(?P<host>[^\]]+)\](?: \[.*?\])?: (?:FAILED|UNREACHABLE)! => (?P<result>\{.*)")
TEST = re.compile(r"(?:FAILED|ERROR) \S+\.py\b.*|ERROR: \S+:\d+:\d+: .*")
ENTRY = re.compile(r"failed: \[(?P<host>[^\]]+)\] \(item=.*?\) => (?P<result>\{.*)")
# As molecule lists what a second converge changed.
CHANGED = re.compile(r"\* \[(?P<host>[^\]]+)\] => (?P<task>.*)")
# Where a command fails, what it wrote says more than Ansible does.
SAYS_NOTHING = ("non-zero return code", "The command exited with a non-zero return code", "MODULE FAILURE")
LONGEST = 300


def line_that_matters(lines: Sequence[str]) -> Optional[str]:
    """The line that says why a run of Ansible, pytest or ansible-test ended; ``None`` where its output does not say.

    What failed last counts, for tasks may fail on purpose before it. Of several tests or findings it is the first one.
    """
    found: List[str] = []
    tests = 0
    for line in lines:
        test, task, changed = TEST.match(line), TASK.match(line) or ENTRY.match(line), CHANGED.match(line)
        if changed:
            found.append(f"[{changed['host']}] changed again: {changed['task']}")
            tests = 0
        elif test:
            tests += 1
            if tests == 1:
                found.append(line)
        elif task:
            found.append(f"[{task['host']}] {_said(task['result'])}")
            tests = 0
    if not found:
        return None
    more = f" (and {tests - 1} more)" if tests > 1 else ""
    return _short(found[-1]) + more


def _said(text: str) -> str:
    try:
        result: Any = json.loads(text)
    except ValueError:
        return text
    message = str(result.get("msg", text))
    if message.startswith(SAYS_NOTHING):
        wrote = str(result.get("stderr") or result.get("module_stderr") or result.get("stdout") or "").strip()
        return f"{message}: {wrote.splitlines()[-1]}" if wrote else message
    return message


def _short(line: str) -> str:
    line = " ".join(line.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."
