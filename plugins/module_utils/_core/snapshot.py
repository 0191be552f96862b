# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine as one look finds it: of installed and configured files each is read once, however many concerns ask.

The kernel's files and those of daemons change while they are looked at, so that they are read again each time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Tuple, TypeVar, Union, cast

if TYPE_CHECKING:
    from .protocols import Files, Host

T = TypeVar("T")

STILL = ("/etc/", "/usr/", "/lib/", "/boot/", "/run/systemd/", "/var/lib/gpufleet/")


def snapshot(host: Host) -> Host:
    """This machine, where what is below ``STILL`` stays as it was found first. Only for what changes nothing."""
    return host if isinstance(host, _Snapshot) else cast("Host", _Snapshot(host))


def once(files: Files, make: Callable[[Files], T]) -> T:
    """What ``make`` finds in the files, or the ``OSError`` that it raises: once for all that ask in one look."""
    kept: Optional[Dict[Any, Any]] = getattr(files, "kept", None)
    if kept is None:
        return make(files)
    return cast("T", _kept(kept, make, lambda: make(files)))


class _Snapshot:
    def __init__(self, host: Host) -> None:
        self._host = host
        self.files = cast("Files", _Still(host.files))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._host, name)


class _Still:
    """Files of which the text, the names and the times are asked for once."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.kept: Dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._files, name)
        # Kept here, so that the next call finds it without us.
        setattr(self, name, found)
        return found

    def read(self, path: str) -> str:
        return cast("str", self._asked("read", path))

    def read_optional(self, path: str) -> Optional[str]:
        return cast("Optional[str]", self._asked("read_optional", path))

    def read_part(self, path: str, offset: int, size: int, *, exclusive: bool = False) -> bytes:
        if exclusive or not path.startswith(STILL):
            return self._files.read_part(path, offset, size, exclusive=exclusive)
        read = self._files.read_part
        return cast("bytes", _kept(self.kept, (path, offset, size), lambda: read(path, offset, size)))

    def exists(self, path: str) -> bool:
        return cast("bool", self._asked("exists", path))

    def names(self, path: str) -> Tuple[str, ...]:
        return cast("Tuple[str, ...]", self._asked("names", path))

    def resolve(self, path: str) -> str:
        return cast("str", self._asked("resolve", path))

    def modified(self, path: str) -> int:
        return cast("int", self._asked("modified", path))

    def _asked(self, method: str, path: str) -> Any:
        ask = getattr(self._files, method)
        if not path.startswith(STILL):
            return ask(path)
        return _kept(self.kept, (method, path), lambda: ask(path))


def _kept(kept: Dict[Any, Any], key: Any, make: Callable[[], Any]) -> Any:
    """What is kept by this key, or else what ``make`` returns or raises, which is kept."""
    found: Union[Any, OSError, None] = kept.get(key, kept)
    if found is kept:
        try:
            found = make()
        except OSError as error:
            found = error
        kept[key] = found
    if isinstance(found, OSError):
        raise found
    return found
