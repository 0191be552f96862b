# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A compute node of Slurm: its files, its daemons, what slurmctld says of it, and the GPUs of the driver."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core.record import read_note, texts_of
from ..._core.value import replace
from ..._linux import systemd, unit_command
from ..._machine import processes
from ..._nvidia import gpus, holders, readings
from ..._nvidia.capabilities import capability_devices
from ..._text.slurm_conf import plugin_folders, value_of
from . import cores, driver
from .gres_conf import BLOCK
from .spec import NVML
from .state import FAILED, NOTE, SLURMCTLD, SLURMD, Daemons, ReadFile, SlurmState

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from ..._core.protocols import Files, Host
    from ..._machine.slurm_answers import SlurmNode
    from .spec import SlurmDeclaration

HOST_NAME = "/proc/sys/kernel/hostname"
CONF_SERVER = "--conf-server"
# Where a slurmd has the files that it got from the controller.
FETCHED = "/run/slurm/conf/slurm.conf"
NVML_PLUGIN = "gpu_nvml.so"
STAND_IN = "fake_gpus.conf"
NO_FILE = "it is not there, and slurmd would wait for it and then end"
NO_DEVICE = "it is not a device file, and Slurm would count it without guarding it"


def observe(host: Host, declaration: SlurmDeclaration, scope: Scope) -> SlurmState:
    files, folder = host.files, declaration.folder
    restoring = scope.restoring
    daemons = _daemons(host)
    node = declaration.node or (files.read_optional(HOST_NAME) or "").strip().partition(".")[0]
    texts = _noted(files, daemons)
    gres, cgroup = (_read_file(files, f"{folder}/{name}", daemons, texts) for name in ("gres.conf", "cgroup.conf"))
    BLOCK.check(gres.path, gres.text)
    state = SlurmState(folder, node, daemons, gres, cgroup)
    state = replace(state, slurm=files.read_optional(state.slurm_path))
    state = replace(state, foreign=_foreign(files, state))
    if not restoring and daemons.installed:
        host.nvml.begin()
    # Without a slurmd slurmctld has what it had of the last one, whatever slurm.conf says.
    if (daemons.slurmd is not None or daemons.failed) and scope.immediate and not state.foreign:
        state = replace(state, live=_live(host, state))
    if restoring or not daemons.installed:
        return state
    found, unserved, _why = readings.ask(host, driver.read, entries=declaration.entries, restoring=False)
    return _with_gpus(files, replace(state, gpus=found, unserved=unserved), declaration)


def _with_gpus(files: Files, state: SlurmState, declaration: SlurmDeclaration) -> SlurmState:
    winners = gpus.select(declaration.entries, [gpu.identity for gpu in state.gpus])
    state = replace(state, winners=winners, stand_in=files.exists(f"{state.folder}/{STAND_IN}"))
    present = [gpu for gpu in state.gpus if not gpu.identity.lost]
    if declaration.devices == NVML:
        folders = plugin_folders(value_of(state.slurm or "", "PluginDir"))
        return replace(state, has_nvml=any(files.exists(f"{one}/{NVML_PLUGIN}") for one in folders))
    capabilities: Dict[Tuple[str, int, int], Tuple[str, ...]] = {}
    devices: List[str] = []
    for gpu in present:
        if gpu.minor is None:
            continue
        devices.append(f"{holders.NVIDIA_DEVICES}{gpu.minor}")
        for one in gpu.instances:
            paths = tuple(capability_devices(files, gpu.minor, one.instance, (one.compute,)))
            capabilities[(gpu.identity.pci_address, one.instance, one.compute)] = paths
            devices += paths
    state = replace(state, capabilities=capabilities, faults=_faults(files, devices))
    if declaration.cores:
        near = {gpu.identity.pci_address: cores.near(files, gpu.identity.pci_address) for gpu in present}
        kind = cores.kind_of(value_of(state.slurm or "", "SlurmdParameters") or "")
        state = replace(state, near=near, sockets=cores.read_sockets(files, kind))
    return state


def _faults(files: Files, devices: Sequence[str]) -> Mapping[str, str]:
    found = {}
    for path in dict.fromkeys(devices):
        status = files.status(path)
        if status is None:
            found[path] = NO_FILE
        elif not stat.S_ISCHR(status.st_mode):
            found[path] = NO_DEVICE
    return found


def _daemons(host: Host) -> Daemons:
    files = host.files
    if systemd.enabled(files, SLURMD) == systemd.NOT_FOUND:
        return Daemons(installed=False)
    words = tuple(word for word, _place in unit_command.read(files, SLURMD))
    if not systemd.running(files):
        return Daemons(installed=True, words=words)
    pids: Dict[str, int] = {}
    states: Dict[str, str] = {}
    for block in systemd.show(host, ("Id", "MainPID", "ActiveState"), (SLURMD, SLURMCTLD)):
        unit = "".join(block.get("Id", []))
        pids[unit] = int("".join(block.get("MainPID", [])) or 0)
        states[unit] = "".join(block.get("ActiveState", []))
    pid = pids.get(SLURMD, 0)
    process = processes.read(files, pid) if pid else None
    if process is not None:
        words = tuple(processes.text_of(files, str(pid), "cmdline").split("\0"))
    return Daemons(
        installed=True,
        slurmd=process,
        failed=process is None and states.get(SLURMD) == FAILED,
        words=words,
        controller=pids.get(SLURMCTLD, 0) > 0,
    )


def _foreign(files: Files, state: SlurmState) -> str:
    if not state.daemons.installed:
        return f"there is no {SLURMD}, so this is no compute node of Slurm"
    if any(word.startswith(CONF_SERVER) for word in state.daemons.words):
        return f"slurmd has its configuration from the controller ({CONF_SERVER}), and reads no file here"
    if state.slurm is None:
        if files.exists(FETCHED):
            return f"slurmd has its configuration from the controller, in {FETCHED}, and reads no file here"
        return f"there is no {state.slurm_path}, so Slurm is not configured here"
    return ""


def _noted(files: Files, daemons: Daemons) -> Mapping[str, Optional[str]]:
    """What a run noted of the running slurmd: times of files and processes are too coarse to tell."""
    noted = read_note(files, NOTE, lambda document: (str(document["process"]), texts_of(document["texts"])))
    if noted is None or daemons.slurmd is None or noted[0] != daemons.slurmd.identity:
        return {}
    return noted[1]


def _read_file(files: Files, path: str, daemons: Daemons, texts: Mapping[str, Optional[str]]) -> ReadFile:
    text = files.read_optional(path)
    if path in texts:
        return ReadFile(path, text, texts[path])
    if daemons.slurmd is None or processes.began_after(files, daemons.slurmd, path):
        return ReadFile(path, text, text)
    return ReadFile(path, text, None, known=False)


def _live(host: Host, state: SlurmState) -> SlurmNode:
    """Raises ``GpuFleetError`` where slurmctld does not answer, or does not know the node."""
    from ..._machine.slurmctld import Controller

    return Controller(host.commands).node(state.node)
