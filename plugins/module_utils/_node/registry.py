# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every concern there is, in the order in which they run."""

from __future__ import annotations

from typing import Any, Callable, Container, Dict, Iterable, List, Optional, Sequence, Tuple

from .._core.contract import Concern
from .._core.value import frozen
from ..concerns.container_runtime.concern import CONCERN as CONTAINER_RUNTIME
from ..concerns.container_runtime.model import NEEDS
from ..concerns.gpu_settings.concern import CONCERN as GPU_SETTINGS
from ..concerns.hugepages.concern import CONCERN as HUGEPAGES
from ..concerns.kernel_modules.concern import CONCERN as KERNEL_MODULES
from ..concerns.mig_layout.concern import CONCERN as MIG_LAYOUT
from ..concerns.mig_layout.consumers import NAMES as CONSUMERS
from ..concerns.mig_layout.records import INTERRUPTED_RUN as INTERRUPTED_MIG_CHANGE
from ..concerns.node_tools.concern import CONCERN as NODE_TOOLS
from ..concerns.numa_irq_affinity.concern import CONCERN as NUMA_IRQ_AFFINITY
from ..concerns.numa_irq_affinity.overview import overview as interrupts_of_devices
from ..concerns.nvidia_persistence.concern import CONCERN as NVIDIA_PERSISTENCE
from ..concerns.nvme_scheduler.concern import CONCERN as NVME_SCHEDULER
from ..concerns.nvml.concern import CONCERN as NVML


@frozen
class RegisteredConcern:
    """A concern among the others.

    ``after`` are the concerns that must be right before this one starts, ``disturbs`` those that a change of this one
    may put out of order again. ``serves`` are those that cannot do without it: where one of them is declared, it is
    too, by its defaults. ``cures`` are codes of failures to look at others that its work ends. ``tells`` are what is
    needed and its role sees to. ``deadline`` is how many seconds its look may take. ``devices`` tells of a state in a
    few words a device what has too many settings to show each. ``interrupted`` is the file that is there while a
    change of this one was interrupted: then it is looked at, and finished at boot, also where nobody declares it.
    """

    concern: Concern[Any, Any]
    after: Tuple[str, ...] = ()
    disturbs: Tuple[str, ...] = ()
    serves: Tuple[str, ...] = ()
    cures: Tuple[str, ...] = ()
    tells: Tuple[str, ...] = ()
    deadline: float = 10.0
    devices: Optional[Callable[[Any], List[Dict[str, Any]]]] = None
    interrupted: str = ""

    @property
    def name(self) -> str:
        return self.concern.name


GPU_CONCERNS = ("nvidia_persistence", "mig_layout", "gpu_settings")
# A driver that hangs is given up by then, so that the look at the first concern that asks it can say so.
DRIVER_DEADLINE = 75.0

# Huge pages come first: what is started later takes memory away and tears it into pieces.
_SETTINGS: Tuple[RegisteredConcern, ...] = (
    RegisteredConcern(HUGEPAGES),
    RegisteredConcern(KERNEL_MODULES, after=("hugepages",), cures=("no_driver",)),
    RegisteredConcern(NVME_SCHEDULER, after=("hugepages",)),
    RegisteredConcern(NVML, serves=GPU_CONCERNS, cures=("no_binding",)),
    RegisteredConcern(
        NVIDIA_PERSISTENCE,
        after=("node_tools", "kernel_modules", "nvml"),
        disturbs=("gpu_settings", "numa_irq_affinity"),
        deadline=DRIVER_DEADLINE,
    ),
    # A reset takes with it what the driver keeps of a GPU, its interrupts included; persistence mode it brings back.
    # Instances that are new are not in the CDI specification.
    RegisteredConcern(
        MIG_LAYOUT,
        after=("node_tools", "kernel_modules", "nvml", "nvidia_persistence"),
        disturbs=("gpu_settings", "numa_irq_affinity", "container_runtime"),
        tells=tuple(CONSUMERS),
        deadline=DRIVER_DEADLINE,
        interrupted=INTERRUPTED_MIG_CHANGE,
    ),
    # It needs what brings its values back at boot.
    RegisteredConcern(
        GPU_SETTINGS,
        after=("node_tools", "kernel_modules", "nvml", "nvidia_persistence", "mig_layout"),
        deadline=DRIVER_DEADLINE,
    ),
    # The driver of the GPUs requests their interrupts with its first client, and again after a reset.
    RegisteredConcern(
        NUMA_IRQ_AFFINITY,
        after=("node_tools", "kernel_modules", "nvidia_persistence", "mig_layout"),
        devices=interrupts_of_devices,
    ),
    # The CDI specification names the GPUs and instances that are there now.
    RegisteredConcern(
        CONTAINER_RUNTIME,
        after=("kernel_modules", "nvidia_persistence", "mig_layout"),
        tells=NEEDS,
    ),
)
REGISTRY: Tuple[RegisteredConcern, ...] = (
    *_SETTINGS,
    RegisteredConcern(NODE_TOOLS, serves=tuple(entry.name for entry in _SETTINGS)),
)


def in_order(entries: Iterable[RegisteredConcern] = REGISTRY) -> Tuple[RegisteredConcern, ...]:
    """Each entry behind all that it comes ``after``, else as registered. Raises ``ValueError`` on a ring."""
    waiting: List[RegisteredConcern] = list(entries)
    known = {entry.name for entry in waiting}
    done: List[RegisteredConcern] = []
    while waiting:
        placed = {entry.name for entry in done}
        ready = [entry for entry in waiting if all(name in placed for name in entry.after if name in known)]
        if not ready:
            raise ValueError(f"{', '.join(entry.name for entry in waiting)} come after each other")
        done.append(ready[0])
        waiting.remove(ready[0])
    return tuple(done)


def to_converge(
    wants_work: Iterable[str], *, declared: Container[str], registry: Sequence[RegisteredConcern] = REGISTRY
) -> Tuple[str, ...]:
    """The concerns that must run, in order: those that want work, and the declared ones that these disturb in turn."""
    chosen = set(wants_work)
    ordered = in_order(registry)
    # A disturbed concern may come earlier in the order, and may disturb others itself: until nothing is added.
    waiting = list(chosen)
    disturbs = {entry.name: entry.disturbs for entry in ordered}
    while waiting:
        for name in disturbs[waiting.pop()]:
            if name in declared and name not in chosen:
                chosen.add(name)
                waiting.append(name)
    return tuple(entry.name for entry in ordered if entry.name in chosen)
