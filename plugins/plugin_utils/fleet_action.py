# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What action plugins share that run once for all hosts of a play, on the controller alone."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional

from ansible.plugins.action import ActionBase


class FleetAction(ActionBase):
    """Contacts no host, and changes nothing on any."""

    BYPASS_HOST_LOOP = True
    _requires_connection = False

    OPTIONS: Mapping[str, Any] = {}
    """The options of the action, from ``ARGUMENTS``."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._VALID_ARGS = frozenset(cls.OPTIONS)

    def run(self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None) -> Dict[str, Any]:
        result: Dict[str, Any] = super().run(tmp, task_vars)
        _validated, arguments = self.validate_argument_spec(self.OPTIONS)
        result.update({"changed": False, **self.act(arguments, task_vars or {})})
        return result

    def act(self, arguments: Mapping[str, Any], variables: Mapping[str, Any]) -> Dict[str, Any]:
        """The result, by the options of the task and the variables of the first host."""
        raise NotImplementedError
