# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is seen of slices, of protected services and of the launcher."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Dict, FrozenSet, Iterable, List, Mapping, Sequence, Tuple

from ..._core.value import replace
from ..._kinds import units
from ..._kinds.own_files import OwnFile
from ..._linux import systemd
from ..._linux.systemd_numbers import INFINITY
from ..._machine import processes
from . import files as slice_files
from .launch import RULE, RULE_SETTING, fault_of
from .spec import LIMITS
from .state import PARENT, PREFERENCE, SCORE, ServiceState, SliceState

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host
    from ..._linux.cpu_affinity import Affinity
    from .spec import GpuSlicesDeclaration

NAME = "99-gpufleet-gpu_slices.conf"
OOMD = "systemd-oomd.service"
# Who places jobs by itself, and confines them.
SCHEDULERS = {
    "slurmd.service": "Slurm",
    "kubelet.service": "Kubernetes",
    "k3s.service": "Kubernetes",
    "k3s-agent.service": "Kubernetes",
    "k0sworker.service": "Kubernetes",
    "rke2-agent.service": "Kubernetes",
    "rke2-server.service": "Kubernetes",
}
NOT_DISKS = ("dm-", "loop", "md", "ram", "sr", "zram")
CONTROLLERS = f"{slice_files.CGROUP}/cgroup.controllers"
PROPERTIES = ("AllowedCPUs", "AllowedMemoryNodes", "MemorySwapMax", "IOWeight")
SERVICE_KEYS = {SCORE: "Service.OOMScoreAdjust", PREFERENCE: "Service.ManagedOOMPreference"}
NEUTRAL = {SCORE: "0", PREFERENCE: "none"}
SHOWN = 3


def scheduler(unit_files: systemd.UnitFiles) -> str:
    """The unit that places jobs on this node, empty where none does."""
    return next((unit for unit in SCHEDULERS if unit_files.status(unit) == systemd.ENABLED), "")


def on_disk(files: Files) -> Tuple[str, ...]:
    """Our slices, and those whose files somebody of us just removed and systemd has not noticed."""
    named = [name for name in files.names(systemd.ETC) if slice_files.SLICE.fullmatch(name)]
    ours = [name for name in named if slice_files.is_ours(files.read_optional(slice_files.path_of(name)))]
    noted = (files.read_optional(systemd.MARKER) or "").splitlines()
    return tuple(dict.fromkeys((*ours, *(name for name in noted if slice_files.SLICE.fullmatch(name)))))


def slices(host: Host, names: Sequence[str], numbers: Mapping[str, str]) -> Dict[str, SliceState]:
    """``numbers`` are those of the devices of limits, by path."""
    found = {name: _slice(host, name) for name in names}
    if not systemd.running(host.files):
        return found
    idle = tuple(name for name in names if not host.files.is_folder(slice_files.cgroup_of(name)))
    given = _given(host, idle)
    for name, one in found.items():
        if name in given:
            found[name] = replace(one, effective=given[name])
        else:
            effective = slice_files.of_cgroup(host.files, name, numbers)
            found[name] = replace(one, effective=effective, active=True, users=_users(host.files, name))
    return found


def parent_idle(files: Files, names: Iterable[str]) -> bool:
    """Whether the slice above ours is there and has no other below it than those of these names."""
    folder = slice_files.cgroup_of(PARENT)
    below = [name for name in files.names(folder) if files.is_folder(f"{folder}/{name}")]
    return files.is_folder(folder) and set(below) <= set(names)


def device_number(files: Files, path: str) -> str:
    """The number of the disk behind a path of /dev, empty where there is none; a partition has that of its disk."""
    folder = files.resolve(f"/sys/class/block/{os.path.basename(files.resolve(path))}")
    if files.exists(f"{folder}/partition"):
        folder = os.path.dirname(folder)
    return (files.read_optional(f"{folder}/dev") or "").strip()


def disks(files: Files) -> Tuple[str, ...]:
    return tuple(name for name in files.names("/sys/block") if not name.startswith(NOT_DISKS))


def weighted(files: Files, names: Iterable[str]) -> FrozenSet[str]:
    """Of these disks those that heed a weight: those with the scheduler bfq, and those with io.cost."""
    enabled = {
        line.split()[0]
        for line in (files.read_optional(f"{slice_files.CGROUP}/io.cost.qos") or "").splitlines()
        if "enable=1" in line.split()
    }
    return frozenset(
        name
        for name in names
        if "[bfq]" in (files.read_optional(f"/sys/block/{name}/queue/scheduler") or "")
        or (files.read_optional(f"/sys/block/{name}/dev") or "").strip() in enabled
    )


def bound(files: Files, names: Sequence[str]) -> Tuple[Affinity, ...]:
    """The services that start in one of these slices, or below it, and bind themselves to CPUs."""
    from ..._linux import cpusets
    from ..._linux.cpu_affinity import read_affinities

    return tuple(one for one in read_affinities(files) if any(cpusets.has(name, one.slice) for name in names))


def why_no_cgroup(files: Files, *, limits: bool) -> str:
    """Why the kernel confines nothing here, empty where it does. ``limits``: of I/O, too."""
    there = (files.read_optional(CONTROLLERS) or "").split()
    if not there:
        return "systemd does not use cgroup v2 alone here, and would ignore AllowedCPUs="
    wanted = ("cpuset", "memory", *(("io",) if limits else ()))
    missing = [name for name in wanted if name not in there]
    return f"the kernel has no cgroup controller {' and '.join(missing)} here" if missing else ""


def counts_swap(files: Files) -> bool:
    """Whether memory.swap.max is there where memory.max is; some kernels count no swap."""
    folder = f"{slice_files.CGROUP}/system.slice"
    return files.exists(f"{folder}/memory.swap.max") or not files.exists(f"{folder}/memory.max")


def rule(files: Files) -> OwnFile:
    return OwnFile(RULE, RULE_SETTING, files.read_optional(RULE))


def launch_fault(host: Host, declaration: GpuSlicesDeclaration, text: str, found: OwnFile) -> str:
    """Why the group cannot be let, empty where it can or is already."""
    return fault_of(host, declaration.group) if declaration.group and found.text != text else ""


def services(host: Host, units_: Sequence[str], unit_files: systemd.UnitFiles) -> Dict[str, ServiceState]:
    """Those that are declared, and those that have a drop-in of ours."""
    files = host.files
    folders = (name[: -len(".d")] for name in files.names(systemd.ETC) if name.endswith(".service.d"))
    ours = [unit for unit in folders if files.exists(drop_in_of(unit))]
    noted = (files.read_optional(systemd.MARKER) or "").splitlines()
    ours += [unit for unit in noted if systemd.is_service(unit)]
    found = {}
    for unit in dict.fromkeys((*units_, *ours)):
        found[unit] = _service(host, unit, there=unit_files.status(unit) != systemd.NOT_FOUND)
    named = tuple(unit for unit, one in found.items() if one.there)
    if named and systemd.running(files):
        properties = ("MainPID", "OOMScoreAdjust", "ManagedOOMPreference")
        for unit, block in zip(named, systemd.show(host, properties, named)):
            found[unit] = _in_effect(files, found[unit], block)
    return found


def drop_in_of(unit: str) -> str:
    return f"{systemd.ETC}/{unit}.d/{NAME}"


def _slice(host: Host, name: str) -> SliceState:
    files, path = host.files, slice_files.path_of(name)
    text = files.read_optional(path)
    sources = systemd.sources(files, name)
    foreign = next((source for source in sources[:1] if source != path or not slice_files.is_ours(text)), "")
    others = sources[1:] if sources[:1] == (path,) else systemd.drop_ins(files, name)
    texts = {source: files.read_optional(source) or "" for source in others}
    return SliceState(
        name=name,
        file=units.unit_file(host, name, path, "unit", None if foreign == path else text),
        boot=slice_files.values_of((text or "", *texts.values())),
        effective={},
        others=texts,
        foreign=foreign,
    )


def _given(host: Host, names: Tuple[str, ...]) -> Dict[str, Mapping[str, str]]:
    """What systemd would give to slices that are not loaded."""
    if not names:
        return {}
    limits = tuple(directive for _word, directive in LIMITS.values())
    shown = systemd.show(host, (*PROPERTIES, *limits), names)
    return {name: _without_infinity(slice_files.of_properties(block)) for name, block in zip(names, shown)}


def _without_infinity(values: Dict[str, str]) -> Dict[str, str]:
    return {setting: value for setting, value in values.items() if value != INFINITY}


def _users(files: Files, name: str) -> Tuple[str, ...]:
    """Who runs in a slice, as its cgroups and the first process of each; none where nothing does."""
    folder = slice_files.cgroup_of(name)
    if "populated 1" not in (files.read_optional(f"{folder}/cgroup.events") or "").splitlines():
        return ()
    found: List[str] = []
    waiting = [folder]
    while waiting and len(found) <= SHOWN:
        place = waiting.pop(0)
        ids = (files.read_optional(f"{place}/cgroup.procs") or "").split()
        if ids:
            what = f"{processes.name_of(files, ids[0]) or 'a process'}, PID {ids[0]}"
            more = f" and {len(ids) - 1} more" if len(ids) > 1 else ""
            found.append(f"{os.path.basename(place)} ({what}{more})")
        waiting += [f"{place}/{one}" for one in files.names(place) if files.is_folder(f"{place}/{one}")]
    return tuple(found) or ("a process",)


def _service(host: Host, unit: str, *, there: bool) -> ServiceState:
    files, path = host.files, drop_in_of(unit)
    others = dict(NEUTRAL)
    later: Dict[str, str] = {}
    for source in systemd.sources(files, unit):
        if source == path:
            continue
        after = os.path.dirname(source).endswith(".d") and os.path.basename(source) > NAME
        for key, value in systemd.assignments(files.read_optional(source) or ""):
            setting = next((name for name, known in SERVICE_KEYS.items() if known == key), "")
            if setting:
                others[setting] = value or NEUTRAL[setting]
                if after:
                    later[setting] = source
    text = files.read_optional(path)
    return ServiceState(unit, units.unit_file(host, unit, path, "drop-in", text), others, later, {}, there=there)


def _in_effect(files: Files, service: ServiceState, block: systemd.Properties) -> ServiceState:
    process = int("".join(block.get("MainPID", [])) or 0)
    score = processes.text_of(files, str(process), "oom_score_adj").strip() if process else ""
    effective = {
        SCORE: score or "".join(block.get("OOMScoreAdjust", [])),
        PREFERENCE: "".join(block.get("ManagedOOMPreference", [])),
    }
    return replace(service, effective=effective, process=process if score else 0)
