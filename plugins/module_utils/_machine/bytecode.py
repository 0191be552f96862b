# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules that are imported from one file of bytecode, which ``program_apply.compile_program`` makes.

Python searches the path for each module that it imports, and reads a file of its own for each: a third of what the
imports of a look cost. Here the file is read once, and its sum says whether it is whole.
"""

from __future__ import annotations

import sys
from _frozen_importlib import ModuleSpec
from marshal import loads

# The first of all modules that a look has: what it imports is found without it. A type checker takes it for true.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any, Mapping, Tuple

    Modules = Mapping[str, Tuple[bool, bytes]]
    """By its full name: whether the module is a package, and its code, marshalled."""


class Finder:
    """Finds modules in a file that was made by ``compiled``, before Python searches its path.

    Without ``packages`` only what is in them: they come from elsewhere, with what only is there.
    """

    def __init__(self, modules: Modules, *, packages: bool = True) -> None:
        self._modules = modules
        self._packages = packages

    def install(self) -> None:
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> Any:
        is_package, _code = self._modules.get(name, (None, b""))
        if is_package is None or (is_package and not self._packages):
            return None
        return ModuleSpec(name, self, is_package=is_package)  # type: ignore[arg-type]

    def create_module(self, _spec: Any) -> None:
        """Python's own kind of module will do."""

    def exec_module(self, module: ModuleType) -> None:
        exec(loads(self._modules[module.__name__][1]), module.__dict__)
