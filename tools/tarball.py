# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a tarball of the collection holds, for comparison with another one."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path
from typing import Dict, Tuple

LIST, MANIFEST = "FILES.json", "MANIFEST.json"


def content(tarball: Path) -> Dict[str, Tuple[int, bytes]]:
    """Mode and bytes of every file in it.

    The list of files is in the order in which a folder gave them, which says nothing: it is sorted here, and its
    checksum left out.
    """
    found = {}
    with tarfile.open(tarball) as archive:
        for member in archive.getmembers():
            handle = archive.extractfile(member)
            found[member.name] = (member.mode, handle.read() if handle else b"")
    for name in (LIST, MANIFEST):
        mode, text = found[name]
        value = json.loads(text)
        if name == LIST:
            value["files"].sort(key=lambda entry: entry["name"])
        else:
            del value["file_manifest_file"]["chksum_sha256"]
        found[name] = (mode, json.dumps(value).encode())
    return found
