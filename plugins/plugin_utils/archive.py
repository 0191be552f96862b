# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program that stays on the nodes, as one file that Python runs: the rooms and what they stand on."""

from __future__ import annotations

import io
import zipfile
from functools import cache
from pathlib import Path
from typing import Dict, Iterator

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "ansible_collections/gpufleet/node"
UTILS = "plugins/module_utils"
# What stands on Ansible, which a node need not have, and what is done around the work on a node.
LEFT_OUT = (f"{UTILS}/_node/module.py", f"{UTILS}/_node/sent_file.py", f"{UTILS}/procedures/")
# The first entry of the path is the archive itself.
MAIN = f"""import sys
from hashlib import sha256

from {PACKAGE.replace("/", ".")}.plugins.module_utils._linux.program import prefer
from {PACKAGE.replace("/", ".")}.plugins.module_utils._machine.files import LocalFiles

with open(sys.path[0], "rb") as archive:
    prefer(LocalFiles(), sha256(archive.read()).hexdigest(), packages=True)
from {PACKAGE.replace("/", ".")}.node.command import main

raise SystemExit(main())
"""
# The oldest date that the format knows.
DATE = (1980, 1, 1, 0, 0, 0)
MODE = 0o100644
UNIX = 3


@cache
def build(root: Path = ROOT) -> bytes:
    """The archive of the collection at ``root``. The same sources give the same bytes, wherever and whenever."""
    contents = {"__main__.py": MAIN.encode()}
    for name in sources(root):
        contents[f"{PACKAGE}/{name}"] = (root / name).read_bytes()
    contents.update(dict.fromkeys(_missing_packages(contents), b""))
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(contents):
            entry = zipfile.ZipInfo(name, DATE)
            entry.create_system = UNIX
            entry.external_attr = MODE << 16
            archive.writestr(entry, contents[name])
    return stream.getvalue()


def sources(root: Path) -> Iterator[str]:
    """What goes in, relative to ``root``: ``node/`` and the module utilities, with all that is below them."""
    for folder in (root / "node", root / UTILS):
        for path in sorted(folder.rglob("*.py")):
            name = path.relative_to(root).as_posix()
            # What an interpreter leaves beside the sources may have any name.
            if path.parent.name != "__pycache__" and not name.startswith(LEFT_OUT):
                yield name


def _missing_packages(contents: Dict[str, bytes]) -> Iterator[str]:
    """Inside an archive a folder is a package only with an __init__.py."""
    for name in contents:
        parts = name.split("/")[:-1]
        for count in range(1, len(parts) + 1):
            init = "/".join([*parts[:count], "__init__.py"])
            if init not in contents:
                yield init
