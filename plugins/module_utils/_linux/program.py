# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program on the node: its paths, and whether its compiled form is intact and can be trusted.

The compiled form is two files in a folder that is named after the SHA-256 sum of the archive: the modules as bytecode,
and an entry that the controller runs for a look. The entry has the checksums that the bytecode and the archive had when
it was made.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import TYPE_CHECKING, Iterable, Optional, Tuple

from .._core.exposure import PROGRAM_FOLDER, exposed, exposed_way
from .._core.regex import regex
from .._core.value import frozen
from .._machine.bytecode import LENGTH, Finder
from .._machine.files import PART, checksum_from

if TYPE_CHECKING:
    from .._core.protocols import Files
    from .._machine.files import LocalFiles

# Not below /usr/local, which is read-only on some systems and a link into /var on others. In /var a file may not be
# executable (noexec, SELinux), so it is an interpreter that is started, with the file as its argument.
PROGRAM = f"{PROGRAM_FOLDER}/gpufleet"
ARCHIVE = f"{PROGRAM_FOLDER}/gpufleet.pyz"
COMPILED = f"{PROGRAM_FOLDER}/compiled"
# Patterns of a shell for what `stat -c %u%A` says of a folder and of a file that belong to root and that only root may
# write. Several are separated by a blank in quotes.
SAFE_FOLDER, SAFE_FILE, BLANK = "0d????-??-?", "0-????-??-?", '" "'
# What a shell runs to start it, with "$@" for its arguments. The program is checked before, as who can write to its
# folders could replace it. An administrator may have moved the folder, and left a link.
START = (
    f'case "$(echo $(stat -Lc %u%A {os.path.dirname(PROGRAM_FOLDER)} {PROGRAM_FOLDER} {PROGRAM} 2>/dev/null))" in '
    f'{BLANK.join((SAFE_FOLDER, SAFE_FOLDER, SAFE_FILE))}) exec /bin/sh {PROGRAM} "$@";; esac; '
    f'echo "Cannot run {PROGRAM}: it is missing, or users other than root may change it. '
    'Run the role node_tools." >&2; exit 64'
)
# The same as a unit starts it, which takes % and $ for its own signs. Arguments follow.
EXEC_START = "/bin/sh -c '{}' gpufleet".format(START.replace("%", "%%").replace("$", "$$"))
# What people start, where that can be written.
ON_PATH = "/usr/local/sbin/gpufleet"
LOOK, BYTECODE = "look", "bytecode"
# What the entry ends with where it cannot look. Apart from those of Python, a shell, timeout(1) and ssh.
OTHER_PYTHON, DAMAGED = 91, 92

# Isolated and without site, which is a third of what Python's own start costs. PATH has what site would have found.
# Nothing is written, so that a look changes nothing.
ENTRY = """#!{interpreter} -IBS
# What the controller runs for a look. Made by gpufleet.node with what is compiled beside it: see `gpufleet compile`.
import gc
import os
import sys
from marshal import loads
from zlib import crc32

PYTHON = "{python}"
BYTECODE = "{bytecode}"
ARCHIVE = "{archive}"
PATH = {path}

if sys.implementation.cache_tag != PYTHON:
    sys.exit({other_python})
# By parts into the same memory: room for the whole file would cost more than the sum.
file, part = os.open("{folder}/bytecode", os.O_RDONLY), memoryview(bytearray({part}))
total = size = 0
while count := os.readv(file, [part]):
    total, size = crc32(part[:count], total), size + count
if f"{{total:08x}}-{{size}}" != BYTECODE:
    sys.exit({damaged})
# What a look makes is not worth a search for garbage.
gc.disable()
sys.path[:] = PATH
start = {{"__name__": "bytecode"}}
exec(loads(os.pread(file, int.from_bytes(os.pread(file, {length}, 0), "little"), {length})), start)
start["Finder"](file).install()
from {package}.node.look import main

main()
"""
PACKAGE = "ansible_collections.gpufleet.node"
RECORDED = regex(r'#!(.+) -IBS\n(?:.*\n)*?PYTHON = "(.+)"\nBYTECODE = "(.+)"\nARCHIVE = "(.+)"\nPATH = (\["/.+"\])\n')


@frozen
class Entry:
    """What an entry says of itself: the Python that it was made by and for, and the checksums of the files.

    ``path`` is where that Python finds its modules.
    """

    interpreter: str
    python: str
    bytecode: str
    archive: str
    path: Tuple[str, ...]


def folder_of(digest: str) -> str:
    return f"{COMPILED}/{digest}"


def entry_text(entry: Entry, digest: str) -> str:
    """The entry for the archive with this SHA-256 sum."""
    return ENTRY.format(
        interpreter=entry.interpreter,
        python=entry.python,
        bytecode=entry.bytecode,
        archive=entry.archive,
        folder=folder_of(digest),
        # As Python writes it too.
        path=json.dumps(entry.path),
        package=PACKAGE,
        part=PART,
        length=LENGTH,
        other_python=OTHER_PYTHON,
        damaged=DAMAGED,
    )


def may_be_named(interpreter: str) -> bool:
    """Whether the first line of an entry can name this interpreter: a shell splits it at blanks."""
    return interpreter.startswith("/") and not interpreter.split()[1:]


def python_path() -> Tuple[str, ...]:
    """Where this Python finds the machine's modules, and not the caller's, the payload's or the home's."""
    import site

    shared = (os.path.dirname(os.__file__), *site.getsitepackages())
    return tuple(folder for folder in sys.path if os.path.isdir(folder) and folder.startswith(shared))


def exposed_python(files: Files, interpreter: str, path: Iterable[str]) -> str:
    """Why others than root may change what this interpreter runs from this path; empty where nobody may."""
    return next(filter(None, (exposed_way(files, place) for place in (interpreter, *path))), "")


def may_have_entry(files: Files) -> bool:
    """Whether an entry can name the Python that runs this, which root would run at every look."""
    return may_be_named(sys.executable) and not exposed_python(files, sys.executable, python_path())


def entry_of(files: Files, digest: str) -> Optional[Entry]:
    """What the entry for this archive says; None where there is none, or it is not as it was made."""
    text = files.read_optional(f"{folder_of(digest)}/{LOOK}") or ""
    found = RECORDED.match(text)
    if not found:
        return None
    interpreter, python, bytecode, archive, path = found.groups()
    try:
        entry = Entry(interpreter, python, bytecode, archive, tuple(json.loads(path)))
    except ValueError:
        return None
    return entry if entry_text(entry, digest) == text else None


def fault_of(files: Files, digest: str, entry: Optional[Entry]) -> str:
    """Why what is compiled is of no use to a look; empty where it is of use."""
    if entry is None:
        if files.exists(f"{folder_of(digest)}/{LOOK}"):
            return "damaged"
        return "missing" if may_have_entry(files) else ""
    # What runs this is there, also where the machine is a recorded one.
    if entry.interpreter != sys.executable and not files.exists(entry.interpreter):
        return f"for {entry.interpreter}, which does not exist"
    # An upgrade may have changed it under its name, and this run may know it by another one.
    if entry.python != sys.implementation.cache_tag and files.resolve(entry.interpreter) == files.resolve(
        sys.executable
    ):
        return f"for {entry.python}, and {entry.interpreter} is {sys.implementation.cache_tag}"
    others = exposed_python(files, entry.interpreter, entry.path)
    if others:
        return f"for {entry.interpreter}: {others}"
    return "" if entry.bytecode == files.checksum(f"{folder_of(digest)}/{BYTECODE}") else "damaged"


def compiled_fault(files: Files) -> str:
    """The same of the archive that is on the node; empty where there is none. Raises ``OSError``."""
    from hashlib import sha256

    text = files.read_optional(ARCHIVE)
    if text is None:
        return ""
    digest = sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
    return fault_of(files, digest, entry_of(files, digest))


def prefer(files: LocalFiles, digest: str, *, packages: bool) -> None:
    """Import from here on what is compiled of the archive with this sum, where that is whole and root's alone.

    Without it all is as right, and slower. ``packages`` as for ``Finder``.
    """
    with contextlib.suppress(OSError):
        # It comes from a declaration that nobody has checked yet.
        entry = entry_of(files, digest) if digest.isalnum() else None
        place = f"{folder_of(digest)}/{BYTECODE}"
        if entry is None or entry.python != sys.implementation.cache_tag or exposed(files, place):
            return
        descriptor = os.open(files.locate(place), os.O_RDONLY | os.O_NONBLOCK)
        try:
            if checksum_from(descriptor) == entry.bytecode:
                Finder(descriptor, packages=packages).install()
                descriptor = -1
        finally:
            if descriptor >= 0:
                os.close(descriptor)
