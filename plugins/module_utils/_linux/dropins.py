# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The folders of drop-in files that systemd, udev and sysctl share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterator, Sequence

if TYPE_CHECKING:
    from .._core.protocols import Files

# From the strongest to the weakest; where /usr is merged the last is a link to the one before it.
ROOTS = ("/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")


def walk_kind(files: Files, kind: str, suffix: str) -> Iterator[str]:
    """The files of one kind (``sysctl.d``, ``udev/rules.d``) that count, in the order in which they are read."""
    return walk_files(files, [f"{root}/{kind}" for root in ROOTS], suffix)


def read_texts(files: Files, kind: str, suffix: str, mentioning: str = "") -> Dict[str, str]:
    """The texts of these files by path, in the same order; only those that have ``mentioning`` somewhere in them."""
    texts = ((path, files.read_optional(path)) for path in walk_kind(files, kind, suffix))
    return {path: text for path, text in texts if text and mentioning in text}


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
            if name in chosen or name[0] == "." or not name.endswith(suffix):
                continue
            # A recorded tree may lack /dev/null itself.
            if files.exists(path) or files.resolve(path) == "/dev/null":
                chosen[name] = path
    for name in sorted(chosen):
        if files.resolve(chosen[name]) != "/dev/null":
            yield chosen[name]
