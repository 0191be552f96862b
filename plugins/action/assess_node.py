# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from typing import Any, Dict, Mapping, Optional

from ansible import constants as C
from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase

from ..module_utils._core.errors import CannotLook
from ..plugin_utils.answers import UNREADABLE, answered, look_in
from ..plugin_utils.declarations import ARCHIVE_SHA256, declarations, is_plain
from ..plugin_utils.profiles import ProfileError
from ..plugin_utils.program_look import command_line, understood
from ..plugin_utils.scope import excluded
from ..plugin_utils.summary import REFUSED

# The value of gpufleet_look_by without which the module looks, and of ansible_python_interpreter for one that is found.
AUTO = "auto"

# What is kept of an answer that is no look: the module broke down, or the host is out of reach.
KEPT = ("failed", "unreachable", "failure", "exception", "rc")


def in_short(answer: Mapping[str, Any]) -> Dict[str, Any]:
    """The answer of a module that broke down, with a message of one line in place of all that it printed."""
    message = str(answer.get("msg") or "it did not respond").strip().splitlines()[0]
    printed = [
        line.strip() for name in ("module_stdout", "module_stderr") for line in str(answer.get(name, "")).splitlines()
    ]
    last = next((line for line in reversed(printed) if line), "")
    found = {name: answer[name] for name in KEPT if name in answer}
    return {**found, "msg": f"{message} {last}".strip() if last and last not in message else message}


class ActionModule(ActionBase):
    """Makes the declarations of the host from its variables, and has ``node_state`` look at them.

    Its option is never a template, which costs every host its own compilation.
    """

    _VALID_ARGS = frozenset(("whole",))

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        variables = task_vars or {}
        template = self._templar.template
        try:
            declared = declarations(variables, template)
        except ProfileError as error:
            raise AnsibleActionFail(str(error)) from None
        arguments = {
            "declared": declared,
            "excluded": []
            if boolean(self._task.args.get("whole", False))
            else excluded(
                template(variables.get("gpufleet_concerns")) or [],
                skip=template(variables.get("gpufleet_skip")) or [],
                tags=variables["ansible_run_tags"],
                skip_tags=variables["ansible_skip_tags"],
            ),
            "expect": template(variables["gpufleet_expect"]),
            "detail": template(variables.get("gpufleet_detail", "brief")),
        }
        answer = self._look(arguments, variables)
        malformed = look_in(answer).get(UNREADABLE)
        if malformed is not None:
            # Nothing is done to a node whose answer says who knows what, and nobody behind this has to be wary of it.
            cannot = CannotLook(
                "read the answer of the node",
                cause=malformed,
                hint="check what else on the node could be answering instead of its Python",
            )
            return {"failed": True, "msg": str(cannot), "failure": cannot.failure(), UNREADABLE: malformed}
        # Ansible prints all that a task failed with. What is wrong is in the table, and the playbook fails in a line.
        if not answered(answer):
            return {**result, **in_short(answer)}
        if answer.pop("failed", False):
            answer[REFUSED] = answer.pop("msg")
        # Of a fleet it is the table that shows what would change.
        if len(variables["ansible_play_hosts_all"]) > 1:
            answer.pop("diff", None)
        result.update(answer)
        return result

    def _look(self, arguments: Dict[str, Any], variables: Mapping[str, Any]) -> Dict[str, Any]:
        """The answer of the program on the node, or else of the module; it says which of them it is and why."""
        why_not = self._why_no_program(variables)
        if not why_not:
            request = {
                **arguments,
                "check_mode": self._task.check_mode,
                "diff": self._task.diff,
                "interpreter": self._interpreter(variables),
            }
            done = self._low_level_execute_command(
                command_line(ARCHIVE_SHA256), in_data=json.dumps(request, default=str).encode()
            )
            answer, why_not = understood(done)
            if answer is not None:
                return {**answer, "looked_by": "program"}
            self._display.vvv(f"The module looks: {why_not}.", host=variables.get("inventory_hostname"))
        answer = self._execute_module("gpufleet.node.node_state", module_args=arguments, task_vars=dict(variables))
        return {**answer, "looked_by": "module", "not_by_program": why_not}

    def _why_no_program(self, variables: Mapping[str, Any]) -> str:
        """Why the program on the node cannot take the place of the module; empty where it can."""
        wanted = variables.get("gpufleet_look_by", AUTO)
        if not is_plain(wanted):
            wanted = self._templar.template(wanted)
        if wanted != AUTO:
            return f"gpufleet_look_by is {wanted}"
        # Each of these is about the module: where it is sent, how it is started, and what it finds around it.
        if self._connection._shell.SHELL_FAMILY != "sh":
            return "the node has no POSIX shell"
        if not self._connection.is_pipelining_enabled(wrap_async=False):
            return "the connection does not pipeline"
        if C.DEFAULT_KEEP_REMOTE_FILES:
            return "Ansible is set to keep the files of modules on the nodes"
        if any(self._task.environment or ()):
            return "the task has an environment"
        return "the task is delegated" if self._task.delegate_to else ""

    def _interpreter(self, variables: Mapping[str, Any]) -> str:
        """The Python that the module would run with; empty where Ansible is left to find one."""
        interpreter = variables.get("ansible_python_interpreter", AUTO)
        if not is_plain(interpreter):
            interpreter = self._templar.template(interpreter)
        return "" if str(interpreter).startswith(AUTO) else str(interpreter)
