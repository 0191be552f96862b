# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A compute node of Slurm as it is, as its daemons have it, and what is wanted of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Mapping, Optional, Tuple

from ..._core.regex import regex
from ..._core.value import field, frozen
from ..._text.slurm_conf import node_line

if TYPE_CHECKING:
    from typing import FrozenSet

    from ..._core.change import Unmanaged
    from ..._machine.processes import Process
    from ..._machine.slurm_answers import Job, SlurmNode
    from ..._text.slurm_conf import NodeLine
    from .cores import Socket
    from .driver import GresGpu
    from .gres_conf import GresLine

SLURMD, SLURMCTLD = "slurmd.service", "slurmctld.service"
# What the running slurmd has read, noted before its files change.
NOTE = "/run/gpufleet/slurm_gpus.json"
FAILED = "failed"
# What slurmctld gives a node as the reason of a drain when it registers fewer than its slurm.conf has, and only then;
# the second where it has the type from a slurm.conf other than that of slurmd (recorded of 22.05, 24.11 and 26.05).
TOO_FEW = regex(
    r"gres/(?P<name>gpu|mps|shard)(?: count reported lower than configured|:(?P<type>\S+) count too low)"
    r" \([0-9]+ < (?P<count>[0-9]+)\)"
)


@frozen
class ReadFile:
    """A file that slurmd reads when it starts. ``text`` is None where it is not there, and ``read`` likewise.

    ``read`` is what the running slurmd has read, where that is ``known``.
    """

    path: str
    text: Optional[str] = None
    read: Optional[str] = None
    known: bool = True


@frozen
class Daemons:
    """``installed`` says whether there is a unit of slurmd. ``slurmd`` is its process, ``failed``: systemd gave it up.

    ``words`` is its command line, without a process that of its unit. ``controller``: slurmctld runs here as well.
    """

    installed: bool
    slurmd: Optional[Process] = None
    failed: bool = False
    words: Tuple[str, ...] = ()
    controller: bool = False


@frozen
class SlurmState:
    """What was seen.

    ``slurm`` is the text of slurm.conf, None where it is not there, ``gres`` and ``cgroup`` the files beside it.
    ``foreign`` says why slurmd reads none. ``live`` is the node as slurmctld has it, where slurmd runs or failed.

    ``winners`` are the entries of ``types`` that win the ``gpus``, ``near`` the CPUs near them by PCI address, and
    ``capabilities`` the device files of their instances by GPU (PCI address), GPU instance and compute instance.
    ``faults`` are device files that Slurm could not use, with the reason. ``jobs`` are those that are suspended on a
    node that slurmctld calls idle, asked for where they would lose their GPUs.
    """

    folder: str
    node: str
    daemons: Daemons
    gres: ReadFile
    cgroup: ReadFile
    slurm: Optional[str] = None
    foreign: str = ""
    live: Optional[SlurmNode] = None
    gpus: Tuple[GresGpu, ...] = ()
    winners: Tuple[Optional[int], ...] = ()
    unserved: Tuple[Unmanaged, ...] = ()
    near: Mapping[str, FrozenSet[int]] = field(default_factory=dict)
    sockets: Tuple[Socket, ...] = ()
    capabilities: Mapping[Tuple[str, int, int], Tuple[str, ...]] = field(default_factory=dict)
    faults: Mapping[str, str] = field(default_factory=dict)
    has_nvml: bool = False
    stand_in: bool = False
    jobs: Tuple[Job, ...] = ()

    @property
    def slurm_path(self) -> str:
        return f"{self.folder}/slurm.conf"

    @property
    def line(self) -> Optional[NodeLine]:
        """What slurm.conf has of the node."""
        return node_line(self.slurm or "", self.node)

    @property
    def too_few(self) -> str:
        """Why slurmctld drained the node, where that is the number of GPUs; empty else."""
        live = self.live
        return live.reason if live is not None and live.drained and TOO_FEW.fullmatch(live.reason) else ""


@frozen
class SlurmDesired:
    """What is wanted. ``auto`` and ``lines`` are those of gres.conf; ``auto`` is None where nothing of ours is there.

    ``gres``, ``types`` and ``constrain`` are values of slurm.conf and cgroup.conf, None for no such value. Of all this
    only what ``managed`` names is managed.
    """

    auto: Optional[str] = None
    lines: Tuple[GresLine, ...] = ()
    gres_text: Optional[str] = None
    gres: Optional[str] = None
    types: Optional[str] = None
    constrain: Optional[str] = None
    managed: Tuple[str, ...] = ()
    unmanaged: Tuple[Unmanaged, ...] = ()
