# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a machine can have of what is declared. Imported only when that is not what it has already."""

from __future__ import annotations

from typing import Mapping, Optional

from .._core.errors import DeclarationError, Scalar
from .state import Knob, State, format_size


def check_memory(pools: Mapping[int, Mapping[Optional[int], int]], state: State) -> None:
    for node in state.nodes:
        needed = sum(size_kb * counts.get(node.number, 0) for size_kb, counts in pools.items())
        if needed > node.total_kb:
            sizes = ", ".join(format_size(size_kb) for size_kb, counts in pools.items() if counts.get(node.number))
            raise DeclarationError(
                f"declare pages of {sizes}",
                object=node.name,
                cause="they need more memory than there is",
                found=f"{node.total_kb // 1024} MiB",
                wanted=f"{needed // 1024} MiB",
            )


def check_knob(knob: Knob, value: Scalar, state: State) -> None:
    problem = ""
    if knob.choices and value not in knob.choices:
        problem = f"this kernel knows only {', '.join(knob.choices)}"
    elif isinstance(value, int) and value < 0:
        problem = "the value is negative"
    elif isinstance(value, int) and value >= 2**32:
        problem = f"the kernel takes at most {2**32 - 1} here"
    elif knob.setting == "pages_to_scan" and value == 0:
        problem = "the kernel takes no 0 here"
    elif knob.setting.startswith("max_ptes") and isinstance(value, int) and state.thp_kb and value >= state.thp_kb // 4:
        problem = f"the kernel takes at most {state.thp_kb // 4 - 1} here"
    if problem:
        raise DeclarationError(f"set {knob.setting}", object=knob.object, cause=problem, wanted=value)
