# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``gpufleet compile``: the program unpacked and compiled, so that nobody who uses it has to do that again.

Python keeps no bytecode of what lies in an archive. The archive is what counts; this can be made from it at any time.
"""

from __future__ import annotations

import compileall
import hashlib
import os
import shutil
import zipfile
from pathlib import Path

from ansible_collections.gpufleet.node.plugins.module_utils._linux.boot_service import ARCHIVE, COMPILED


def compile_program(archive: Path = Path(ARCHIVE), folder: Path = Path(COMPILED)) -> None:
    """Compile it where that was not done yet, and remove what was made from another archive."""
    os.umask(0o022)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    target, work = folder / digest, folder / f".{digest}"
    if not target.is_dir():
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True, mode=0o755)
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(work)
        compileall.compile_dir(work, quiet=2)
        # The name appears when all of it is on the disk: after a power cut there must be no empty module under it.
        for path in (*work.rglob("*"), work):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        work.rename(target)
    for other in folder.iterdir():
        if other != target:
            shutil.rmtree(other, ignore_errors=True)


def remove(folder: Path = Path(COMPILED)) -> None:
    shutil.rmtree(folder, ignore_errors=True)
