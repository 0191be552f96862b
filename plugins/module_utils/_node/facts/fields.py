# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How facts are written down: a field is a value, or null with the reason why there is none."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Optional, Tuple, TypeVar

if TYPE_CHECKING:
    from ..._core.protocols import Files

T = TypeVar("T")
Facts = Dict[str, Any]

UNAVAILABLE = "unavailable"
ROOT_ONLY = "root only"


class Fields:
    """One object of facts while it is made. ``facts`` has the reasons of all null fields in ``unavailable``."""

    def __init__(self, **known: Any) -> None:
        self._values: Facts = known
        self._reasons: Dict[str, str] = {}

    def add(self, name: str, value: Any, reason: str = "") -> None:
        """A field; ``reason`` is why ``value`` is None."""
        self._values[name] = value
        if value is None:
            self._reasons[name] = reason

    def lack(self, reason: str, *names: str) -> None:
        """Fields that are null for the same reason."""
        for name in names:
            self.add(name, None, reason)

    def take(self, answer: Facts, names: Iterable[str], reason: str) -> None:
        """Fields of other facts, with their reasons; ``reason`` is that of those which are not there at all."""
        reasons = answer.get(UNAVAILABLE, {})
        for name in names:
            self.add(name, answer.get(name), reasons.get(name, reason))

    @property
    def facts(self) -> Facts:
        return {**self._values, UNAVAILABLE: dict(self._reasons)}


def read(files: Files, path: str) -> Tuple[Optional[str], str]:
    """The text of a small file without blanks around it, or None and the reason."""
    try:
        return files.read(path).strip(), ""
    except OSError as error:
        return None, why(error, path)


def read_as(files: Files, path: str, kind: Callable[[str], Optional[T]]) -> Tuple[Optional[T], str]:
    """The same as another type; a text that ``kind`` takes for None or refuses is a reason too."""
    text, reason = read(files, path)
    if text is None:
        return None, reason
    try:
        value = kind(text)
    except ValueError:
        value = None
    return value, "" if value is not None else f"{path} says {text!r}"


def why(error: OSError, path: str) -> str:
    """Why a file could not be read."""
    if error.errno in (errno.EACCES, errno.EPERM) and os.geteuid() != 0:
        return ROOT_ONLY
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return f"there is no {path}"
    return f"{path}: {(error.strerror or str(error)).lower()}"
