# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The units that bring swap at the next boot, beside the lines of fstab: native ones, those that generators make of a
partition or for zram, and services that make swap themselves.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Iterator, List, Optional, Tuple

from ..._core.errors import CannotLook
from ..._core.regex import regex
from ..._core.value import frozen
from ..._linux import mounts, systemd
from ..._linux.dropins import ROOTS, walk_files
from ..._linux.escapes import unit_of_path

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from ..._linux.systemd import UnitFiles

# zram-tools of Debian, zram-config of Ubuntu, and dphys-swapfile of Raspberry Pi OS.
SERVICES = ("zramswap.service", "zram-config.service", "dphys-swapfile.service")
GENERATORS = ("/usr/lib/systemd/system-generators", "/lib/systemd/system-generators")
GENERATED = ("/run/systemd/generator", "/run/systemd/generator.late")
# The Discoverable Partitions Specification: the type of swap, and the flag of a partition that is left alone.
GPT_SWAP = "0657fd6d-a4ab-43c4-84e5-0933c84b4f4f"
NO_AUTO = 1 << 63
UDEV = "/run/udev/data"
_ZRAM_ARGUMENT = regex(r"(?:^|\s)systemd\.zram(?:=(?:1|y|yes|t|true|on))?(?:\s|$)", re.IGNORECASE)
UNIT_FILE, PARTITION, ZRAM = "unit file", "GPT partition", "zram-generator"


@frozen
class BootUnit:
    """A unit that brings swap at boot, by its ``source``. ``in_etc``: its file is where the file of a mask would be."""

    unit: str
    source: str
    in_etc: bool = False

    @property
    def mask(self) -> str:
        """The file that masks it while it is empty."""
        return f"{systemd.ETC}/{self.unit}"


def read_units(files: Files, unit_files: UnitFiles, ours: str) -> Tuple[BootUnit, ...]:
    """All that are not masked, but for ``ours``. Raises ``CannotLook`` where a partition cannot be told."""
    found = list(_native(files, unit_files, ours))
    known = {unit.unit for unit in found}
    for unit, source in (*_partitions(files), *_zram(files)):
        if unit not in known and unit_files.status(unit) != systemd.MASKED:
            found.append(BootUnit(unit, source))
    return tuple(found)


def generated(files: Files) -> Tuple[str, ...]:
    """The swap units that systemd made at its last reload, and that no file in /etc overrides."""
    names = {name for folder in GENERATED for name in files.names(folder) if name.endswith(".swap")}
    return tuple(name for name in sorted(names) if not files.exists(f"{systemd.ETC}/{name}"))


def _native(files: Files, unit_files: UnitFiles, ours: str) -> Iterator[BootUnit]:
    names = (name for name in unit_files.names if name.endswith(".swap") and name != ours)
    for unit in (*sorted(names), *SERVICES):
        if unit_files.status(unit) == systemd.ENABLED:
            yield BootUnit(unit, UNIT_FILE, files.exists(f"{systemd.ETC}/{unit}"))


def _has_generator(files: Files, name: str) -> bool:
    return any(files.exists(f"{folder}/{name}") for folder in GENERATORS)


def _partitions(files: Files) -> Iterator[Tuple[str, str]]:
    """systemd-gpt-auto-generator takes every swap partition of the disk of the root file system.

    It does so only while fstab has no swap, so that a line that is taken out may bring a partition in.
    """
    if not _has_generator(files, "systemd-gpt-auto-generator"):
        return
    disk = _root_disk(files)
    if disk is None:
        return
    for name in files.names(disk):
        if not files.exists(f"{disk}/{name}/partition"):
            continue
        device = (files.read_optional(f"{disk}/{name}/dev") or "").strip()
        text = files.read_optional(f"{UDEV}/b{device}")
        if text is None:
            raise CannotLook(
                "tell whether {} is swap at the next boot",
                object=f"/dev/{name}",
                cause=f"udev has no record of it in {UDEV}",
                hint="run udevadm trigger, then run again",
            )
        kind = re.search(r"^E:ID_PART_ENTRY_TYPE=(\S+)$", text, re.MULTILINE)
        flags = re.search(r"^E:ID_PART_ENTRY_FLAGS=0x([0-9a-fA-F]+)$", text, re.MULTILINE)
        if kind and kind[1].lower() == GPT_SWAP and not (flags and int(flags[1], 16) & NO_AUTO):
            yield unit_of_path(f"/dev/{name}", "swap"), PARTITION


def _root_disk(files: Files) -> Optional[str]:
    """The folder in /sys of the disk that has the root file system; None where it is on none, or on several."""
    root = mounts.at(mounts.read(files), "/")
    if root is None:
        return None
    if root.number.startswith("0:"):
        # Of btrfs the kernel shows a number of its own.
        source = root.source
        path = f"/sys/class/block/{files.resolve(source).rpartition('/')[2]}" if source.startswith("/dev/") else ""
    else:
        path = f"/sys/dev/block/{root.number}"
    while path and files.exists(path):
        path = files.resolve(path)
        if files.exists(f"{path}/partition"):
            return path.rpartition("/")[0]
        below = files.names(f"{path}/slaves")
        if not below:
            return path
        path = f"/sys/class/block/{below[0]}" if len(below) == 1 else ""
    return None


def _zram(files: Files) -> Iterator[Tuple[str, str]]:
    """The devices of zram-generator.conf(5): of the main files only the first counts, drop-ins are merged over it."""
    if not _has_generator(files, "zram-generator"):
        return
    places = [f"{root}/systemd/zram-generator.conf" for root in ROOTS]
    main = next((path for path in places if files.exists(path)), None)
    texts: List[str] = [files.read(main)] if main else []
    texts += [files.read(path) for path in walk_files(files, [f"{path}.d" for path in places], ".conf")]
    devices, mounted = set(), set()
    # "true or no argument" of systemd.zram makes the first one, also without a file.
    if _ZRAM_ARGUMENT.search(files.read_optional("/proc/cmdline") or ""):
        devices.add("zram0")
    for text in texts:
        for name in re.findall(r"^\[(zram[0-9]+)\]", text, re.MULTILINE):
            devices.add(name)
        for key, value in systemd.assignments(text):
            name, _dot, option = key.partition(".")
            if (option == "fs-type" and value != "swap") or (option == "mount-point" and value):
                mounted.add(name)
    for name in sorted(devices - mounted):
        yield unit_of_path(f"/dev/{name}", "swap"), ZRAM
