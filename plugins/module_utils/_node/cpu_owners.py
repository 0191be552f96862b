# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who has which CPUs of a node now: the kernel for isolated ones, the system those that it is confined to, and the
slices of GPUs and of others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, FrozenSet, Iterator, List, Tuple

from .._core.value import frozen
from .._linux import cpulist, cpusets
from .._linux.cpu_claims import isolated_now
from .._linux.cpus import read_cpus
from ..concerns.cpu_isolation.observation import drop_in
from ..concerns.cpu_isolation.spec import HOUSEKEEPING
from ..concerns.gpu_slices.files import SLICE
from ..concerns.gpu_slices.observation import on_disk
from ..concerns.gpu_slices.state import PARENT

if TYPE_CHECKING:
    from .._core.protocols import Files

ISOLATED, SYSTEM, GPU, OTHER = "isolated", "system", "gpu", "slice"
KINDS = (SYSTEM, ISOLATED, GPU, OTHER)


@frozen
class CpuOwner:
    """Who has CPUs: an argument of the kernel that isolates them, or a slice. ``kind`` is one of ``KINDS``."""

    kind: str
    name: str
    cpus: FrozenSet[int]


def read_owners(files: Files) -> Tuple[CpuOwner, ...]:
    """All that there are, none where nobody divides the CPUs.

    A slice of a GPU in which nothing runs has those of its files. Raises ``CannotLook`` on what is not a list of CPUs.
    """
    found = [CpuOwner(ISOLATED, claim.name, claim.cpus) for claim in isolated_now(files)]
    found += (owner for owner in _slices(files) if owner.cpus)
    return tuple(sorted(found, key=lambda owner: (KINDS.index(owner.kind), len(owner.name), owner.name)))


def owner_facts(files: Files) -> List[Dict[str, str]]:
    return [
        {"kind": owner.kind, "name": owner.name, "cpus": cpulist.render(owner.cpus)} for owner in read_owners(files)
    ]


def _slices(files: Files) -> Iterator[CpuOwner]:
    for name in files.names(cpusets.ROOT):
        if name.endswith(".slice") and name != PARENT:
            ours = name in (cpusets.SYSTEM, HOUSEKEEPING) or files.exists(drop_in(name))
            yield CpuOwner(SYSTEM if ours else OTHER, name, cpusets.confined_to(files, name))
    running = [name for name in files.names(f"{cpusets.ROOT}/{PARENT}") if SLICE.fullmatch(name)]
    for name in dict.fromkeys((*on_disk(files), *running)):
        effective = f"{cpusets.folder_of(name)}/{cpusets.EFFECTIVE}"
        yield CpuOwner(GPU, name, read_cpus(files, effective) or cpusets.allowed(files, name))
