# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages are installed: by the status that dpkg keeps of all."""

from __future__ import annotations

from typing import Iterator, Sequence, Tuple

from .._core.value import frozen

DPKG = "/var/lib/dpkg/status"


@frozen
class DebPackage:
    """An installed package. ``selection`` is what is to become of it, such as ``install`` or ``hold``."""

    name: str
    version: str
    architecture: str
    selection: str


def of_dpkg(status: str, names: Sequence[str] = (), prefixes: Sequence[str] = ()) -> Iterator[DebPackage]:
    """The installed packages with these names, or whose names begin so, in the text of dpkg's status (deb822)."""
    begins = tuple(prefixes)
    for name, block in _entries(status):
        if name in names or name.startswith(begins):
            values = dict(line.partition(": ")[::2] for line in block.splitlines() if line[:1] not in (" ", "\t"))
            state = values.get("Status", "").split()
            if len(state) == 3 and state[2] == "installed":
                yield DebPackage(name, values.get("Version", ""), values.get("Architecture", ""), state[0])


def _entries(status: str) -> Iterator[Tuple[str, str]]:
    for block in status.split("\n\n"):
        if block.startswith("Package: "):
            yield block[9 : block.find("\n")], block
