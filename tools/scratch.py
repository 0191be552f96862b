# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A folder for what is forced to disk thousands of times and needed by nobody later, in memory where there is room.

Packages that are unpacked, the layers of containers, the files of unit tests: on a disk that takes 50 ms to answer an
fsync they wait for it most of their time.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Iterator

# At most so much is put there, and there must be more: nodes of the VM bed run beside it.
MOST_BYTES = 10 << 30
NEEDED_BYTES = 14 << 30
SHARED_MEMORY = Path("/dev/shm")
PREFIX = "gpufleet-s"


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """A new folder with a short path, for sockets are made in it, gone at the end with all that was mounted in it.

    Root gets a file system of its own. What a run left that was killed is removed by the next one.
    """
    place = Path(tempfile.gettempdir())
    for left in [*place.glob(f"{PREFIX}*"), *SHARED_MEMORY.glob(f"{PREFIX}*")]:
        pid = left.name[len(PREFIX) :].partition("-")[0]
        if pid.isdecimal() and not Path("/proc", pid).exists():
            remove(left)
    own = os.geteuid() == 0
    parent = SHARED_MEMORY if not own and _available() > NEEDED_BYTES and _usable(SHARED_MEMORY) else place
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=parent))
    try:
        if own:
            mount_memory(folder)
        yield folder
    finally:
        remove(folder)


def mount_memory(folder: Path) -> None:
    """Give root a file system in memory at a folder, where there is room."""
    if _available() > NEEDED_BYTES:
        # Where that is not allowed, as in a container, the disk has to do.
        mount = ["mount", "-t", "tmpfs", "-o", f"size={MOST_BYTES},mode=0755", "gpufleet-scratch", str(folder)]
        subprocess.run(mount, stderr=subprocess.DEVNULL, check=False)


def remove(folder: Path) -> None:
    """Delete a folder, and let go of what is mounted at it and below it first."""
    table = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    mounted = [re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), line.split()[4]) for line in table]
    for path in sorted((path for path in mounted if Path(path).is_relative_to(folder)), reverse=True):
        subprocess.run(["umount", "--lazy", path], check=False)
    shutil.rmtree(folder, ignore_errors=True)


def _available() -> int:
    """Bytes of memory that programs may still have."""
    text = Path("/proc/meminfo").read_text(encoding="ascii")
    found = re.search(r"^MemAvailable:\s+(\d+) kB", text, flags=re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _usable(folder: Path) -> bool:
    """Whether there is room in it, and programs may run there."""
    try:
        room = os.statvfs(folder)
    except OSError:
        return False
    return os.access(folder, os.W_OK) and not room.f_flag & os.ST_NOEXEC and room.f_bavail * room.f_frsize > MOST_BYTES
