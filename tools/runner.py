# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stages: some side by side, each with a log of its own, a few lines of progress, and its minutes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Sequence

import cgroup
from why import line_that_matters

TAIL_LINES = 60
HEARTBEAT_SECONDS = 30.0
# What a stage takes while none of its commands runs: of daemons that it left, and of images that are removed.
BETWEEN = "(between commands)"
LONGEST_LABEL = 70


class StageFailed(Exception):
    """A stage ends here. The text says why, ``lines`` are the output of the command that failed."""

    def __init__(self, text: str, lines: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.lines = lines

    @property
    def reason(self) -> str:
        """The text, and the line of the output that says more than an exit status."""
        line = line_that_matters(self.lines)
        return f"{self}: {line}" if line else str(self)


@dataclass
class Stage:
    """A named piece of work."""

    name: str
    work: Callable[[Job], None]


@dataclass
class Outcome:
    """How a stage went. ``state`` is ``passed``, ``failed`` or ``skipped``; ``notes`` are for the summary.

    processor: seconds that it had of the processor. Where ``complete`` is false these are without daemons, emulated
    machines and containers, for want of permission to count them.
    reports: those of the notes that tell how it ended.
    steps, tests: processor time of each, in seconds.
    """

    name: str
    state: str
    seconds: float = 0.0
    notes: List[str] = field(default_factory=list)
    processor: float = 0.0
    reports: List[str] = field(default_factory=list)
    complete: bool = True
    steps: Dict[str, float] = field(default_factory=dict)
    tests: Dict[str, float] = field(default_factory=dict)


class Steps:
    """Processor time by step: what a stage takes from the beginning of one to the beginning of the next.

    What runs beside a step counts to it, so that a step has the emulated machine that works for it. Of two commands at
    the same time the one that began last has it all.
    """

    def __init__(self, read: Callable[[], float]) -> None:
        """``read`` returns the seconds that the stage has had so far."""
        self.seconds: Dict[str, float] = {}
        self._read = read
        self._current = BETWEEN
        self._since = 0.0
        self._lock = threading.Lock()

    def begin(self, name: str) -> None:
        with self._lock:
            now = self._read()
            self.seconds[self._current] = self.seconds.get(self._current, 0.0) + now - self._since
            self._current, self._since = name, now


class Board:
    """What all stages share: the terminal, the folder of logs, and the processes to stop when the user says so."""

    def __init__(self, logs: Path) -> None:
        self.logs = logs
        self.started = time.monotonic()
        self.stopping = threading.Event()
        self._print = threading.Lock()
        self._processes: Dict[int, subprocess.Popen[bytes]] = {}

    def say(self, text: str) -> None:
        elapsed = int(time.monotonic() - self.started)
        with self._print:
            print(f"[{elapsed // 60:02d}:{elapsed % 60:02d}] {text}", flush=True)

    def print(self, text: str) -> None:
        with self._print:
            print(text, flush=True)

    def add(self, process: subprocess.Popen[bytes]) -> None:
        self._processes[process.pid] = process

    def remove(self, process: subprocess.Popen[bytes]) -> None:
        self._processes.pop(process.pid, None)

    def stop(self) -> None:
        """End every command that runs; stages see it as a failure and clean up."""
        self.stopping.set()
        for process in list(self._processes.values()):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)


class Job:
    """What a stage works with: commands whose output goes to its log, and lines for the user."""

    def __init__(
        self,
        board: Board,
        name: str,
        environment: Mapping[str, str],
        root: Path,
        meter: Optional[cgroup.Meter] = None,
    ) -> None:
        """``meter`` counts what the commands leave running, too."""
        self.name = name
        self.root = root
        self.environment = dict(environment)
        self.notes: List[str] = []
        self.reports: List[str] = []
        self.tests: Dict[str, float] = {}
        self.log = board.logs / f"{name}.log"
        self.meter = meter
        self.steps = Steps(self.processor)
        self._waited = 0.0
        self._board = board
        self._last_line = ""

    @property
    def scratch(self) -> Path:
        """The folder of temporary files."""
        return Path(self.environment["TMPDIR"])

    def processor(self) -> float:
        """Seconds that the stage has had of the processor; without a meter those of commands that ended."""
        return self.meter.seconds() if self.meter else self._waited

    def counted(self, command: Sequence[str]) -> List[str]:
        """A command as one whose processor time counts to the stage, for what is not started by ``run``."""
        return self.meter.wrap(command) if self.meter else list(command)

    def close(self) -> None:
        """End the count, and read what each test cost."""
        self.steps.begin(BETWEEN)
        if self.meter:
            self.meter.close()
        for path in sorted(self.test_costs.glob("*.json")):
            for name, seconds in json.loads(path.read_text(encoding="utf-8")).items():
                self.tests[name] = self.tests.get(name, 0.0) + seconds

    @property
    def test_costs(self) -> Path:
        """The folder in which tests/measure/pytest_costs.py writes down what each test costs."""
        return self.scratch / f"costs-{self.name}"

    def say(self, text: str) -> None:
        self._write(f"--- {text}\n")
        self._board.say(f"{self.name}: {text}")

    def note(self, text: str) -> None:
        """A line for the summary."""
        self.notes.append(text)

    def report(self, text: str) -> None:
        """A line that the user sees now, in the summary, and at its very end where the stage fails."""
        self.say(text)
        self.note(text)
        self.reports.append(text)

    @property
    def stopping(self) -> bool:
        """Whether the user has stopped everything."""
        return self._board.stopping.is_set()

    def run(
        self,
        command: Sequence[str],
        *,
        environment: Optional[Mapping[str, str]] = None,
        cwd: Optional[Path] = None,
        show: Optional[str] = None,
        steps: Optional[str] = None,
        plain: bool = False,
        accept: Sequence[int] = (0,),
        cleanup: bool = False,
    ) -> List[str]:
        """Run a command to its end and return its lines. Lines that match ``show`` are shown as they come, with
        time and stage before them; ``plain`` shows all as they are, for a command that itself says where it is.

        A line that matches ``steps`` begins a step, whose name is the group ``step`` of the pattern, or a part of the
        step, whose name is the group ``part``.
        ``cleanup`` runs it even when the user has stopped everything. Raises ``StageFailed`` on another exit status.
        """
        if self._board.stopping.is_set() and not cleanup:
            raise StageFailed("stopped")
        self._write(f"$ {' '.join(command)}\n")
        pattern, step_pattern = (re.compile(text) if text else None for text in (show, steps))
        begin = time.monotonic()
        lines: List[str] = []
        variables = {**self.environment, **(environment or {})}
        step = self._label(command)
        self.steps.begin(step)
        try:
            # Asked for here, since the shell that enters the control group would find it missing too late.
            if shutil.which(command[0], path=variables.get("PATH", os.defpath)) is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command[0])
            process = subprocess.Popen(
                self.counted(command),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=variables,
                cwd=cwd or self.root,
                start_new_session=True,
            )
        except OSError as error:
            self.steps.begin(BETWEEN)
            raise StageFailed(f"Cannot run {command[0]}: {error.strerror}") from error
        if not cleanup:
            self._board.add(process)
        assert process.stdout is not None
        with contextlib.nullcontext() if plain else self._heartbeat(), self.log.open("ab") as log:
            for raw in process.stdout:
                log.write(raw)
                log.flush()
                line = raw.decode("utf-8", "replace").rstrip()
                lines.append(line)
                if line.strip():
                    self._last_line = line.strip()
                found = step_pattern.search(line) if step_pattern else None
                if found:
                    step = found.groupdict().get("step") or step
                    part = found.groupdict().get("part")
                    self.steps.begin(f"{step}: {part}" if part else step)
                if plain:
                    self._board.print(line)
                elif pattern and pattern.search(line):
                    self._board.say(f"{self.name} | {line}")
        _pid, ended, usage = os.wait4(process.pid, 0)
        status = process.returncode = os.waitstatus_to_exitcode(ended)
        self._board.remove(process)
        seconds, processor = time.monotonic() - begin, usage.ru_utime + usage.ru_stime
        self._waited += processor
        self.steps.begin(BETWEEN)
        self._write(f"= exit status {status} after {seconds:.1f} s, {processor:.1f} s of the processor\n")
        if status not in accept:
            if self._board.stopping.is_set() and not cleanup:
                raise StageFailed("stopped")
            raise StageFailed(f"exit status {status} of: {' '.join(command)}", lines)
        return lines

    @contextlib.contextmanager
    def locked(self, path: Path, *, what: str) -> Iterator[None]:
        """Hold an exclusive lock on a file, among all runs in this checkout."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.say(f"{what} is in use by another run, waiting")
                fcntl.flock(handle, fcntl.LOCK_EX)
            yield

    def tail(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-TAIL_LINES:]
        return "\n".join(f"    {line}" for line in lines)

    def _label(self, command: Sequence[str]) -> str:
        """The name of a command as a step: the same in each run and in each checkout."""
        words = " ".join([Path(command[0]).name, *command[1:]])
        text = words.replace(str(self.scratch), "TMPDIR").replace(f"{self.root}/", "")
        return text if len(text) <= LONGEST_LABEL else f"{text[: LONGEST_LABEL - 3]}..."

    def _write(self, text: str) -> None:
        with self.log.open("a", encoding="utf-8") as log:
            log.write(text)

    @contextlib.contextmanager
    def _heartbeat(self) -> Iterator[None]:
        """Say from time to time that a long command is alive, and where it is."""
        done = threading.Event()

        def beat() -> None:
            while not done.wait(HEARTBEAT_SECONDS):
                self._board.say(f"{self.name} ... {self._last_line[:100]}")

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def run_stages(
    stages: Sequence[Stage],
    *,
    side_by_side: int,
    environment: Mapping[str, str],
    root: Path,
    logs: Path,
    account: Callable[[Sequence[Outcome]], Sequence[str]] = lambda outcomes: (),
) -> int:
    """Run the stages in the given order, each as soon as one of ``side_by_side`` workers is free.

    A failure stops nothing, so that one run tells all there is to tell. ``account`` adds lines to the summary. Returns
    the exit status for the process.
    """
    logs.mkdir(parents=True, exist_ok=True)
    board = Board(logs)
    outcomes: Dict[str, Outcome] = {}
    waiting: queue.SimpleQueue[Stage] = queue.SimpleQueue()
    for stage in stages:
        waiting.put(stage)

    def run_one(stage: Stage) -> Outcome:
        if board.stopping.is_set():
            return Outcome(stage.name, "skipped")
        begin = time.monotonic()
        job = Job(board, stage.name, environment, root, meter=cgroup.meter(stage.name))
        board.say(f"{stage.name}: start (log: {os.path.relpath(job.log, root)})")
        job.log.write_bytes(b"")
        try:
            with job.locked(logs / f"{stage.name}.lock", what=f"The stage {stage.name}"):
                stage.work(job)
        except StageFailed as failure:
            state, reason = "failed", failure.reason
        except Exception as error:  # a fault in the tools themselves must not end a worker
            state, reason = "failed", f"{type(error).__name__}: {error}"
        else:
            state, reason = "passed", ""
        job.close()
        seconds = time.monotonic() - begin
        board.say(f"{stage.name}: {state} after {seconds / 60:.1f} min")
        if state == "failed":
            board.print(f"--- end of {job.log}\n{job.tail()}\n--- {stage.name}: {reason}")
            # Once more in the summary: of a long output the end is what people see.
            job.notes.append(reason)
            job.reports.append(reason)
        return Outcome(
            stage.name,
            state,
            seconds,
            job.notes,
            job.processor(),
            job.reports,
            complete=job.meter is not None,
            steps=job.steps.seconds,
            tests=job.tests,
        )

    def work_off() -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                stage = waiting.get_nowait()
                outcomes[stage.name] = run_one(stage)

    def on_signal(number: int, _frame: object) -> None:
        board.say(f"stopped by {signal.Signals(number).name}, cleaning up")
        board.stop()

    previous = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    threads = [threading.Thread(target=work_off) for worker in range(side_by_side)]
    for thread in threads:
        thread.start()
    for thread in threads:
        # A bare join() would keep signals waiting until a stage ends.
        while thread.is_alive():
            thread.join(0.2)
    for number, handler in previous.items():
        signal.signal(number, handler)

    in_order = [outcomes[stage.name] for stage in stages]
    board.print(summary(in_order, time.monotonic() - board.started, account(in_order)))
    passed = all(outcome.state == "passed" for outcome in outcomes.values())
    return 0 if passed else 130 if board.stopping.is_set() else 1


def summary(outcomes: Sequence[Outcome], seconds: float, account: Sequence[str] = ()) -> str:
    """The table at the end, and the lines of ``account`` below it."""
    width = max(len("together"), *(len(outcome.name) for outcome in outcomes))
    lines = ["", f"{'stage':<{width}}  result   minutes  of the processor"]
    for outcome in outcomes:
        lines.append(f"{outcome.name:<{width}}  {outcome.state:<7}  {_minutes(outcome.seconds, [outcome])}")
        lines += [f"{'':<{width}}    {note}" for note in outcome.notes]
    state = "passed" if all(outcome.state == "passed" for outcome in outcomes) else "failed"
    lines.append(f"{'together':<{width}}  {state:<7}  {_minutes(seconds, outcomes)}")
    if not all(outcome.complete for outcome in outcomes):
        lines.append("+: and what daemons, emulated machines and containers took, which only root may count")
    lines += account
    # Last of all: of a long output the end is what people see.
    for outcome in outcomes:
        if outcome.state != "passed":
            lines.append(f"{outcome.name} {outcome.state}: {'; '.join(outcome.reports)}")
        elif outcome.reports:
            # What passes only at a second try is a defect all the same.
            lines.append(f"{outcome.name} passed, but {'; '.join(outcome.reports)}")
    return "\n".join(lines)


def _minutes(seconds: float, outcomes: Sequence[Outcome]) -> str:
    """Minutes that passed, and those of the processor, with a mark where more is not counted."""
    processor = sum(outcome.processor for outcome in outcomes)
    mark = "" if all(outcome.complete for outcome in outcomes) else "+"
    return f"{seconds / 60:7.1f}  {processor / 60:7.1f}{mark}"


def complain(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
