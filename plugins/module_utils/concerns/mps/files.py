# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The units of the daemons: what they are called, what is in them, and what systemd makes of that.

A client that does not find the directory of the pipes computes without MPS, and says nothing. So it is a short path
that stays: below /run, where nothing is swept away as in /tmp, and the same while the daemon is restarted.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, Iterable, List, Optional, Tuple

from ..._core.errors import DeclarationError
from ..._core.regex import regex
from ..._kinds.own_files import header_of
from ..._kinds.units import YIELDS
from ..._linux import systemd
from ..._linux.boot_service import UNIT as BOOT_SERVICE
from .spec import ALL, NAME, memory_of, memory_text, percent
from .state import Values

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from .state import WantedDaemon

UNIT = "gpufleet-mps.service"
UNITS = regex(r"gpufleet-mps(?:-(gpu[0-9]+-gi[0-9]+-ci[0-9]+))?\.service", re.ASCII)
# What the root daemon of the protocol v3 has by default, so that a client may find it without a variable.
FOLDER = "nvidia-mps"
# sun_path of unix(7) has 108 bytes, and the last is zero. The program says of a longer one that there is no daemon.
LONGEST = 107
LONGEST_SOCKET = "control_privileged"
AFTER = (BOOT_SERVICE, "nvidia-persistenced.service", "nvidia-fabricmanager.service")
# Who starts what may need the daemon.
BEFORE = (
    *("containerd.service", "crio.service", "docker.service", "k3s.service", "kubelet.service", "rke2-agent.service"),
    "slurmd.service",
)
START_SECONDS, QUIT_SECONDS, STOP_SECONDS = 30, 20, 40
DEVICES, PERCENTAGE = "CUDA_VISIBLE_DEVICES", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
LIMITS, PIPES, LOGS = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
MULTI_USER = "-multiuser-server"


def unit_of(key: str) -> str:
    """The unit of a MIG device (``gpu0-gi1-ci0``), or of the daemon for whole GPUs, whose key is empty."""
    return f"gpufleet-mps-{key}.service" if key else UNIT


def key_of(unit: str) -> str:
    found = UNITS.fullmatch(unit)
    return (found[1] or "") if found else ""


def path_of(unit: str) -> str:
    return f"{systemd.ETC}/{unit}"


def folder_of(key: str) -> str:
    return f"{FOLDER}-{key}" if key else FOLDER


def pipes_of(key: str) -> str:
    return f"/run/{folder_of(key)}"


def logs_of(key: str) -> str:
    return f"/var/log/{folder_of(key)}"


def refuse_long_path(pipes: str) -> None:
    """Raise ``DeclarationError`` for a directory in which the daemon's sockets have too long a path."""
    length = len(f"{pipes}/{LONGEST_SOCKET}".encode())
    if length > LONGEST:
        raise DeclarationError(
            "use {}",
            object=pipes,
            cause=f"the path of a socket in it has {length} bytes, and the kernel accepts at most {LONGEST}",
            hint="use a shorter one",
        )


def known(files: Files) -> Tuple[str, ...]:
    """Our units: those with a file, those whose file we removed and systemd has not noticed, and those that may run."""
    noted = (files.read_optional(systemd.MARKER) or "").splitlines()
    folders = [name for name in files.names("/run") if name.startswith(FOLDER)]
    running = [unit_of(name[len(FOLDER) + 1 :]) for name in folders]
    names = (*files.names(systemd.ETC), *noted, *running)
    return tuple(dict.fromkeys(name for name in names if UNITS.fullmatch(name)))


def render(wanted: WantedDaemon, program: str) -> str:
    """The whole unit. Limits and the percentage are in its environment: they count from the first client on.

    Of the limits the daemon itself knows nothing then, so it is told them too, once it listens.
    """
    values, key = wanted.values, wanted.key
    limits = sorted(values.limits.items())
    environment = {
        PIPES: pipes_of(key),
        LOGS: logs_of(key),
        "CUDA_MPS_PROTOCOL_VERSION": "2",
        DEVICES: ",".join(values.devices),
        **({PERCENTAGE: values.percentage} if values.percentage != ALL else {}),
        **({LIMITS: ",".join(f"{uuid}={memory_text(mib)}" for uuid, mib in limits)} if limits else {}),
    }
    ready = f"until echo get_server_list | {program} >/dev/null 2>&1; do sleep 0.1; done"
    told = "".join(f"; echo set_default_device_pinned_mem_limit {uuid} {memory_text(mib)}" for uuid, mib in limits)
    tell = f"; {{ :{told}; }} | {program}" if limits else ""
    lines = (
        "[Unit]",
        f"Description=CUDA MPS for {wanted.about}",
        f"After={' '.join(AFTER)}",
        f"Before={' '.join(BEFORE)}",
        YIELDS,
        "",
        "[Service]",
        "Type=exec",
        *(f"Environment={name}={value}" for name, value in environment.items()),
        # Servers run as the users of their clients, and make their sockets here.
        f"RuntimeDirectory={folder_of(key)}",
        "RuntimeDirectoryMode=1777",
        "RuntimeDirectoryPreserve=restart",
        f"LogsDirectory={folder_of(key)}",
        f"ExecStart={program} -f{f' {MULTI_USER}' if values.multi_user else ''}",
        f"ExecStartPost=/bin/sh -c '{ready}{tell}'",
        # Without a shell, as in units that are passed around, this would print a text and end nothing.
        f"ExecStop=/bin/sh -c 'echo quit -t {QUIT_SECONDS} | {program}'",
        f"TimeoutStartSec={START_SECONDS}",
        f"TimeoutStopSec={STOP_SECONDS}",
        "Restart=on-failure",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    )
    return "".join((header_of(NAME), *(f"{line}\n" for line in lines)))


def values_of(lines: Iterable[str], command: str) -> Values:
    """What a daemon is given by assignments (``NAME=value``) and a command line, of files or of a process."""
    environment: Dict[str, str] = {}
    for line in lines:
        name, _equals, value = line.strip('"').partition("=")
        environment[name] = value
    limits: Dict[str, int] = {}
    for part in environment.get(LIMITS, "").split(","):
        uuid, _equals, text = part.partition("=")
        mib = memory_of(text)
        if mib is not None:
            limits[uuid] = mib
    return Values(
        devices=tuple(filter(None, environment.get(DEVICES, "").split(","))),
        percentage=_percentage(environment.get(PERCENTAGE, ALL)),
        limits=limits,
        multi_user=MULTI_USER in command.split(),
    )


def merged(texts: Iterable[str]) -> Values:
    """What a unit and its drop-ins give the daemon; an empty assignment resets what came before."""
    found: Dict[str, List[str]] = {}
    for text in texts:
        for key, value in systemd.assignments(text):
            values = found.setdefault(key, [])
            values.append(value) if value else values.clear()
    words = [word for line in found.get("Service.Environment", ()) for word in line.split()]
    return values_of(words, (found.get("Service.ExecStart") or [""])[-1])


def is_ours(text: Optional[str]) -> bool:
    return text is not None and text.startswith(header_of(NAME))


def _percentage(text: str) -> str:
    try:
        return percent(text)
    except ValueError:
        return ALL
