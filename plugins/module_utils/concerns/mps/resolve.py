# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the declaration means on this machine: a daemon for whole GPUs, and one for each MIG device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core.change import Unmanaged
from ..._core.errors import DeclarationError, OwnedByAnother
from . import files as mps_files
from .control import PROGRAM
from .spec import ALL, MpsDeclaration, memory_text
from .state import MEMORY, MULTI_USER, MpsDesired, Values, WantedDaemon

if TYPE_CHECKING:
    from .driver import MpsGpu
    from .state import MpsState

SERVE = "serve {} by MPS"
COMPUTE_MODE = "compute mode"
DEFAULT, EXCLUSIVE, PROHIBITED = "default", "exclusive_process", "prohibited"
# Volta: before it clients have no limits of their own.
VOLTA = 7
# The first branch whose daemon has the flag; 550 starts, and ignores it (tried with 550.163.01 and 555.58.02).
MULTI_USER_BRANCH = 555
PACKAGES = "nvidia-cuda-mps (Debian), nvidia-compute-utils of the driver's branch (Ubuntu) or nvidia-driver-cuda (EL)"
ON_MIG = "NVIDIA documents no limit for a MIG device, whose memory is its own"


def desired(declaration: MpsDeclaration, state: MpsState) -> MpsDesired:
    """Raises ``DeclarationError`` for what this machine cannot have, and ``OwnedByAnother``."""
    lost = tuple(gpu.name for gpu in state.gpus if gpu.identity.lost)
    if lost:
        # What it is is not known, so that all stays as it is.
        return MpsDesired(keep=tuple(state.daemons), unresponsive=lost, unmanaged=state.unserved)
    won = [(gpu, declaration.limits[winner]) for gpu, winner in zip(state.gpus, state.winners) if winner is not None]
    if not won:
        return MpsDesired(unmanaged=state.unserved)
    if not state.program:
        raise DeclarationError(
            "start the MPS control daemon",
            cause=f"this machine has no {PROGRAM}",
            hint=f"install {PACKAGES}, or leave mps out of the declaration of this node",
        )
    if declaration.multi_user and state.branch < MULTI_USER_BRANCH:
        raise DeclarationError(
            f"set {MULTI_USER}",
            object="MPS",
            cause=f"the daemon of this driver (R{state.branch}) does not have {mps_files.MULTI_USER}, and ignores it",
            hint=f"upgrade the driver to R{MULTI_USER_BRANCH} or later, or leave multi_user out",
        )
    unmanaged: List[Unmanaged] = list(state.unserved)
    for gpu, limit in won:
        _check(gpu, limit, declaration, state, unmanaged)
    daemons = (*_whole(won, declaration), *_divided(won, declaration))
    for daemon in daemons:
        mps_files.refuse_long_path(mps_files.pipes_of(daemon.key))
    return MpsDesired(
        daemons=daemons,
        texts={daemon.unit: mps_files.render(daemon, state.program) for daemon in daemons},
        unmanaged=tuple(unmanaged),
    )


def _check(
    gpu: MpsGpu,
    limit: Optional[int],
    declaration: MpsDeclaration,
    state: MpsState,
    unmanaged: List[Unmanaged],
) -> None:
    """Whether MPS can serve this GPU. Raises ``DeclarationError``, and ``OwnedByAnother`` for its compute mode."""
    _check_mode(gpu, declaration, state, unmanaged)
    if gpu.major is not None and gpu.major < VOLTA and (declaration.percentage != ALL or limit is not None):
        raise DeclarationError(
            "limit clients of MPS on {}",
            object=gpu.name,
            cause=f"{gpu.identity.model} is older than Volta, and MPS has limits only from Volta on",
            hint="leave active_thread_percentage and memory_limit out, or exclude this GPU by match",
        )
    if gpu.mig and not gpu.devices:
        unmanaged.append(Unmanaged(gpu.name, "MPS", "it is in MIG mode and has no instance to compute on"))
    if limit is None:
        return
    if gpu.mig:
        unmanaged.append(Unmanaged(gpu.name, MEMORY, ON_MIG))
    elif gpu.memory is not None and limit > gpu.memory:
        raise DeclarationError(
            f"set {MEMORY}",
            object=gpu.name,
            cause=f"the GPU has only {memory_text(gpu.memory)}",
            wanted=memory_text(limit),
            hint="set a limit below that, or leave it out",
        )


def _check_mode(gpu: MpsGpu, declaration: MpsDeclaration, state: MpsState, unmanaged: List[Unmanaged]) -> None:
    declared = state.modes.get(gpu.identity.uuid, "")
    if declared == PROHIBITED or (declaration.exclusive and not gpu.mig and declared not in ("", EXCLUSIVE)):
        wanted = EXCLUSIVE if declaration.exclusive and not gpu.mig else DEFAULT
        way = "" if declared == PROHIBITED or gpu.mig else ", or set exclusive: false, which lets programs bypass MPS"
        raise OwnedByAnother(
            SERVE,
            object=gpu.name,
            cause=f"gpu_settings declares compute_mode: {declared} for it",
            found=declared,
            wanted=wanted,
            hint=f"declare compute_mode: {wanted} there{way}",
        )
    if declaration.exclusive and not gpu.mig and gpu.mode == DEFAULT and not declared:
        reason = f"it is {DEFAULT}, so programs can bypass MPS; declare compute_mode: {EXCLUSIVE} in gpu_settings"
        unmanaged.append(Unmanaged(gpu.name, COMPUTE_MODE, reason, excused=True))


def _whole(won: Sequence[Tuple[MpsGpu, Optional[int]]], declaration: MpsDeclaration) -> List[WantedDaemon]:
    """One daemon has all whole GPUs, as its clients may use several."""
    served = [(gpu, limit) for gpu, limit in won if not gpu.mig]
    if not served:
        return []
    names = {gpu.identity.uuid: gpu.name for gpu, _limit in served}
    limits = {gpu.identity.uuid: limit for gpu, limit in served if limit is not None}
    return [_daemon("", names, limits, declaration)]


def _divided(won: Sequence[Tuple[MpsGpu, Optional[int]]], declaration: MpsDeclaration) -> List[WantedDaemon]:
    """A process of CUDA sees one MIG device, and so does a server."""
    found = []
    for gpu, _limit in won:
        for device in gpu.devices:
            key = device.key(gpu)
            found.append(_daemon(key, {device.uuid: key}, {}, declaration))
    return found


def _daemon(key: str, names: Mapping[str, str], limits: Dict[str, int], declaration: MpsDeclaration) -> WantedDaemon:
    values = Values(tuple(names), declaration.percentage, limits, declaration.multi_user)
    return WantedDaemon(mps_files.unit_of(key), key, ", ".join(names.values()), names, values)
