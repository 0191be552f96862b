# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The modules that the running kernel has, on disk or built in, as depmod(8) lists them.

In a name ``-`` and ``_`` are equal (modprobe(8)); ``normal`` is the way the kernel writes it.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Dict, FrozenSet, Optional, Tuple

from .._core.value import frozen

if TYPE_CHECKING:
    from .._core.protocols import Files


@frozen
class Installed:
    """``depends`` and ``built_in`` are the texts of modules.dep and modules.builtin of the kernel ``release``."""

    release: str
    depends: str
    built_in: str

    def dependencies(self, name: str) -> Optional[Tuple[str, ...]]:
        """The modules that a module on disk needs, also those that it needs by others; None where it is not on disk."""
        paths = self._on_disk.get(normal(name))
        return None if paths is None else tuple(map(_name_of, paths.split()))

    def path_of(self, name: str) -> Optional[str]:
        """Where the file of a module is, below the folder of the kernel; None where it is not on disk."""
        paths = (line.partition(":")[0] for line in self.depends.splitlines())
        return next((path for path in paths if _name_of(normal(path)) == normal(name)), None)

    def has_built_in(self, name: str) -> bool:
        return normal(name) in self._built_in

    @property
    def names(self) -> Tuple[str, ...]:
        """All modules, those that are built in too."""
        return (*self._on_disk, *self._built_in)

    @cached_property
    def _on_disk(self) -> Dict[str, str]:
        """The paths of what each module needs. Of several modules of one name the first counts."""
        lines = [line.partition(":") for line in reversed(normal(self.depends).splitlines())]
        return {_name_of(path): needs for path, _colon, needs in lines}

    @cached_property
    def _built_in(self) -> FrozenSet[str]:
        return frozenset(map(_name_of, normal(self.built_in).splitlines()))


def read_installed(files: Files) -> Installed:
    """A kernel without such lists (in a container, or without modules) has no module."""
    release = files.read("/proc/sys/kernel/osrelease").strip()
    folder = f"/lib/modules/{release}"
    depends = files.read_optional(f"{folder}/modules.dep") or ""
    return Installed(release, depends, files.read_optional(f"{folder}/modules.builtin") or "")


def normal(name: str) -> str:
    return name.replace("-", "_")


def _name_of(path: str) -> str:
    return path.rpartition("/")[2].partition(".ko")[0]
