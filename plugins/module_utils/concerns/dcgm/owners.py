# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who else runs a host engine or an exporter on this machine, such as the GPU Operator in containers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, Iterator, List, Tuple

from ..._machine import processes
from ..._nvidia import holders
from . import command_line

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from .spec import DcgmDeclaration
    from .state import DcgmState

ENGINE = "nv-hostengine"
LISTEN = "0A"
# Whoever runs them, their units have such names. In the containers of the GPU Operator root runs them.
UNITS = ("nvidia-dcgm*", "dcgm*")
TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


def in_the_way(files: Files, declaration: DcgmDeclaration, state: DcgmState) -> Dict[str, str]:
    """Of each unit that is to be started: who runs the same, or has its port."""
    found: Dict[str, str] = {}
    engine, exporter = state.engine, state.exporter.service
    wanted: List[Tuple[str, str, Tuple[str, ...]]] = []
    if declaration.engine and not engine.active:
        wanted.append((engine.name, ENGINE, (engine.name, state.twin.name if state.twin else "")))
    if declaration.exporter and not exporter.active:
        wanted.append((exporter.name, command_line.PROGRAM, (exporter.name,)))
    for pid, command in _running(files):
        for unit, program, own in wanted:
            if command == processes.comm(program) and unit not in found:
                who = _described(files, pid, own)
                if who:
                    found[unit] = f"{who} already runs"
    if declaration.exporter and not exporter.active and exporter.name not in found:
        port = state.exporter.address.rpartition(":")[2]
        # It may be the name of a service, which nobody here resolves.
        who = listener(files, int(port)) if re.fullmatch("[0-9]{1,5}", port) else ""
        if who:
            found[exporter.name] = f"{who} listens on its port {port}"
    return found


def listener(files: Files, port: int) -> str:
    """The process that listens at a port of TCP, in words; empty where none does."""
    sockets = set()
    for table in TABLES:
        # sl, local address, remote address, state, ..., inode is the tenth (proc_net_tcp).
        for line in (files.read_optional(table) or "").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                sockets.add(f"socket:[{fields[9]}]")
    if not sockets:
        return ""
    for pid in processes.ids(files):
        try:
            if sockets.intersection(processes.opened(files, pid)):
                return holders.describe(files, int(pid)).name
        except OSError:
            continue
    return "another program"


def _running(files: Files) -> Iterator[Tuple[int, str]]:
    names = (processes.comm(ENGINE), processes.comm(command_line.PROGRAM))
    return ((int(pid), command) for pid, command in processes.daemons(files, names, UNITS))


def _described(files: Files, pid: int, own: Tuple[str, ...]) -> str:
    """Who a process is, empty for one of our own units."""
    try:
        holder = holders.describe(files, pid)
    except OSError:
        return ""
    return "" if holder.unit in own and not holder.container else holder.name
