# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The TaskProlog of slurmd: of what it prints, slurmstepd takes ``export NAME=value`` into the environment of the task.

It runs as the user of the job, with the job's environment: what the job has set itself is left to it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Iterator, Mapping, Optional, Tuple

from ..._core.regex import regex
from ..._kinds.own_files import header_of
from ..._text.slurm_conf import CONFIGURATIONS

if TYPE_CHECKING:
    from ..._core.protocols import Files

PATH = "/etc/slurm/gpufleet-task_prolog.sh"
LINE = regex(r"\[ -n \"\$\{([A-Za-z0-9_]+)\+x\}\" \] \|\| printf '%s\\n' 'export \1=(.*)'")
DEEPEST = 4


def render(values: Mapping[str, str]) -> str:
    """The script."""
    lines = [
        f"[ -n \"${{{name}+x}}\" ] || printf '%s\\n' 'export {name}={_quoted(value)}'\n"
        for name, value in sorted(values.items())
    ]
    return "".join(("#!/bin/sh\n", header_of("job_environment"), *lines, "exit 0\n"))


def parse(text: str) -> Iterator[Tuple[int, str, str]]:
    """What the script prints, as the number of the line, name and value."""
    for number, line in enumerate(text.split("\n"), 1):
        found = LINE.fullmatch(line)
        if found:
            yield number, found[1], found[2].replace("'\\''", "'")


def named(files: Files) -> Tuple[Optional[str], str]:
    """The configuration of Slurm, None where there is none, and why it does not start our script, empty if it does."""
    path = next((path for path in CONFIGURATIONS if files.exists(path)), None)
    if path is None:
        return None, f"there is no {CONFIGURATIONS[0]}, so Slurm is not configured here"
    script = _task_prolog(files, path, DEEPEST)
    if not script:
        return path, f"{path} names no TaskProlog: set TaskProlog={PATH} in it, and run scontrol reconfigure"
    # One that is there already may start ours.
    if script == PATH or files.resolve(script) == PATH or PATH in (files.read_optional(script) or ""):
        return path, ""
    return path, f"{path} has TaskProlog={script}: let that script run {PATH} and print what it prints"


def _task_prolog(files: Files, path: str, deepest: int) -> str:
    """Of several lines the last counts, and included files stand where their line is."""
    script = ""
    for line in (files.read_optional(path) or "").splitlines():
        code = line.partition("#")[0].strip()
        word, _blank, rest = code.partition(" ")
        if word.lower() == "include" and deepest:
            included = os.path.join(os.path.dirname(path), rest.strip())
            script = _task_prolog(files, included, deepest - 1) or script
        elif code.lower().startswith("taskprolog"):
            name, equals, value = code.partition("=")
            if equals and name.strip().lower() == "taskprolog":
                script = value.strip().strip('"')
    return script


def _quoted(value: str) -> str:
    return value.replace("'", "'\\''")
