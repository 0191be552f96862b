# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The costs that `make test` lists and `make profile` compares: of all that a stage starts, by stage, step and test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from operator import attrgetter
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence

import pytest
from ansible_collections.gpufleet.node.tests.unit.repository import scripts

ROOT = Path(__file__).resolve().parents[3]
TOOLS = ROOT / "tools"
# A process in a session of its own that works for a moment and is not waited for, as an emulated machine is.
DAEMON = """
import subprocess, sys
work = "import time; end = time.process_time() + 0.3\\nwhile time.process_time() < end: pass"
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
subprocess.Popen([sys.executable, "-S", "-c", work], start_new_session=True, **quiet)
"""
SECONDS_OF_DAEMON = 0.3


@pytest.fixture
def tools() -> Iterator[Any]:
    with scripts.tools("cgroup", "costs", "engine", "make", "runner", "scenarios") as found:
        yield found


def run(tools: Any, tmp_path: Path, work: Any, name: str = "unit") -> Any:
    """The outcome of a stage that does this."""
    outcomes: List[Any] = []

    def account(found: Sequence[Any]) -> Sequence[str]:
        outcomes.extend(found)
        return ()

    tools.runner.run_stages(
        [tools.runner.Stage(name, work)],
        side_by_side=1,
        environment={"TMPDIR": str(tmp_path), "PATH": os.environ["PATH"]},
        root=tmp_path,
        logs=tmp_path / "logs",
        account=account,
    )
    return outcomes[0]


# --- what is counted --------------------------------------------------------------------------------------------------


@pytest.fixture
def counting(tools: Any) -> Any:
    """The tools, where this user may count by control groups."""
    meter = tools.cgroup.meter("probe")
    if meter is None:
        pytest.skip("this user may make no control groups here")
    meter.close()
    return tools


def test_a_daemon_that_a_command_leaves_running_counts_to_the_stage_and_to_the_step_beside_it(
    counting: Any, tmp_path: Path
) -> None:
    def work(job: Any) -> None:
        job.run([sys.executable, "-c", DAEMON])
        left = job.processor()
        deadline = time.monotonic() + 30
        while job.processor() < left + SECONDS_OF_DAEMON / 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        job.run(["true"])

    outcome = run(counting, tmp_path, work)
    assert outcome.state == "passed"
    assert outcome.complete
    assert outcome.processor > SECONDS_OF_DAEMON / 2
    assert sum(outcome.steps.values()) == pytest.approx(outcome.processor, abs=SECONDS_OF_DAEMON)
    assert outcome.steps[counting.runner.BETWEEN] > SECONDS_OF_DAEMON / 4


def test_the_control_group_of_a_stage_is_gone_at_its_end_and_what_still_runs_is_where_it_began(
    counting: Any, tmp_path: Path
) -> None:
    sleeper = "setsid sleep 60 >/dev/null 2>&1 & echo $!"
    pids: List[int] = []

    def groups(pid: str) -> str:
        return Path("/proc", pid, "cgroup").read_text()

    def work(job: Any) -> None:
        pids.append(int(job.run(["sh", "-c", sleeper])[0]))
        assert job.meter.name in groups(str(pids[0]))

    outcome = run(counting, tmp_path, work)
    try:
        assert outcome.state == "passed"
        assert groups(str(pids[0])) == groups("self")
        assert not list(Path("/sys/fs/cgroup").rglob(f"gpufleet_{os.getpid()}_unit*"))
    finally:
        os.kill(pids[0], 9)


def test_a_program_that_is_not_there_is_named_although_a_shell_would_start_it(tools: Any, tmp_path: Path) -> None:
    outcome = run(tools, tmp_path, lambda job: job.run(["no-such-program"]))
    assert outcome.reports == ["Cannot run no-such-program: No such file or directory"]


def hierarchy(root: Path, files: Dict[str, str], groups: str) -> None:
    for name, text in {**files, "proc/self/cgroup": groups}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("files", "groups", "own", "readings"),
    [
        (
            {"sys/cgroup.controllers": "cpu", "sys/user/session/cgroup.procs": ""},
            "0::/user/session\n",
            "sys/user/session",
            ("cpu.stat", "usage_usec 2500000\nuser_usec 1\n"),
        ),
        (
            {"sys/cpuacct/cpuacct.usage": "0", "sys/cpuacct/cgroup.procs": "", "sys/unified/cgroup.controllers": ""},
            "2:cpuacct:/\n0::/\n",
            "sys/cpuacct",
            ("cpuacct.usage", "2500000000\n"),
        ),
        (
            # In a container, with the path that the host has for it.
            {"sys/cpu,cpuacct/cpuacct.usage": "0", "sys/cpu,cpuacct/cgroup.procs": ""},
            "2:cpu,cpuacct:/docker/3f2a\n",
            "sys/cpu,cpuacct",
            ("cpuacct.usage", "2500000000\n"),
        ),
    ],
    ids=["version 2", "version 1 beside 2", "a container"],
)
def test_commands_are_below_the_group_of_the_caller_and_containers_beside_the_others_of_engines(
    tools: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: Any, groups: str, own: str, readings: Any
) -> None:
    hierarchy(tmp_path, files, groups)
    monkeypatch.setattr(tools.cgroup.os, "access", lambda _path, _mode: True)
    monkeypatch.setattr(tools.cgroup, "SYSTEMD", tmp_path / "systemd")
    meter = tools.cgroup.meter("vm-trixie", root=tmp_path / "sys", proc=tmp_path / "proc")
    name = f"gpufleet_{os.getpid()}_vm_trixie"
    commands = tmp_path / own / name
    assert meter.wrap(["qemu", "-x"])[2:] == [
        tools.cgroup.ENTER,
        str(commands / "cgroup.procs"),
        "qemu",
        "-x",
    ]
    assert meter.containers() == [f"--cgroup-parent=/{name}_containers"]
    (commands / readings[0]).write_text(readings[1])
    assert meter.seconds() == 2.5
    top = tmp_path / ("sys" if own == "sys/user/session" else own)
    hierarchy(top / f"{name}_containers", {readings[0]: readings[1]}, "")
    assert meter.seconds() == 5.0
    # An engine may remove its group before the stage ends: what was in it stays counted.
    (top / f"{name}_containers" / readings[0]).unlink()
    assert meter.seconds() == 5.0


def test_with_systemd_and_version_2_the_group_of_containers_is_a_slice(
    tools: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hierarchy(tmp_path, {"sys/cgroup.controllers": "", "sys/cgroup.procs": ""}, "0::/\n")
    monkeypatch.setattr(tools.cgroup.os, "access", lambda _path, _mode: True)
    monkeypatch.setattr(tools.cgroup, "SYSTEMD", tmp_path)
    meter = tools.cgroup.meter("molecule", root=tmp_path / "sys", proc=tmp_path / "proc")
    assert meter.containers() == [f"--cgroup-parent=gpufleet_{os.getpid()}_molecule.slice"]


def test_where_no_control_group_may_be_made_the_table_says_what_is_not_counted(
    tools: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tools.cgroup, "meter", lambda _name: None)
    outcome = run(tools, tmp_path, lambda job: job.run([sys.executable, "-c", "pass"]))
    assert not outcome.complete
    assert 0 < outcome.processor == pytest.approx(sum(outcome.steps.values()))
    lines = capsys.readouterr().out.splitlines()
    assert lines[-3].endswith("0.0+")
    assert lines[-1] == "+: and what daemons, emulated machines and containers took, which only root may count"


# --- steps and tests --------------------------------------------------------------------------------------------------

ACTIONS = """
INFO     [vm-trixie > create] Executing
PLAY [Create the machine] ******************************************************
TASK [Start it] ****************************************************************
INFO     [vm-trixie > create] Executed: Successful
INFO     [vm-trixie > verify] Executing
"""


@pytest.mark.parametrize(
    ("pattern", "lines", "names"),
    [
        (
            "scenarios.ANSIBLE_STEPS",
            ACTIONS,
            ["vm-trixie > create", "vm-trixie > create: Create the machine", "vm-trixie > verify"],
        ),
        (
            "make.SANITY_STEPS",
            'Running sanity test "ansible-doc"\nERROR: x\nRunning sanity test "import" on Python 3.9\n',
            ["ansible-doc", "import"],
        ),
    ],
)
def test_an_action_a_play_and_a_sanity_test_begin_a_step(
    tools: Any, tmp_path: Path, pattern: str, lines: str, names: List[str]
) -> None:
    (tmp_path / "lines").write_text(lines)

    def work(job: Any) -> None:
        job.run(["cat", "lines"], steps=attrgetter(pattern)(tools))

    assert list(run(tools, tmp_path, work).steps) == [tools.runner.BETWEEN, "cat lines", *names]


def test_what_a_stage_takes_counts_to_the_step_that_began_last(tools: Any) -> None:
    readings = iter([1.0, 3.0, 7.0, 7.5])
    steps = tools.runner.Steps(lambda: next(readings))
    for name in ("create", "converge", "create", tools.runner.BETWEEN):
        steps.begin(name)
    assert steps.seconds == {tools.runner.BETWEEN: 1.0, "create": 2.5, "converge": 4.0}


def test_a_step_has_one_name_in_all_checkouts_and_runs(tools: Any, tmp_path: Path) -> None:
    def work(job: Any) -> None:
        job.run(["sh", "-c", ":", f"{tmp_path}/tests/x.py", f"{job.scratch}/work"])

    board = tools.runner.Board(tmp_path)
    job = tools.runner.Job(board, "unit", {"TMPDIR": str(tmp_path / "s17"), "PATH": os.environ["PATH"]}, tmp_path)
    work(job)
    job.close()
    assert list(job.steps.seconds) == [tools.runner.BETWEEN, "sh -c : tests/x.py TMPDIR/work"]


TESTS = """
import subprocess, sys
import pytest

WORK = "import time; end = time.process_time() + {}\\nwhile time.process_time() < end: pass"


@pytest.fixture(scope="module")
def machine():
    exec(WORK.format(0.1))


def test_first(machine):
    pass


def test_second(machine):
    subprocess.run([sys.executable, "-c", WORK.format(0.2)], check=True)
"""


def test_a_test_has_the_time_of_its_children_and_the_first_one_pays_for_a_shared_fixture(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "pytest_costs"]
    command += ["--costs", str(tmp_path / "costs"), "test_it.py"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests" / "measure")}
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, stdout=subprocess.DEVNULL)
    (file,) = (tmp_path / "costs").iterdir()
    found = json.loads(file.read_text())
    assert list(found) == ["(collection)", "test_it.py::test_first", "test_it.py::test_second"]
    assert found["test_it.py::test_first"] >= 0.1
    assert found["test_it.py::test_second"] >= 0.2
    assert found["(collection)"] > 0.05


def test_what_several_processes_wrote_of_one_test_is_added_up(tools: Any, tmp_path: Path) -> None:
    def work(job: Any) -> None:
        job.test_costs.mkdir()
        for number in (1, 2):
            (job.test_costs / f"{number}.json").write_text(json.dumps({"a": 1.5, f"of {number}": 1}))

    assert run(tools, tmp_path, work).tests == {"a": 3.0, "of 1": 1, "of 2": 1}


# --- the file, and two of them ----------------------------------------------------------------------------------------


def run_of(tools: Any, **stages: float) -> Dict[str, Any]:
    return {
        "time": "2026-11-28T10:31:08Z",
        "target": "test",
        "options": {},
        "commit": "0123456789abcdef",
        "dirty": False,
        "cpu": "AMD EPYC",
        "cores": 2,
        "python": "3.11.7",
        "reference_seconds": [0.005, 0.005, 0.2],
        "machine": {"others": 60.0, "steal": 0.0},
        "stages": {
            name: {
                "state": "passed",
                "seconds": 60.0,
                "processor": seconds,
                "complete": True,
                "steps": {"lint all": seconds},
                "tests": {"a.py::test_a": seconds / 2, "a.py::test_b": seconds / 4},
            }
            for name, seconds in stages.items()
        },
    }


def compare(tools: Any, old: Any, new: Any) -> Any:
    return tools.costs.compare(old, new, names=("old.json", "new.json"))


@pytest.mark.parametrize(
    ("before", "after", "status"),
    [(100.0, 110.0, 1), (100.0, 109.0, 0), (100.0, 50.0, 0), (2.0, 4.0, 0), (2.0, 8.0, 1)],
    ids=["by a tenth", "by less", "cheaper", "by too few seconds to tell", "little that became much"],
)
def test_a_stage_that_is_dearer_is_marked_and_ends_the_comparison_badly(
    tools: Any, before: float, after: float, status: int
) -> None:
    lines, found = compare(tools, run_of(tools, lint=before, awx=1000.0), run_of(tools, lint=after, awx=1000.0))
    assert found == status
    assert ("Dearer by 10% or more: lint" in lines) == bool(status)
    assert [line.endswith("DEARER") for line in lines if line.startswith("lint")] == [bool(status)]
    assert f"{before:10.1f}{after:10.1f}{after - before:+9.1f}  lint: lint all" in lines
    assert any(line.endswith("lint: a.py::test_a") for line in lines)


def test_seconds_of_a_slower_machine_are_scaled_and_the_comparison_says_so(tools: Any) -> None:
    old, new = run_of(tools, lint=100.0), run_of(tools, lint=200.0)
    new["reference_seconds"] = [0.010, 0.010]
    lines, status = compare(tools, old, new)
    assert status == 0
    assert "Seconds after are scaled by 0.50, for the reference work took 5.00 ms before and 10.00 ms after." in lines
    assert [line for line in lines if line.startswith("lint")] == [f"{'lint':<16}     100.0     100.0    +0%"]
    new["python"] = "3.13.0"
    lines, status = compare(tools, old, new)
    assert status == 1
    assert "Not scaled by the speed of the machines: it was measured with Python 3.11 and 3.13." in lines


def test_a_stage_that_failed_or_is_not_counted_alike_is_not_compared(tools: Any) -> None:
    old = run_of(tools, lint=10.0, awx=10.0, molecule=10.0, unit=10.0)
    new = run_of(tools, lint=90.0, awx=90.0, molecule=90.0)
    new["stages"]["lint"]["state"] = "failed"
    old["stages"]["awx"]["state"] = "skipped"
    new["stages"]["molecule"]["complete"] = False
    lines, status = compare(tools, old, new)
    assert status == 0
    assert [line.split(": ")[1] for line in lines if "not compared" in line] == [
        "it failed after",
        "it was skipped before",
        "daemons, emulated machines and containers are counted in one of the runs only",
        "it did not run after",
    ]


def test_a_run_is_compared_with_the_last_one_before_it_of_the_same_target_and_options(
    tools: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tools.make, "LOGS", tmp_path)
    assert tools.make.profile("", "") == 2
    for hour, target, options in (
        (1, "test", {}),
        (2, "unit", {}),
        (3, "test", {"scenario": ["drain"]}),
        (4, "test", {}),
    ):
        run = {**run_of(tools, lint=100.0 * hour), "target": target, "options": options}
        tools.costs.write({**run, "time": f"2026-11-28T0{hour}:00:00Z"}, tmp_path)
    assert tools.make.profile("", "") == 1
    shown = capsys.readouterr()
    assert shown.out.startswith(
        "before  costs-20261128T010000Z-test.json: make test of 0123456789 on 2 x AMD EPYC, 1 min"
    )
    assert "Cannot compare: " in shown.err
    older, newer = (
        str(tmp_path / f"costs-20261128T0{hour}0000Z-{name}.json") for hour, name in ((4, "test"), (2, "unit"))
    )
    assert tools.make.profile(older, newer) == 0
    assert tools.make.profile("", newer) == 2
    assert "there is no earlier run of make unit with the same options" in capsys.readouterr().err


def test_the_last_few_files_of_a_target_are_kept_and_one_name_leads_to_the_last(tools: Any, tmp_path: Path) -> None:
    run = run_of(tools, lint=1.0)
    tools.costs.write({**run, "target": "lint", "time": "2026-11-27T00:00:00Z"}, tmp_path)
    for minute in range(12):
        tools.costs.write({**run, "time": f"2026-11-28T10:{minute:02d}:00Z"}, tmp_path)
    kept = sorted(path.name for path in tmp_path.glob("costs-*.json"))
    assert kept == [
        "costs-20261127T000000Z-lint.json",
        *(f"costs-20261128T10{m:02d}00Z-test.json" for m in range(2, 12)),
    ]
    assert (tmp_path / "costs.json").resolve().name == kept[-1]


def test_below_the_table_are_the_dearest_steps_and_tests_of_each_stage_and_the_file_has_all(
    tools: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    account = tools.costs.Account(target="lint", options={"python": None}, root=tmp_path, logs=tmp_path)
    tests = {f"test_{number}": float(number) for number in range(1, 9)}
    tests["test_long[" + "#" * 40000] = 9.0
    outcome = tools.runner.Outcome("lint", "passed", 60.0, [], 80.0, steps={"mypy": 60.0, "ruff": 0.01}, tests=tests)
    with account.kept() as finish:
        lines = finish([outcome])
    assert lines[:4] == [
        "",
        "Dearest steps and tests, in seconds of the processor:",
        "lint 80.0",
        "      60.0   75%  mypy",
    ]
    assert len(lines[4]) < 200
    assert lines[4].endswith("###...")
    assert [line.split()[-1] for line in lines[5:9]] == [f"test_{number}" for number in (8, 7, 6, 5)]
    written = json.loads((tmp_path / "costs.json").read_text())
    assert written["stages"]["lint"]["tests"] == tests
    assert written["options"] == {}
    assert len(written["reference_seconds"]) == 2
    assert all(seconds > 0 for seconds in written["reference_seconds"])
    assert written["machine"]["others"] >= 0


def test_the_engine_is_counted_and_its_containers_too(
    tools: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: List[List[str]] = []

    class Refused(Exception):
        pass

    def start(command: List[str], **_options: Any) -> None:
        started.append(command)
        raise Refused

    meter = type("Meter", (), {"containers": lambda self: ["--cgroup-parent=/x"]})()
    job = type("Job", (), {"meter": meter, "scratch": tmp_path, "log": tmp_path / "x.log", "environment": {}})()
    job.say = lambda _text: None
    job.counted = lambda command: ["counted", *command]
    monkeypatch.setattr(tools.engine.os, "geteuid", lambda: 0)
    monkeypatch.setattr(tools.engine, "DATA", tmp_path / "d")
    monkeypatch.setattr(tools.engine, "LONGEST_SOCKET_FOLDER", 1000)
    monkeypatch.setattr(tools.engine, "PID_FILE", tmp_path / "d" / "pid")
    monkeypatch.setattr(tools.engine, "LOG", tmp_path / "dockerd.log")
    monkeypatch.setattr(tools.engine, "TRACES_BEFORE", tmp_path / "traces")
    monkeypatch.setattr(tools.engine, "stop_stale", lambda: None)
    monkeypatch.setattr(tools.engine, "kept_engine", lambda _job: None)
    monkeypatch.setattr(tools.engine, "require_programs", lambda _job, _names: None)
    monkeypatch.setattr(tools.engine.subprocess, "Popen", start)
    with pytest.raises(Refused), tools.engine.engine(job):
        pass
    assert started[0][:2] == ["counted", "dockerd"]
    assert started[0][-1] == "--cgroup-parent=/x"
