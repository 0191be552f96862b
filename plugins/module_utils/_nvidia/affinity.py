# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a GPU is, as the driver tells it: a part of questions that are asked in its process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, FrozenSet, Optional, Tuple

from .._core.value import frozen

if TYPE_CHECKING:
    from .driver import Gpu

# More than any machine has: NVML wants to know the room, not the number.
CPU_WORDS = 64
NODE_WORDS = 16
# NVML_AFFINITY_SCOPE_NODE
OF_NODE = 0


@frozen
class Affinity:
    """The NUMA node that the memory of the GPU is (Grace), the nodes of the memory next to it, and its CPUs."""

    own_node: Optional[int] = None
    memory_nodes: Tuple[int, ...] = ()
    cpus: FrozenSet[int] = frozenset()


def read(gpu: Gpu) -> Affinity:
    return Affinity(
        own_node=gpu.read("nvmlDeviceGetNumaNodeId").value,
        memory_nodes=_numbers(gpu.read("nvmlDeviceGetMemoryAffinity", NODE_WORDS, OF_NODE).value),
        cpus=frozenset(_numbers(gpu.read("nvmlDeviceGetCpuAffinity", CPU_WORDS).value)),
    )


def _numbers(words: Any) -> Tuple[int, ...]:
    """The bits that are set in NVML's words of 64 bits."""
    mask = int.from_bytes(bytes(words or b""), "little")
    return tuple(number for number, bit in enumerate(reversed(f"{mask:b}")) if bit == "1")
