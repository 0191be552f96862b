# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from ansible.errors import AnsibleActionFail
from ansible.module_utils.parsing.convert_bool import boolean

from ..module_utils._core.errors import CannotLook
from ..plugin_utils.answers import UNREADABLE, answered, look_in
from ..plugin_utils.asking_action import AskingAction
from ..plugin_utils.clusters import declares
from ..plugin_utils.declarations import declarations
from ..plugin_utils.profiles import ProfileError
from ..plugin_utils.scope import excluded
from ..plugin_utils.summary import REFUSED

# What is said of every look, and what else is kept of an answer that is none: the module broke down, or the host is out
# of reach.
LOOKED = ("looked_by", "not_by_program")
NO_ANSWER = "it did not respond"
KEPT = ("failed", "unreachable", "failure", "exception", "rc", *LOOKED)


def in_short(answer: Mapping[str, Any]) -> Dict[str, Any]:
    """The answer of a module that broke down, with a message of one line in place of all that it printed."""
    message = (str(answer.get("msg") or "").strip() or NO_ANSWER).splitlines()[0]
    printed = [
        line.strip() for name in ("module_stdout", "module_stderr") for line in str(answer.get(name, "")).splitlines()
    ]
    last = next((line for line in reversed(printed) if line), "")
    found = {name: answer[name] for name in KEPT if name in answer}
    return {**found, "msg": f"{message} {last}".strip() if last and last not in message else message}


class ActionModule(AskingAction):
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
        # A play that ends with the report says so; whether one is wanted is for who runs it.
        reports = "gpufleet_ends_with_report" in variables and bool(template(variables.get("gpufleet_report_dest")))
        # What is declared of its cluster follows from its GPUs.
        brings_facts = reports or ("gpufleet_ends_with_report" in variables and declares(variables))
        if reports and "gpufleet_keep_unreachable" in variables:
            # As a template in the playbook this would cost every host its own compilation, too.
            self._task.ignore_unreachable = True
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
            "facts": brings_facts,
            "no_diff": template(variables.get("gpufleet_no_diff", [])),
        }
        answer = self.ask("gpufleet.node.node_state", arguments, variables)
        read = look_in(answer)
        malformed = read.get(UNREADABLE)
        if malformed is not None:
            # Nothing is done to a node whose answer says who knows what, and nobody behind this has to be wary of it.
            cannot = CannotLook(
                "read the answer of the node",
                cause=malformed,
                hint="check what else on the node could be answering instead of its Python",
            )
            said = {name: answer[name] for name in LOOKED if name in answer}
            return {"failed": True, "msg": str(cannot), "failure": cannot.failure(), UNREADABLE: malformed, **said}
        # Ansible prints all that a task failed with. What is wrong is in the table, and the playbook fails in a line.
        if not answered(answer):
            return {**result, **in_short(answer)}
        if answer.pop("failed", False):
            answer[REFUSED] = str(answer.pop("msg", None) or NO_ANSWER)
            # Ansible would show it as an error, without the name of the host, above a task that succeeded.
            answer.pop("exception", None)
        # What is empty may have been left out, and the playbooks ask for it.
        answer.update({name: [] for name, value in read.items() if value == () and name not in answer})
        # Of a fleet it is the table that shows what would change.
        if len(variables["ansible_play_hosts_all"]) > 1:
            answer.pop("diff", None)
        result.update(answer)
        return result
