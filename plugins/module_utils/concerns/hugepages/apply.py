# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The step of huge pages that is more than a write: growing pools, with what helps the kernel to find the memory."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, List, Tuple

from ..._core.change import Step
from ..._core.contract import REBOOT_FOLDER
from ..._core.errors import GpuFleetError, NotPermitted, Refused
from ..._kinds import steps
from ..._linux.numa import FOLDER, parse_meminfo
from .observation import read_pages
from .plan import Grow
from .spec import REBOOT
from .state import NAME, SHORT, Pool

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host

ATTEMPTS = 5
PAUSE_SECONDS = 0.1


class Shortage(GpuFleetError):
    """The kernel had too little memory in one piece for the pages that were asked for."""

    code = "shortage"


def perform(step: Step, host: Host) -> None:
    """Take one step. Raises ``Shortage``, ``Refused`` or ``NotPermitted``."""
    try:
        if isinstance(step.action, Grow):
            _grow_all(step.action, host)
        else:
            steps.perform(step, host)
    except OSError as error:
        raise NotPermitted("write {}", object=error.filename or "", cause=error.strerror or str(error)) from error


def _grow_all(action: Grow, host: Host) -> None:
    """Every pool gets its try, so that the error, if there is one, names all that fell short."""
    short: List[Tuple[Pool, int, int]] = []
    refused: List[Refused] = []
    for pool, wanted in action.targets:
        try:
            got = _grow(action, pool, wanted, host)
        except Refused as error:
            refused.append(error)
            continue
        if got < wanted:
            short.append((pool, wanted, got))
    if refused:
        raise refused[0]
    if not short:
        return
    if action.on_shortage == REBOOT:
        path = f"{REBOOT_FOLDER}/{NAME}"
        reasons = "".join(f"{p.node.name} {p.setting} is {got}, wanted {wanted}: {SHORT}\n" for p, wanted, got in short)
        host.files.replace(path, (host.files.read_optional(path) or "") + reasons)
        return
    pool, wanted, got = short[0]
    details = "; ".join(
        f"{p.node.name} got {got_here} of {wanted_here} with {_free_mib(host.files, p)} MiB free"
        for p, wanted_here, got_here in short
    )
    ways = ["stop what uses the memory there", "declare fewer pages"]
    if action.permanent:
        ways.insert(0, "the numbers for the next boot are written: reboot, or set on_shortage: reboot")
    if not action.drop_caches:
        ways.append("set drop_caches: true")
    raise Shortage(
        f"allocate {pool.setting}",
        object=pool.node.name,
        cause=f"{SHORT}, even after compaction: {details}",
        found=got,
        wanted=wanted,
        hint=", or ".join(ways),
    )


def _grow(action: Grow, pool: Pool, wanted: int, host: Host) -> int:
    """Ask, compact, ask again, while that helps; with leave drop the caches once. Returns what there is then."""
    files = host.files
    got = _ask(files, pool, wanted)
    may_drop = action.drop_caches
    for _attempt in range(ATTEMPTS):
        if got >= wanted:
            break
        before = got
        _compact(files, pool)
        got = _ask(files, pool, wanted)
        if got > before:
            continue
        if not may_drop:
            break
        may_drop = False
        # As compaction, this is only help: the number that is read back says whether it was enough.
        with contextlib.suppress(OSError):
            if host.commands.find("sync"):
                host.commands.run(["sync"], timeout=60.0)
            files.write_attribute("/proc/sys/vm/drop_caches", "3")
            time.sleep(PAUSE_SECONDS)
        got = _ask(files, pool, wanted)
    return got


def _ask(files: Files, pool: Pool, wanted: int) -> int:
    """Write the number and read back what the kernel made of it: fewer is no error to the kernel."""
    try:
        files.write_attribute(pool.tunable, str(wanted))
    except OSError as error:
        raise Refused(
            f"allocate {pool.setting}",
            object=pool.node.name,
            cause=f"the kernel refused the number at {pool.tunable}: {error.strerror}",
            found=pool.lasting,
            wanted=wanted,
        ) from error
    folder = pool.tunable.rpartition("/")[0]
    return read_pages(files, pool.tunable) - read_pages(files, f"{folder}/surplus_hugepages")


def _compact(files: Files, pool: Pool) -> None:
    paths: Tuple[str, ...] = ("/proc/sys/vm/compact_memory",)
    if pool.node.number is not None:
        paths = (f"{FOLDER}/node{pool.node.number}/compact", *paths)
    present: List[str] = [path for path in paths if files.exists(path)]
    for path in present:
        with contextlib.suppress(OSError):
            files.write_attribute(path, "1")


def _free_mib(files: Files, pool: Pool) -> int:
    path = "/proc/meminfo" if pool.node.number is None else f"{FOLDER}/node{pool.node.number}/meminfo"
    return parse_meminfo(files.read_optional(path) or "").get("MemFree", 0) // 1024
