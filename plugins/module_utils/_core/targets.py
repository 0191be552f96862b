# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Symbolic links, and what else is not a regular file, in place of a file that a plan writes or removes.

A link to /dev/null is how an administrator disables a drop-in, a rule or a unit; one to another file is how another
program keeps it. To write through either would destroy what it points to. A foreign file that we edit, such as
/etc/docker/daemon.json, may be a link to a regular file and stays one. In our own folders a link, which only root can
have made, is replaced by the file and removed as one.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, Dict, Iterator, Tuple

from .change import RemoveFile, ReplaceFile, RoomAction
from .errors import OwnedByAnother, refuse_all
from .exposure import is_ours
from .protocols import TEMPORARY

if TYPE_CHECKING:
    from .change import Plan, Step
    from .protocols import Files

NAME = "gpufleet"
NOTES = "/run/gpufleet/"
# A whole unit that is written here is managed; foreign units get drop-ins, which have our name.
UNITS = "/etc/systemd/system/"
MASK = "/dev/null"


def in_our_folder(path: str) -> bool:
    """Whether only we have a use for what is at a path."""
    return is_ours(path) or path.startswith(NOTES)


def is_managed(path: str) -> bool:
    """Whether a file in a foreign folder is managed, by its name. Units that we write need not have it."""
    return NAME in os.path.basename(path) and not in_our_folder(path)


def fault_of(files: Files, path: str, *, removes: bool = False) -> Tuple[str, str]:
    """Why nothing may be written or removed at a path, with the next step; two empty texts where it may.

    removes: a foreign link is removed by itself, whatever it points to.
    """
    if in_our_folder(path) or path.endswith(TEMPORARY):
        return "", ""
    if is_managed(path) or path.startswith(UNITS):
        link = files.link(path)
        target = link and os.path.normpath(os.path.join(os.path.dirname(path), link))
        if target == MASK:
            return f"it is a symbolic link to {MASK}, which disables it", "remove the link, then run again"
        if target:
            return f"it is a symbolic link to {target}", "remove the link, then run again"
    if removes and files.link(path):
        return "", ""
    status = files.status(path)
    if status is None or stat.S_ISREG(status.st_mode):
        return "", ""
    place = files.resolve(path)
    cause = "it is not a regular file" if place == path else f"it points to {place}, which is not a regular file"
    return cause, "replace it with a regular file, or remove it"


def remedy(error: OSError) -> str:
    """The next step where something else is in place of a file of this collection; empty for other errors."""
    misplaced = error.errno in (errno.EISDIR, errno.ELOOP) and in_our_folder(str(error.filename))
    return "remove what is in place of the file, then run again" if misplaced else ""


def read_only_folder(files: Files, path: str) -> str:
    """The folder in which even root cannot write or remove a file, by access(2); empty if root can.

    It is on a read-only file system, or immutable. If parts of the path do not exist, it is the nearest folder that
    does.
    """
    folder = os.path.dirname(files.resolve(path))
    while folder != "/" and not files.exists(folder):
        folder = os.path.dirname(folder)
    return "" if files.writable(f"{folder}/.") else folder


def refuse_links(plan: Plan, files: Files, *, permanent: bool) -> None:
    """Raise ``OwnedByAnother`` before the first step, and in a look, for all files that must not be touched.

    A managed file that is a link is not in sync whatever it points to: nothing says who changes that, and when. With
    ``permanent: false`` only what a step writes counts.
    """
    # Each with whether it would be removed.
    paths: Dict[str, bool] = {}
    if permanent:
        identities = (setting.identity for setting in plan.settings if setting.identity.startswith("/"))
        links = (path for path in (*plan.files, *identities) if is_managed(path) and files.link(path))
        paths.update(dict.fromkeys(links, False))
    for step in plan.steps:
        for path in targets_of(step):
            paths.setdefault(path, isinstance(step.action, RemoveFile))
    refusals = []
    for path, removes in paths.items():
        cause, hint = fault_of(files, path, removes=removes)
        if cause:
            error = OwnedByAnother("remove {}" if removes else "write {}", object=path, cause=cause, hint=hint)
            error.settings = plan.settings
            refusals.append(error)
    refuse_all(refusals, plan.conflicts, by_object=True)


def targets_of(step: Step) -> Iterator[str]:
    """The files that a step writes or removes."""
    action = step.action
    if isinstance(action, (ReplaceFile, RemoveFile)):
        yield action.path
    elif isinstance(action, RoomAction):
        yield from action.writes
