# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules compiled into one file, and imported from it.

Python searches the path for each module that it imports, and reads a file of its own for each: a third of what the
imports of a look cost. Here the file is read once, and its sum says whether it is whole.
"""

from __future__ import annotations

import sys
from _frozen_importlib import ModuleSpec
from marshal import dumps, loads
from typing import TYPE_CHECKING, Any, Dict, Mapping, Tuple

if TYPE_CHECKING:
    from types import ModuleType

Modules = Mapping[str, Tuple[bool, bytes]]
"""By its full name: whether the module is a package, and its code, marshalled."""


def compiled(sources: Mapping[str, bytes], *, place: str) -> bytes:
    """The modules of these sources, by their path below ``place``, as one file for the Python that runs this.

    Without docstrings and assertions, which a look has no use for. Raises ``SyntaxError``.
    """
    modules: Dict[str, Tuple[bool, bytes]] = {}
    for path in sorted(sources):
        parts = path[: -len(".py")].split("/")
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        code = compile(sources[path], f"{place}/{path}", "exec", dont_inherit=True, optimize=2)
        modules[name] = (is_package, dumps(code))
    return dumps(modules)


class Finder:
    """Finds modules in a file that was made by ``compiled``, before Python searches its path.

    Without ``packages`` only what is in them: they come from elsewhere, with what only is there.
    """

    def __init__(self, content: bytes, *, packages: bool = True) -> None:
        self._modules: Modules = loads(content)
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
