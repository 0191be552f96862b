# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine for tests: files whose tunables follow the kernel's rules, scripted commands, and faults on demand."""

from __future__ import annotations

import errno
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Container, Dict, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.tests.nodes.recorded import NoNvml, RecordedFiles, no_systemd, recorded_answer

if TYPE_CHECKING:
    from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import BusCall, Lock, Nvml

# How many times what is promised a test may take: no two runs are alike.
PATIENCE = 4
# What ``reference`` takes on the machine where the promises were measured, with the Python that is the newest here.
REFERENCE_SECONDS = 0.0032
# What would hang is left long before this many seconds; what others do on the machine takes less.
AT_ONCE_SECONDS = 15.0

# In /proc/PID/status: the real, effective, saved and file system user ID of a process.
STATUS_OF_ROOT, STATUS_OF_USER = ("Name:\tpython3\nUid:\t" + "\t".join([user] * 4) + "\n" for user in ("0", "1000"))

Rule = Callable[["KernelFiles", "re.Match[str]", str], None]


class Killed(BaseException):
    """The process ends here, as by kill -9: nothing after it runs, not even an ``except Exception``."""


def reference() -> None:
    """What Python does most, for some milliseconds."""
    found: Dict[int, int] = {}
    for number in range(20000):
        found[number % 997] = found.get(number % 997, 0) + len(str(number))


def quickest(work: Callable[[], Any], attempts: int = 5) -> float:
    """Seconds of the processor that something takes: the least of some runs, as a machine of a known speed needs them.

    A machine that is slower, or whose cores others share, takes longer for ``reference`` too.
    """
    seconds: Dict[str, List[float]] = {"work": [], "reference": []}
    for _attempt in range(attempts):
        for name, what in (("reference", reference), ("work", work), ("reference", reference)):
            begin = time.process_time()
            what()
            seconds[name].append(time.process_time() - begin)
    return min(seconds["work"]) * REFERENCE_SECONDS / min(seconds["reference"])


class KernelFiles(RecordedFiles):
    """A recorded tree that remembers what was done to it.

    ``rules`` map a pattern of a path to what the kernel does with a write there, by ``store``, which is not logged.
    ``read_only`` are folders that refuse every write with EROFS, ``full`` those that do with ENOSPC, ``unreadable``
    files that refuse to be read with EACCES. ``kill_at`` ends the run before the n-th side effect (counted from 1), and
    ``fail_at`` lets that one fail with ``fail_error``, as a full disk does. ``before_lock`` and ``before_effect`` are
    called before the lock is taken, and before each side effect. ``reads`` and ``log`` count and list what happened.
    """

    def __init__(self, root: Path) -> None:
        super().__init__(str(root))
        self.rules: List[Tuple[str, Rule]] = []
        self.read_only: List[str] = []
        self.full: List[str] = []
        self.unreadable: Container[str] = ()
        self.log: List[Tuple[str, str, str]] = []
        self.reads: List[str] = []
        self.kill_at: Optional[int] = None
        self.fail_at: Optional[int] = None
        self.fail_error = errno.ENOSPC
        self.before_lock: Callable[[], None] = lambda: None
        self.before_effect: Callable[[], None] = lambda: None

    def read(self, path: str) -> str:
        self.reads.append(path)
        if path in self.unreadable:
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), path)
        return super().read(path)

    def lock(self, path: str, timeout: float) -> Lock:
        if self._refuses(path):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        self.before_lock()
        return super().lock(path, timeout)

    def writable(self, path: str) -> bool:
        return not self._refuses(path) and super().writable(path)

    def write_attribute(self, path: str, value: str) -> None:
        self.effect("set", path, value)
        real = self.resolve(path)
        for pattern, rule in self.rules:
            match = re.fullmatch(pattern, real)
            if match:
                rule(self, match, value)
                return
        super().write_attribute(path, value)

    def replace(self, path: str, text: str, mode: int = 0o644) -> None:
        self.effect("replace", path, text)
        super().replace(path, text, mode)

    def move(self, source: str, target: str) -> None:
        # The temporary file is complete, the old one still in place: a second point to be killed at.
        self.effect("move", target, "")
        super().move(source, target)

    def remove(self, path: str) -> None:
        self.effect("remove", path, "")
        super().remove(path)

    def _refuses(self, path: str) -> bool:
        return any(path.startswith(folder) for folder in self.read_only)

    def effect(self, kind: str, path: str, value: str) -> None:
        """Something that changes the machine is about to happen: a point to be killed at, or to fail at."""
        if self._refuses(path):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        if any(path.startswith(folder) for folder in self.full):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        self.before_effect()
        self.log.append((kind, path, value))
        if self.kill_at is not None and len(self.log) >= self.kill_at:
            raise Killed
        if self.fail_at is not None and len(self.log) == self.fail_at:
            raise OSError(self.fail_error, os.strerror(self.fail_error), path)


def shown_by_systemctl(argv: Sequence[str]) -> Completed:
    """The answer of ``systemctl show`` about units that are not loaded, of which there is nothing to read again."""
    values = {"LoadState": "not-found", "ActiveState": "inactive", "NeedDaemonReload": "no", "MainPID": "0"}
    asked = argv[2][len("--property=") :].split(",")
    units = argv[argv.index("--") + 1 :]
    return Completed(
        0,
        "\n".join(
            "".join(f"{name}={values.get(name, unit if name == 'Id' else '')}\n" for name in asked) for unit in units
        ),
        "",
    )


class ScriptedCommands:
    """Programs as functions: ``programs[name]`` gets the arguments and answers; others are not installed.

    ``data`` is what the last one had on its standard input.
    """

    def __init__(self) -> None:
        self.programs: Dict[str, Callable[[Sequence[str]], Completed]] = {}
        self.calls: List[Tuple[str, ...]] = []
        self.data = ""

    def find(self, name: str) -> Optional[str]:
        return f"/usr/bin/{name}" if os.path.basename(name) in self.programs else None

    def run(self, argv: Sequence[str], *, timeout: float = 60.0, data: str = "") -> Completed:
        self.calls.append(tuple(argv))
        self.data = data
        program = self.programs.get(os.path.basename(argv[0]))
        if program is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
        # As on a node, where programs get the umask that we give them.
        former = os.umask(0o022)
        try:
            return program(argv)
        finally:
            os.umask(former)


class FakeHost:
    """``protocols.Host`` over a tree below ``root``."""

    def __init__(self, root: Path) -> None:
        self.files = KernelFiles(root)
        self.commands = ScriptedCommands()
        self.nvml: Nvml = NoNvml()
        self.may_change = True
        self.journal_lines: List[str] = []

    def http_get(self, socket: str, target: str, identity: Optional[Tuple[str, str]] = None) -> str:
        return recorded_answer(self.files, socket, target)

    def ask_systemd(self, calls: Sequence[BusCall]) -> Sequence[Optional[Tuple[Any, ...]]]:
        raise no_systemd()

    def ask_service(self, service: str, calls: Sequence[BusCall]) -> Sequence[Optional[Tuple[Any, ...]]]:
        return [None] * len(calls)

    def journal(self, message: str, fields: Mapping[str, str]) -> None:
        self.journal_lines.append(message)


def build(root: Path, files: Mapping[str, str], links: Optional[Mapping[str, str]] = None) -> FakeHost:
    """A host of these files (absolute path to text) and links (absolute path to target), made below ``root``."""
    for path, text in files.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
    for path, destination in (links or {}).items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(destination)
    return FakeHost(root)


def execute_init(root: Path, times: int) -> None:
    """Let process 1 of a machine have been executed this often: at each time its stack begins somewhere else."""
    (root / "run/init").mkdir(parents=True, exist_ok=True)
    (root / "proc").mkdir(exist_ok=True)
    if not (root / "proc/1").is_symlink():
        (root / "proc/1").symlink_to("/run/init")
    start = str(0x7FFC_0000_0000 + times)
    (root / "run/init/stat").write_text(f"1 (systemd) S {' '.join(['0'] * 24)} {start} {' '.join(['0'] * 24)}\n")


def snapshot(root: Path, leave_out: Sequence[str] = ("run",)) -> Dict[str, Tuple[str, ...]]:
    """Everything below ``root`` byte for byte: folders, links, files with their mode and content."""
    found: Dict[str, Tuple[str, ...]] = {}
    top = str(root)
    waiting = [""]
    # The contract takes thousands of them, so that an object for each path would be a quarter of its time.
    while waiting:
        folder = waiting.pop()
        with os.scandir(f"{top}/{folder}") as entries:
            for entry in entries:
                key = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_symlink():
                    found[key] = ("link", os.readlink(entry.path))
                elif entry.is_dir():
                    if folder or entry.name not in leave_out:
                        found[key] = ("folder",)
                        waiting.append(key)
                elif not entry.is_file():
                    found[key] = ("pipe",)
                else:
                    with open(entry.path, "rb") as stream:
                        found[key] = ("file", oct(entry.stat().st_mode), stream.read().decode("latin-1"))
    return found


class HostVars(Dict[str, Mapping[str, Any]]):
    """The variables of hosts, as Ansible has them: with templates resolved, or as they are."""

    def raw_get(self, host: str) -> Mapping[str, Any]:
        return self[host]
