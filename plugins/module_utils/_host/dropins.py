# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The folders of drop-in files that systemd, udev and sysctl share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterator, Sequence

if TYPE_CHECKING:
    from .protocols import Files


def walk_files(files: Files, folders: Sequence[str], suffix: str) -> Iterator[str]:
    """The files a systemd-style set of drop-in folders yields, in the order they are read.

    ``folders`` go from the strongest (``/etc``) to the weakest (``/usr/lib``): of equal names the strongest counts, and
    a link to /dev/null switches the name off, while one that leads nowhere says nothing. Sorted by name across all
    folders, as sysctl.d(5), tmpfiles.d(5) and udev(7) say.
    """
    chosen: Dict[str, str] = {}
    for folder in folders:
        for name in files.names(folder):
            path = f"{folder}/{name}"
            # A recorded tree may lack /dev/null itself.
            if name.endswith(suffix) and name[0] != "." and (files.exists(path) or files.resolve(path) == "/dev/null"):
                chosen.setdefault(name, path)
    for name in sorted(chosen):
        if files.resolve(chosen[name]) != "/dev/null":
            yield chosen[name]
