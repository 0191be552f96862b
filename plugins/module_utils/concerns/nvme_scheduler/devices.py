# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The disks of /sys/block that have a queue of ours to set, and what the kernel says of each.

A native multipath disk is two kinds of device: the disk itself (nvme0n1), which has a read-ahead and no requests, and
one hidden device for each path (nvme0c0n1), which has the request queue. What is declared for the disk is for both.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from posixpath import normpath
from typing import TYPE_CHECKING, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from ..._core.match import Candidate, names_explicitly
from ..._core.regex import regex
from ..._core.setting import Scalar
from ..._core.value import frozen, replace
from ..._kinds.tunables import parse_value
from .spec import NR_REQUESTS, READ_AHEAD, SCHEDULER, TUNABLES, QueueEntry

if TYPE_CHECKING:
    from ..._core.protocols import Files

FOLDER = "/sys/block"
CONTROLLER = ("serial", "model", "address")
_WILD = regex(r"[*?[]")


@frozen
class QueueLimits:
    """What the kernel accepts, read only where a value would change; None is "not told"."""

    tags: Optional[int] = None
    max_hw_sectors_kb: Optional[int] = None
    zoned: str = "none"


@frozen
class Queue:
    """A device with a queue: ``disk`` is whose it is, for a hidden path another device than itself."""

    name: str
    disk: str
    path: str
    identity: str
    mq: bool
    """Whether it has a request queue; read-ahead and the like are all that the others have."""
    values: Mapping[str, Scalar]
    missing: FrozenSet[str]
    """Settings whose file this kernel does not have for it."""
    schedulers: Tuple[str, ...]
    limits: QueueLimits

    @property
    def hidden(self) -> bool:
        return self.name != self.disk


@frozen
class Disk:
    """What an entry can win: a disk with its queues (its own first), and the attributes of the controller above it."""

    candidate: Candidate
    controller: Mapping[str, Optional[str]]
    queues: Tuple[Queue, ...]

    @property
    def name(self) -> str:
        return self.candidate.name


@frozen
class Level:
    """A device or one of its parents, as ATTRS, KERNELS, SUBSYSTEMS and DRIVERS see it; an attribute may be absent."""

    name: str
    subsystem: str
    driver: str
    attributes: Mapping[str, Optional[str]]


@frozen
class Subject:
    """A disk as rules see it: itself and its parents (``levels``), and what our own rules ask it.

    ``path`` is its folder in /sys, ``paths`` are those of its queues by name, ``hidden`` the names of those below it.
    ``bdi`` is the number by which its read-ahead is a device too, of the subsystem bdi; empty where no rule asks.
    """

    levels: Tuple[Level, ...]
    mq: bool
    pci_addresses: str
    missing: FrozenSet[str]
    path: str
    paths: Mapping[str, str]
    hidden: Tuple[str, ...]
    bdi: str = ""


def observe(
    files: Files,
    *,
    settings: FrozenSet[str],
    entries: Sequence[QueueEntry],
    asked: FrozenSet[str],
    others: bool,
) -> Tuple[Disk, ...]:
    """All NVMe disks and, where an entry names them or ``others`` says so, md and dm devices.

    ``settings`` are read, ``asked`` are attributes that rules of others look at.
    """
    look = _Reader(files, settings=settings, entries=entries, asked=asked)
    names = files.names(FOLDER)
    paths = [name for name in names if re.fullmatch(r"nvme\d+c\d+n\d+", name)]
    explicit = others or any(names_explicitly(text) for entry in entries for text in entry.entry.match.get("name", ()))
    disks = []
    for name in names:
        disk: Optional[Disk] = None
        try:
            if re.fullmatch(r"nvme\d+n\d+", name):
                head = re.compile(re.sub(r"^(nvme\d+)(n\d+)$", r"\1c\\d+\2", name))
                disk = look.nvme(name, [path for path in paths if head.fullmatch(path)])
            elif explicit and re.match(r"md\d|md_|dm-\d", name):
                disk = look.stacked(name)
        except OSError:
            # Gone between the listing and now: it is no device of this machine any more.
            if files.exists(f"{FOLDER}/{name}"):
                raise
        if disk is not None:
            disks.append(disk)
    return _unmistakable(disks)


def setting_at(target: str, name: str, path: str) -> str:
    """The setting that a file of sysfs, maybe with the signs of glob(7), is for the queue ``name``, whose folder is
    ``path``; empty for another device.
    """
    folder, _slash, file = normpath(target).rpartition("/")
    setting = next((setting for setting, tunable in TUNABLES.items() if tunable.file == file), "")
    if setting == READ_AHEAD and fnmatchcase(folder, "/sys/*/bdi/*") and _WILD.search(folder.rpartition("/")[2]):
        return setting
    device, _slash, part = folder.rpartition("/")
    if part not in ("queue", "*") and not (part == "bdi" and setting == READ_AHEAD):
        return ""
    by_name = re.fullmatch(r"/sys/(?:class/)?block/([^/]+)", device)
    agrees = fnmatchcase(name, by_name[1]) if by_name else _agree(device, path)
    return setting if agrees else ""


def _agree(pattern: str, path: str) -> bool:
    """As glob(7): no sign stands for a slash."""
    signs, names = pattern.split("/"), path.split("/")
    return len(signs) == len(names) and all(map(fnmatchcase, names, signs))


class _Reader:
    def __init__(
        self, files: Files, *, settings: FrozenSet[str], entries: Sequence[QueueEntry], asked: FrozenSet[str]
    ) -> None:
        self._files = files
        self._settings = [setting for setting in TUNABLES if setting in settings]
        keys = {key for entry in entries for key in entry.entry.match}
        self._keys = {"serial"} | ({"model"} & (keys | asked)) | ({"address"} if "pci_address" in keys else set())
        self._keys |= {"address"} & asked
        self._wanted: Dict[str, FrozenSet[Scalar]] = {
            setting: frozenset(entry.settings[setting] for entry in entries if setting in entry.settings)
            for setting in TUNABLES
        }
        self._controllers: Dict[str, Dict[str, Optional[str]]] = {}

    def nvme(self, name: str, hidden: Sequence[str]) -> Disk:
        path = self._files.resolve(f"{FOLDER}/{name}")
        controller = self._controller(path)
        nsid = self._word(f"{path}/nsid") or name.rpartition("n")[2]
        serial = controller.get("serial")
        identity = f"serial:{serial}/ns{nsid}" if serial else f"name:{name}"
        is_head = bool(hidden) or "/nvme-subsystem/" in path
        own = self._queue(name, name, path, identity, mq=not is_head)
        below = []
        addresses = [controller.get("address")]
        for path_name in hidden:
            place = self._files.resolve(f"{FOLDER}/{path_name}")
            number = re.sub(r"^nvme\d+(c\d+)n\d+$", r"\1", path_name)
            below.append(self._queue(path_name, name, place, f"{identity}/{number}", mq=True))
            if "address" in self._keys:
                addresses.append(self._controller(place).get("address"))
        known = tuple(address for address in addresses if address)
        values = {"name": (name,), "pci_address": known}
        for key in ("serial", "model"):
            text = controller.get(key)
            values[key] = (text,) if text else ()
        return Disk(
            candidate=Candidate(name, values),
            controller=controller,
            queues=(own, *below),
        )

    def stacked(self, name: str) -> Disk:
        """A device of md or device mapper: of the latter only multipath has a request queue."""
        path = self._files.resolve(f"{FOLDER}/{name}")
        mapped = self._word(f"{path}/dm/name")
        identity = self._word(f"{path}/dm/uuid") or self._word(f"{path}/md/uuid") or mapped or name
        kind = "dm" if name.startswith("dm-") else "md"
        own = self._queue(name, name, path, f"{kind}:{identity}", mq=self._files.exists(f"{path}/mq"))
        names = (name, mapped) if mapped else (name,)
        return Disk(Candidate(name, {"name": names}, named_by="name"), {"dm/name": mapped}, (own,))

    def _queue(self, name: str, disk: str, path: str, identity: str, *, mq: bool) -> Queue:
        values: Dict[str, Scalar] = {}
        missing = set()
        schedulers: Tuple[str, ...] = ()
        for setting in self._settings:
            if not mq and not TUNABLES[setting].bio:
                continue
            if name != disk and setting == READ_AHEAD:
                continue
            text = self._setting(path, setting)
            if text is None:
                missing.add(setting)
            elif setting == SCHEDULER:
                values[setting], schedulers = parse_value(text)
                schedulers = schedulers or (str(values[setting]),)
            else:
                values[setting] = int(text) if re.fullmatch(r"-?\d+\s*", text) else None
        limits = self._limits(path, values, schedulers) if mq or "max_sectors_kb" in values else QueueLimits()
        return Queue(name, disk, path, identity, mq, values, frozenset(missing), schedulers, limits)

    def _setting(self, path: str, setting: str) -> Optional[str]:
        try:
            return self._files.read_optional(f"{path}/queue/{TUNABLES[setting].file}")
        except OSError:
            # wbt_lat_usec cannot be read while write-back throttling was never set up; a write sets it up.
            if self._files.exists(f"{path}/queue/{TUNABLES[setting].file}"):
                return ""
            raise

    def _limits(self, path: str, values: Mapping[str, Scalar], schedulers: Sequence[str]) -> QueueLimits:
        scheduler = self._differs(SCHEDULER, values)
        tags = sectors = None
        zoned = "none"
        if scheduler or self._differs(NR_REQUESTS, values):
            tags = self._number(f"{path}/mq/0/nr_tags")
        if self._differs("max_sectors_kb", values):
            sectors = self._number(f"{path}/queue/max_hw_sectors_kb")
        if not self._wanted[SCHEDULER] <= frozenset(schedulers):
            zoned = self._word(f"{path}/queue/zoned") or "none"
        return QueueLimits(tags, sectors, zoned)

    def _differs(self, setting: str, values: Mapping[str, Scalar]) -> bool:
        wanted = self._wanted[setting]
        return setting in values and bool(wanted) and wanted != {values[setting]}

    def _controller(self, path: str) -> Dict[str, Optional[str]]:
        """The controller above a disk, or the subsystem above a multipath disk."""
        parent = path.rpartition("/")[0]
        if parent not in self._controllers:
            is_subsystem = "/nvme-subsystem/" in parent
            self._controllers[parent] = {
                key: self._word(f"{parent}/{key}")
                for key in CONTROLLER
                if key in self._keys and not (key == "address" and is_subsystem)
            }
        return self._controllers[parent]

    def _word(self, path: str) -> Optional[str]:
        text = self._files.read_optional(path)
        return None if text is None else text.strip()

    def _number(self, path: str) -> Optional[int]:
        text = self._word(path)
        return int(text) if text is not None and text.isdecimal() else None


def _unmistakable(disks: Sequence[Disk]) -> Tuple[Disk, ...]:
    """Disks that share an identity (emulated ones without a serial of their own) are known by name as well."""
    seen: Dict[str, List[Disk]] = {}
    for disk in disks:
        seen.setdefault(disk.queues[0].identity, []).append(disk)
    result = []
    for disk in disks:
        if len(seen[disk.queues[0].identity]) > 1:
            queues = tuple(replace(queue, identity=f"{queue.identity}/{queue.name}") for queue in disk.queues)
            disk = Disk(disk.candidate, disk.controller, queues)
        result.append(disk)
    return tuple(result)
