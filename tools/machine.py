# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine that runs the tests: what there is on it that a new machine has not, and what a run left changed.

A test that passes only where a container engine once ran fails on the machine of whoever tries it first, so a run says
at its beginning what it may owe to the past of its machine, and compares at its end.
"""

from __future__ import annotations

import contextlib
import fnmatch
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Iterator, List, Sequence, Set, Tuple

SYSCTL = ("net/core", "net/ipv4", "net/ipv6", "net/bridge", "vm", "kernel", "fs")
# What the kernel counts there by itself, and what belongs to one network interface, which comes and goes.
COUNTED = (
    "fs.*-nr",
    "fs.*-state",
    "fs.inotify.*",
    "fs.quota.*",
    "kernel.ns_last_pid",
    "kernel.random.*",
    "kernel.sched_domain.*",
    "kernel.tainted",
    "net.ipv?.neigh.*",
)
OF_ALL_INTERFACES = ((), ("all",), ("default",))

# Containers inherit both, whatever their network is.
FORWARDING = ("net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding")
# What engines, tests and the collection itself leave behind, not what packages bring. `~` is the home of the user.
LEFT_BEHIND = (
    "/etc/cdi",
    "/etc/gpufleet",
    "/run/containerd",
    "/run/docker",
    "/run/docker.sock",
    "/run/gpufleet",
    "/usr/local/lib/gpufleet",
    "/var/lib/containerd",
    "/var/lib/docker",
    "/var/lib/gpufleet",
    "~/.ansible",
    "~/.docker",
)
DAEMONS = ("containerd", "crio", "dockerd", "kubelet", "nvidia-persiste", "qemu-system-x86", "slurmctld", "slurmd")


@dataclass(frozen=True)
class Machine:
    """What was found: values of sysctl by name, processes of ``DAEMONS`` by number, paths of ``LEFT_BEHIND``."""

    settings: Dict[str, str]
    daemons: Dict[int, str]
    paths: Tuple[str, ...]


def look(*, root: Path = Path("/"), home: Path) -> Machine:
    """The machine as it is now. ``home`` is the home folder of who runs the tests, not the one that tests get."""
    return Machine(
        settings=dict(_settings(root / "proc" / "sys")),
        daemons=dict(_daemons(root / "proc")),
        paths=tuple(path for path in LEFT_BEHIND if _place(path, root=root, home=home).exists()),
    )


def not_new(machine: Machine, *, programs: Sequence[str], cache: Path) -> List[str]:
    """What a new machine would not have, a line each. ``programs`` are those that a run installs by itself."""
    lines = [f"{name} is {value}, not 0" for name in FORWARDING if (value := machine.settings.get(name, "0")) != "0"]
    if machine.daemons:
        lines.append(f"these run: {', '.join(sorted(set(machine.daemons.values())))}")
    if machine.paths:
        lines.append(f"these are left: {', '.join(machine.paths)}")
    there = sorted(name for name in programs if (Path(name).exists() if name[0] == "/" else shutil.which(name)))
    if there:
        lines.append(f"installed already, so that nobody sees whether the run would do it: {', '.join(there)}")
    if cache.exists() and any(cache.iterdir()):
        lines.append(f"{cache.name}/ has what an earlier run made")
    return lines


def changed(before: Machine, after: Machine) -> List[str]:
    """What is not as it was, a line each. Packages do not count: a run installs those that it needs."""
    lines = [
        f"{name} was {value}, and is {after.settings[name]}"
        for name, value in sorted(before.settings.items())
        if name in after.settings and after.settings[name] != value
    ]
    new: Set[int] = {pid for pid in after.daemons if pid not in before.daemons}
    lines += [f"{after.daemons[pid]} runs still, as process {pid}" for pid in sorted(new)]
    return [*lines, *(f"{path} was left" for path in after.paths if path not in before.paths)]


def _settings(folder: Path) -> Iterator[Tuple[str, str]]:
    for top in SYSCTL:
        for place, _folders, names in os.walk(folder / top):
            words = Path(place).relative_to(folder).parts
            if words[2:3] == ("conf",) and words[3:4] not in OF_ALL_INTERFACES:
                continue
            for name in names:
                key = ".".join((*words, name))
                if any(fnmatch.fnmatch(key, pattern) for pattern in COUNTED):
                    continue
                # What is written only, of root alone, or gone meanwhile, is nothing to compare.
                with contextlib.suppress(OSError):
                    yield key, Path(place, name).read_text(encoding="utf-8", errors="replace").strip()


def _daemons(folder: Path) -> Iterator[Tuple[int, str]]:
    for path in folder.glob("[0-9]*/comm"):
        # It may have ended meanwhile.
        with contextlib.suppress(OSError):
            name = path.read_text(encoding="utf-8", errors="replace").strip()
            if name in DAEMONS:
                yield int(path.parent.name), name


def _place(path: str, *, root: Path, home: Path) -> Path:
    return home / path[2:] if path.startswith("~/") else root / path[1:]
