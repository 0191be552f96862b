# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An action that asks the program on the node, and sends the module where the program may not or cannot answer."""

from __future__ import annotations

import json
from typing import Any, Dict, Mapping

from ansible import constants as C
from ansible.errors import AnsibleError
from ansible.plugins.action import ActionBase

from ..module_utils._node.sent_binding import LACKS
from .declarations import ARCHIVE_SHA256, binding_to_lend, is_plain
from .profiles import ProfileError
from .program_look import command_line, understood

# The value of gpufleet_look_by without which the module looks, and of ansible_python_interpreter for one that is found.
AUTO = "auto"
# The option of both modules by which a binding comes.
BINDING = "binding"


class AskingAction(ActionBase):
    """Asks a node for what ``node_state`` or ``gpu_node_info`` returns, in one remote execution."""

    def ask(self, module: str, arguments: Mapping[str, Any], variables: Mapping[str, Any]) -> Dict[str, Any]:
        """The answer of the program on the node, or else of the module; it says which of them it is and why.

        ``arguments`` are the options of the module, of the right types. A node that answers that it has no binding is
        asked again with that of the controller. What was unreadable without it is in ``read_with_binding``.
        """
        answer = self._ask(module, arguments, variables, self._why_no_program(variables))
        unread = answer.pop(LACKS, None)
        binding = "" if unread is None else self._binding(variables)
        if binding:
            again = {**arguments, BINDING: binding}
            answer = self._ask(module, again, variables, answer.get("not_by_program", ""))
            answer.pop(LACKS, None)
            answer["read_with_binding"] = unread
        return answer

    def _ask(
        self, module: str, arguments: Mapping[str, Any], variables: Mapping[str, Any], why_not: str
    ) -> Dict[str, Any]:
        """The answer of the program, or of the module where ``why_not`` says why the program is not asked."""
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
        answer = self._execute_module(module, module_args=dict(arguments), task_vars=dict(variables))
        return {**answer, "looked_by": "module", "not_by_program": why_not}

    def _binding(self, variables: Mapping[str, Any]) -> str:
        """The binding for a node that has none, packed; empty where the concern ``nvml`` would not bring it."""
        try:
            return binding_to_lend(variables, self._templar.template)
        except (AnsibleError, ProfileError):
            # Who declares it wrong hears of it from the look at the concern.
            return ""

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
            return "pipelining is off, or this connection or become method does not support it"
        if C.DEFAULT_KEEP_REMOTE_FILES:
            return "ANSIBLE_KEEP_REMOTE_FILES is set"
        if any(self._task.environment or ()):
            return "the task has an environment"
        return "the task is delegated" if self._task.delegate_to else ""

    def _interpreter(self, variables: Mapping[str, Any]) -> str:
        """The Python that the module would run with; empty where Ansible is left to find one."""
        interpreter = variables.get("ansible_python_interpreter")
        if interpreter is None:
            # The environment and ansible.cfg, which nobody has to ask where the inventory says it.
            interpreter = C.config.get_config_value("INTERPRETER_PYTHON")
        if not is_plain(interpreter):
            interpreter = self._templar.template(interpreter)
        return "" if str(interpreter).startswith(AUTO) else str(interpreter)
