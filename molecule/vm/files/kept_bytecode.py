# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Keeps the bytecode of what Ansible sends: ``import kept_bytecode`` at the start of every Python of an emulated node.

Ansible sends each module as a zip file, and Python compiles what it imports from one anew every time. That takes an
emulated processor a third of a module's run. Same source, same bytecode: the key is the hash with which Python itself
tells whether a .pyc is still that of its source.
"""

from __future__ import annotations

import _imp
import marshal
import os
import zipimport

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import Callable

FOLDER = "/var/cache/kept-bytecode"
KEY = 0x6770

compile_source: Callable[[str, bytes], CodeType] = zipimport._compile_source  # type: ignore[attr-defined]


def kept(pathname: str, source: bytes) -> CodeType:
    path = f"{FOLDER}/{_imp.source_hash(KEY, source).hex()}-{os.path.basename(pathname)}c"
    try:
        with open(path, "rb") as file:
            found: CodeType = marshal.loads(file.read())
            return found
    except (OSError, EOFError, ValueError, TypeError):
        pass
    code = compile_source(pathname, source)
    try:
        with open(f"{path}.{os.getpid()}", "wb") as file:
            file.write(marshal.dumps(code))
        os.replace(f"{path}.{os.getpid()}", path)
    except OSError:
        # Who is not root, or has a read-only disk, compiles again.
        pass
    return code


zipimport._compile_source = kept  # type: ignore[attr-defined]
