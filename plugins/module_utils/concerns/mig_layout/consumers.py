# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who must hear of a change of MIG devices: programs that list them once, when they start, and CDI specifications.

A change leaves a record of those that are there. One is up to date when its process is another one, or its file was
written again; until then every look finds it. Who has ended has nothing to hear. All of it goes with a boot.

A specification outlives the boot. The instances come back at their places, with their numbers and so with their device
files: one that names exactly the device files that are there now is right, and is not noted.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Dict, FrozenSet, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from ..._core.record import listed, read_note
from ..._core.regex import regex
from ..._core.value import frozen
from ..._linux import systemd
from ..._machine import processes
from ..._nvidia import holders
from .records import NOTIFIED

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host
    from .driver import MigReading

SCHEMA = 1
CDI = "cdi"
CDI_NAME = "the CDI specification"
# The specifications of nvidia-ctk; others have other names. Its service writes one of them.
SPECIFICATIONS = tuple(f"{folder}/nvidia.{kind}" for folder in ("/etc/cdi", "/run/cdi") for kind in ("yaml", "json"))
REFRESH = "nvidia-cdi-refresh.service"
REFRESHED = "/run/cdi/nvidia.yaml"
REFRESH_SETTINGS = "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env"
OUTPUT = regex(r"^\s*NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=[\"']?(?:/var(?=/run/))?([^\s\"']+)", re.MULTILINE)
# The device files of GPUs and of their instances.
DEVICE = regex(r"/dev/nvidia(?:-caps/nvidia-cap)?\d+\b")
# By need: what a person calls the program, and its command. That they have to be started again say k8s-device-plugin
# issue 992, mig-parted's reconfigure-mig.sh (which does so with the plugin, GPU feature discovery, DCGM and its
# exporter), issue 473 of dra-driver-nvidia-gpu and gres.conf(5).
PROGRAMS = {
    "device_plugin": ("the device plugin", "nvidia-device-plugin"),
    "gpu_feature_discovery": ("GPU feature discovery", "gpu-feature-discovery"),
    "dra_driver": ("the DRA driver", "gpu-kubelet-plugin"),
    "dcgm": ("DCGM", "nv-hostengine"),
    "dcgm_exporter": ("the DCGM exporter", "dcgm-exporter"),
    "slurm": ("slurmd", "slurmd"),
}
UNITS = ("nvidia-*", "dcgm*", "slurmd*")
NEEDS = (CDI, *PROGRAMS)


@frozen
class Consumer:
    """One that has not taken up the change. ``name`` is what a person calls it, ``need`` the name in ``needs``.

    ``units`` are the services of this machine to start again: those that its processes belong to, or the one that
    writes the specification. ``pids`` are the processes of no such unit: what started them starts them again when they
    end, as kubelet does. ``files`` are the specifications that no service writes again.
    """

    name: str
    need: str
    units: Tuple[str, ...] = ()
    pids: Tuple[int, ...] = ()
    files: Tuple[str, ...] = ()


def stale_consumers(host: Host) -> Tuple[Consumer, ...]:
    """Those that were there at a change and have not taken it up. Without a change since the boot, one read."""
    # A damaged record notes nothing: nobody can say who was notified.
    noted = read_note(host.files, NOTIFIED, _recorded)
    if noted is None:
        return ()
    old = [path for path, version in noted.specifications.items() if host.files.version(path) == version]
    found = [_specifications(host.files, old)] if old else []
    for need, identities in noted.processes.items():
        running = [int(one.partition(":")[0]) for one in identities if _runs(host.files, one)]
        if need in PROGRAMS and running:
            found.append(_consumer(host.files, need, running))
    return tuple(found)


def record(host: Host, present: Optional[FrozenSet[str]] = None) -> None:
    """Note all that are there and know the MIG devices of before. To be called when devices have come or gone.

    Those that did not hear of an earlier change are still there, so they are noted again. ``present`` are the device
    files that a specification of what is there now names, None where nobody can tell.
    """
    files = host.files
    versions = {path: files.version(path) for path in SPECIFICATIONS if not _names_exactly(files, path, present)}
    specifications = {path: version for path, version in versions.items() if version}
    found = _running(files)
    if specifications or found:
        document = {"schema": SCHEMA, "specifications": specifications, "processes": found}
        files.replace(NOTIFIED, json.dumps(document, indent=1, sort_keys=True) + "\n")
    else:
        files.remove(NOTIFIED)


def to_notify(files: Files, stopped: Sequence[str]) -> Tuple[str, ...]:
    """The needs of those that would know the MIG devices of before after a change.

    Services that are ``stopped`` around it know the new ones when they start again.
    """
    found = [CDI] if any(files.exists(path) for path in SPECIFICATIONS) else []
    for need, identities in _running(files).items():
        consumer = _consumer(files, need, [int(identity.partition(":")[0]) for identity in identities])
        if consumer.pids or not set(consumer.units).issubset(stopped):
            found.append(need)
    return tuple(found)


def _running(files: Files) -> Dict[str, List[str]]:
    """The processes of programs that list MIG devices when they start (``pid:start``), by need."""
    needs = {processes.comm(command): need for need, (_name, command) in PROGRAMS.items()}
    found: Dict[str, List[str]] = {}
    for pid, name in processes.daemons(files, tuple(needs), UNITS):
        identity = _identity(files, int(pid))
        if identity:
            found.setdefault(needs[name], []).append(identity)
    return found


def devices(files: Files, readings: Iterable[MigReading]) -> Optional[FrozenSet[str]]:
    """The device files of all GPUs and MIG devices: what a specification of them all names.

    None where a GPU does not respond, or the kernel module does not tell the device files of an instance.
    """
    from ..._nvidia.capabilities import capability_devices

    found: Set[str] = set()
    for reading in readings:
        divided = [driver_instance for driver_instance in reading.instances if driver_instance.compute_numbers]
        if reading.gpu.lost or reading.minor is None:
            return None
        # A GPU in MIG mode is no device itself, and an instance without a compute instance is none either.
        if divided or not reading.is_on:
            found.add(f"{holders.NVIDIA_DEVICES}{reading.minor}")
        for driver_instance in divided:
            paths = capability_devices(files, reading.minor, driver_instance.number, driver_instance.compute_numbers)
            if len(paths) != 1 + len(driver_instance.compute_numbers):
                return None
            found.update(paths)
    return frozenset(found)


def _names_exactly(files: Files, path: str, present: Optional[FrozenSet[str]]) -> bool:
    return present is not None and present == set(DEVICE.findall(files.read_optional(path) or ""))


@frozen
class RecordedConsumers:
    """A record: the version of each specification by its path, and processes (``pid:start``) by need."""

    specifications: Mapping[str, str]
    processes: Mapping[str, Tuple[str, ...]]


def _recorded(document: Any) -> RecordedConsumers:
    if document["schema"] != SCHEMA:
        return RecordedConsumers({}, {})
    specifications = {str(path): str(version) for path, version in document["specifications"].items()}
    found = {str(need): tuple(map(str, listed(noted))) for need, noted in document["processes"].items()}
    return RecordedConsumers(specifications, found)


def _runs(files: Files, identity: str) -> bool:
    pid = identity.partition(":")[0]
    return pid.isdecimal() and _identity(files, int(pid)) == identity


def _identity(files: Files, pid: int) -> str:
    process = processes.read(files, pid)
    return process.identity if process else ""


def _specifications(files: Files, old: List[str]) -> Consumer:
    output = OUTPUT.search(files.read_optional(REFRESH_SETTINGS) or "")
    refreshed = output[1] if output else REFRESHED
    there = systemd.enabled(files, REFRESH) not in (systemd.NOT_FOUND, systemd.MASKED)
    if not there or refreshed not in old:
        return Consumer(CDI_NAME, CDI, files=tuple(old))
    return Consumer(CDI_NAME, CDI, units=(REFRESH,), files=tuple(path for path in old if path != refreshed))


def _consumer(files: Files, need: str, running: List[int]) -> Consumer:
    units: Dict[str, None] = {}
    pids: List[int] = []
    for pid in sorted(running):
        unit = _service(files, pid)
        if unit:
            units[unit] = None
        else:
            pids.append(pid)
    return Consumer(PROGRAMS[need][0], need, tuple(units), tuple(pids))


def _service(files: Files, pid: int) -> str:
    """The service of the process, empty where starting that again is no way: in a container, in somebody's session."""
    try:
        holder = holders.describe(files, pid)
    except OSError:
        return ""
    own = holder.unit.endswith(".service") and not holder.unit.startswith("user@")
    return holder.unit if own and not holder.container else ""
