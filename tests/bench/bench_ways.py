# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ways to converge a node, and one run of one of them: timed, or with everything counted."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Dict, List, Mapping, Optional, Sequence, Set, Tuple

from bench_looks import MODULE, PROGRAM, looks_in, noting
from bench_node import BenchError, Meter, Node

BENCH = Path(__file__).resolve().parent
OURS = "/ansible_collections/gpufleet/node/"
# Not below /run, from where nothing may be executed.
COUNTING_FOLDER = "/var/tmp/gpufleet-bench"
END_SECONDS = 10.0

# What starts the program is the only source that Python compiles for it: a line as those of compiled.log.
COUNT_ENTRY = "cd /var/lib/gpufleet/program/compiled && for entry in */look; do echo $(wc -l < $entry) $entry; done"

# A line a call is the whole count.
_COUNTING_PROGRAM = """#!/bin/sh
echo {name} >> "$GPUFLEET_BENCH_CALLS"
exec {name} "$@"
"""
_COUNTING_PYTHON = f"""#!/bin/sh
PYTHONPATH={COUNTING_FOLDER} exec /usr/bin/python3 "$@"
"""
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True)
class Way:
    """A playbook of the folder ``ways`` and what runs it; ``always`` unless it is left to those who ask for it.

    ``looked_by`` is who looks at the node, and ``variables`` what sees to it; empty for what is not the collection.
    """

    name: str
    title: str
    playbook: str
    mitogen: bool = False
    pipelining: bool = True
    always: bool = True
    looked_by: str = ""
    variables: Tuple[str, ...] = ()


FLOOR, GPUFLEET, GPUFLEET_MODULE = "floor", "gpufleet", "gpufleet_module"
TASKS, USUAL, USUAL_MITOGEN = "tasks", "usual", "usual_mitogen"
WAYS = (
    Way(FLOOR, "the floor: an empty module", "floor.yml"),
    Way(GPUFLEET, "`gpufleet.node.site`", "gpufleet.yml", looked_by=PROGRAM),
    Way(
        GPUFLEET_MODULE,
        "`gpufleet.node.site` by the module",
        "gpufleet.yml",
        looked_by=MODULE,
        variables=("gpufleet_look_by=module",),
    ),
    Way(TASKS, "well-written tasks", "tasks.yml"),
    Way("tasks_mitogen", "well-written tasks, mitogen", "tasks.yml", mitogen=True),
    Way(USUAL, "the usual way", "usual.yml"),
    Way(USUAL_MITOGEN, "the usual way, mitogen", "usual.yml", mitogen=True),
    Way("usual_default", "the usual way, no pipelining", "usual.yml", pipelining=False, always=False),
)


@dataclass(frozen=True)
class Sample:
    """One timed run. CPU in seconds; bytes as the node's network interface counts them, headers and all.

    ``node_cpu`` is what the meter is for, and ``guest_cpu`` what the node says itself.
    """

    way: str
    wall: float
    node_cpu: float
    guest_cpu: float
    controller_cpu: float
    bytes_sent: float
    bytes_received: float

    def as_dict(self) -> Dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class Count:
    """One run in which everything is counted, hence not timed.

    ``executions`` are calls of ssh and sftp; mitogen makes one and goes on inside it. ``lines`` are those of the Python
    sources that were sent and compiled on the node, ``lines_ours`` those of this collection among them.
    """

    way: str
    looked_by: str
    executions: int
    lines: int
    lines_ours: int
    ok: int
    skipped: int

    def as_dict(self) -> Dict[str, object]:
        return asdict(self)


class Runner:
    """Runs playbooks against the node, each with a connection of its own."""

    def __init__(
        self,
        node: Node,
        *,
        programs: Path,
        mitogen: Optional[Path],
        variables: List[Path],
        cache: Path,
        environment: Mapping[str, str],
    ) -> None:
        self.node = node
        self.cache = cache
        self.variables = list(variables)
        self._programs = programs
        self._mitogen = mitogen
        # ansible.cfg beside this file says all that there is to say to Ansible.
        plain = {key: value for key, value in environment.items() if not key.startswith("ANSIBLE_")}
        self._environment = {**plain, "ANSIBLE_CONFIG": str(BENCH / "ansible.cfg")}

    def can(self, way: Way) -> bool:
        return self._mitogen is not None or not way.mitogen

    def converge(self, way: Way) -> None:
        """Run a way without any measure, and let it change what it will."""
        with tempfile.TemporaryDirectory(prefix="gpufleet-") as sockets:
            log = self._log(way, "converge")
            status, _usage = self._run(way, log=log, sockets=Path(sockets), variables={})
            close_connections(Path(sockets))
        # Whoever looks here: the program may come only with this.
        _recap(self.node.name, status=status, log=log)

    def count(self, way: Way) -> Count:
        """Run a way that has nothing to do, and count its remote executions and the lines that the node compiles."""
        tools = self.cache / "counting"
        shutil.rmtree(tools, ignore_errors=True)
        tools.mkdir(parents=True)
        calls = tools / "calls"
        calls.touch()
        variables = {"GPUFLEET_BENCH_CALLS": str(calls)}
        for name in ("ssh", "sftp"):
            (tools / name).write_text(_COUNTING_PROGRAM.format(name=shutil.which(name) or name))
            (tools / name).chmod(0o755)
            variables[f"ANSIBLE_{name.upper()}_EXECUTABLE"] = str(tools / name)
        self.node.ask(f"rm -rf {COUNTING_FOLDER} && mkdir -m 700 {COUNTING_FOLDER}")
        code = (BENCH / "counting" / "sitecustomize.py").read_bytes()
        self.node.ask(f"cat > {COUNTING_FOLDER}/sitecustomize.py", data=code)
        python = f"{COUNTING_FOLDER}/python"
        self.node.ask(f"cat > {python} && chmod 755 {python}", data=_COUNTING_PYTHON.encode())
        log = self._log(way, "count")
        by_program = way.looked_by == PROGRAM
        with tempfile.TemporaryDirectory(prefix="gpufleet-") as sockets:
            # The program knows a Python that is none of its own, and leaves the look to the module.
            arguments = () if by_program else ("-e", f"ansible_python_interpreter={python}")
            status, _usage = self._run(way, log=log, sockets=Path(sockets), variables=variables, arguments=arguments)
            close_connections(Path(sockets))
        recap = _unchanged(way, _recap(self.node.name, status=status, log=log), log)
        executions = len(calls.read_text().splitlines())
        looks = self._looks(way)
        if by_program and looks != executions:
            raise BenchError(f"Cannot count {way.name}: {executions} remote executions are {looks} looks and more")
        lines = self.node.text(COUNT_ENTRY if by_program else f"cat {COUNTING_FOLDER}/compiled.log")
        self.node.ask(f"rm -r {COUNTING_FOLDER}")
        (self.cache / "logs" / f"{way.name}.compiled").write_text(lines + "\n")
        compiled: Counter[bool] = Counter()
        for line in lines.splitlines():
            number, _space, name = line.partition(" ")
            compiled[by_program or OURS in name] += int(number)
        return Count(
            way=way.name,
            looked_by=way.looked_by,
            executions=executions,
            lines=compiled[True] + compiled[False],
            lines_ours=compiled[True],
            ok=recap["ok"],
            skipped=recap["skipped"],
        )

    def sample(self, way: Way, meter: Meter) -> Sample:
        """Time a way that has nothing to do, from no connection to its end. Raises ``BenchError`` when it has work."""
        log = self._log(way, "sample")
        with tempfile.TemporaryDirectory(prefix="gpufleet-") as sockets, Orphans() as orphans:
            begin = meter.read()
            started = time.monotonic()
            status, usage = self._run(way, log=log, sockets=Path(sockets), variables={})
            wall = time.monotonic() - started
            # The connection that ssh keeps open has worked for this run as well, on both sides.
            close_connections(Path(sockets))
            usage += orphans.wait()
            spent = meter.between(begin, meter.read())
        _unchanged(way, _recap(self.node.name, status=status, log=log), log)
        self._looks(way)
        return Sample(
            way=way.name,
            wall=wall,
            node_cpu=spent.cpu_seconds,
            guest_cpu=spent.guest_cpu_seconds,
            controller_cpu=usage,
            bytes_sent=spent.received,
            bytes_received=spent.sent,
        )

    @property
    def _looks_file(self) -> Path:
        return self.cache / "looks.json"

    def _looks(self, way: Way) -> int:
        return looks_in(self._looks_file, way=way.name, looked_by=way.looked_by)

    def _log(self, way: Way, kind: str) -> Path:
        folder = self.cache / "logs"
        folder.mkdir(parents=True, exist_ok=True)
        return folder / f"{way.name}.{kind}.log"

    def _run(
        self, way: Way, *, log: Path, sockets: Path, variables: Mapping[str, str], arguments: Sequence[str] = ()
    ) -> Tuple[int, float]:
        """Returns the exit status of ansible-playbook and the CPU seconds of it and all its children."""
        # Also where nobody looks, so that no run is spared it.
        environment = {**self._environment, **noting(self._looks_file), **variables}
        environment["ANSIBLE_SSH_CONTROL_PATH_DIR"] = str(sockets)
        if not way.pipelining:
            environment["ANSIBLE_PIPELINING"] = "false"
        if way.mitogen:
            if self._mitogen is None:
                raise BenchError(f"Cannot run {way.name}: there is no mitogen")
            environment["ANSIBLE_STRATEGY_PLUGINS"] = str(self._mitogen)
            environment["ANSIBLE_STRATEGY"] = "mitogen_linear"
        command = [str(self._programs / "ansible-playbook"), "-i", self.node.inventory, "--limit", self.node.name]
        for path in self.variables:
            command += ["-e", f"@{path}"]
        for variable in way.variables:
            command += ["-e", variable]
        command += [*arguments, str(BENCH / "ways" / way.playbook)]
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, env=environment, cwd=BENCH, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
            _pid, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        return process.returncode, usage.ru_utime + usage.ru_stime


class Orphans:
    """While it is open, processes that outlive their parents become our children, and what they used can be told."""

    def __init__(self) -> None:
        self._before: Set[int] = set()

    def __enter__(self) -> Orphans:
        self._before = _children()
        self._adopt(True)
        return self

    def __exit__(self, *_details: object) -> None:
        self._adopt(False)

    def wait(self) -> float:
        """Wait until all that we adopted have ended. Returns their CPU seconds."""
        used = 0.0
        deadline = time.monotonic() + END_SECONDS
        while True:
            adopted = _children() - self._before
            if not adopted:
                return used
            for pid in adopted:
                ended, _status, usage = os.wait4(pid, os.WNOHANG)
                if ended:
                    used += usage.ru_utime + usage.ru_stime
            if time.monotonic() > deadline:
                raise BenchError(f"Cannot end the run: {len(adopted)} processes still work after {END_SECONDS:g} s")
            time.sleep(0.01)

    @staticmethod
    def _adopt(enabled: bool) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_CHILD_SUBREAPER, int(enabled), 0, 0, 0) != 0:
            raise BenchError(f"Cannot adopt orphans: {os.strerror(ctypes.get_errno())}")


def _children() -> Set[int]:
    found: Set[int] = set()
    for path in Path("/proc/self/task").glob("*/children"):
        found.update(int(word) for word in path.read_text().split())
    return found


def close_connections(sockets: Path) -> None:
    """End what ssh keeps open, and wait until it is gone."""
    for path in sockets.iterdir():
        command = ["ssh", "-o", f"ControlPath={path}", "-O", "exit", "any"]
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    deadline = time.monotonic() + END_SECONDS
    while any(sockets.iterdir()) and time.monotonic() < deadline:
        time.sleep(0.01)


def _recap(node: str, *, status: int, log: Path) -> Dict[str, int]:
    """The counts of PLAY RECAP for the node. Raises ``BenchError`` when the run failed."""
    text = log.read_text(encoding="utf-8", errors="replace")
    match = re.search(rf"^{re.escape(node)}\s+: (ok=.*)$", text.rpartition("PLAY RECAP")[2], re.MULTILINE)
    counts = {key: int(value) for key, value in (word.split("=") for word in match[1].split())} if match else {}
    if status != 0 or not counts or counts["failed"] or counts["unreachable"]:
        tail = "\n".join(text.splitlines()[-40:])
        raise BenchError(f"Cannot measure: ansible-playbook ended with {status}; the end of {log}:\n{tail}")
    return counts


def _unchanged(way: Way, recap: Dict[str, int], log: Path) -> Dict[str, int]:
    if recap["changed"]:
        raise BenchError(f"Cannot measure {way.name}: it changed something although there was nothing to do, see {log}")
    return recap
