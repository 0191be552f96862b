# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps that only container engines have. Imported when there is something to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Tuple

from .._core import steps
from .._core.change import Step
from .._core.errors import Refused
from . import found, previous
from .candidate import CandidateFiles
from .model import shown
from .plan import CheckEdits, KeepFiles, RequireRuntime

if TYPE_CHECKING:
    from .._host.protocols import Host
    from .model import Edit


def perform(step: Step, host: Host) -> None:
    action = step.action
    if isinstance(action, RequireRuntime):
        require_runtime(action)
    elif isinstance(action, CheckEdits):
        check(action, host)
    elif isinstance(action, KeepFiles):
        refuse_changed(action.edits, host)
        found.keep(host.files, action.engine, action.edits)
        if action.daemon:
            previous.keep(host.files, action.engine, action.edits, anew=action.anew)
    else:
        steps.perform(step, host)


def require_runtime(action: RequireRuntime) -> None:
    """Raises ``Refused``: a plan has this step only where the runtime is not there."""
    raise Refused(
        f"give {action.engine} the runtime",
        object=action.path,
        cause=f"{action.why.replace('which', 'it', 1)}",
        hint="install the package nvidia-container-toolkit, as the role container_toolkit does",
    )


def refuse_changed(edits: Tuple[Edit, ...], host: Host) -> None:
    """Raises ``Refused`` where somebody else has written a file since the look: engines take their time to judge."""
    for edit in edits:
        if host.files.read_optional(edit.path) != edit.before:
            raise Refused(
                "change the configuration",
                object=edit.path,
                cause="somebody else has written it while the new one was judged",
                hint="run again",
            )


def check(action: CheckEdits, host: Host) -> None:
    """Raises ``Refused`` where the files would not mean what is wanted, or the engine's program says no to them."""
    seen, edits = action.seen, action.edits
    installation = seen.configuration.installation
    after = seen.kind.read(CandidateFiles(host.files, edits), installation)
    for name, wanted in seen.wanted.items():
        if after.settings.get(name) != wanted:
            files = [document.path for document in after.documents if document.text is not None]
            raise Refused(
                f"set {name}",
                object=seen.engine,
                cause="another file or line counts more than ours",
                found=shown(after.settings.get(name)),
                wanted=shown(wanted),
                hint=f"look for it in {', '.join(files)}",
            )
    seen.kind.check(host, installation, edits)
