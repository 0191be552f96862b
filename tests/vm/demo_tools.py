# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the demonstration is told with: steps with their seconds, playbooks, commands on nodes, and what must hold."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
BED = [sys.executable, str(ROOT / "tests" / "vm" / "bed.py")]
# What `make` did before belongs to what somebody waited for. Of the system's clock, which all processes share.
STARTED = float(os.environ.get("GPUFLEET_STARTED", time.time()))

# Ansible runs the first word of a remote execution through this instead of ssh: a line a call is the whole count.
COUNTING_SSH = """#!/bin/sh
echo "$@" >> "$GPUFLEET_SSH_LOG"
exec ssh "$@"
"""
# What is in a remote execution that starts the program on the node for a look.
COMPILED = "/var/lib/gpufleet/program/compiled/"
# Lines of Ansible that say that nothing happened, or what is going to.
QUIET = re.compile(r"(ok|skipping|included|PLAY|TASK|RUNNING HANDLER)\b.*|\s*")
TASK = re.compile(r"(?:TASK|RUNNING HANDLER) \[(?:[\w.]+\.)?(.*)\] \**")


@dataclass(frozen=True)
class Run:
    """What a playbook left: its exit status, its text, the recap by node and the remote executions by node.

    ``by_program`` counts those of the remote executions that sent no module: looks by the program on the node.
    """

    status: int
    text: str
    recap: Dict[str, Dict[str, int]]
    executions: Dict[str, int]
    by_program: Dict[str, int]

    def total(self, key: str) -> int:
        return sum(counts[key] for counts in self.recap.values())

    def row(self, *words: str) -> str:
        """The first line of its text that has all these words."""
        return row_of(self.text, *words)


class Told:
    """The steps that were told so far: title, and the second in which each began."""

    def __init__(self) -> None:
        self.steps = [("packages, environment, image", 0.0)]

    def begin(self, title: str) -> None:
        self.steps.append((title, elapsed()))

    def profile(self) -> str:
        """A line a step with its seconds."""
        ends = [*(begin for _title, begin in self.steps[1:]), elapsed()]
        lines = [f"   {end - begin:6.0f} s  {title}" for (title, begin), end in zip(self.steps, ends)]
        return "\n".join([*lines, f"   {ends[-1]:6.0f} s  together"])


TOLD = Told()


def elapsed() -> float:
    """Seconds since the demonstration was called for."""
    return time.time() - STARTED


def clock() -> str:
    minutes, seconds = divmod(int(elapsed()), 60)
    return f"[{minutes:02d}:{seconds:02d}]"


def chapter(title: str) -> None:
    TOLD.begin(title)
    print(f"\n\033[1m{clock()} == {title}\033[0m", flush=True)


def expect(held: bool, what: str) -> None:
    print(f"   {'ok' if held else 'NOT SO'}: {what}", flush=True)
    if not held:
        fail(what)


def fail(what: str) -> NoReturn:
    sys.exit(f"The demonstration ends here: expected that {what}")


class Bed:
    """The nodes of a bed, while the demonstration works on them."""

    def __init__(self, name: str, nodes: Sequence[str]) -> None:
        self.name = name
        self.nodes = tuple(nodes)
        self.folder = CACHE / "vm" / "run" / name
        self._inventories = [ROOT / "inventories" / "demo", self.folder / "hosts.yml"]

    def declare(self, node: str, **variables: object) -> None:
        """What a node should be from now on, whatever the inventory says."""
        path = self.folder / f"{node}.yml"
        path.write_text(json.dumps({"all": {"hosts": {node: variables}}}))
        self._inventories.append(path)

    def call(self, command: str, *arguments: str) -> None:
        """A command of tests/vm/bed.py that must succeed."""
        if subprocess.run([*BED, command, "--name", self.name, *arguments], check=False).returncode != 0:
            fail(f"`bed.py {command}` works")

    def on(self, node: str, command: str, *, text: str = "") -> str:
        """Run a command on a node, with a text as its input, and return its output."""
        words = [*BED, "ssh", "--name", self.name, node, command]
        done = subprocess.run(words, check=False, input=text, stdout=subprocess.PIPE, text=True)
        if done.returncode != 0:
            fail(f"`{command}` works on {node}")
        return done.stdout

    def on_all(self, command: str) -> Dict[str, str]:
        """The same on all nodes at once."""
        with ThreadPoolExecutor(len(self.nodes)) as pool:
            return dict(zip(self.nodes, pool.map(lambda node: self.on(node, command), self.nodes)))

    def playbook(self, name: str, *arguments: str) -> Run:
        """Run a playbook of the collection by its name on the nodes of the bed, as the demo inventory declares them.

        On the terminal is what it found and changed, in its log all of its output.
        """
        ssh = self.folder / "counting-ssh"
        ssh.write_text(COUNTING_SSH)
        ssh.chmod(0o755)
        calls = self.folder / "ssh.log"
        calls.write_text("")
        environment = {
            "ANSIBLE_COLLECTIONS_PATH": str(CACHE / "collections"),
            "ANSIBLE_HOME": str(CACHE / "ansible"),
            "ANSIBLE_SSH_EXECUTABLE": str(ssh),
            "GPUFLEET_SSH_LOG": str(calls),
        }
        inventories = [word for path in self._inventories for word in ("-i", str(path))]
        print(f"$ ansible-playbook -i inventories/demo ... gpufleet.node.{name} {' '.join(arguments)}", flush=True)
        words = [*inventories, "--limit", ",".join(self.nodes), f"gpufleet.node.{name}", *arguments]
        status, text = play(words, environment=environment, log=self.folder / "playbooks.log")
        log = calls.read_text()
        executions = executions_of(log, self.folder)
        looks = [line for line in log.splitlines() if COMPILED in line]
        by_program = executions_of("\n".join(looks), self.folder)
        return Run(
            status=status,
            text=text,
            recap=recap_of(text),
            executions={node: executions[node] for node in self.nodes},
            by_program={node: by_program[node] for node in self.nodes},
        )


def play(words: Sequence[str], *, environment: Mapping[str, str], log: Path) -> Tuple[int, str]:
    """Run ansible-playbook. On the terminal is what it found and changed, in the log all that it said.

    Returns its exit status and its text.
    """
    command = [str(Path(sys.executable).parent / "ansible-playbook"), *words]
    settings = {**os.environ, "ANSIBLE_FORCE_COLOR": "0", "PYTHONUNBUFFERED": "1", **environment}
    lines: List[str] = []
    shown = Shown()
    with (
        subprocess.Popen(
            command, cwd=ROOT, env=settings, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process,
        log.open("a") as output,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            output.write(line)
            text = shown.of(line.rstrip("\n"))
            if text is not None:
                print(f"   {text}", flush=True)
    return process.returncode, "".join(lines)


def row_of(text: str, *words: str) -> str:
    """The first line that has all these words, empty where none has."""
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if set(words) <= set(line.split())), "")


class Shown:
    """Of the lines of a playbook those that say something: what changes with its task and seconds, tables, failures."""

    def __init__(self) -> None:
        self._task = ""
        self._began = time.monotonic()

    def of(self, line: str) -> Optional[str]:
        task = TASK.fullmatch(line)
        if task:
            self._task, self._began = task[1], time.monotonic()
        if line.startswith("changed:"):
            return f"{clock()} {line}  {self._task}  ({time.monotonic() - self._began:.1f} s)"
        return None if QUIET.fullmatch(line) else line


def indented(text: str) -> str:
    return "\n".join(f"   {line}" for line in text.rstrip().splitlines())


def recap_of(text: str) -> Dict[str, Dict[str, int]]:
    """The counts of PLAY RECAP by node."""
    recap = {}
    for line in text.split("PLAY RECAP", 1)[-1].splitlines():
        match = re.match(r"(\S+)\s+: (ok=.*)", line)
        if match:
            pairs = (word.split("=") for word in match[2].split())
            recap[match[1]] = {key: int(value) for key, value in pairs}
    return recap


def executions_of(log: str, run: Path) -> Counter[str]:
    """The remote executions by node, told apart by the port of its SSH."""
    nodes = json.loads((run / "bed.json").read_text())["nodes"]
    ports = {str(entry["port"]): name for name, entry in nodes.items()}
    return Counter(ports[match[1]] for match in re.finditer(r"\bPort[= ](\d+)", log) if match[1] in ports)
