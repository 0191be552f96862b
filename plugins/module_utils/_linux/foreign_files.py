# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Files that foreign software names, which may be anything: what cannot be a text is an empty one."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any, Optional, Tuple, cast

if TYPE_CHECKING:
    from .._core.protocols import Files

MOST = 1 << 20
"""Of a longer text, in bytes, nothing is read: no script or configuration is."""
# Folders, pipes, sockets, devices without a driver, and names that no file can have.
_NO_TEXT = (errno.EISDIR, errno.ESPIPE, errno.ENXIO, errno.ENODEV, errno.ELOOP, errno.ENAMETOOLONG)


def foreign(files: Files) -> Files:
    """These files, where a path that leads to no text raises nothing. A text that we may not read raises as before."""
    return cast("Files", _Foreign(files))


class _Foreign:
    def __init__(self, files: Files) -> None:
        self._files = files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def read(self, path: str) -> str:
        return self.read_optional(path) or ""

    def read_optional(self, path: str) -> Optional[str]:
        try:
            content = self._files.read_part(path, 0, MOST + 1)
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        except OSError as error:
            if error.errno in _NO_TEXT:
                return ""
            raise
        return content.decode("utf-8", "surrogateescape") if len(content) <= MOST else ""

    def names(self, path: str) -> Tuple[str, ...]:
        try:
            return self._files.names(path)
        except OSError as error:
            if error.errno in _NO_TEXT:
                return ()
            raise
