# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the benchmark makes of its samples: which of them it refuses, and which goals are met."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest
from ansible_collections.gpufleet.node.tests.unit.repository.scripts import siblings

with siblings("tests/bench"):
    import bench
    import bench_report as report
    from bench_looks import MODULE, PROGRAM, looks_in, noting
    from bench_node import BenchError, cpu_of
    from bench_ways import FLOOR, GPUFLEET, GPUFLEET_MODULE, TASKS, USUAL, USUAL_MITOGEN, WAYS


def looks(place: Path, *entries: List[Any]) -> Path:
    file = place / "looks.json"
    file.write_text(json.dumps(entries))
    return file


@pytest.mark.parametrize(("looked_by", "entries", "count"), [(PROGRAM, [[PROGRAM, "", 3]], 3), ("", [], 0)])
def test_looks_by_whom_the_way_is_about_are_counted(
    tmp_path: Path, looked_by: str, entries: List[List[Any]], count: int
) -> None:
    assert looks_in(looks(tmp_path, *entries), way="way", looked_by=looked_by) == count


@pytest.mark.parametrize(
    ("looked_by", "entries", "why"),
    [
        (PROGRAM, [[PROGRAM, "", 9], [MODULE, "it is damaged", 1]], "for 1 looks it was the module: it is damaged"),
        (MODULE, [[PROGRAM, "", 1]], "the module was to look, and for 1 looks it was the program"),
        ("", [[MODULE, "", 1]], "nobody was to look"),
        (PROGRAM, [], "the program was to look, and nobody did"),
    ],
)
def test_a_run_that_fell_back_is_no_sample(tmp_path: Path, looked_by: str, entries: List[List[Any]], why: str) -> None:
    with pytest.raises(BenchError, match=why):
        looks_in(looks(tmp_path, *entries), way="way", looked_by=looked_by)


def test_what_an_earlier_run_left_is_not_taken_for_this_one(tmp_path: Path) -> None:
    file = looks(tmp_path, [PROGRAM, "", 1])
    assert noting(file)["GPUFLEET_BENCH_LOOKS"] == str(file)
    with pytest.raises(FileNotFoundError):
        looks_in(file, way="way", looked_by=PROGRAM)


def test_both_ways_to_look_are_among_the_ways() -> None:
    found = {way.name: way for way in WAYS if way.looked_by}
    assert {name: way.looked_by for name, way in found.items()} == {GPUFLEET: PROGRAM, GPUFLEET_MODULE: MODULE}
    assert found[GPUFLEET].variables == ()


def medians(**changed: Dict[str, float]) -> Dict[str, Dict[str, float]]:
    of = {FLOOR: 1.0, GPUFLEET: 0.7, TASKS: 5.6, USUAL: 14.0, USUAL_MITOGEN: 1.75}
    values = {way: dict.fromkeys(report.MEASURES, value) for way, value in of.items()}
    values[GPUFLEET]["bytes_sent"] = 0.1
    for way, measures in changed.items():
        values[way].update(measures)
    return values


def test_each_goal_is_met_at_its_bound_and_missed_beyond_it() -> None:
    met = report.goals(medians(), virtual=True)
    assert len(met) == len(report.GOALS)
    assert [text for is_met, text in met if not is_met] == []
    slow = report.goals(medians(gpufleet=dict.fromkeys(report.MEASURES, 0.81)), virtual=True)
    assert [text for is_met, text in slow if is_met] == []


def test_a_cpu_that_nobody_emulates_has_a_goal_of_its_own() -> None:
    values = medians(gpufleet={"node_cpu": 0.75})
    bounds = {virtual: report.goals(values, virtual=virtual)[1] for virtual in (True, False)}
    assert bounds[True] == (False, "we take at most 0.7 times the node CPU of the floor: not met, 0.75 times")
    assert bounds[False] == (True, "we take at most 0.8 times the node CPU of the floor: met, 0.75 times")


def test_the_clock_of_a_process_has_all_that_it_used() -> None:
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        begin = cpu_of(child.pid)
        time.sleep(0.3)
        used = cpu_of(child.pid) - begin
    finally:
        child.kill()
        _pid, _status, usage = os.wait4(child.pid, 0)
        child.returncode = 0
    assert 0 < used <= usage.ru_utime + usage.ru_stime + 0.02


@pytest.mark.parametrize("pid", [None, "", f"{2**22 + 1}\n"])
def test_a_virtual_node_that_was_kept_and_is_gone_is_told(tmp_path: Path, pid: Optional[str]) -> None:
    """The kernel has no process of a number above 2**22."""
    if pid is not None:
        (tmp_path / "qemu.pid").write_text(pid)
    with pytest.raises(BenchError, match=r"that was kept is gone \(.*\): run `python3 tests/vm/bed\.py down --name "):
        bench.running_qemu(tmp_path)
    (tmp_path / "qemu.pid").write_text(f"{os.getpid()}\n")
    assert bench.running_qemu(tmp_path) == os.getpid()
