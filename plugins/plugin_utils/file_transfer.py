# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What action plugins share whose module needs a file of the controller, but only when the node has another one."""

from __future__ import annotations

import hashlib
from typing import Any, Dict, Optional

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

WANTED = "wants_file"


class FileTransferAction(ActionBase):
    """Runs the module of the same name, and sends it a file when it asks for one.

    The module gets ``<OPTION>_sha256``, so that it can compare. One that must write the file and did not get it changes
    nothing and answers ``wants_file: true``; then the file goes to the node, and the module runs again with its path in
    ``<OPTION>``. In check mode no module asks, for the sum is enough to say what would change. So a node that is right
    costs one execution, as without a file.
    """

    OPTION = ""
    """The option of the module that takes the path of the file on the node. No task may set it."""
    FILE_NAME = ""
    """What the file is called in the temporary folder on the node."""

    def content(self, arguments: Dict[str, Any]) -> Optional[bytes]:
        """The file that the controller has, None where it has none to send. Raises ``ValueError`` saying why not."""
        raise NotImplementedError

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        arguments: Dict[str, Any] = dict(self._task.args)
        if self.OPTION in arguments:
            raise AnsibleActionFail(f"Cannot use the option {self.OPTION}: only the controller sets it. Leave it out.")
        try:
            content = self.content(arguments)
        except ValueError as error:
            raise AnsibleActionFail(str(error)) from error
        if content is not None:
            self._state_sum(arguments, hashlib.sha256(content).hexdigest())
        answer = self._execute_module(module_args=arguments, task_vars=task_vars)
        if answer.pop(WANTED, False) and content is not None:
            arguments[self.OPTION] = self._send(content)
            answer = self._execute_module(module_args=arguments, task_vars=task_vars)
        result.update(answer)
        return result

    def _send(self, content: bytes) -> str:
        """Put the file into the temporary folder of this task on the node, which Ansible removes at its end."""
        folder = self._connection._shell.tmpdir or self._make_tmp_path()
        path: str = self._connection._shell.join_path(folder, self.FILE_NAME)
        self._transfer_data(path, content)
        self._fixup_perms2((folder, path))
        return path

    def _state_sum(self, arguments: Dict[str, Any], actual: str) -> None:
        name = f"{self.OPTION}_sha256"
        declared = arguments.get(name)
        if declared and declared != actual:
            raise AnsibleActionFail(
                f"Cannot send the file of {self.OPTION}: {name} is not that of the file on this controller "
                f"(found {actual}, wanted {declared}). Leave {name} out."
            )
        arguments[name] = actual
