# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Compile the program on the node, and take away what was compiled."""

from __future__ import annotations

import ast
import io
import sys
import zipfile
from hashlib import sha256
from marshal import dumps
from typing import TYPE_CHECKING, Dict, Mapping, Tuple

from .._core.errors import Refused
from .._machine import bytecode, untyped
from .._machine.files import checksum_of
from .program import ARCHIVE, BYTECODE, COMPILED, LOOK, Entry, entry_text, folder_of, may_have_entry, python_path

if TYPE_CHECKING:
    from .._core.protocols import Files

MAIN = "__main__.py"


def compile_program(files: Files) -> None:
    """Compile the archive that is on the node, by and for the Python that runs this.

    Raises ``OSError``, and ``Refused`` for an archive that cannot be compiled.
    """
    content = files.read(ARCHIVE).encode("utf-8", "surrogateescape")
    digest = sha256(content).hexdigest()
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = [name for name in archive.namelist() if name.endswith(".py") and name != MAIN]
            made = compiled({name: archive.read(name) for name in names}, place=ARCHIVE)
    except (zipfile.BadZipFile, SyntaxError) as error:
        raise Refused(
            "compile the program", object=ARCHIVE, cause=str(error), hint="run the role node_tools"
        ) from error
    # The entry last: it says what the bytecode beside it must be.
    files.replace(f"{folder_of(digest)}/{BYTECODE}", made.decode("utf-8", "surrogateescape"))
    if may_have_entry(files):
        python = sys.implementation.cache_tag
        entry = Entry(sys.executable, python, checksum_of(made), checksum_of(content), python_path())
        files.replace(f"{folder_of(digest)}/{LOOK}", entry_text(entry, digest))
    else:
        # One that another interpreter left is not about this bytecode.
        files.remove(f"{folder_of(digest)}/{LOOK}")
    remove_compiled(files, keep=digest)


def compiled(sources: Mapping[str, bytes], *, place: str) -> bytes:
    """The modules of these sources, by their path below ``place``, as one file for the Python that runs this.

    Without docstrings, assertions and types, which a look has no use for. Raises ``SyntaxError``.
    """
    modules: Dict[str, Tuple[bool, bytes]] = {}
    for path in sorted(sources):
        parts = path[: -len(".py")].split("/")
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        tree = ast.parse(sources[path])
        _leave_typing_out(tree)
        code = compile(tree, f"{place}/{path}", "exec", dont_inherit=True, optimize=2)
        modules[name] = (is_package, dumps(code))
    return laid_out(modules)


def laid_out(modules: Mapping[str, Tuple[bool, bytes]]) -> bytes:
    """The file that ``bytecode.Finder`` reads; of each module, whether it is a package, and its code, marshalled."""
    index: Dict[str, Tuple[bool, int, int]] = {}
    end = 0
    for name, (is_package, code) in modules.items():
        begin, end = end, end + len(code)
        index[name] = (is_package, begin, end)
    _is_package, finder = modules.get(bytecode.__name__, (False, b""))
    head = [len(part).to_bytes(bytecode.LENGTH, "little") + part for part in (finder, dumps(index))]
    return b"".join((*head, *(code for _is_package, code in modules.values())))


def _leave_typing_out(tree: ast.Module) -> None:
    """Put our stand-in for ``typing`` in its place, where that has all that is taken of it."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or node.module != "typing":
            continue
        if all(hasattr(untyped, name.name) for name in node.names):
            node.module = untyped.__name__


def remove_compiled(files: Files, *, keep: str = "") -> None:
    """Remove all that was compiled, but for what came from the archive with the sum ``keep``."""
    if files.link(COMPILED):
        # Of somebody else: what it leads to is none of ours.
        files.remove(COMPILED)
    for name in files.names(COMPILED):
        if name != keep:
            _remove(files, f"{COMPILED}/{name}")
    files.remove_folder(COMPILED)


def _remove(files: Files, path: str) -> None:
    """With all below it, and of a link the link alone."""
    if files.link(path) or not files.is_folder(path):
        files.remove(path)
        return
    for name in files.names(path):
        _remove(files, f"{path}/{name}")
    files.remove_folder(path)
