# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the demonstration is told with: chapters, playbooks by name, commands on nodes, and what must hold."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, NoReturn

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
BED = [sys.executable, str(ROOT / "tests" / "vm" / "bed.py")]
NAME = "demo"
TRAINING, INFERENCE = "train-01", "infer-01"
NODES = (TRAINING, INFERENCE)

# Ansible runs the first word of a remote execution through this instead of ssh: a line a call is the whole count.
COUNTING_SSH = """#!/bin/sh
echo "$@" >> "$GPUFLEET_SSH_LOG"
exec ssh "$@"
"""


@dataclass(frozen=True)
class Run:
    """What a playbook left: its exit status, its text, the recap by node and the remote executions by node."""

    status: int
    text: str
    recap: Dict[str, Dict[str, int]]
    executions: Dict[str, int]

    def total(self, key: str) -> int:
        return sum(counts[key] for counts in self.recap.values())


def chapter(title: str) -> None:
    print(f"\n\033[1m== {title}\033[0m", flush=True)


def expect(held: bool, what: str) -> None:
    print(f"   {'ok' if held else 'NOT SO'}: {what}", flush=True)
    if not held:
        fail(what)


def fail(what: str) -> NoReturn:
    sys.exit(f"The demonstration ends here: expected that {what}")


def bed(*arguments: str) -> None:
    if subprocess.run([*BED, *arguments], check=False).returncode != 0:
        fail(f"`bed.py {arguments[0]}` works")


def indented(text: str) -> str:
    return "\n".join(f"   {line}" for line in text.rstrip().splitlines())


def on_all(command: str) -> Dict[str, str]:
    """The same on all nodes at once."""
    with ThreadPoolExecutor(len(NODES)) as pool:
        return dict(zip(NODES, pool.map(lambda node: on(node, command), NODES)))


def on(node: str, command: str, *, text: str = "") -> str:
    """Run a command on a node, with a text as its input, and return its output."""
    words = [*BED, "ssh", "--name", NAME, node, command]
    done = subprocess.run(words, check=False, input=text, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        fail(f"`{command}` works on {node}")
    return done.stdout


def playbook(name: str, *arguments: str) -> Run:
    """Run a playbook of the collection by its name against the demo inventory, with its output on the terminal."""
    run = CACHE / "vm" / "run" / NAME
    ssh = run / "counting-ssh"
    ssh.write_text(COUNTING_SSH)
    ssh.chmod(0o755)
    log = run / "ssh.log"
    log.write_text("")
    environment = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(CACHE / "collections"),
        "ANSIBLE_HOME": str(CACHE / "ansible"),
        "ANSIBLE_SSH_EXECUTABLE": str(ssh),
        "ANSIBLE_FORCE_COLOR": "0",
        "GPUFLEET_SSH_LOG": str(log),
        "PYTHONUNBUFFERED": "1",
    }
    command = [
        str(Path(sys.executable).parent / "ansible-playbook"),
        *("-i", str(ROOT / "inventories" / "demo"), "-i", str(run / "hosts.yml")),
        f"gpufleet.node.{name}",
        *arguments,
    ]
    print(f"$ ansible-playbook -i inventories/demo ... {' '.join(command[5:])}", flush=True)
    lines: List[str] = []
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            print(f"   {line}", end="", flush=True)
    text = "".join(lines)
    return Run(
        status=process.returncode, text=text, recap=recap_of(text), executions=executions_of(log.read_text(), run)
    )


def recap_of(text: str) -> Dict[str, Dict[str, int]]:
    """The counts of PLAY RECAP by node."""
    recap = {}
    for line in text.split("PLAY RECAP", 1)[-1].splitlines():
        match = re.match(r"(\S+)\s+: (ok=.*)", line)
        if match:
            pairs = (word.split("=") for word in match[2].split())
            recap[match[1]] = {key: int(value) for key, value in pairs}
    return recap


def executions_of(log: str, run: Path) -> Dict[str, int]:
    """The remote executions by node, told apart by the port of its SSH."""
    nodes = json.loads((run / "bed.json").read_text())["nodes"]
    ports = {str(entry["port"]): name for name, entry in nodes.items()}
    counts = Counter(ports[match[1]] for match in re.finditer(r"\bPort[= ](\d+)", log) if match[1] in ports)
    return {node: counts[node] for node in NODES}
