# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A look by the program that is already on the node: one remote execution, which sends the declarations and no code.

What could be on the node in its place is not asked: the command line itself checks that only root can have written
what it runs, and any answer that is not the program's own counts as none.
"""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Mapping, Optional, Tuple

from ..module_utils._core.wording import printable
from ..module_utils._linux.program import (
    BLANK,
    BYTECODE,
    DAMAGED,
    LOOK,
    OTHER_PYTHON,
    SAFE_FILE,
    SAFE_FOLDER,
    folder_of,
)
from ..module_utils._node.look_frame import ANSWERED, unframed
from ..module_utils._node.registry import REGISTRY

# More than the deadlines of all concerns together; a node that hangs longer is not worth waiting for.
SECONDS = int(sum(entry.registration.deadline for entry in REGISTRY)) + 60
KILL_SECONDS = 10
# The exit statuses of the command line itself.
NO_PROGRAM, LINKED = 93, 94
# Of what a program says on its way out.
LONGEST = 200

# As ``SAFE_FOLDER``, for the folders above ours, where a group of the administrator may write.
SHARED_FOLDER = "0d???????-?"

# One line, which any login shell hands on. The standard input is read to its end in any case, for who sends it fails
# where it is not read. What `cd -P` finds must be the folder itself, for only of its own way the owners are asked. The
# first line of the entry says what it is started with, as the kernel would read it where files may be executed.
COMMAND = (
    'd={folder}; s={no_program}; if cd -P "$d" 2>/dev/null; then if [ "$PWD" = "$d" ]; then '
    "set -- $(stat -c %u%A {places} 2>/dev/null); cd /; "
    'case "$*" in {pattern}) read -r i <"$d/{look}"; timeout -k {kill} {seconds} ${{i#??}} "$d/{look}"; s=$?;; esac; '
    "else s={linked}; fi; fi; "
    '[ "$s" = {answered} ] || cat >/dev/null; exit "$s"'
)

WHY_NOT = {
    NO_PROGRAM: "this release's program is not on the node, or it is writable by users other than root",
    LINKED: "the folder of the program is reached through a link",
    OTHER_PYTHON: "the program was compiled for another Python than the one this task uses",
    DAMAGED: "the program on the node is damaged",
    124: f"the program did not respond within {SECONDS} s",
    126: "the Python in the first line of the program may not be executed: look for SELinux and fapolicyd",
    127: "the Python in the first line of the program, or timeout(1), is missing",
    137: f"the program was killed, for want of memory or because it did not respond within {SECONDS} s",
}
FAILED = "the program failed with exit status {}"
NOT_WHOLE = "the answer of the program is incomplete or not JSON"


def command_line(digest: str) -> str:
    """What a POSIX shell on the node runs for a look by the program of the archive with this SHA-256 sum."""
    folder = folder_of(digest)
    compiled = os.path.dirname(folder)
    program = os.path.dirname(compiled)
    ours = os.path.dirname(program)
    shared: List[str] = []
    place = ours
    while place != "/":
        place = os.path.dirname(place)
        shared.insert(0, place)
    mine = [ours, program, compiled, folder]
    return COMMAND.format(
        folder=folder,
        no_program=NO_PROGRAM,
        linked=LINKED,
        places=" ".join([*shared, *mine, LOOK, BYTECODE]),
        pattern=BLANK.join([*[SHARED_FOLDER] * len(shared), *[SAFE_FOLDER] * len(mine), SAFE_FILE, SAFE_FILE]),
        kill=KILL_SECONDS,
        seconds=SECONDS,
        look=LOOK,
        answered=ANSWERED,
    )


def understood(done: Mapping[str, Any]) -> Tuple[Optional[Dict[str, Any]], str]:
    """The answer in what a remote execution returned; None with the reason where it is none."""
    if done["rc"] != ANSWERED:
        return None, WHY_NOT.get(done["rc"]) or _failed(done)
    text = unframed(done["stdout"])
    try:
        answer = json.loads(text or "")
    except (ValueError, RecursionError):
        answer = None
    if not isinstance(answer, dict):
        return None, NOT_WHOLE
    return answer, ""


def _failed(done: Mapping[str, Any]) -> str:
    """Why, in the last words of what failed where it said any."""
    lines = done["stderr"].strip().splitlines()
    return ": ".join([FAILED.format(done["rc"]), *[printable(line.strip()[:LONGEST]) for line in lines[-1:]]])
