# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the daemon of an engine must take up its files, and what that would cost: ``container_engine_restart``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Mapping

from ..._core.errors import DeclarationError, NotPermitted
from ..._linux import systemd
from ...concerns.container_runtime import last_good
from ...concerns.container_runtime.model import RESTART
from ...concerns.container_runtime.state import marker_of
from .apply import execute
from .decision import EngineView, RestartOptions, RestartResult, decide, view_engine
from .options import OPTIONS

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host


class EngineRestart:
    """``procedure.Procedure`` for the daemon of an engine."""

    name = "container_engine_restart"
    options: Mapping[str, Any] = OPTIONS

    def parse(self, params: Mapping[str, Any]) -> RestartOptions:
        options = RestartOptions(**params)
        if options.health_timeout <= 0:
            raise DeclarationError(
                f"{options.action} {options.engine}",
                object="health_timeout",
                cause=f"it is {options.health_timeout}, and must be more than 0 seconds",
            )
        return options

    def look(self, host: Host, options: RestartOptions) -> EngineView:
        if not systemd.running(host.files):
            raise DeclarationError(f"{options.action} {options.engine}", cause="systemd does not run this machine")
        return view_engine(host, options.engine)

    def decide(self, state: EngineView, options: RestartOptions) -> str:
        return decide(state, options)

    def predict(self, host: Host, options: RestartOptions, state: EngineView, decision: str) -> RestartResult:
        return RestartResult(state, decision, state.ended if decision == RESTART else 0)

    def perform(self, host: Host, options: RestartOptions, state: EngineView, decision: str) -> RestartResult:
        if not decision and not _left_over(state, host.files):
            return RestartResult(state)
        if not host.may_change:
            raise NotPermitted(
                f"{options.action} {options.engine}", cause="not running as root", hint="run the task with become: true"
            )
        return execute(options, host)


PROCEDURE = EngineRestart()


def _left_over(view: EngineView, files: Files) -> bool:
    """Whether what was kept for the way back is of no use any more: the daemon has all that the files say."""
    kept = (last_good.path_of(view.seen.engine), marker_of(view.seen.engine))
    return (
        view.seen.running is not None and not view.required_action.action and any(files.exists(path) for path in kept)
    )
