# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The modules that the running kernel has, on disk or built in, as depmod(8) lists them.

In a name ``-`` and ``_`` are equal (modprobe(8)); ``normal`` is the way the kernel writes it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional, Tuple

if TYPE_CHECKING:
    from .protocols import Files


@dataclass(frozen=True)
class Installed:
    """``depends`` and ``built_in`` are the texts of modules.dep and modules.builtin of the kernel ``release``."""

    release: str
    depends: str
    built_in: str

    def dependencies(self, name: str) -> Optional[Tuple[str, ...]]:
        """The modules that a module on disk needs, also those that it needs by others; None where it is not on disk."""
        line = re.search(rf"/{_spelled(name)}\.ko(?:\.\w+)?:(.*)", self.depends)
        if line is None:
            return None
        return tuple(normal(os.path.basename(path).partition(".ko")[0]) for path in line[1].split())

    def has_built_in(self, name: str) -> bool:
        return re.search(rf"/{_spelled(name)}\.ko$", self.built_in, re.MULTILINE) is not None


def read_installed(files: Files) -> Installed:
    """A kernel without such lists (in a container, or without modules) has no module."""
    release = files.read("/proc/sys/kernel/osrelease").strip()
    folder = f"/lib/modules/{release}"
    depends = files.read_optional(f"{folder}/modules.dep") or ""
    return Installed(release, depends, files.read_optional(f"{folder}/modules.builtin") or "")


def normal(name: str) -> str:
    return name.replace("-", "_")


def _spelled(name: str) -> str:
    return re.escape(normal(name)).replace("_", "[-_]")
