# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: failure_cause
short_description: Why a task failed
version_added: 0.1.0
description:
  - Takes the result of a task that failed, and returns its message. For a loop these are the messages of the items
    that failed, and for a command the message includes the last line that it printed.
options:
  _input:
    description: The result, such as RV(ansible_failed_result) in C(rescue).
    type: dict
    required: true
author:
  - gpufleet contributors (@gpufleet)
"""

EXAMPLES = r"""
- name: Note why it failed
  ansible.builtin.set_fact:
    why: "{{ ansible_failed_result | gpufleet.node.failure_cause }}"
"""

RETURN = r"""
_value:
  description: The message, C(see above) if there is none.
  type: str
"""

from typing import Any, Callable, Dict, Mapping

UNSAID = "see above"
# What Ansible says of a program that failed: what the program says is the cause.
OF_ANY_PROGRAM = "non-zero return code"


def failure_cause(result: Any) -> str:
    if not isinstance(result, Mapping):
        return UNSAID
    # A module may have something else by this name.
    results = result["results"] if isinstance(result.get("results"), (list, tuple)) else ()
    failed = [entry for entry in results if isinstance(entry, Mapping) and entry.get("failed")]
    if failed:
        return "; ".join(dict.fromkeys(failure_cause(entry) for entry in failed))
    message = str(result.get("msg") or "").strip()
    if message.rstrip(".") != OF_ANY_PROGRAM:
        return message or UNSAID
    command = result.get("cmd")
    program = str(command[0] if isinstance(command, (list, tuple)) and command else command or "the command")
    printed = str(result.get("stderr") or "").strip() or str(result.get("stdout") or "").strip()
    last = f": {printed.splitlines()[-1].strip()}" if printed else ""
    return f"{program} ended with status {result.get('rc')}{last}"


class FilterModule:
    def filters(self) -> Dict[str, Callable[..., Any]]:
        return {"failure_cause": failure_cause}
