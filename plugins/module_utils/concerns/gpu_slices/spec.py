# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of slices, of protected services and of the launcher, and what is wrong whatever the machine."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from ..._core import match
from ..._core.errors import DeclarationError
from ..._core.regex import regex
from ..._core.value import field, frozen
from ..._linux import cpulist
from ..._linux.systemd import is_service, is_template
from ..._nvidia import gpus

if TYPE_CHECKING:
    from ..._core.baseline import Baseline

NAME = "gpu_slices"
FAIL, WAIT, SKIP = "fail", "wait", "skip"
HIGHEST_WEIGHT = 10000
# The limits of I/O: how a declaration calls each, how people do, and systemd.
LIMITS = {
    "read_bandwidth": ("read bandwidth", "IOReadBandwidthMax"),
    "write_bandwidth": ("write bandwidth", "IOWriteBandwidthMax"),
    "read_iops": ("read operations", "IOReadIOPSMax"),
    "write_iops": ("write operations", "IOWriteIOPSMax"),
}
# Those of systemd, for which 1K of I/O is 1000.
FACTORS = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}
RATE = regex(r"([1-9][0-9]{0,14})([KMGT]?)", re.ASCII)
GROUP = regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}", re.ASCII)
# What logs people in, or starts what they wrote: these have children that would keep the protection.
LETS_IN = "its sessions and jobs inherit it, and would be protected as well"
PARENTS = ("ssh", "sshd", "cron", "crond", "atd", "login", "getty", "serial-getty", "user", "user-runtime-dir", "gdm")


@frozen
class SliceOptions:
    """What an entry says of its slices: ``limits`` as (limit, device, number a second)."""

    io_weight: Optional[int] = None
    limits: Tuple[Tuple[str, str, int], ...] = ()
    swap: bool = False


@frozen
class NodeEntry:
    """An entry of ``numa_nodes``."""

    where: str
    number: int
    options: SliceOptions
    optional: bool


@frozen
class ProtectedService:
    """A service that the kernel shall end late when memory is short."""

    unit: str
    score: int
    optional: bool


@frozen
class GpuSlicesDeclaration:
    """What is declared. ``entries`` are those of ``gpus``, each with its ``options``.

    ``changed`` is the baseline, for ``state: absent``.
    """

    entries: Tuple[match.MatchEntry, ...] = ()
    options: Tuple[SliceOptions, ...] = ()
    numa_nodes: Tuple[NodeEntry, ...] = ()
    reserved: FrozenSet[int] = frozenset()
    protected: Tuple[ProtectedService, ...] = ()
    group: str = ""
    beside_scheduler: bool = False
    when_busy: str = FAIL
    busy_timeout: float = 0.0
    changed: Optional[Baseline] = field(default=None)

    @property
    def has_slices(self) -> bool:
        return bool(self.entries or self.numa_nodes)


def parse(params: Mapping[str, Any]) -> GpuSlicesDeclaration:
    """Raises ``DeclarationError`` on what no machine could have."""
    entries = gpus.parse("gpus", params["gpus"])
    nodes = tuple(_node_entry(f"numa_nodes[{index}]", item) for index, item in enumerate(params["numa_nodes"]))
    _refuse_twice("numa_nodes", [str(node.number) for node in nodes])
    protected = _protected(params["protected_services"])
    group = params["launch_group"] or ""
    if not (entries or nodes or protected):
        raise DeclarationError(
            "read the declaration",
            cause="nothing is declared",
            hint="set gpus: [{}] for a slice of each GPU, or numa_nodes, or protected_services, or state: absent",
        )
    if group and not GROUP.fullmatch(group):
        raise DeclarationError(
            "set {}", object="launch_group", cause="it is not the name of a group", wanted=group, hint="set a name"
        )
    if group and not (entries or nodes):
        raise DeclarationError(
            "set {}",
            object="launch_group",
            cause="no slice is declared in which its members could start something",
            hint="declare gpus or numa_nodes",
        )
    return GpuSlicesDeclaration(
        entries=entries,
        options=tuple(_options(entry.where, item) for entry, item in zip(entries, params["gpus"])),
        numa_nodes=nodes,
        reserved=_cpus(params["reserved_cpus"] or ""),
        protected=protected,
        group=group,
        beside_scheduler=params["beside_scheduler"],
        **patience(params),
    )


def patience(params: Mapping[str, Any]) -> Dict[str, Any]:
    """What happens to slices in use: the part that ``state: absent`` has too."""
    if params["busy_timeout"] < 0:
        raise DeclarationError(
            "set {}", object="busy_timeout", cause="it is below 0", wanted=params["busy_timeout"], hint="set seconds"
        )
    return {"when_busy": params["when_busy"], "busy_timeout": float(params["busy_timeout"])}


def _node_entry(where: str, item: Mapping[str, Any]) -> NodeEntry:
    if item["node"] < 0:
        raise DeclarationError(
            "use {}", object=where, cause=f"{item['node']} is not the number of a NUMA node", hint="set 0 or more"
        )
    return NodeEntry(where, item["node"], _options(where, item), item["optional"])


def _options(where: str, item: Mapping[str, Any]) -> SliceOptions:
    weight = item.get("io_weight")
    if weight is not None and not 1 <= weight <= HIGHEST_WEIGHT:
        raise DeclarationError(
            "set {}",
            object=f"{where}.io_weight",
            cause="systemd ignores it",
            wanted=weight,
            hint=f"set a number from 1 to {HIGHEST_WEIGHT}; 100 is that of others",
        )
    limits: List[Tuple[str, str, int]] = []
    for index, limit in enumerate(item.get("io_limits") or ()):
        limits += _limits(f"{where}.io_limits[{index}]", limit)
    _refuse_twice(f"{where}.io_limits", [f"{name} of {device}" for name, device, _number in limits])
    return SliceOptions(weight, tuple(limits), bool(item.get("swap")))


def _limits(where: str, item: Mapping[str, Any]) -> List[Tuple[str, str, int]]:
    device = item["device"]
    if not re.fullmatch(r"/dev/[^\s]+", device) or "/../" in device:
        raise DeclarationError(
            "use {}", object=where, cause=f"{device!r} is not the path of a device", hint="write it as /dev/nvme0n1"
        )
    found = [(name, device, _rate(f"{where}.{name}", item[name])) for name in LIMITS if item.get(name) is not None]
    if not found:
        raise DeclarationError(
            "use {}", object=where, cause=f"it limits nothing of {device}", hint=f"set one of {', '.join(LIMITS)}"
        )
    return found


def _rate(where: str, text: str) -> int:
    rate = RATE.fullmatch(text)
    if rate is None:
        raise DeclarationError(
            "set {}",
            object=where,
            cause="it is not a number a second, with K, M, G or T for powers of 1000",
            wanted=text,
            hint="set a number such as 5G",
        )
    return int(rate[1]) * FACTORS[rate[2]]


def _cpus(text: str) -> FrozenSet[int]:
    try:
        return cpulist.parse(text)
    except ValueError as error:
        raise DeclarationError(
            "set {}",
            object="reserved_cpus",
            cause=f"{text!r} is not a list of CPUs",
            hint="write numbers and ranges with commas, such as 0-3,64-67",
        ) from error


def _protected(entries: Sequence[Mapping[str, Any]]) -> Tuple[ProtectedService, ...]:
    found = []
    for index, entry in enumerate(entries):
        where, unit, score = f"protected_services[{index}]", entry["name"], entry["oom_score_adjust"]
        if not is_service(unit) or is_template(unit):
            cause = f"{unit!r} is not the name of a service"
            raise DeclarationError("use {}", object=where, cause=cause, hint="write it as slurmd.service")
        if not -1000 <= score <= 0:
            raise DeclarationError(
                "set {}",
                object=f"{where}.oom_score_adjust",
                cause="it protects from nothing" if score > 0 else "systemd ignores it",
                wanted=score,
                hint="set a number from -1000 (never ended) to 0",
            )
        if re.split(r"[@.]", unit)[0] in PARENTS:
            raise DeclarationError("protect {}", object=unit, cause=LETS_IN, hint="leave it out")
        found.append(ProtectedService(unit, score, entry["optional"]))
    _refuse_twice("protected_services", [service.unit for service in found])
    return tuple(found)


def _refuse_twice(where: str, names: Sequence[str]) -> None:
    twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
    if twice is not None:
        raise DeclarationError("use {}", object=where, cause=f"{twice} is in it twice", hint="leave one of them")
