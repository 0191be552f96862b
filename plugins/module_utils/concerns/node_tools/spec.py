# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of the command on the node and of the boot service, and the texts of their files."""

from __future__ import annotations

import re
import shlex
from typing import Any, Mapping, Optional, Sequence, Tuple

from ..._core.errors import DeclarationError
from ..._core.value import frozen
from ..._linux.boot_service import UNIT
from ..._linux.program import ARCHIVE, EXEC_START, START
from ..._linux.systemd import is_service, is_template

NAME = "node_tools"
HOLD = "hold"
TARGET = "multi-user.target"
HEADER = "# Written by gpufleet.node, module node_tools. A change made here is overwritten by the next run."

# What brings the driver and its devices, and what gives CPUs another governor at boot, once.
AFTER = (
    "systemd-modules-load.service",
    "systemd-udev-settle.service",
    "nvidia-persistenced.service",
    "nvidia-fabricmanager.service",
    "nvidia-vgpud.service",
    "nvidia-vgpu-mgr.service",
    "cpufrequtils.service",
    "cpupower.service",
)
SHORTEST_SECONDS, LONGEST_SECONDS = 10, 3600
# For the start of Python, and for ending a program that outlived the deadline.
MARGIN_SECONDS = 30
# As the command itself exits on wrong usage, apart from what `gpufleet status` says.
BROKEN_EXIT = 64
# What hangs in the driver cannot be ended, and must not keep the boot waiting either.
STOP_SECONDS = 5


@frozen
class NodeToolsDeclaration:
    """What is declared; None for a sum or a text means: no such file. ``before`` are the units that wait for ours."""

    archive: Optional[str] = None
    unit: Optional[str] = None
    links: Tuple[str, ...] = ()
    before: Tuple[str, ...] = ()


def parse(params: Mapping[str, Any]) -> NodeToolsDeclaration:
    """Raises ``DeclarationError`` on what no machine could have."""
    if not re.fullmatch(r"[0-9a-f]{64}", params["archive_sha256"] or ""):
        raise DeclarationError(
            "install the archive",
            object="archive_sha256",
            cause=f"{params['archive_sha256']!r} is not a SHA-256 checksum",
            hint="use the role node_tools, or the lookup gpufleet.node.node_archive",
        )
    for unit in params["boot_before"]:
        _check_unit(unit)
    seconds = params["boot_timeout"]
    if not SHORTEST_SECONDS <= seconds <= LONGEST_SECONDS:
        raise DeclarationError(
            "use {}",
            object="boot_timeout",
            cause=f"it must be from {SHORTEST_SECONDS} to {LONGEST_SECONDS} seconds",
            wanted=seconds,
        )
    return NodeToolsDeclaration(
        params["archive_sha256"], unit_text(params), wanted_links(params), tuple(params["boot_before"])
    )


def _check_unit(unit: str) -> None:
    cause = hint = ""
    if unit in (UNIT, *AFTER):
        cause, hint = "the boot service itself starts after it", "remove it from boot_before"
    elif unit.endswith((".socket", ".target", ".mount", ".path", ".timer")):
        cause = "only services can wait; units of this kind start before basic.target, which the boot service waits for"
        hint = "name the service that uses it"
    elif not is_service(unit):
        cause, hint = (
            f"{unit!r} is not the name of a service",
            "write it as systemctl shows it, such as kubelet.service",
        )
    elif is_template(unit):
        cause, hint = f"{unit!r} is a template, and only its instances start", "name an instance, such as app@1.service"
    if cause:
        raise DeclarationError("use {}", object="boot_before", cause=cause, found=unit, hint=hint)


def unit_text(params: Mapping[str, Any]) -> str:
    """The boot service. Started late enough for the driver and, by default dependencies, for all local files."""
    before = " ".join(dict.fromkeys(params["boot_before"]))
    seconds = params["boot_timeout"]
    lines = [
        HEADER,
        "[Unit]",
        "Description=Apply the declared settings that a boot loses",
        "Documentation=https://github.com/gpufleet/node/tree/main/docs",
        "ConditionPathIsDirectory=/etc/gpufleet/declared.d",
        f"After={' '.join(AFTER)}",
        *([f"Before={before}"] if before else []),
        "",
        "[Service]",
        "Type=oneshot",
        "RemainAfterExit=yes",
        f"ExecStart={EXEC_START} boot --timeout {seconds}",
        f"TimeoutStartSec={seconds + MARGIN_SECONDS}",
        f"TimeoutStopSec={STOP_SECONDS}",
        # What it did it tells the journal itself, with fields.
        "StandardOutput=null",
        "",
        "[Install]",
        f"WantedBy={TARGET}",
        *([f"RequiredBy={before}"] if before and params["boot_failure"] == HOLD else []),
    ]
    return "".join(f"{line}\n" for line in lines)


def wanted_links(params: Mapping[str, Any]) -> Tuple[str, ...]:
    """The folders that must hold a link to the unit, sorted."""
    held: Sequence[str] = params["boot_before"] if params["boot_failure"] == HOLD else ()
    return tuple(sorted({f"{TARGET}.wants", *(f"{unit}.requires" for unit in held)}))


# What people start, in a folder that their shell searches.
COMMAND_TEXT = f"#!/bin/sh\n{HEADER}\n{START}\n"


def launcher_text(interpreter: str) -> str:
    """The script that starts the archive. Isolated, so that no variable or folder of a user changes what root runs.

    An archive that cannot be read must not look like an answer: Python takes an empty one for a program that succeeds,
    and ends with 1 or 2 for a damaged or a missing one.
    """
    return (
        f"#!/bin/sh\n{HEADER}\npython={shlex.quote(interpreter)}\n"
        '[ -x "$python" ] || python=python3\n'
        'exec "$python" -I -c \'import os, runpy, sys\n'
        'error = "it is empty"\n'
        "try:\n"
        f'    archive = "{ARCHIVE}"\n'
        "    for place in archive, os.path.dirname(archive):\n"
        "        found = os.stat(place)\n"
        "        if found.st_uid not in (0, os.geteuid()):\n"
        '            raise PermissionError("%s is owned by the user %s" % (place, found.st_uid))\n'
        "        if found.st_mode & 2 or found.st_mode & 16 and found.st_gid not in (0, os.getegid()):\n"
        '            raise PermissionError("%s is writable by users other than root" % place)\n'
        '    runpy.run_path(archive, run_name="__main__")\n'
        "except Exception as caught:\n"
        "    error = caught\n"
        f'sys.stderr.write("Cannot run {ARCHIVE}: %s. Run the role node_tools.\\n" % error)\n'
        f'raise SystemExit({BROKEN_EXIT})\' "$@"\n'
    )


def interpreter_of(launcher: str) -> str:
    """The interpreter that a launcher names; empty when it is none of ours."""
    found = re.search(r"^python=(.+)$", launcher, re.MULTILINE)
    try:
        words = shlex.split(found[1]) if found else []
    except ValueError:
        return ""
    return words[0] if len(words) == 1 and launcher == launcher_text(words[0]) else ""
