# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The units that mount at boot, and those that give a mount of NFS its read-ahead.

Units of ours and no lines in fstab: so nothing of others is edited, and what is declared has one file. systemd takes
the unit where fstab has a line for the same mount point (systemd.unit(5)).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Mapping, Optional, Sequence, Tuple

from ..._core.regex import regex
from ..._core.value import frozen
from ..._kinds.own_files import header_of
from ..._linux import systemd
from ..._linux.escapes import unit_of_path
from . import tunables
from .clients import CLIENTS
from .sources import fsname_of
from .spec import NAME
from .values import LUSTRE, OBJECT_STORES, declared_type, mount_type

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from .spec import Entry

HEADER = header_of(NAME)
MOUNT_UNIT, READ_AHEAD_UNIT, TUNABLES_UNIT = "mount unit", "read-ahead unit", "unit for tunables"
# How long a server may take to answer, at boot as in a run.
SECONDS = 60
READ_AHEAD = regex(r"echo ([0-9]+) >")
TUNABLE = regex(r'"([a-z.]+)\.[A-Za-z0-9_-]+-(?:OST|MDT)?\*\.([a-z0-9_]+)=([^"]+)"')


@frozen
class AtBoot:
    """What one of our units mounts."""

    source: str
    fstype: str
    options: str


def mount_unit(path: str) -> str:
    return unit_of_path(path, "mount")


def read_ahead_unit(path: str) -> str:
    return f"gpufleet-read-ahead-{unit_of_path(path, 'service')}"


def tunables_unit(path: str) -> str:
    return f"gpufleet-lustre-{unit_of_path(path, 'service')}"


def file_of(unit: str) -> str:
    return f"{systemd.ETC}/{unit}"


def mount_text(entry: Entry) -> str:
    """The target wants the unit and does not require it, so that a node boots without its server or device.

    What is ordered after the target, such as slurmd and kubelet, waits for the mount, but no longer than ``SECONDS``.
    """
    options = f"Options={_plain(','.join(entry.options))}\n" if entry.options else ""
    service = CLIENTS[entry.client].after if entry.client in CLIENTS else ""
    after = f"After={service}\n" if service else ""
    units = (read_ahead_unit(entry.path), tunables_unit(entry.path))
    wanted = [unit for unit, text in zip(units, service_texts(entry)) if text is not None]
    wants = f"Wants={' '.join(wanted)}\n" if wanted else ""
    return f"""\
{HEADER}[Unit]
Description={entry.path} as declared by gpufleet.node
{after}{wants}
[Mount]
What={_plain(entry.source)}
Where={entry.path}
Type={mount_type(entry.fstype)}
{options}TimeoutSec={SECONDS}

[Install]
WantedBy={"remote" if entry.remote else "local"}-fs.target
"""


def service_texts(entry: Optional[Entry]) -> Tuple[Optional[str], ...]:
    """Of the units that belong to the mount: that of the read-ahead, and that of the tunables."""
    return (None, None) if entry is None else (read_ahead_text(entry), tunables_text(entry))


def read_ahead_text(entry: Entry) -> Optional[str]:
    """None where nothing is declared. Each mount gets a number of its own, so it is looked up when it is there.

    The rule of nfs-utils (99-nfs.rules) sets its own value when the kernel adds the device, hence ``udevadm settle``.
    """
    if entry.read_ahead_kb is None:
        return None
    number = f"findmnt --nocanonicalize --noheadings --raw --first-only --output MAJ:MIN --mountpoint {entry.path}"
    write = f"echo {entry.read_ahead_kb} >/sys/class/bdi/$$({number})/read_ahead_kb"
    # FUSE lowers it once more when its process has answered for the first time, which anything that is asked waits for.
    wait = f"stat {entry.path} >/dev/null; " if entry.fstype in OBJECT_STORES else ""
    return _service(entry, "Read-ahead", f"{wait}{write}")


def tunables_text(entry: Entry) -> Optional[str]:
    """None where nothing is declared. The rule of Lustre (99-lustre.rules) brings what is set for all of a cluster."""
    if not entry.tunables or entry.fstype != LUSTRE:
        return None
    fsname = fsname_of(entry.source)
    names = tunables.in_order(entry.tunables)
    values = [f'"{tunables.pattern_of(fsname, name)}={entry.tunables[name]}"' for name in names]
    return _service(entry, "Tunables", f"lctl set_param {' '.join(values)}")


def _service(entry: Entry, what: str, command: str) -> str:
    unit = mount_unit(entry.path)
    return f"""\
{HEADER}[Unit]
Description={what} of {entry.path} as declared by gpufleet.node
Requisite={unit}
After={unit}

[Service]
Type=oneshot
TimeoutStartSec={SECONDS}
ExecStart=/bin/sh -c 'udevadm settle --timeout=10; {command}'
"""


def mount_point_of(text: str) -> str:
    """The mount point in a text of ours; empty where it is none."""
    return _values(text).get("Mount.Where", "") if text.startswith(HEADER) else ""


def at_boot(text: Optional[str]) -> Optional[AtBoot]:
    """What the text of a unit of ours mounts."""
    if text is None or not text.startswith(HEADER):
        return None
    return from_values({key: (value,) for key, value in _values(text).items()})


def from_values(lines: Mapping[str, Sequence[str]]) -> AtBoot:
    """What a mount unit with these assignments mounts, the last of each counts; empty for none."""
    what, kind, options = (
        (lines.get(f"Mount.{key}") or ("",))[-1].replace("%%", "%") for key in ("What", "Type", "Options")
    )
    return AtBoot(what, declared_type(kind), options)


def read_ahead_at_boot(text: Optional[str]) -> Optional[int]:
    found = READ_AHEAD.search(text or "")
    return int(found[1]) if found else None


def tunables_at_boot(text: Optional[str]) -> Dict[str, str]:
    return {f"{subsystem}.{name}": value for subsystem, name, value in TUNABLE.findall(text or "")}


def ours(files: Files) -> Dict[str, str]:
    """Our mount units that are there: the mount point of each, by its unit."""
    names = (name for name in files.names(systemd.ETC) if name.endswith(".mount"))
    found = ((name, mount_point_of(files.read_optional(file_of(name)) or "")) for name in names)
    return {name: path for name, path in found if path}


def _values(text: str) -> Dict[str, str]:
    return dict(systemd.assignments(text))


def _plain(text: str) -> str:
    return text.replace("%", "%%")
