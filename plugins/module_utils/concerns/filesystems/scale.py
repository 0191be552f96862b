# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the client of Storage Scale has in effect on this node, and what its cluster has configured.

Both are only read: mmchconfig would write into the database of the whole cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterable, List, Mapping, Optional, Tuple
from urllib.parse import unquote

from ..._core.errors import CannotLook
from .values import bytes_of

if TYPE_CHECKING:
    from ..._core.protocols import Host

FOLDER = "/usr/lpp/mmfs/bin"
SECONDS = 10
CLIENT = "mmfsd"
# What mmchconfig takes, and mmdiag shows for it.
WORDS: Mapping[str, str] = {"yes": "1", "no": "0"}


def read(host: Host, names: Iterable[str]) -> Optional[Dict[str, Dict[str, str]]]:
    """The values in effect by name, without those that the client does not have. None where mmdiag shows nothing.

    Raises ``CannotLook`` where mmdiag does not end.
    """
    found = _table(host, ("mmdiag", "--config", "-Y"))
    if found is None:
        return None
    values = {row["name"]: row["value"] for row in found if "name" in row and "value" in row}
    return {name: {CLIENT: values[name]} for name in names if name in values}


def configured(host: Host, names: Iterable[str]) -> Dict[str, Tuple[str, ...]]:
    """The values that the cluster has by name, each with its nodes where it is not for all of them."""
    wanted = set(names)
    found: Dict[str, Tuple[str, ...]] = {}
    for row in _table(host, ("mmlsconfig", "-Y")) or ():
        name, nodes = row.get("configParameter", ""), row.get("nodeList", "")
        if name in wanted:
            value = row.get("value", "")
            found[name] = (*found.get(name, ()), f"{value} for {nodes}" if nodes else value)
    return found


def is_same(wanted: str, found: str) -> bool:
    """Whether both mean the same: mmdiag counts in bytes, and has numbers for yes and no."""
    if wanted.lower() == found.lower() or WORDS.get(wanted.lower()) == found:
        return True
    number = bytes_of(wanted)
    return number is not None and number == bytes_of(found)


def _table(host: Host, argv: Tuple[str, ...]) -> Optional[List[Dict[str, str]]]:
    """What a program prints with ``-Y``: a heading, and rows, in fields between colons."""
    program = f"{FOLDER}/{argv[0]}"
    try:
        completed = host.commands.run((program, *argv[1:]), timeout=float(SECONDS))
    except OSError:
        return None
    if completed.timed_out:
        raise CannotLook("read {}", object=argv[0], cause=f"it did not end within {SECONDS} seconds")
    if completed.status != 0:
        return None
    heading: List[str] = []
    rows = []
    for line in completed.output.splitlines():
        fields = line.split(":")
        if len(fields) > 3 and fields[2] == "HEADER":
            heading = fields
        elif len(fields) > 3 and fields[0] == argv[0]:
            rows.append({name: unquote(value) for name, value in zip(heading, fields)})
    return rows
