# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Processor time of everything that a stage starts, counted by the kernel in control groups of its own.

A command's own account has only those children that it waited for. An emulated machine that it leaves running, a
container engine and the processes in containers are not among them, and they take most of what some stages take.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Dict, List, Optional, Sequence

ROOT = Path("/sys/fs/cgroup")
SYSTEMD = Path("/run/systemd/system")
# How often a group that is not empty yet is tried again, and seconds between two tries.
ATTEMPTS, PAUSE = 20, 0.1
# Moves itself into a group and becomes the command, so that nothing that the command does escapes the count.
ENTER = 'echo $$ > "$0" && exec "$@"'


class Meter:
    """The control groups of one stage: one for its commands, one for the containers of its engine.

    The first one lies below the group of this process, whose limits go on to hold. The second one lies at the top,
    where a container engine has its containers anyway.
    """

    def __init__(self, name: str, *, top: Path, own: Path) -> None:
        """``top`` is where the hierarchy is mounted, ``own`` the group of this process in it. Raises ``OSError``."""
        self.name = f"gpufleet_{os.getpid()}_{re.sub(r'[^a-z0-9]', '_', name)}"
        self._outside = own
        self._commands = own / self.name
        # With systemd and version 2 an engine has systemd make the groups, which takes slices only.
        self._by_systemd = (top / "cgroup.controllers").exists() and SYSTEMD.exists()
        self._containers = top / f"{self.name}{'.slice' if self._by_systemd else '_containers'}"
        self._read = {self._commands: 0.0, self._containers: 0.0}
        self._commands.mkdir()
        if not os.access(own / "cgroup.procs", os.W_OK) or not os.access(self._commands / "cgroup.procs", os.W_OK):
            self._commands.rmdir()
            raise PermissionError(f"No process may be moved into {self._commands}")

    def wrap(self, command: Sequence[str]) -> List[str]:
        """The command as one that is counted, with all that it starts."""
        return ["sh", "-c", ENTER, str(self._commands / "cgroup.procs"), *command]

    def containers(self) -> List[str]:
        """Options of dockerd that have it start containers in a group that is counted."""
        return [f"--cgroup-parent={'' if self._by_systemd else '/'}{self._containers.name}"]

    def seconds(self) -> float:
        """Seconds of processor time so far. Groups that are gone count as they were when last read."""
        for path, before in self._read.items():
            self._read[path] = max(before, usage(path))
        return sum(self._read.values())

    def close(self) -> None:
        """Read once more, and remove the groups. What still runs goes on where this process is."""
        self.seconds()
        # As long as something in it starts processes, there may be another one, and what was killed takes a while.
        for attempt in range(ATTEMPTS):
            time.sleep(PAUSE if attempt else 0)
            with contextlib.suppress(OSError):
                for pid in (self._commands / "cgroup.procs").read_text(encoding="ascii").split():
                    with contextlib.suppress(ProcessLookupError):
                        (self._outside / "cgroup.procs").write_text(pid, encoding="ascii")
            if _remove(self._commands):
                break
        if self._by_systemd:
            subprocess.run(["systemctl", "stop", self._containers.name], stderr=subprocess.DEVNULL, check=False)
        # A version 1 engine makes them in every hierarchy.
        for path in {self._containers, *ROOT.glob(f"*/{self._containers.name}")}:
            _remove(path)


def usage(folder: Path) -> float:
    """Seconds of processor time of a group and of those below it, gone or not; 0 for a group that does not exist."""
    # A group that goes while it is read says so in another way.
    with contextlib.suppress(OSError):
        return int((folder / "cpuacct.usage").read_text(encoding="ascii")) / 1e9
    with contextlib.suppress(OSError):
        lines = (folder / "cpu.stat").read_text(encoding="ascii").splitlines()
        return int(dict(line.split() for line in lines)["usage_usec"]) / 1e6
    return 0.0


def meter(name: str, *, root: Path = ROOT, proc: Path = Path("/proc")) -> Optional[Meter]:
    """A meter for a stage; ``None`` where this user may not make control groups."""
    groups = _own_groups(proc)
    # On a machine with both versions the engine has its containers in version 1.
    for top, controller in ((root / "cpuacct", "cpuacct"), (root / "cpu,cpuacct", "cpuacct"), (root, "")):
        if controller in groups and (top / ("cpuacct.usage" if controller else "cgroup.controllers")).exists():
            own = top / groups[controller].lstrip("/")
            # In a container the path may be the one that the host sees.
            with contextlib.suppress(OSError):
                return Meter(name, top=top, own=own if own.is_dir() else top)
    return None


def _own_groups(proc: Path) -> Dict[str, str]:
    """The group of this process by controller, that of version 2 by an empty name."""
    found = {}
    for line in (proc / "self" / "cgroup").read_text(encoding="utf-8").splitlines():
        _number, controllers, path = line.split(":", 2)
        found.update(dict.fromkeys(controllers.split(","), path))
    return found


def _remove(folder: Path) -> bool:
    """Remove a group with those below it; whether it is gone."""
    for path, _folders, _files in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(path)
    return not folder.exists()
