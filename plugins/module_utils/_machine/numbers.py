# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whole numbers in files of the kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from .._core.errors import CannotLook

if TYPE_CHECKING:
    from .._core.protocols import Files

# Characters of another text that the message shows.
MAX_SHOWN = 80


def number_of(text: str, path: str) -> int:
    """The number in the text of a file. Raises ``CannotLook``, naming the file, on any other text."""
    try:
        return int(text)
    except ValueError as error:
        cause = f"{text[:MAX_SHOWN].strip()!r} is not a whole number"
        raise CannotLook("read {}", object=path, cause=cause) from error


def read_number(files: Files, path: str) -> Optional[int]:
    """The same of a file by its path; None where it is not there."""
    text = files.read_optional(path)
    return None if text is None else number_of(text, path)
