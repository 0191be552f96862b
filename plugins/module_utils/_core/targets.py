# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What stands where a plan keeps a file: a symbolic link, or something that is no regular file.

A link to /dev/null is how an administrator disables a drop-in, a rule or a unit; one to another file is how somebody
else keeps it. To write through either would destroy what it leads to. A file of others that we edit, such as
/etc/docker/daemon.json, may be a link to a regular file and stays one. In our own folders a link, which only root can
have made, is replaced by the file and removed as one.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Iterator, Tuple

from .change import RemoveFile, ReplaceFile, RoomAction
from .errors import OwnedByAnother
from .exposure import is_ours

if TYPE_CHECKING:
    from .change import Plan, Step
    from .protocols import Files

NAME = "gpufleet"
NOTES = "/run/gpufleet/"
MASK = "/dev/null"


def in_our_folder(path: str) -> bool:
    """Whether only we have a use for what is at a path."""
    return is_ours(path) or path.startswith(NOTES)


def is_managed(path: str) -> bool:
    """Whether a file among those of others is ours alone: by its name, as all that we keep in their folders."""
    return NAME in os.path.basename(path) and not in_our_folder(path)


def fault_of(files: Files, path: str) -> Tuple[str, str]:
    """Why nothing may be written or removed at a path, with the next step; two empty texts where it may."""
    if in_our_folder(path):
        return "", ""
    if is_managed(path):
        link = files.link(path)
        target = link and os.path.normpath(os.path.join(os.path.dirname(path), link))
        if target == MASK:
            return f"it is masked: a symbolic link to {MASK}", "remove the link, or leave this out of the declaration"
        if target:
            return f"it is a symbolic link to {target}", "remove the link, then run again"
    status = files.status(path)
    if status is None or stat.S_ISREG(status.st_mode):
        return "", ""
    place = files.resolve(path)
    cause = "it is no regular file" if place == path else f"it leads to {place}, which is no regular file"
    return cause, "put a regular file there, or remove it"


def refuse_links(plan: Plan, files: Files) -> None:
    """Raise ``OwnedByAnother`` before the first step, and in a look, for the first file that must not be touched.

    A file of ours that is a link is not in sync whatever it leads to: nobody knows who changes that, and when.
    """
    identities = (setting.identity for setting in plan.settings if setting.identity.startswith("/"))
    paths = [path for path in (*plan.files, *identities) if is_managed(path) and files.link(path)]
    for path in (*paths, *(path for step in plan.steps for path in _targets(step))):
        cause, hint = fault_of(files, path)
        if cause:
            error = OwnedByAnother("write {}", object=path, cause=cause, hint=hint)
            error.settings = plan.settings
            raise error


def _targets(step: Step) -> Iterator[str]:
    action = step.action
    if isinstance(action, (ReplaceFile, RemoveFile)):
        yield action.path
    elif isinstance(action, RoomAction):
        yield from action.writes
