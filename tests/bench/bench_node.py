# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The node that is measured: how to reach it, what it is, and what it has spent so far."""

from __future__ import annotations

import json
import shlex
import statistics
import subprocess
import time
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Dict, List, Optional, Tuple


class BenchError(Exception):
    """The benchmark ends here; the text is for the user."""


@dataclass(frozen=True)
class Node:
    """A host of an inventory, and the words that log in there."""

    inventory: str
    name: str
    login: Tuple[str, ...]

    def ask(self, script: str, *, data: Optional[bytes] = None) -> bytes:
        """What a shell script prints on the node. Raises ``BenchError`` when it fails."""
        done = subprocess.run([*self.login, script], input=data or b"", capture_output=True, check=False)
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace").strip()
            raise BenchError(f"Cannot run on {self.name}: {script}\n{said or f'exit status {done.returncode}'}")
        return done.stdout

    def text(self, script: str) -> str:
        return self.ask(script).decode("utf-8", "replace").strip()


def find_node(inventory: str, name: Optional[str], *, programs: Path) -> Node:
    """The node of this name in an inventory, or the only one in it."""
    command = [str(programs / "ansible-inventory"), "-i", inventory, "--list"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"Cannot read the inventory {inventory}:\n{done.stderr.strip()}")
    hosts: Dict[str, Dict[str, object]] = json.loads(done.stdout)["_meta"]["hostvars"]
    names = [name] if name else sorted(hosts)
    if len(names) != 1 or names[0] not in hosts:
        raise BenchError(f"Cannot choose the node: {inventory} has {', '.join(sorted(hosts))}; say one by --host")
    return Node(inventory=inventory, name=names[0], login=_login(names[0], hosts[names[0]]))


def _login(name: str, variables: Dict[str, object]) -> Tuple[str, ...]:
    words: List[str] = ["ssh", "-o", "BatchMode=yes", "-o", "ControlPath=none"]
    for key in ("ansible_ssh_args", "ansible_ssh_common_args", "ansible_ssh_extra_args"):
        words += shlex.split(str(variables.get(key, "")))
    for key, option in (("ansible_ssh_private_key_file", "-i"), ("ansible_port", "-p"), ("ansible_user", "-l")):
        if key in variables:
            words += [option, str(variables[key])]
    return (*words, str(variables.get("ansible_host", name)))


# --- what the node spends -------------------------------------------------------------------------------------------

# The address of the login tells which interface the bytes go through.
_FIND_INTERFACE = r"""
set -- $SSH_CONNECTION
ip -o route get "$1" | sed 's/.* dev \([^ ]*\).*/\1/'
"""
# One fork an answer. The cgroups count what the scheduler gave to processes, to the microsecond, also to those that are
# gone.
_METER = r"""
while read -r _; do
  cat /sys/fs/cgroup/*/cpu.stat /sys/class/net/{interface}/statistics/rx_bytes \
    /sys/class/net/{interface}/statistics/tx_bytes
  echo end
done
"""


@dataclass(frozen=True)
class Reading:
    """What the node has spent since it booted, and when that was read (``time.monotonic()``)."""

    at: float
    cpu_seconds: float
    guest_cpu_seconds: float
    received: int
    sent: int


@dataclass(frozen=True)
class Spent:
    """What lies between two readings: CPU of all processes, bytes that the node received and sent."""

    seconds: float
    cpu_seconds: float
    guest_cpu_seconds: float
    received: float
    sent: float


NOTHING = Spent(seconds=0, cpu_seconds=0, guest_cpu_seconds=0, received=0, sent=0)


# What adds up: all but the time.
COUNTED = tuple(field.name for field in fields(Spent) if field.name != "seconds")


class Meter:
    """Readings over one login that stays open, so that they cost the node little and always the same.

    The CPU is that of the process ``qemu`` where the node is a virtual machine here. What its control groups say is
    kept beside it: a guest that must wait for a CPU of this machine counts that as its own work.
    """

    def __init__(self, node: Node, *, qemu: Optional[int] = None) -> None:
        self._qemu = qemu
        self.interface = node.text(_FIND_INTERFACE)
        script = _METER.format(interface=shlex.quote(self.interface))
        self._process = subprocess.Popen(
            [*node.login, script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._cost = self._idle = NOTHING
        self.read()

    def read(self) -> Reading:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        usage = 0
        numbers: List[int] = []
        for line in self._process.stdout:
            words = line.split()
            if words == ["end"]:
                guest = usage / 1e6
                return Reading(time.monotonic(), guest if self._qemu is None else cpu_of(self._qemu), guest, *numbers)
            if words[0] == "usage_usec":
                usage += int(words[1])
            elif len(words) == 1:
                numbers.append(int(words[0]))
        raise BenchError("Cannot read what the node has spent: the login has ended")

    def calibrate(self, *, idle_seconds: float = 5.0, times: int = 5) -> Dict[str, float]:
        """Learn what a reading itself costs, and what the node spends while nobody asks anything of it."""
        self._cost = self._idle = NOTHING
        self._cost = _median([self.between(self.read(), self.read()) for _round in range(times)])
        idle = []
        for _round in range(times):
            begin = self.read()
            time.sleep(idle_seconds)
            idle.append(self.between(begin, self.read()))
        self._idle = _median(idle)
        return {
            "cpu_seconds_per_reading": self._cost.cpu_seconds,
            "idle_cpu_share": self._idle.cpu_seconds / self._idle.seconds,
            "idle_received_per_second": self._idle.received / self._idle.seconds,
        }

    def between(self, begin: Reading, end: Reading) -> Spent:
        """The difference, less what one reading costs and what an idle node spends in that time."""
        seconds = end.at - begin.at
        share = seconds / self._idle.seconds if self._idle.seconds else 0.0
        return Spent(
            seconds=seconds,
            **{
                name: getattr(end, name)
                - getattr(begin, name)
                - getattr(self._cost, name)
                - share * getattr(self._idle, name)
                for name in COUNTED
            },
        )

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def _median(spent: List[Spent]) -> Spent:
    return Spent(
        seconds=statistics.median(entry.seconds for entry in spent),
        **{name: statistics.median(getattr(entry, name) for entry in spent) for name in COUNTED},
    )


def cpu_of(pid: int) -> float:
    """The CPU seconds of a process and of all threads that it ever had, as its clock has them (clock_gettime(2))."""
    return time.clock_gettime(~pid << 3 | 2)


# --- what the node is -----------------------------------------------------------------------------------------------


def describe(node: Node) -> Dict[str, str]:
    """What matters of the node for a reader of the numbers; nothing that names it."""
    questions = {
        "cpu": "sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1",
        "cpus": "nproc",
        "memory_mib": "sed -n 's/^MemTotal: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo",
        "kernel": "uname -r",
        "system": '. /etc/os-release && echo "$PRETTY_NAME"',
        "python": "python3 -c 'import platform; print(platform.python_version())'",
    }
    answers = {key: node.text(script) for key, script in questions.items()}
    answers["memory_mib"] = str(int(answers["memory_mib"]) // 1024)
    return answers
