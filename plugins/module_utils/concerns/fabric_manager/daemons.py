# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The two daemons: their units, the process that runs, its version, and which texts of its files it has read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, List, Mapping, Optional, Sequence, Tuple

from ..._core.errors import CannotLook
from ..._core.regex import regex
from ..._core.value import field, frozen
from ..._linux import systemd, unit_command
from ..._machine import processes

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host
    from ..._machine.processes import Process
    from ..._nvidia.holders import Holder
    from .notes import Notes

MODULE_VERSION = "/sys/module/nvidia/version"
LIBRARY = "libnvidia-ml.so"
LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")
VERSION = regex(r"\d+\.\d+(?:\.\d+)*")
VERSION_SECONDS = 10.0
CONFIG = "config"
# They keep GPUs or switches open for the node, and run nothing on them. A server of MPS does: it ends with the fabric.
IDLE_HOLDERS = frozenset(
    processes.comm(name)
    for name in (
        *("nv-fabricmanager", "nv-hostengine", "nvidia-imex", "nvidia-persistenced", "dcgm-exporter", "nvlsm"),
        *("nvsm", "nvsm-api-gateway", "nvsm-core", "nvsm-mqtt", "nvsm-notifier"),
    )
)
IDLE_UNITS = ("nvidia-fabricmanager*", "nvidia-dcgm*", "nvidia-imex*", "nvidia-persistenced*", "dcgm*", "nvsm*")
MPS = processes.comm("nvidia-cuda-mps-server")


@frozen
class Program:
    """A daemon as NVIDIA ships it. ``needs`` is what a result has in ``needs`` until it was started anew.

    ``words`` are the options that name its file, ``configs`` the places of it where none does. ``packages`` are how the
    names of its packages begin.
    """

    name: str
    title: str
    unit: str
    needs: str
    words: Tuple[str, ...]
    configs: Tuple[str, ...]
    packages: Tuple[str, ...]


FABRIC_MANAGER = Program(
    name="nv-fabricmanager",
    title="the Fabric Manager",
    unit="nvidia-fabricmanager.service",
    needs="restart_fabric_manager",
    words=("-c", "--config", "--fm-config-file"),
    configs=("/usr/share/nvidia/nvswitch/fabricmanager.cfg", "/etc/fabricmanager.cfg"),
    packages=("nvidia-fabricmanager", "nvlsm", "libnvsdm"),
)
IMEX = Program(
    name="nvidia-imex",
    title="IMEX",
    unit="nvidia-imex.service",
    needs="restart_imex",
    words=("-c", "--config"),
    configs=("/etc/nvidia-imex/config.cfg",),
    packages=("nvidia-imex",),
)


@frozen
class ConfigFile:
    """A file that a daemon reads when it starts. ``text`` is None where it is not there.

    ``read`` is the text that the running process has read, None where nobody knows it, and without a process ``text``.
    """

    path: str
    text: Optional[str]
    read: Optional[str]


@frozen
class Daemon:
    """``status`` is that of ``systemd.enabled``, ``process`` the one that its unit runs.

    ``outside`` names a process of the daemon that another runs, with its container. ``version`` is that of the program
    on disk, which is ``path``; both are empty where it is not there. ``files`` are by what they are for.
    """

    program: Program
    status: str
    process: Optional[Process] = None
    outside: str = ""
    path: str = ""
    version: str = ""
    files: Mapping[str, ConfigFile] = field(default_factory=dict)

    @property
    def unit(self) -> str:
        return self.program.unit

    @property
    def installed(self) -> bool:
        return self.status != systemd.NOT_FOUND

    @property
    def stale(self) -> Tuple[str, ...]:
        """The files that say something else than what the process has read."""
        return tuple(one.path for one in self.files.values() if one.read != one.text)


@frozen
class DriverVersions:
    """``loaded`` is the kernel module's version, ``installed`` the one that the next boot loads; empty for unknown."""

    loaded: str
    installed: str

    @property
    def at_boot(self) -> str:
        return self.installed or self.loaded


def driver_versions(files: Files) -> DriverVersions:
    loaded = (files.read_optional(MODULE_VERSION) or "").strip()
    for folder in LIBRARY_FOLDERS:
        # The library is a link to the file that has the version in its name; driver packages bring it with the module.
        target = os.path.basename(files.link(f"{folder}/{LIBRARY}.1"))
        if target.startswith(f"{LIBRARY}.") and VERSION.fullmatch(target[len(LIBRARY) + 1 :]):
            return DriverVersions(loaded, target[len(LIBRARY) + 1 :])
    return DriverVersions(loaded, "")


def clients(files: Files) -> Tuple[Holder, ...]:
    """Whose work on GPUs ends with the fabric."""
    from ..._kinds import workload

    opened = workload.holders_of_gpus(files)
    return tuple(holder for holder in opened if not holder.is_daemon(IDLE_HOLDERS, IDLE_UNITS))


def is_of_mps(holder: Holder) -> bool:
    """Whether it is a server of MPS, or its control daemon: of either the name begins with as many letters."""
    return holder.command == MPS


def how_to_end(holders: Sequence[Holder]) -> str:
    """What to do about servers of MPS, which stay after their last client; empty where there is none."""
    units = [holder.unit for holder in holders if is_of_mps(holder)]
    if not units:
        return ""
    named = ", ".join(dict.fromkeys(filter(None, units)))
    return f"a server of MPS stays after its last client: stop its control daemon{f' ({named})' if named else ''}"


def observe(host: Host, program: Program, status: str, notes: Notes, *, needed: bool, asked: bool) -> Daemon:
    """A daemon: where it is ``needed`` with its files, and where it is ``asked`` with its version, and whoever else
    runs one."""
    files = host.files
    process = None if status == systemd.NOT_FOUND and not needed else _of_unit(files, program)
    outside = _outside(files, program) if asked and process is None else ""
    if status == systemd.NOT_FOUND or not needed:
        return Daemon(program, status, process, outside)
    path = host.commands.find(program.name) or "" if asked else ""
    version = _version(host, path, notes) if path else ""
    config = config_file(files, program, process, _config_path(files, program, process), notes)
    return Daemon(program, status, process, outside, path, version, {CONFIG: config})


def config_file(files: Files, program: Program, process: Optional[Process], path: str, notes: Notes) -> ConfigFile:
    text = files.read_optional(path)
    if process is None:
        return ConfigFile(path, text, text)
    noted = notes.started.get(program.unit)
    if noted is not None and noted.process == process.identity and path in noted.texts:
        return ConfigFile(path, text, noted.texts[path])
    return ConfigFile(path, text, text if processes.began_after(files, process, path) else None)


def version_of(text: str) -> str:
    """``Fabric Manager version is : 570.158.01``, and IMEX alike."""
    match = VERSION.search(text)
    return match[0] if match else ""


def _of_unit(files: Files, program: Program) -> Optional[Process]:
    return processes.main_of_service(files, program.unit, (processes.comm(program.name),))


def _outside(files: Files, program: Program) -> str:
    from ..._nvidia import holders

    for pid, _name in processes.daemons(files, (processes.comm(program.name),), (program.unit,)):
        if processes.read(files, int(pid)) is not None:
            return holders.describe(files, int(pid)).name
    return ""


def _version(host: Host, path: str, notes: Notes) -> str:
    """What the program says of itself: packages have other numbers. A run notes it for as long as the file is this."""
    known = notes.versions.get(path)
    if known is not None and known[0] == host.files.version(path):
        return known[1]
    try:
        completed = host.commands.run([path, "--version"], timeout=VERSION_SECONDS)
    except OSError as error:
        raise CannotLook("find the version of {}", object=path, cause=error.strerror or str(error)) from error
    version = version_of(completed.output or completed.errors)
    if not version:
        said = (completed.errors or completed.output).strip().splitlines()
        cause = f"exit status {completed.status}: {said[-1] if said else 'no output'}"
        raise CannotLook("find the version of {}", object=path, cause=cause)
    return version


def _config_path(files: Files, program: Program, process: Optional[Process]) -> str:
    """The file that the process was told, or its unit, or the one that is there of the usual places."""
    words: List[str] = []
    if process is not None:
        words = processes.text_of(files, str(process.pid), "cmdline").split("\0")
    told = _told(words, program.words)
    if not told:
        told = _told([word for word, _place in unit_command.read(files, program.unit)], program.words)
    if told:
        return told
    return next((path for path in program.configs if files.exists(path)), program.configs[0])


def _told(words: Sequence[str], options: Sequence[str]) -> str:
    for word, following in zip(words, [*words[1:], ""]):
        name, equals, value = word.partition("=")
        if name in options and (value if equals else following).startswith("/"):
            return value if equals else following
    return ""
