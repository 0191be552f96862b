# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``cufile.json`` as it is, whose libraries read it, who overrules it, and which programs run on with what it said."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Tuple

from ..._core.change import THEM, Conflict
from ..._core.value import field, frozen
from ..._linux import dropins, mounts, pam_env, shell_profiles, systemd
from ..._machine import processes
from ..._text.json_comments import parse_commented
from ..._text.json_marks import Marks
from . import schema
from .spec import NAME

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from ..._nvidia.gds import Ways
    from .spec import GdsDeclaration

PATH = "/etc/cufile.json"
MARKS = Marks(NAME)
LIBRARY = "libcufile.so"
FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
    "/usr/local/lib",
)
CUDA, TARGETS = "/usr/local", ("x86_64-linux", "sbsa-linux", "aarch64-linux")
# What counts more than the file, in the environment of a program, and the key that it is about; empty for all keys.
VARIABLES = {
    "CUFILE_ENV_PATH_JSON": "",
    "CUFILE_FORCE_COMPAT_MODE": schema.FORCE_COMPAT,
    "CUFILE_IO_PRIORITY": "properties.io_priority",
    "CUFILE_LOGFILE_MAX_SIZE_MB": "logging.max_file_size_mb",
    "CUFILE_LOGFILE_PATH": "logging.dir",
    "CUFILE_LOGGING_LEVEL": "logging.level",
    "CUFILE_MAX_DEVICE_CACHE_SIZE": "properties.max_device_cache_size_kb",
    "CUFILE_PER_BUFFER_CACHE_SIZE": schema.PER_BUFFER,
    "CUFILE_RDMA_DC_KEY": "properties.rdma_dc_key",
    "CUFILE_SKIP_TOPOLOGY_DETECTION": "miscellaneous.skip_topology_detection",
    "CUFILE_STATS_LEVEL": "profile.cufile_stats",
    "CUFILE_STREAM_MEMOPS_BYPASS": "miscellaneous.stream_memops_bypass",
    "CUFILE_USE_PCIP2PDMA": schema.P2PDMA,
}
SYSTEM_CONF = "/etc/systemd/system.conf"


@frozen
class Program:
    """A process that has loaded cuFile, and the file that its environment names."""

    pid: str
    name: str
    other_file: str = ""


@frozen
class GdsState:
    """What was seen.

    ``values`` are those of the file by their keys with dots, ``ours`` the keys of them that have a mark of ours.
    ``releases`` are the libraries of the machine by the release of cuFile. ``missing`` is what declared values name and
    this machine does not have. ``ways`` is read where something is declared that needs it. ``programs`` are those that
    were started before the file was written.
    """

    text: Optional[str] = None
    values: Mapping[str, Any] = field(default_factory=dict)
    ours: Tuple[str, ...] = ()
    releases: Mapping[int, str] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    ways: Optional[Ways] = None
    conflicts: Tuple[Conflict, ...] = ()
    programs: Tuple[Program, ...] = ()


def observe(files: Files, declaration: GdsDeclaration) -> GdsState:
    """Raises ``CannotLook`` for a file that cuFile could not read either."""
    text = files.read_optional(PATH)
    declared = declaration.values
    # What is broken is no concern of ours where nothing of it is.
    if text is None or not (declared or MARKS.any_in(text)):
        table: Dict[str, Any] = {}
    else:
        table = parse_commented(text, PATH)
    values = schema.flat(table)
    ours: List[str] = []
    for mark in MARKS.find(text or ""):
        name = ".".join(map(schema.part, mark.path))
        ours += [key for key in values if key == name or key.startswith(f"{name}.")] if name else []
    if not declared:
        return GdsState(text, values, tuple(ours))
    return GdsState(
        text,
        values,
        tuple(ours),
        releases=installed(files),
        missing=_missing(files, declared),
        ways=_ways(files, declared),
        conflicts=tuple(_overruling(files, declared)),
        programs=tuple(older(files, text)),
    )


def installed(files: Files) -> Dict[int, str]:
    """The libraries by release: their names end in it, and the name without it is a link."""
    found: Dict[int, str] = {}
    cuda = [name for name in files.names(CUDA) if name.startswith("cuda")]
    folders = [*FOLDERS, *(f"{CUDA}/{name}/targets/{target}/lib" for name in cuda for target in TARGETS)]
    for folder in folders:
        for name in files.names(folder):
            match = re.fullmatch(rf"{LIBRARY}\.1\.(\d+)(?:\.\d+)*", name) if name.startswith(LIBRARY) else None
            if match:
                found.setdefault(int(match[1]), f"{folder}/{name}")
    return dict(sorted(found.items()))


def _missing(files: Files, declared: Mapping[str, Any]) -> Dict[str, str]:
    """What values name and is not there, by key."""
    mounted: Optional[Tuple[str, ...]] = None
    found: Dict[str, str] = {}
    for name, value in declared.items():
        for path, kind in schema.named(name, value):
            if kind != schema.DEVICE and mounted is None:
                mounted = tuple(mount.path for mount in mounts.read(files))
            # A mount whose server is away would hang whoever looks at it.
            if kind != schema.DEVICE and path in (mounted or ()):
                continue
            there = files.is_folder(path) if kind == schema.FOLDER else files.exists(path)
            if not path.startswith("/") or not there:
                found.setdefault(name, path)
    return found


def _ways(files: Files, declared: Mapping[str, Any]) -> Optional[Ways]:
    if declared.get(schema.ALLOW_COMPAT) is False or any(wants_p2pdma(*one) for one in declared.items()):
        from ..._nvidia.gds import read_ways

        return read_ways(files)
    return None


def wants_p2pdma(name: str, value: Any) -> bool:
    return value is True and name.rpartition(".")[2] == "use_pci_p2pdma"


def _overruling(files: Files, declared: Mapping[str, Any]) -> Iterator[Conflict]:
    """Variables that all sessions or services have and that count more than the file."""
    found: List[Tuple[str, str, Optional[int], str, str]] = []
    lines = files.read_optional(pam_env.PATH) or ""
    if "CUFILE_" in lines:
        last = {name: (number, value) for number, name, value in pam_env.parse(lines)}
        found += [("environment", pam_env.PATH, number, name, value) for name, (number, value) in last.items()]
    for path, number, name, value in shell_profiles.assignments(files, VARIABLES):
        found.append(("profile", path, number, name, value))
    for path in (SYSTEM_CONF, *dropins.walk_kind(files, "systemd/system.conf.d", ".conf")):
        lines = files.read_optional(path) or ""
        for key, value in systemd.assignments(lines) if "CUFILE_" in lines else ():
            for name, given in re.findall(r'(CUFILE_[A-Z0-9_]+)=([^"\s]*)', value):
                if key == "Manager.DefaultEnvironment":
                    found.append(("systemd", path, None, name, given))
    for owner, path, at, name, value in found:
        about = VARIABLES.get(name)
        if about == "" and value != PATH:
            yield Conflict(owner, path, at, PATH, f"all keys, by {name}", value, THEM)
        elif about and about in declared and not _says(value, declared[about]):
            yield Conflict(owner, path, at, PATH, about, value, THEM)


def _says(text: str, value: Any) -> bool:
    """Whether a variable has the declared value. Booleans are compared case-insensitively, numbers as text."""
    return text == value if isinstance(value, str) else text.lower() == str(value).lower()


def older(files: Files, text: Optional[str]) -> Iterator[Program]:
    """The programs with cuFile that were started before the file was written. After a boot there is nobody to ask."""
    written, booted = files.modified(PATH), processes.booted(files) or 0
    if text is None or written <= booted:
        return
    for pid in processes.ids(files):
        process = processes.read(files, int(pid))
        # As processes.started, which would read /proc/stat for each.
        began = booted + process.since_boot if process else written
        if began + processes.SLACK < written and LIBRARY in processes.text_of(files, pid, "maps"):
            yield program(files, pid)


def program(files: Files, pid: str) -> Program:
    environment = processes.text_of(files, pid, "environ").split("\0")
    named = next((one.partition("=")[2] for one in environment if one.startswith("CUFILE_ENV_PATH_JSON=")), "")
    return Program(pid, processes.name_of(files, pid), "" if named == PATH else named)
