# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Progress of a scenario through its test sequence, kept in a file so that a later run can continue."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import List, Optional, Sequence

# The line before the output of each step.
MARK = "--- step "


def steps_of(sequence: Sequence[str]) -> List[str]:
    """The steps of a sequence: an action that names several playbooks is a step for each of them."""
    steps = []
    for action in sequence:
        name, *arguments = action.split()
        if name == "side_effect" and arguments:
            steps += [f"{name} {argument}" for argument in arguments]
        else:
            steps.append(action)
    return steps


def last_step(lines: Sequence[str]) -> Optional[str]:
    """The step in which this output ends."""
    begin = _begin_of_last(lines)
    return lines[begin].split(": ", 1)[1] if begin is not None else None


def lines_of_last_step(lines: Sequence[str]) -> Sequence[str]:
    """The output of the step in which it ends; all of it where none had begun."""
    begin = _begin_of_last(lines)
    return lines if begin is None else lines[begin + 1 :]


def _begin_of_last(lines: Sequence[str]) -> Optional[int]:
    marked = (number for number in range(len(lines) - 1, -1, -1) if lines[number].startswith(MARK))
    return next(marked, None)


class Progress:
    """Steps that are done, and how much of the record of changes (molecule/shared/runs.py) they wrote.

    A step that begins again removes from the record what its failed try had added, so that tests which compare runs
    find each playbook as often as the sequence has it.
    """

    def __init__(self, file: Path, *, runs: Path, done: Sequence[str] = (), recorded: int = 0) -> None:
        self.done = list(done)
        self._file = file
        self._runs = runs
        self._recorded = recorded

    @classmethod
    def read(cls, file: Path, *, runs: Path) -> Progress:
        """The progress in a file, none where there is no file."""
        if not file.exists():
            return cls(file, runs=runs)
        state = json.loads(file.read_text(encoding="utf-8"))
        return cls(file, runs=runs, done=state["done"], recorded=state["recorded"])

    def begin(self, step: str, *, number: int, of: int) -> None:
        if self._runs.exists():
            os.truncate(self._runs, self._recorded)
        print(f"{MARK}{number} of {of}: {step}", flush=True)

    def end(self, step: str) -> None:
        self.done.append(step)
        self._recorded = self._runs.stat().st_size if self._runs.exists() else 0
        part = self._file.with_suffix(".part")
        part.write_text(json.dumps({"done": self.done, "recorded": self._recorded}), encoding="utf-8")
        part.replace(self._file)
