# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules that are imported from one file of bytecode, which ``program_apply.compile_program`` makes.

Python searches the path for each module that it imports, and reads a file of its own for each: a third of what the
imports of a look cost. Here one file has all: its sum says whether it is whole, and what is imported is read from it.

The file has three parts, the first two with their length before them (``LENGTH`` bytes, little-endian): this module,
the index, and the code of all modules. All is marshalled.
"""

from __future__ import annotations

import os
import sys
from _frozen_importlib import ModuleSpec
from marshal import loads

# The first of all modules that a look has: what it imports is found without it. A type checker takes it for true.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, List, Mapping, Tuple

    Index = Mapping[str, Tuple[bool, int, int]]
    """By the full name of a module: whether it is a package, and where its code begins in the last part and ends."""

LENGTH = 4


class Finder:
    """Finds modules in the open file ``descriptor``, before Python searches its path.

    Without ``packages`` only what is in them: they come from elsewhere, with what only is there.
    """

    def __init__(self, descriptor: int, *, packages: bool = True) -> None:
        self.descriptor = descriptor
        self._packages = packages
        _ourselves, start = _part(descriptor, 0)
        index, self._start = _part(descriptor, start)
        self.index: Index = loads(index)

    def install(self) -> None:
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> Any:
        is_package, _begin, _end = self.index.get(name, (None, 0, 0))
        if is_package is None or (is_package and not self._packages):
            return None
        return ModuleSpec(name, self, is_package=is_package)  # type: ignore[arg-type]

    def create_module(self, _spec: Any) -> None:
        """Python's own kind of module will do."""

    def exec_module(self, module: ModuleType) -> None:
        _is_package, begin, end = self.index[module.__name__]
        exec(loads(os.pread(self.descriptor, end - begin, self._start + begin)), module.__dict__)


def descriptors() -> Tuple[int, ...]:
    """Those that must stay open in a process that imports anything."""
    # The first of all is of no class that is known here.
    finders: List[Any] = [one for one in sys.meta_path if type(one).__name__ == Finder.__name__]
    return tuple(one.descriptor for one in finders)


def _part(descriptor: int, start: int) -> Tuple[bytes, int]:
    """A part that begins with its length, and where it ends."""
    length = int.from_bytes(os.pread(descriptor, LENGTH, start), "little")
    start += LENGTH
    return os.pread(descriptor, length, start), start + length
