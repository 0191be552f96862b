# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Make an array and its file system on drives that are empty, or finish what a run that was killed began.

Each program refuses by itself what it finds in use. Only what our note says is ours is written over, and only where a
look has just said so.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Optional, Tuple

from ..._core.change import RunCommand
from ..._core.errors import Refused
from ..._core.steps import run
from . import drives as on_drives
from .made import ASSEMBLE, CREATE, FINISH, FORMAT, Made, read_journal, write_journal
from .superblocks import of_mdadm, superblock_of

if TYPE_CHECKING:
    from ..._core.protocols import Host
    from .actions import Make
    from .drives import Array
    from .spec import MadeOf

# For tens of terabytes: nothing is discarded or zeroed, so most take a second.
SECONDS = 900.0
SETTLE_SECONDS = 10
# Of ext4, as a page of the processor: a chunk is a whole number of them.
BLOCK_KB = 4


def make(action: Make, host: Host) -> None:
    """Raises ``Refused`` with what a program said, and where the drives are no longer those that were looked at."""
    made, made_of = action.made, action.made_of
    for drive in made.drives:
        if on_drives.identity_of(host.files, drive.name) != drive.identity:
            raise Refused(
                "make {}", object=action.path, cause=f"{drive.node} is a different drive now", hint="run again"
            )
    if made.work != ASSEMBLE:
        write_journal(host.files, {**read_journal(host.files), action.path: made.intent})
    if made.work == FINISH:
        _stop(made, host)
    if made.work in (CREATE, FINISH):
        _create(made, made_of, host)
    elif made.work == ASSEMBLE:
        _assemble(made, made_of, host)
    settle(host)
    _format(action, host)
    settle(host)
    forget(host, action.path)


def forget(host: Host, path: str) -> None:
    write_journal(host.files, {other: intent for other, intent in read_journal(host.files).items() if other != path})


def settle(host: Host) -> None:
    """Let udev make the names of what is new."""
    with contextlib.suppress(OSError):
        host.commands.run(("udevadm", "settle", f"--timeout={SETTLE_SECONDS}"), timeout=2.0 * SETTLE_SECONDS)


def _running(made: Made, host: Host) -> Optional[Array]:
    held = {name for drive in made.drives for name in host.files.names(f"{on_drives.BLOCK}/{drive.name}/holders")}
    arrays = [array for array in (on_drives.array_of(host.files, name) for name in sorted(held)) if array is not None]
    return next((array for array in arrays if array.runs), None)


def _stop(made: Made, host: Host) -> None:
    """What udev made of the drives that had their superblocks already: it does not run, for one is missing."""
    held = {name for drive in made.drives for name in host.files.names(f"{on_drives.BLOCK}/{drive.name}/holders")}
    names = {drive.name for drive in made.drives}
    for name in sorted(held):
        array = on_drives.array_of(host.files, name)
        if array is None or array.runs or not set(array.members) <= names:
            raise Refused(
                "make {}", object=made.source, cause=f"{name} has taken its drives meanwhile", hint="run again"
            )
        run(RunCommand(("mdadm", "--stop", array.node), "stop the incomplete array"), host)


def _create(made: Made, made_of: MadeOf, host: Host) -> None:
    # --homehost=any: else the array has another name where the initramfs has no host name yet, or an older one.
    # --run is its word for "do not ask", which it does where it finds its own superblocks.
    again = ("--run",) if made.work == FINISH else ()
    argv = (
        *(
            "mdadm",
            "--create",
            f"/dev/md/{made_of.name}",
            *again,
            "--metadata=1.2",
            "--level=0",
            f"--chunk={made_of.chunk_kb}",
        ),
        *("--homehost=any", f"--name={made_of.name}", f"--uuid={of_mdadm(made.intent.array)}"),
        *(f"--raid-devices={len(made.drives)}", *(drive.node for drive in made.drives)),
    )
    run(RunCommand(argv, "make the array", SECONDS), host)


def _assemble(made: Made, made_of: MadeOf, host: Host) -> None:
    nodes = tuple(drive.node for drive in made.drives)
    held = {name for drive in made.drives for name in host.files.names(f"{on_drives.BLOCK}/{drive.name}/holders")}
    if held:
        _stop(made, host)
    argv = ("mdadm", "--assemble", f"/dev/md/{made_of.name}", f"--uuid={made.array_id}", *nodes)
    run(RunCommand(argv, "assemble the array", SECONDS), host)


def _format(action: Make, host: Host) -> None:
    """Make the file system, unless there is one: of an array that did not run nobody knew what is on it."""
    made, made_of = action.made, action.made_of
    node = made.drives[0].node
    if not made.single:
        array = _running(made, host)
        if array is None:
            raise Refused("make {}", object=action.path, cause=f"{made.source} does not run", hint="see the kernel log")
        node = array.node
    found = superblock_of(on_drives.head_of(host.files, node))
    if found is not None and found.complete:
        return
    if found is None:
        known = on_drives.signature(host, node)
        if known or (made.work == ASSEMBLE and not made.begun):
            cause = f"{node} holds {known or 'no file system'}"
            raise Refused("make {}", object=action.path, cause=cause, hint="declare what is there")
    elif not made.begun or found.uuid != made.intent.filesystem:
        cause = f"{node} holds {found.fstype} that was never completely made"
        raise Refused("make {}", object=action.path, cause=cause, hint="declare what is there")
    run(RunCommand(_mkfs(made, made_of, node), "make the file system", SECONDS), host)


def _mkfs(made: Made, made_of: MadeOf, node: str) -> Tuple[str, ...]:
    intent, count = made.intent, len(made.drives)
    again = made.begun and made.work in (FORMAT, ASSEMBLE)
    label = ("-L", made_of.label) if made_of.label else ()
    if intent.fstype == "xfs":
        # -K: what is empty need not be discarded.
        stripe = () if made.single else ("-d", f"su={made_of.chunk_kb}k,sw={count}")
        force = ("-f",) if again else ()
        return ("mkfs.xfs", "-q", "-K", *force, *label, "-m", f"uuid={intent.filesystem}", *stripe, node)
    stride = made_of.chunk_kb // BLOCK_KB
    geometry = "" if made.single else f",stride={stride},stripe_width={stride * count}"
    force = ("-F",) if again else ()
    extended = f"nodiscard{geometry}"
    block = ("-b", str(BLOCK_KB * 1024))
    return ("mkfs.ext4", "-q", *force, *block, *label, "-U", intent.filesystem, "-E", extended, node)
