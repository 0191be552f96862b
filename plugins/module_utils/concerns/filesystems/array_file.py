# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Our file for mdadm, by which the arrays have their names at boot.

It lies beside the file of the distribution: mdadm reads both (mdadm.conf(5)). Without it an array that was made on a
host of another name is assembled as /dev/md127, and so it is where the initramfs does it, which has the other file
alone. So nothing is mounted by that name. What a boot makes anew is not in it: its number may be another then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Mapping, Optional

from ..._kinds.own_files import OwnFile, header_of
from .spec import NAME

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from .made import Made
    from .spec import Entry

SETTING = "arrays"
# Of Debian and Ubuntu, and of the others.
FOLDERS = ("/etc/mdadm", "/etc")
FILE = "mdadm.conf.d/gpufleet.conf"


def read(files: Files) -> OwnFile:
    """The file where it is, or else where it would be."""
    paths = [f"{folder}/{FILE}" for folder in FOLDERS]
    path = next((path for path in paths if files.exists(path)), None)
    if path is None:
        path = paths[0] if files.is_folder(FOLDERS[0]) else paths[1]
    return OwnFile(path, SETTING, files.read_optional(path))


def text_of(entries: Mapping[str, Entry], made: Mapping[str, Made]) -> Optional[str]:
    """What shall be in it; None where no array is to be assembled by its name."""
    lines: Dict[str, str] = {}
    for path, found in made.items():
        entry = entries.get(path)
        if entry is None or entry.made_of is None or not entry.at_boot or found.single:
            continue
        name = entry.made_of.name
        lines[name] = f"ARRAY /dev/md/{name} metadata=1.2 UUID={found.array_id}\n"
    return header_of(NAME) + "".join(lines[name] for name in sorted(lines)) if lines else None
