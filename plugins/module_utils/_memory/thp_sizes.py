# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Transparent huge pages by size. Imported only where a size is declared."""

from __future__ import annotations

from typing import Any, List, Mapping, Sequence, Tuple

from .._core.errors import DeclarationError, Scalar
from .owners import THP
from .spec import parse_size
from .state import State, format_size, thp_object


def settings_of_sizes(entries: Sequence[Mapping[str, Any]], state: State) -> List[Tuple[str, str, str, Scalar]]:
    """What is declared, as (path, object, setting, value). Raises ``DeclarationError`` on a size that is not there."""
    found: List[Tuple[str, str, str, Scalar]] = []
    seen = set()
    for entry in entries:
        size_kb = parse_size(entry["size"])
        goal = f"declare transparent hugepages of {entry['size']}"
        if size_kb is None:
            raise DeclarationError(goal, cause="this is not a page size", hint="write it like 64K or 2M")
        if size_kb in seen:
            raise DeclarationError(goal, cause="the size is declared twice")
        seen.add(size_kb)
        if state.thp_sizes and size_kb not in state.thp_sizes:
            known = ", ".join(format_size(size) for size in state.thp_sizes)
            raise DeclarationError(goal, cause="this kernel does not have the size", found=known)
        for setting in ("enabled", "shmem_enabled"):
            path = f"{THP}/hugepages-{size_kb}kB/{setting}"
            found.append((path, thp_object(size_kb), setting, entry.get(setting)))
    return found
