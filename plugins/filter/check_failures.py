# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: check_failures
short_description: Which active checks a node has failed, and why
version_added: 0.1.0
description:
  - Takes what M(ansible.builtin.command) returned for each of the checks in C(preflight_checks) of the role
    P(gpufleet.node.preflight#role), and compares it with the exit status and the number that the check must have.
positional: _input
options:
  _input:
    description: The C(results) of the loop over the checks. Each has its check as C(item).
    type: list
    elements: dict
    required: true
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Stop where a check was not passed
  ansible.builtin.assert:
    that: checked.results | gpufleet.node.check_failures | length == 0
"""

RETURN = r"""
_value:
  description: One sentence per check that was not passed, with its name.
  type: list
  elements: str
"""

import re
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence

from ansible.errors import AnsibleFilterError

from ..plugin_utils.active_checks import fault_of_pattern

# That of timeout(1), for a program that took too long, and for one that had to be killed. The kernel kills too.
TIMED_OUT = 124
KILLED = 137
# That of timeout(1), where there is no such program, or it cannot be run.
NOT_FOUND = (126, 127)
NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
DELTA = re.compile(r"(\d+):(\d+):(\d+(?:\.\d+)?)")
LONGEST = 200
TIMEOUT_SECONDS = 300


def check_failures(results: Sequence[Mapping[str, Any]]) -> List[str]:
    found = []
    for result in results:
        cause = _cause(result["item"], result)
        if cause:
            found.append(f"check {result['item']['name']}: {cause}")
    return found


def _cause(check: Mapping[str, Any], result: Mapping[str, Any]) -> Optional[str]:
    """Why a check was not passed; None where it was, and in check mode, which runs none."""
    if result.get("skipped"):
        return None
    if "rc" not in result:
        # It was never started: there is no timeout(1), or the node is gone.
        return str(result.get("msg") or "it was not run")[:LONGEST]
    status, expected = int(result["rc"]), int(check.get("exit") or 0)
    output, errors = str(result.get("stdout") or ""), str(result.get("stderr") or "")
    if status != expected:
        limit = int(check.get("timeout") or TIMEOUT_SECONDS)
        if status == TIMED_OUT or (status == KILLED and _seconds(result, limit) >= limit):
            return f"it took longer than {limit} seconds"
        if status == KILLED:
            return "it was killed, as the kernel does when memory runs out: see dmesg of the node"
        if status in NOT_FOUND:
            return f"{check['command'][0]} cannot be run: {_last(errors or output) or f'status {status}'}"
        said = _last(errors or output)
        return f"it ended with status {status} instead of {expected}" + (f": {said}" if said else "")
    return _against_floor(check, output) if check.get("pattern") else None


def _seconds(result: Mapping[str, Any], unknown: float) -> float:
    """How long it ran, as the module command tells it: ``0:05:10.123456``."""
    parts = DELTA.fullmatch(str(result.get("delta") or ""))
    return unknown if parts is None else float(parts[1]) * 3600 + float(parts[2]) * 60 + float(parts[3])


def _against_floor(check: Mapping[str, Any], output: str) -> Optional[str]:
    pattern = str(check["pattern"])
    fault = fault_of_pattern(pattern)
    if fault:
        raise AnsibleFilterError(f"Cannot use the check {check['name']}: {fault}.")
    found = [match[1] for match in re.finditer(pattern, output, re.MULTILINE)]
    if not found:
        return f"nothing in its output matches {pattern}"
    # A test that prints one line a size says last what counts.
    number = found[-1]
    if not NUMBER.fullmatch(number or ""):
        return f"{number!r} in its output is not a number"
    if float(number) < float(check.get("floor") or 0):
        return f"{number} is below {check['floor']}"
    return None


def _last(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:LONGEST] if lines else ""


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"check_failures": check_failures}
