# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The owners and modes of our own files and folders on the node."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Iterable, Iterator

from ..._core.baseline import OUR_FOLDERS
from ..._core.exposure import OURS, PROGRAM_FOLDER, exposed, link_of_ours, ownership_fault
from ..._core.targets import read_only_folder
from ..._core.value import frozen
from ..._linux.boot_service import UNIT
from ..._linux.program import ARCHIVE, BYTECODE, COMPILED, LOOK, ON_PATH, PROGRAM

if TYPE_CHECKING:
    from ..._core.protocols import Files

# What is in one comes after it.
FOLDERS = tuple(sorted(OUR_FOLDERS))
# The folders whose files count for something, and the mode that these have at the least.
HELD = (("/etc/gpufleet/declared.d", 0o644), ("/var/lib/gpufleet", 0o600), ("/var/lib/gpufleet/baseline", 0o600))
PROGRAMS = ((ARCHIVE, 0o644), (PROGRAM, 0o755), (ON_PATH, 0o755), (f"/etc/systemd/system/{UNIT}", 0o644))


@frozen
class Exposed:
    """A file or folder of ours with another owner or mode than it must have; ``mode`` is the one that it gets.

    ``written`` is whether others than root could have written it.
    """

    path: str
    found: str
    wanted: str
    mode: int
    foreign: bool
    written: bool


def wrong(files: Files) -> Iterator[Exposed]:
    """What of ours is there with another owner or mode than it must have, folders first."""
    places = [(folder, 0o755) for folder in (*FOLDERS, COMPILED)]
    places += [(f"{COMPILED}/{name}", 0o755) for name in files.names(COMPILED)]
    places += [(f"{COMPILED}/{name}/{file}", 0o644) for name in files.names(COMPILED) for file in (BYTECODE, LOOK)]
    held = [(f"{folder}/{name}", mode) for folder, mode in HELD for name in files.names(folder)]
    for path, mode in (*places, *(place for place in held if place[0] not in FOLDERS), *PROGRAMS):
        if path == ON_PATH and read_only_folder(files, path):
            continue
        if link_of_ours(files, path) == path:
            yield Exposed(path, "a link", f"{mode:04o} 0:0", mode, foreign=True, written=True)
            continue
        status = files.status(path)
        if status is None or files.resolve(path) != path:
            continue
        found = stat.S_IMODE(status.st_mode)
        folder = stat.S_ISDIR(status.st_mode)
        compiled = is_compiled(path)
        if folder and path not in FOLDERS and not compiled:
            continue
        fault = ownership_fault(status, ours=True)
        # The controller runs nothing compiled that has more than the mode that it was made with.
        if fault or found & mode != mode or (folder and found & 0o022) or (compiled and found != mode):
            # A second name of a file of root's would give it away with the mode of ours.
            foreign = status.st_uid not in (0, os.geteuid()) or status.st_nlink > 1
            has = f"{found:04o} {status.st_uid}:{status.st_gid}"
            yield Exposed(path, has, f"{mode:04o} 0:0", mode, foreign and not folder, bool(fault))


def is_compiled(path: str) -> bool:
    return path == COMPILED or path.startswith(f"{COMPILED}/")


def distrust(places: Iterable[Exposed]) -> str:
    """Why all that is compiled must be made again from the archive; empty where it need not.

    Nobody knows what others wrote there, and what is made again has the owner and mode that it must have.
    """
    places = tuple(places)
    if any(place.written and place.path.startswith(PROGRAM_FOLDER) for place in places):
        return "others may have written it"
    return "with another mode or owner" if any(is_compiled(place.path) for place in places) else ""


def unsafe(files: Files) -> str:
    """Why nothing on the way to our folders keeps others than root from them; empty where it does."""
    ways = (exposed(files, os.path.dirname(folder), matter="others could replace what is below it") for folder in OURS)
    return next(filter(None, ways), "")
