# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the declaration means on this node: the lines of gres.conf, and the values of slurm.conf and cgroup.conf."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Optional, Sequence, Tuple

from ..._core.change import Unmanaged
from ..._core.errors import CannotLook, DeclarationError, OwnedByAnother, refuse_all
from ..._nvidia import holders
from ..._nvidia.errors import LOST_HINT
from ..._text.slurm_conf import is_for_one, refuse_another_folder, refuse_includes, resource_name, resources, value_of
from . import cores
from .gres_conf import AUTO_DETECT, GPU, NAMES, OFF, GresLine, text_with
from .spec import GOAL, NAME, NVML, SlurmDeclaration, refuse_type
from .state import SlurmDesired

if TYPE_CHECKING:
    from ..._text.slurm_conf import NodeLine
    from .driver import GresGpu
    from .state import SlurmState

GRES, GRES_TYPES, CONSTRAIN, CORES = "Gres", "GresTypes", "ConstrainDevices", "Cores"
# gres.conf as a whole, among what is managed.
LINES = "lines"
THEIRS = "lines of others"
# Which GPUs there are: what must not change while jobs have them.
OF_GPUS = (*NAMES, AUTO_DETECT, THEIRS, GRES)
YES = "yes"
CONS_TRES = "select/cons_tres"
TASK_CGROUP = "task/cgroup"


def resolve(declaration: SlurmDeclaration, state: SlurmState) -> SlurmDesired:
    """Raises ``DeclarationError``, ``CannotLook`` and ``OwnedByAnother`` on what must not be written."""
    if not state.daemons.installed:
        return SlurmDesired(unmanaged=(Unmanaged(state.node, GRES, state.foreign),))
    lost = next((gpu for gpu in state.gpus if gpu.identity.lost), None)
    if lost is not None:
        # A GPU less for as long as it is lost: that would take the count away behind the back of who watches it.
        raise CannotLook(GOAL, object=lost.identity.name, cause=lost.identity.lost, hint=LOST_HINT)
    if not state.gpus:
        return SlurmDesired(unmanaged=state.unserved)
    named = [(gpu, _type(declaration, gpu, winner)) for gpu, winner in zip(state.gpus, state.winners)]
    _refuse_shares(declaration, state)
    found = _resources(declaration, named)
    if state.foreign:
        hint = "set it there, or set strict: false"
        reason = f"{state.foreign}; the controller needs {GRES}={','.join(found)}"
        return SlurmDesired(unmanaged=(Unmanaged(state.node, GRES, reason, hint=hint),))
    _refuse_files(declaration, state)
    unmanaged: List[Unmanaged] = list(state.unserved)
    lines = () if declaration.devices == NVML else _lines(declaration, state, named, unmanaged)
    node = _node(state)
    # What Slurm has of the node beside GPUs stays.
    others = [part for part in (node.gres or "").split(",") if part and resource_name(part) not in NAMES]
    gres = ",".join((*found, *others)) or None
    _refuse_shared_line(state, node, gres)
    auto = NVML if declaration.devices == NVML else OFF
    shared = tuple(_shares(declaration, state))
    managed = [LINES, GRES, GRES_TYPES]
    if declaration.constrain:
        plugins = value_of(state.slurm or "", "TaskPlugin") or ""
        if TASK_CGROUP in plugins:
            managed.append(CONSTRAIN)
        else:
            reason = (
                f"TaskPlugin in {state.slurm_path} is {plugins or 'not set'}, and only {TASK_CGROUP} constrains jobs"
            )
            hint = f"add {TASK_CGROUP}, set constrain_devices: false, or set strict: false"
            unmanaged.append(Unmanaged(state.cgroup.path, CONSTRAIN, reason, hint=hint))
    return SlurmDesired(
        auto=auto,
        lines=(*lines, *shared),
        gres_text=text_with(state.gres.text, state.node, auto, (*lines, *shared)),
        gres=gres,
        types=_types(state, gres),
        constrain=YES,
        managed=tuple(managed),
        unmanaged=tuple(unmanaged),
    )


# --- refused ----------------------------------------------------------------------------------------------------------


def _refuse_shares(declaration: SlurmDeclaration, state: SlurmState) -> None:
    divided = [gpu for gpu in state.gpus if gpu.mig]
    for name, _count in declaration.shares:
        if divided:
            raise DeclarationError(
                f"allocate {name} of {{}}",
                object=divided[0].identity.name,
                cause="it is in MIG mode, and this module gives out its instances as a whole",
                hint="leave the shares out, or turn MIG off with mig_layout",
            )
        select = value_of(state.slurm or "", "SelectType")
        if select is not None and select != CONS_TRES:
            raise DeclarationError(
                f"allocate {name}",
                cause=f"{state.slurm_path} has SelectType={select}, which knows no shares",
                hint=f"set SelectType={CONS_TRES} there",
            )


def _refuse_files(declaration: SlurmDeclaration, state: SlurmState) -> None:
    refuse_another_folder(state.folder, daemon="slurmd", words=state.daemons.words)
    if state.stand_in:
        raise DeclarationError(
            GOAL,
            object=f"{state.folder}/fake_gpus.conf",
            cause="it stands in for GPUs in tests of Slurm, which then are not the ones of this machine",
            hint="remove it",
        )
    refuse_includes(state.gres.path, state.gres.text, goal=GOAL, concern=NAME)
    if declaration.devices == NVML and not state.has_nvml:
        raise DeclarationError(
            "use {}",
            object="devices: nvml",
            cause="this Slurm was built without NVML (it has no gpu_nvml.so), and would register no GPU",
            hint="set devices: explicit",
        )
    hint = "make it by nvidia-modprobe or nvidia-ctk system create-device-nodes, then run again"
    refuse_all(
        [DeclarationError("allocate {}", object=path, cause=fault, hint=hint) for path, fault in state.faults.items()],
        by_object=True,
    )


def _node(state: SlurmState) -> NodeLine:
    node = state.line
    if node is None:
        raise DeclarationError(
            "find {} in slurm.conf",
            object=state.node,
            cause=f"no NodeName in {state.slurm_path} has it, and files that it includes are not read",
            hint="set node_name to its name in Slurm, or move its line there",
        )
    return node


def _refuse_shared_line(state: SlurmState, node: NodeLine, gres: Optional[str]) -> None:
    """A line for many nodes says what all of them have: one of them must not change it for the others."""
    if is_for_one(node.names) or resources(node.gres) == resources(gres):
        return
    raise OwnedByAnother(
        f"set {GRES}",
        object=state.node,
        cause=f"line {node.line.first} of {state.slurm_path} is for {node.names}, so its value is that of all of them",
        found=node.gres or "not set",
        wanted=gres or "not set",
        hint="set it there if all of them have it, or give this node a line of its own",
    )


# --- values -----------------------------------------------------------------------------------------------------------


def _type(declaration: SlurmDeclaration, gpu: GresGpu, winner: Optional[int]) -> str:
    if winner is not None:
        return declaration.names[winner]
    # As gpu_common_underscorify_tolower in src/interfaces/gpu.c.
    name = gpu.identity.model.lower().replace(" ", "_")
    refuse_type(name, f"the model of {gpu.identity.name}")
    return name


def _resources(declaration: SlurmDeclaration, named: Sequence[Tuple[GresGpu, str]]) -> Tuple[str, ...]:
    """The parts of Gres= that are ours."""
    counts: Dict[str, int] = {}
    whole = 0
    for gpu, name in named:
        whole += not gpu.mig
        for kind in [f"{name}_{one.profile}" for one in gpu.instances] if gpu.mig else [name]:
            counts[kind] = counts.get(kind, 0) + 1
    shares = [f"{name}:{count * whole}" for name, count in declaration.shares]
    return (*(f"{GPU}:{kind}:{count}" for kind, count in counts.items()), *shares)


def _lines(
    declaration: SlurmDeclaration,
    state: SlurmState,
    named: Sequence[Tuple[GresGpu, str]],
    unmanaged: List[Unmanaged],
) -> Tuple[GresLine, ...]:
    node = state.line
    bound = declaration.cores and bool(state.sockets)
    if bound:
        reason = cores.disagreement(state.sockets, node.pairs if node is not None else {})
        bound = not reason
        if reason:
            unmanaged.append(Unmanaged(state.node, CORES, reason, hint="correct it, or set cores: false"))
    links = _links(declaration, named)
    found: List[GresLine] = []
    for gpu, name in named:
        if gpu.minor is None:
            raise CannotLook(GOAL, object=gpu.identity.name, cause="the driver does not tell its device file")
        address = gpu.identity.pci_address
        device = f"{holders.NVIDIA_DEVICES}{gpu.minor}"
        list_of_cores = cores.core_list(state.sockets, state.near[address]) if bound else ""
        near = f"{CORES}={list_of_cores}" if list_of_cores else ""
        if not gpu.mig:
            linked = f"Links={links[address]}" if address in links else ""
            found.append(GresLine(GPU, (device,), _words(f"Type={name}", near, linked)))
            continue
        for one in gpu.instances:
            paths = state.capabilities.get((address, one.instance, one.compute), ())
            if len(paths) != 2:
                cause = f"the kernel module does not tell the device files of instance {one.instance}/{one.compute}"
                raise CannotLook(GOAL, object=gpu.identity.name, cause=cause)
            found.append(GresLine(GPU, (device, *paths), _words(f"Type={name}_{one.profile}", near)))
    return tuple(found)


def _links(declaration: SlurmDeclaration, named: Sequence[Tuple[GresGpu, str]]) -> Dict[str, str]:
    """The links of each GPU by address, where all are whole and some have any."""
    addresses = [gpu.identity.pci_address for gpu, _name in named]
    counts = [[gpu.links.get(address, 0) for address in addresses] for gpu, _name in named]
    if not declaration.links or any(gpu.mig for gpu, _name in named) or not any(map(any, counts)):
        return {}
    for number, row in enumerate(counts):
        row[number] = -1
    return {address: ",".join(map(str, row)) for address, row in zip(addresses, counts)}


def _shares(declaration: SlurmDeclaration, state: SlurmState) -> List[GresLine]:
    devices = [f"{holders.NVIDIA_DEVICES}{gpu.minor}" for gpu in state.gpus]
    return [GresLine(name, (device,), f"Count={count}") for name, count in declaration.shares for device in devices]


def _types(state: SlurmState, gres: Optional[str]) -> Optional[str]:
    """GresTypes with all that the node has; None where nobody has any."""
    there = [name for name in (value_of(state.slurm or "", GRES_TYPES) or "").split(",") if name]
    needed = map(resource_name, filter(None, (gres or "").split(",")))
    return ",".join(dict.fromkeys((*there, *needed))) or None


def _words(*words: str) -> str:
    return " ".join(filter(None, words))
