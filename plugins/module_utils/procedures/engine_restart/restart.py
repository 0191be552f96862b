# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the daemon of an engine must take up its files, and what that would cost: ``container_engine_restart``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping

from ..._core.errors import DeclarationError, NotPermitted
from ..._linux import systemd
from ...concerns.container_runtime import last_good
from ...concerns.container_runtime.model import RESTART
from ...concerns.container_runtime.state import marker_of
from .apply import execute
from .decision import EngineView, RestartOptions, RestartResult, decide, view_engine

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host


def run(params: Mapping[str, Any], host: Host, *, check_mode: bool) -> Dict[str, Any]:
    """The result of the module. Raises ``GpuFleetError`` where the daemon was not touched."""
    options = RestartOptions(**params)
    _refuse_senseless(options, host.files)
    view = view_engine(host, options.engine)
    action = decide(view, options)
    if check_mode or (not action and not _left_over(view, host.files)):
        return RestartResult(view, action, view.ended if action == RESTART else 0).as_dict()
    if not host.may_change:
        raise NotPermitted(
            f"{options.action} {options.engine}", cause="not running as root", hint="run the task with become: true"
        )
    return execute(options, host).as_dict()


def _refuse_senseless(options: RestartOptions, files: Files) -> None:
    if options.health_timeout <= 0:
        raise DeclarationError(
            f"{options.action} {options.engine}",
            object="health_timeout",
            cause=f"it is {options.health_timeout}, and must be more than 0 seconds",
        )
    if not systemd.running(files):
        raise DeclarationError(f"{options.action} {options.engine}", cause="systemd does not run this machine")


def _left_over(view: EngineView, files: Files) -> bool:
    """Whether what was kept for the way back is of no use any more: the daemon has all that the files say."""
    kept = (last_good.path_of(view.seen.engine), marker_of(view.seen.engine))
    return (
        view.seen.running is not None and not view.required_action.action and any(files.exists(path) for path in kept)
    )
