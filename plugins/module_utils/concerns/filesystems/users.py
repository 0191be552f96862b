# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who has something in a mount open, by the links in /proc: none of them is followed, for its server may be gone."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Iterator, Tuple

from ..._linux.mounts import is_below
from ..._machine import processes

if TYPE_CHECKING:
    from ..._core.protocols import Files

LINKS = ("cwd", "exe", "root")


def of(files: Files, path: str) -> Tuple[str, ...]:
    """The processes as ``name (pid)``."""
    return tuple(
        f"{processes.name_of(files, pid) or 'process'} ({pid})"
        for pid in processes.ids(files)
        if _uses(files, pid, path)
    )


def _uses(files: Files, pid: str, path: str) -> bool:
    # A process may end at any time.
    with contextlib.suppress(OSError):
        return any(is_below(target, path) for target in _opened(files, pid))
    return False


def _opened(files: Files, pid: str) -> Iterator[str]:
    for name in LINKS:
        yield files.link(f"/proc/{pid}/{name}")
    yield from processes.opened(files, pid)
    for line in processes.text_of(files, pid, "maps").splitlines():
        # proc_pid_maps(5): five fields, then the path, which may have blanks.
        fields = line.split(maxsplit=5)
        if len(fields) == 6:
            yield fields[5]
