# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps that only container engines have: check the files as they will be, and keep those from before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Tuple

from ..._core import steps
from ..._core.change import Change, Step
from ..._core.errors import Refused
from ..._core.setting import BOOT
from . import last_good, original_files
from .candidate import CandidateFiles
from .model import Edit, shown
from .plan import FOUND, LEFT, WITHOUT, CheckEdits, KeepFiles
from .restore import TEXT

if TYPE_CHECKING:
    from ..._core.protocols import Host
    from .state import Engine


def perform(step: Step, host: Host) -> Optional[Tuple[Change, ...]]:
    action = step.action
    if isinstance(action, CheckEdits):
        return check(action, host)
    if isinstance(action, KeepFiles):
        refuse_changed(action.edits, host)
        original_files.save(host.files, action.engine, action.edits)
        if action.daemon:
            last_good.save(host.files, action.engine, action.edits, anew=action.anew)
    else:
        steps.perform(step, host)
    return None


def refuse_changed(edits: Tuple[Edit, ...], host: Host) -> None:
    """Raises ``Refused`` where somebody else has written a file since the look: engines take their time to judge."""
    for edit in edits:
        if host.files.read_optional(edit.path) != edit.before:
            raise Refused(
                "change {}",
                object=edit.path,
                cause="something else changed it while the new version was checked",
                hint="run again",
            )


def check(action: CheckEdits, host: Host) -> Optional[Tuple[Change, ...]]:
    """Raises ``Refused`` where the files would not mean what is wanted, or the engine's program says no to them.

    What goes is another matter: where it would not pass before us or does not now, it needs nobody's leave to go. The
    change that comes back then says so.
    """
    seen, edits = action.seen, action.edits
    installation = seen.configuration.installation
    after = seen.kind.read(CandidateFiles(host.files, edits), installation)
    for name, wanted in action.expected.items():
        if after.settings.get(name) != wanted:
            files = [document.path for document in after.documents if document.text is not None]
            raise Refused(
                f"set {name}",
                object=seen.engine,
                cause="another file or line takes precedence over ours",
                found=shown(after.settings.get(name)),
                wanted=shown(wanted),
                hint=f"look for it in {', '.join(files)}",
            )
    try:
        seen.kind.check(host, installation, edits)
    except Refused as error:
        as_found = set(edits) <= set(action.found)
        now = tuple(Edit(edit.path, edit.before, edit.before) for edit in edits)
        if not action.goes or not (as_found or _refuses(seen, now, host) or _refuses(seen, action.found, host)):
            raise
        left = FOUND if as_found else WITHOUT
        return (Change(seen.configuration.documents[0].path, TEXT, LEFT, f"{left}, although {error.cause}", BOOT),)
    return None


def _refuses(seen: Engine, edits: Tuple[Edit, ...], host: Host) -> bool:
    try:
        seen.kind.check(host, seen.configuration.installation, edits)
    except Refused:
        return True
    return False
