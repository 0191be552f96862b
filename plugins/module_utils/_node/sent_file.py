# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules that write a file of the controller: it is sent only where it is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Mapping

from .._core.errors import GpuFleetError, NotSent
from .module import arguments_of, finish, host_of

if TYPE_CHECKING:
    from ansible.module_utils.basic import AnsibleModule

    from .._core.contract import AnyConcern, Params
    from .._core.protocols import Files

ASK: Mapping[str, Any] = {"changed": False, "wants_file": True}


def arguments_with(concern: AnyConcern, sent: Mapping[str, Any]) -> Mapping[str, Any]:
    """What ``AnsibleModule`` must be told; ``sent`` are the options by which a file comes, and are no declaration."""
    arguments = arguments_of(concern)
    return {**arguments, "argument_spec": {**arguments["argument_spec"], **sent}}


def ask_where_lacking(module: AnsibleModule, lacks: Callable[[Files, Params], bool]) -> None:
    """End the module and ask for the file, where this run would have to write it.

    Not where the run would fail anyhow: then it says why itself.
    """
    try:
        wants_file = not module.check_mode and lacks(host_of(module).files, module.params)
    except (GpuFleetError, OSError):
        wants_file = False
    if wants_file:
        module.exit_json(**ASK)


def finish_or_ask(module: AnsibleModule, result: Mapping[str, Any]) -> None:
    """End the module; ask for the file where another run has taken away since what was there."""
    if result.get("failed") and result["failure"]["code"] == NotSent.code and not result["changed"]:
        module.exit_json(**ASK)
    finish(module, result)
