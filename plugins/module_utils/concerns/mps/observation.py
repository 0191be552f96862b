# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The daemons on this machine: what they and their running servers report, and what their files say."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, List, Mapping, Sequence, Tuple

from ..._core.errors import GpuFleetError
from ..._core.record import MALFORMED, listed
from ..._core.value import replace
from ..._kinds import units
from ..._linux import systemd
from ..._machine import processes
from ..._nvidia import gpus
from . import control, owners
from . import files as mps_files
from .owners import environment
from .spec import memory_of, percent
from .state import UNIT_FILE, Daemon, Server

if TYPE_CHECKING:
    from ..._core import match
    from ..._core.protocols import Files, Host
    from .driver import MpsGpu
    from .state import MpsState

PID_FILE = "nvidia-cuda-mps-control.pid"
SETTINGS, COMPUTE_MODE = "gpu_settings", "compute_mode"


def with_daemons(host: Host, state: MpsState) -> MpsState:
    """The state with the daemons that are there or wanted, and with those of others where some are wanted."""
    won = [gpu for gpu, winner in zip(state.gpus, state.winners) if winner is not None]
    whole = [gpu.identity.uuid for gpu in won if not gpu.mig]
    divided = {device.uuid: mps_files.unit_of(device.key(gpu)) for gpu in won for device in gpu.devices}
    names = (*mps_files.known(host.files), *([mps_files.UNIT] if whole else []), *divided.values())
    daemons = {name: _daemon(host, name) for name in dict.fromkeys(names)}
    ours = [mps_files.pipes_of(mps_files.key_of(name)) for name, one in daemons.items() if one.runs]
    conflicts = owners.find(host.files, ours, (*whole, *divided)) if won else ()
    return replace(state, daemons=daemons, conflicts=conflicts)


def declared_modes(files: Files, found: Sequence[MpsGpu]) -> Mapping[str, str]:
    """The compute modes that ``gpu_settings`` declares on this node, by UUID. What is wrong there is its own matter."""
    from ..._core.declared import of_another

    try:
        items = listed(of_another(files, SETTINGS).get("gpus", []))
        entries: Sequence[match.MatchEntry] = gpus.parse("gpus", items)
        winners = gpus.select([replace(entry, optional=True) for entry in entries], [gpu.identity for gpu in found])
    except (GpuFleetError, *MALFORMED):
        return {}
    modes = [None if winner is None else items[winner].get(COMPUTE_MODE) for winner in winners]
    return {gpu.identity.uuid: str(mode) for gpu, mode in zip(found, modes) if mode is not None}


def process_of(files: Files, unit: str) -> str:
    """The number of the control daemon of a unit, empty where none runs."""
    found = [*processes.of_service(files, unit)]
    # In a container systemd has its units elsewhere. A daemon from R550 on leaves its number with its pipes, where
    # users may write as well: what is no number would lead to files of theirs.
    pipes = mps_files.pipes_of(mps_files.key_of(unit))
    for pid in filter(str.isdigit, (files.read_optional(f"{pipes}/{PID_FILE}") or "").split()):
        found += [pid] if f"/{unit}" in processes.text_of(files, pid, "cgroup") else []
    return next((pid for pid in found if os.path.basename(_command(files, pid)[0]) == control.PROGRAM), "")


def clients_of(host: Host, unit: str) -> Tuple[int, ...]:
    """The numbers of the clients of a daemon at this moment; none where none runs."""
    if not process_of(host.files, unit):
        return ()
    pipes = mps_files.pipes_of(mps_files.key_of(unit))
    servers = control.ask(host, pipes, ("get_server_list",))
    if servers is None:
        return tuple(client.pid for server in _silent_servers(host.files, unit) for client in server.clients)
    if not servers[0]:
        return ()
    lists = control.ask(host, pipes, [f"get_client_list {pid}" for pid in servers[0].split()])
    return tuple(int(word) for text in lists or () for word in text.split() if word.isdecimal())


def _daemon(host: Host, unit: str) -> Daemon:
    files, path = host.files, mps_files.path_of(unit)
    text = files.read_optional(path)
    others = {other: files.read_optional(other) or "" for other in systemd.drop_ins(files, unit)}
    found = Daemon(
        unit=unit,
        file=units.unit_file(host, unit, path, UNIT_FILE, text),
        status=systemd.enabled(files, unit),
        boot=None if text is None else mps_files.merged((text, *others.values())),
        others=others,
        effective=None,
    )
    pid = process_of(files, unit)
    if not pid:
        return found
    pipes = mps_files.pipes_of(mps_files.key_of(unit))
    given = mps_files.values_of(environment(files, pid), " ".join(_command(files, pid)))
    devices = tuple(dict.fromkeys((*given.devices, *(found.boot.limits if found.boot else ()))))
    questions = [f"get_default_device_pinned_mem_limit {uuid}" for uuid in devices]
    answers = control.ask(host, pipes, ("get_default_active_thread_percentage", "get_server_list", *questions))
    if answers is None:
        return replace(found, fault=f"no daemon listens in {pipes}", servers=_silent_servers(files, unit))
    known = {uuid: memory_of(answer) for uuid, answer in zip(devices, answers[2:])}
    # A daemon that does not tell the limit of a UUID still hands its environment on to its servers.
    limits = {**given.limits, **{uuid: mib for uuid, mib in known.items() if mib is not None}}
    effective = replace(given, percentage=_percentage(answers[0]), limits=limits)
    servers = _servers(host, pipes, answers[1].split(), devices) if answers[1] else ()
    return replace(found, effective=effective, servers=servers)


def _silent_servers(files: Files, unit: str) -> Tuple[Server, ...]:
    """The servers of a daemon that tells nothing. Whoever has a GPU open may be a client of theirs."""
    pids = [pid for pid in processes.of_service(files, unit) if _is_server(files, pid)]
    if not pids:
        return ()
    from ..._kinds import workload
    from .clients import describe

    clients = tuple(describe(files, holder.pid) for holder in workload.on_gpus(files))
    return tuple(Server(int(pid), "", {}, clients) for pid in pids)


def _is_server(files: Files, pid: str) -> bool:
    return processes.name_of(files, pid) == processes.comm(control.SERVER_PROGRAM)


def _servers(host: Host, pipes: str, pids: Sequence[str], devices: Sequence[str]) -> Tuple[Server, ...]:
    from .clients import describe

    pids = [pid for pid in pids if pid.isdecimal()]
    questions: List[str] = []
    for pid in pids:
        questions += [f"get_client_list {pid}", f"get_active_thread_percentage {pid}"]
        questions += [f"get_device_pinned_mem_limit {pid} {uuid}" for uuid in devices]
    answers = control.ask(host, pipes, questions)
    if answers is None:
        return ()
    found = []
    each = 2 + len(devices)
    for index, pid in enumerate(pids):
        clients, percentage, *limits = answers[index * each : (index + 1) * each]
        # One that ended meanwhile is "not found".
        if "not found" in percentage:
            continue
        given = mps_files.values_of(environment(host.files, pid), "").limits
        found.append(
            Server(
                pid=int(pid),
                percentage=_percentage(percentage),
                limits={uuid: memory_of(text) or given.get(uuid) for uuid, text in zip(devices, limits)},
                clients=tuple(describe(host.files, int(word)) for word in clients.split() if word.isdecimal()),
            )
        )
    return tuple(found)


def _percentage(answer: str) -> str:
    try:
        return percent(answer)
    except ValueError:
        return ""


def _command(files: Files, pid: str) -> List[str]:
    return processes.text_of(files, pid, "cmdline").split("\0") if pid else [""]
