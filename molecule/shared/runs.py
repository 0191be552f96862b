# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the playbooks of a scenario said they change, as the callback ``record_changes`` wrote it down."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

Changes = Dict[Tuple[str, str], List[Any]]


@dataclass(frozen=True)
class Run:
    """One run of a playbook. ``changes`` has the plan of each (host, task); a task that ran twice has both.

    ``looks`` has by host who answered each question about the state or the facts: the program or the module.
    """

    playbook: str
    check: bool
    changes: Changes
    looks: Dict[str, List[str]]

    def of(self, host: str) -> Changes:
        return {key: changes for key, changes in self.changes.items() if key[0] == host}


def read(path: Optional[Path] = None) -> List[Run]:
    """All runs, the first one first."""
    file = path or Path(os.environ["GPUFLEET_RUNS"])
    runs = []
    for line in file.read_text(encoding="utf-8").splitlines():
        raw = json.loads(line)
        changes: Changes = {}
        for entry in raw["results"]:
            changes.setdefault((entry["host"], entry["task"]), []).extend(entry["changes"])
        looks: Dict[str, List[str]] = {}
        for look in raw["looks"]:
            looks.setdefault(look["host"], []).append(look["by"])
        runs.append(Run(playbook=raw["playbook"], check=raw["check"], changes=changes, looks=looks))
    return runs


def predicted_and_done(playbook: str, host: str, path: Optional[Path] = None) -> Tuple[Changes, Changes]:
    """What the first run of a playbook in check mode predicted for a host, and what the next real run of it did."""
    runs = [run for run in read(path) if run.playbook == playbook]
    check = next(index for index, run in enumerate(runs) if run.check)
    real = next(run for run in runs[check + 1 :] if not run.check)
    return runs[check].of(host), real.of(host)


def repeated(playbook: str, host: str, path: Optional[Path] = None) -> Changes:
    """What the second real run of a playbook did to a host."""
    real = [run for run in read(path) if run.playbook == playbook and not run.check]
    return real[1].of(host)


def lookers(playbook: str, host: str, path: Optional[Path] = None) -> List[List[str]]:
    """Who answered each question to a host in each run of a playbook, the first one first."""
    return [run.looks.get(host, []) for run in read(path) if run.playbook == playbook]
