# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the checks cost in processor time: the dearest steps and tests of a run, and a comparison of two runs.

``.cache/logs/costs-TIME-TARGET.json`` has what one run cost. Machines differ in speed, and one machine does from hour
to hour, so a run also times a fixed piece of work, and a comparison is scaled by it.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from runner import Outcome

LAST = "costs.json"
KEPT = 10
SHOWN = 5
WIDEST = 150
COMPARED = 10
# From here on a stage is dearer, if by so many seconds: below that two runs of one thing differ as much.
DEARER = 0.10
NOISE_SECONDS = 5.0
# Below this, what differs is the measurement.
SAME_SPEED = 0.05
SAMPLE_SECONDS = 60.0
BUSY = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
IDLE = ("idle", "iowait", "steal")


# --- speed of the machine ---------------------------------------------------------------------------------------------


def reference_work() -> int:
    """A fixed piece of what tests do most, in Python: objects, texts and a pattern, for some milliseconds."""
    numbers = re.compile(r"\d+")
    rows = [{"name": f"gpu{index}", "at": str(index * 7919 % 1009)} for index in range(2000)]
    rows.sort(key=lambda row: (row["at"], row["name"]))
    return sum(int(found[0]) for row in rows if (found := numbers.search(row["name"])))


def reference_seconds(attempts: int = 5) -> float:
    """Seconds of the processor for the fixed piece of work: the least of some attempts."""
    taken = []
    for _attempt in range(attempts):
        begin = time.thread_time()
        reference_work()
        taken.append(time.thread_time() - begin)
    return min(taken)


@dataclass
class Speed:
    """How fast the machine was: at the beginning, once a minute, and at the end."""

    samples: List[float] = field(default_factory=list)

    @contextlib.contextmanager
    def sampled(self) -> Iterator[None]:
        done = threading.Event()

        def sample() -> None:
            while not done.wait(SAMPLE_SECONDS):
                self.samples.append(reference_seconds())

        self.samples.append(reference_seconds())
        thread = threading.Thread(target=sample, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


# --- one run ----------------------------------------------------------------------------------------------------------


class Account:
    """The costs of one run, written down when its stages have ended."""

    def __init__(self, *, target: str, options: Mapping[str, Any], root: Path, logs: Path) -> None:
        """``options`` are those that change what the target does."""
        self._speed = Speed()
        self._logs = logs
        self._root = root
        self._machine = _busy()
        self._head = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "target": target,
            "options": {name: value for name, value in options.items() if value},
            **_version(root),
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        }

    @contextlib.contextmanager
    def kept(self) -> Iterator[Callable[[Sequence[Outcome]], List[str]]]:
        """While the stages run; yields what writes the file at their end and returns lines for the user."""
        with self._speed.sampled():
            yield self._finish

    def _finish(self, outcomes: Sequence[Outcome]) -> List[str]:
        self._speed.samples.append(reference_seconds())
        content = {
            **self._head,
            "reference_seconds": [round(seconds, 6) for seconds in self._speed.samples],
            "machine": self._others(outcomes),
            "stages": {outcome.name: _entry(outcome) for outcome in outcomes},
        }
        path = write(content, self._logs)
        return [
            *dearest(content),
            "",
            f"Costs: {os.path.relpath(path, self._root)} (`make profile` compares two such files)",
        ]

    def _others(self, outcomes: Sequence[Outcome]) -> Dict[str, Optional[float]]:
        """Seconds of the processor that others had meanwhile, and that the host of this virtual machine took."""
        now = _busy()
        used = {name: now[name] - self._machine[name] for name in now}
        own = resource.getrusage(resource.RUSAGE_SELF)
        ours = sum(outcome.processor for outcome in outcomes) + own.ru_utime + own.ru_stime
        busy = sum(seconds for name, seconds in used.items() if name not in IDLE)
        counted = all(outcome.complete for outcome in outcomes)
        return {"others": round(max(0.0, busy - ours), 1) if counted else None, "steal": round(used["steal"], 1)}


def _entry(outcome: Outcome) -> Dict[str, Any]:
    return {
        "state": outcome.state,
        "seconds": round(outcome.seconds, 1),
        "processor": round(outcome.processor, 3),
        "complete": outcome.complete,
        "steps": {name: round(seconds, 3) for name, seconds in outcome.steps.items()},
        "tests": {name: round(seconds, 4) for name, seconds in outcome.tests.items()},
    }


def write(content: Mapping[str, Any], logs: Path) -> Path:
    """Write a file of costs, have ``costs.json`` lead to it, and keep the last few of the target."""
    stamp = content["time"].translate({ord("-"): None, ord(":"): None})
    path = logs / f"costs-{stamp}-{content['target']}.json"
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    part.replace(path)
    link = logs / LAST
    link.unlink(missing_ok=True)
    link.symlink_to(path.name)
    for old in runs(logs, content["target"])[:-KEPT]:
        old.unlink()
    return path


def runs(logs: Path, target: str = "*") -> List[Path]:
    """The files of costs, the oldest one first."""
    return sorted(logs.glob(f"costs-*Z-{target}.json"))


def dearest(content: Mapping[str, Any]) -> List[str]:
    """The steps and tests of each stage that cost most, with their share of the stage."""
    lines = ["", "Dearest steps and tests, in seconds of the processor:"]
    for name, stage in content["stages"].items():
        whole = stage["processor"]
        if not whole:
            continue
        lines.append(f"{name} {whole:.1f}{'' if stage['complete'] else '+'}")
        for kind in ("steps", "tests"):
            costs = sorted(stage[kind].items(), key=lambda item: -item[1])[:SHOWN]
            lines += [f"  {s:8.1f}  {s / whole:4.0%}  {_cut(what)}" for what, s in costs if s >= 0.05]
    return lines


def _cut(name: str) -> str:
    """The name of a step or a test within a line: that of a test may have its parameters in it, of any length."""
    return name if len(name) <= WIDEST else f"{name[: WIDEST - 3]}..."


# --- two runs ---------------------------------------------------------------------------------------------------------


class NothingToCompare(Exception):
    """There are no two runs to compare. The text says why."""


def profile(logs: Path, before: str = "", after: str = "") -> Tuple[List[str], int]:
    """Compare two runs, by default the last one and the last one before it of the same target.

    Returns lines for the user and the exit status: 1 where a stage, or all together, is dearer. Raises
    ``NothingToCompare``.
    """
    kept = runs(logs)
    if not after and not kept:
        raise NothingToCompare(f"Cannot compare: {logs} has no costs-*.json; `make test` writes one")
    newer = Path(after) if after else kept[-1]
    new = read(newer)
    older = Path(before) if before else _former(kept, newer, new)
    return compare(read(older), new, names=(older.name, newer.name))


def _former(kept: Sequence[Path], newer: Path, new: Mapping[str, Any]) -> Path:
    for path in reversed(kept):
        if path.name < newer.name and all(read(path)[key] == new[key] for key in ("target", "options")):
            return path
    raise NothingToCompare(
        f"Cannot compare {newer.name}: there is no earlier run of make {new['target']} with the same options; "
        "name one with BEFORE=FILE"
    )


def read(path: Path) -> Dict[str, Any]:
    try:
        content: Dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise NothingToCompare(f"Cannot read {path}: {error}") from error
    return content


def compare(old: Mapping[str, Any], new: Mapping[str, Any], *, names: Tuple[str, str]) -> Tuple[List[str], int]:
    """Stages, then the steps and tests that differ most; and the exit status."""
    lines = [_title(word, name, run) for word, name, run in zip(("before", "after"), names, (old, new))]
    scale, speed = _scale(old, new)
    lines += [speed, "", f"{'stage':<16}    before     after"]
    dearer = []
    sums = [0.0, 0.0]
    comparable = []
    for name in {**old["stages"], **new["stages"]}:
        pair = [run["stages"].get(name) for run in (old, new)]
        reason = _not_comparable(pair)
        if reason:
            lines.append(f"{name:<16}  not compared: {reason}")
            continue
        comparable.append(name)
        costs = (pair[0]["processor"], pair[1]["processor"] * scale)
        sums = [total + cost for total, cost in zip(sums, costs)]
        lines.append(_row(name, *costs))
        if is_dearer(*costs):
            dearer.append(name)
    if comparable:
        lines.append(_row("together", *sums))
        if is_dearer(*sums):
            dearer.append("together")
    for kind in ("steps", "tests"):
        lines += _differences(kind, old, new, comparable, scale)
    if dearer:
        lines += ["", f"Dearer by {DEARER:.0%} or more: {', '.join(dearer)}"]
    return lines, 1 if dearer else 0


def is_dearer(before: float, after: float) -> bool:
    return after - before >= max(before * DEARER, NOISE_SECONDS)


def _not_comparable(pair: Sequence[Optional[Mapping[str, Any]]]) -> str:
    for word, stage in zip(("before", "after"), pair):
        if stage is None:
            return f"it did not run {word}"
        if stage["state"] != "passed":
            return f"it {stage['state']} {word}" if stage["state"] == "failed" else f"it was {stage['state']} {word}"
    if len({stage["complete"] for stage in pair if stage}) > 1:
        return "daemons, emulated machines and containers are counted in one of the runs only"
    return ""


def _differences(
    kind: str, old: Mapping[str, Any], new: Mapping[str, Any], stages: Sequence[str], scale: float
) -> List[str]:
    rows = []
    for stage in stages:
        before, after = old["stages"][stage][kind], new["stages"][stage][kind]
        for name in {**before, **after}:
            costs = (before.get(name, 0.0), after.get(name, 0.0) * scale)
            state = "" if name in before and name in after else "  (new)" if name in after else "  (gone)"
            rows.append((abs(costs[1] - costs[0]), costs, f"{stage}: {name}{state}"))
    rows.sort(key=lambda row: -row[0])
    shown = [
        f"{costs[0]:10.1f}{costs[1]:10.1f}{costs[1] - costs[0]:+9.1f}  {name}" for _by, costs, name in rows[:COMPARED]
    ]
    return ["", f"{kind} that differ most", *shown] if shown else []


def _row(name: str, before: float, after: float) -> str:
    change = f"{after / before - 1:+7.0%}" if before else f"{'':7}"
    return f"{name:<16}{before:10.1f}{after:10.1f}{change}{'  DEARER' if is_dearer(before, after) else ''}"


def _title(word: str, name: str, run: Mapping[str, Any]) -> str:
    machine, others = run["machine"], ""
    if machine["others"] is not None:
        others = (
            f", {machine['others'] / 60:.0f} min of the processor for others, {machine['steal'] / 60:.0f} min stolen"
        )
    tree = " with changes" if run["dirty"] else ""
    commit = (run["commit"] or "no commit")[:10]
    return f"{word:<7} {name}: make {run['target']} of {commit}{tree} on {run['cores']} x {run['cpu']}{others}"


def _scale(old: Mapping[str, Any], new: Mapping[str, Any]) -> Tuple[float, str]:
    """The factor that makes seconds of the newer run those of the older one's machine, and a line about it."""
    pythons = [run["python"].rpartition(".")[0] for run in (old, new)]
    if pythons[0] != pythons[1]:
        return 1.0, f"Not scaled by the speed of the machines: it was measured with Python {' and '.join(pythons)}."
    before, after = (statistics.median(run["reference_seconds"]) for run in (old, new))
    measured = f"the reference work took {before * 1e3:.2f} ms before and {after * 1e3:.2f} ms after"
    if abs(before / after - 1) <= SAME_SPEED:
        return 1.0, f"The machine was as fast both times: {measured}."
    return before / after, f"Seconds after are scaled by {before / after:.2f}, for {measured}."


# --- the machine and the checkout -------------------------------------------------------------------------------------


def _busy() -> Dict[str, float]:
    """Seconds by what all processors did since the machine started."""
    words = Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
    ticks = os.sysconf("SC_CLK_TCK")
    return {name: int(word) / ticks for name, word in zip(BUSY, words)}


def _cpu() -> str:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    found = re.search(r"^model name\s*: (.*)", text, flags=re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def _version(root: Path) -> Dict[str, Any]:
    """The commit of the checkout, and whether something differs from it; no commit where git knows none."""

    def git(*words: str) -> Optional[str]:
        command = ["git", "-c", "safe.directory=*", *words]
        try:
            done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        except OSError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
