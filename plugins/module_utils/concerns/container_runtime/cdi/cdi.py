# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""CDI: the specifications that container engines find devices in, and what is wrong with them.

An engine reads /etc/cdi and then /var/run/cdi. Of a device that both define the later folder has the last word, and one
that two files of the same folder define is resolved by none (``refresh`` of pkg/cdi/cache.go). A file in /etc/cdi that
nobody makes anew is the usual stale one: its devices that the generated one does not have are still found.
"""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any, Dict, FrozenSet, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from ...._core.record import MALFORMED, Damaged, damage_of
from ...._core.regex import regex
from ...._core.value import frozen
from ...._linux import systemd
from ...._text.json_text import TOO_DEEP, is_deep
from ...._text.yaml_subset import YamlError, parse
from ..entries import CDI
from ..model import SPEC_DIRS, Configuration, Document, Edit, Installation, SettingName, Settings, WithoutDaemon
from ..spec import CURRENT, REMOVE_DUPLICATES, REMOVE_HOOKS
from .oci_hooks import find_hooks

if TYPE_CHECKING:
    from ...._core.protocols import Files, Host
    from ..model import Kind, WantedEngine

STATIC, GENERATED = SPEC_DIRS
ENDINGS = (".json", ".yaml")
VENDOR = "nvidia.com/"

DUPLICATES, HOOKS = SettingName("duplicates"), SettingName("oci hooks")
MISSING, NONE = "missing", "none"

CTK = "nvidia-ctk"
UNIT = "nvidia-cdi-refresh.service"
DRIVER = "/sys/module/nvidia/version"
GPUS = "/proc/driver/nvidia/gpus"
CAPABILITIES = "/proc/driver/nvidia/capabilities"
# The two that are there with the driver, whatever the layout of MIG.
ALWAYS_THERE = (f"{CAPABILITIES}/mig/config", f"{CAPABILITIES}/mig/monitor")

LIBRARY = regex(r"/lib(?:cuda|nvidia-ml)\.so\.(\d+\.\d+(?:\.\d+)?)")
GPU_NODE = regex(r"/dev/nvidia(\d+)")
# As /proc/devices names them; all but that of the GPUs (195) get another number at each boot.
DRIVERS_OF_NODES = (
    ("/dev/nvidia-caps/", ("nvidia-caps",)),
    ("/dev/nvidia-caps-imex-channels/", ("nvidia-caps-imex-channels",)),
    ("/dev/nvidia-uvm", ("nvidia-uvm",)),
    ("/dev/nvidia-nvswitch", ("nvidia-nvswitch",)),
    ("/dev/nvidia-modeset", ("nvidia-modeset", "nvidia-frontend", "nvidia")),
    ("/dev/nvidiactl", ("nvidiactl", "nvidia-frontend", "nvidia")),
)
CAPABILITY_NODE = regex(r"/dev/nvidia-caps/nvidia-cap(\d+)")


@frozen
class Specification:
    """One file. ``error`` says why it cannot be read, and is empty otherwise.

    ``devices`` are the full names, such as ``nvidia.com/gpu=0``. ``paths`` are all paths that it names, and ``majors``
    the major numbers that it gives to device nodes, by path.
    """

    document: Document
    kind: str = ""
    devices: Tuple[str, ...] = ()
    paths: FrozenSet[str] = frozenset()
    error: str = ""
    majors: FrozenSet[Tuple[str, int]] = frozenset()

    @property
    def path(self) -> str:
        return self.document.path

    @property
    def of_gpus(self) -> bool:
        """Whether it describes the GPUs of this machine, by whatever name it was told to."""
        return any(GPU_NODE.fullmatch(path) for path in self.paths)

    @property
    def folder(self) -> str:
        return os.path.dirname(self.path)


@frozen
class Specifications:
    """All of them, in the order in which engines read them, and the hooks beside them."""

    files: Tuple[Specification, ...]
    hooks: Tuple[Document, ...] = ()

    @property
    def defined(self) -> Mapping[str, Tuple[Specification, ...]]:
        """Every device with the files that define it."""
        found: Dict[str, Tuple[Specification, ...]] = {}
        for one in self.files:
            for device in one.devices:
                found[device] = (*found.get(device, ()), one)
        return found

    @property
    def devices(self) -> Tuple[str, ...]:
        """The devices that an engine finds, sorted."""
        return tuple(sorted(device for device, files in self.defined.items() if not _in_one_folder(files)))

    @property
    def unresolvable(self) -> Tuple[str, ...]:
        """The devices that no engine finds, because two files of one folder define them."""
        return tuple(sorted(device for device, files in self.defined.items() if _in_one_folder(files)))

    @property
    def duplicates(self) -> Tuple[Specification, ...]:
        """The files of NVIDIA in /etc/cdi with a device that a generated one defines too."""
        found = {
            one.path: one
            for files in self.defined.values()
            for one in files
            if one.folder == STATIC and one.kind.startswith(VENDOR) and any(other.folder != STATIC for other in files)
        }
        return tuple(found[path] for path in sorted(found))


class Cdi(WithoutDaemon):
    """As ``model.Kind``, for the files of the specifications and the hooks. ``WantedEngine.options`` is the option.

    Engines look at the folders whenever a container asks for a device.
    """

    engine = CDI

    def find(self, host: Host) -> Optional[Installation]:
        return Installation(CDI, main=f"{GENERATED}/nvidia.yaml", program=host.commands.find(CTK) or "")

    def read(self, files: Files, installation: Installation) -> Configuration:
        seen = read_specifications(files)
        settings = {
            DUPLICATES: _listed(one.path for one in seen.duplicates),
            HOOKS: _listed(hook.path for hook in seen.hooks),
        }
        documents = (*(one.document for one in seen.files), *seen.hooks)
        return Configuration(installation, documents, settings, parsed=seen)

    def wanted(self, wanted: WantedEngine, configuration: Configuration) -> Settings:
        names = {REMOVE_DUPLICATES: DUPLICATES, REMOVE_HOOKS: HOOKS}
        return {setting: NONE for option, setting in names.items() if wanted.options.get(option)}

    def restore(self, configuration: Configuration, baseline: Settings) -> Tuple[Edit, ...]:
        """What shall not be there goes. A file of which only the name is known cannot come back."""
        seen: Specifications = configuration.parsed
        gone: List[Document] = []
        if baseline.get(DUPLICATES) == NONE:
            gone.extend(one.document for one in seen.duplicates)
        if baseline.get(HOOKS) == NONE:
            gone.extend(seen.hooks)
        return tuple(Edit(document.path, document.text, None) for document in gone)


def read_specifications(files: Files) -> Specifications:
    found: List[Specification] = []
    for folder in SPEC_DIRS:
        for name in files.names(folder):
            path = f"{folder}/{name}"
            try:
                text = files.read_optional(path) if name.endswith(ENDINGS) and not files.is_folder(path) else None
                found += [] if text is None else [read_specification(Document(path, text))]
            except OSError as error:
                found.append(Specification(Document(path, None), error=error.strerror or str(error)))
    return Specifications(tuple(found), tuple(find_hooks(files)))


def read_specification(document: Document) -> Specification:
    """A file as a value; one that we cannot read says so, for other engines may read more than we do."""
    text = document.text or ""
    try:
        said = json.loads(text) if document.path.endswith(".json") else parse(text)
        kind, devices = said["kind"], said["devices"]
        names = tuple(f"{kind}={device['name']}" for device in devices)
        if is_deep(text, said):
            raise Damaged(TOO_DEEP)
    except YamlError as error:
        return Specification(document, error=str(error))
    except json.JSONDecodeError as error:
        return Specification(document, error=f"line {error.lineno}, column {error.colno}: {error.msg}")
    except MALFORMED as error:
        return Specification(document, error=f"it is not a specification: {damage_of(error)}")
    return Specification(document, str(kind), names, frozenset(_paths(said)), majors=frozenset(_majors(said)))


def state_of(files: Files, seen: Specifications) -> str:
    """``current``, ``missing``, or why the specification of the GPUs has to be made anew; empty where nobody knows.

    Only what is certain: the release of the driver, and the device nodes of GPUs and MIG instances as the driver lists
    them in /proc. A whole GPU that is not in it may be one in MIG mode without an instance.
    """
    version = (files.read_optional(DRIVER) or "").strip()
    if not version:
        return ""
    mine = [one for one in seen.files if one.of_gpus]
    if not mine:
        # One that only we cannot read would be made anew again and again.
        return "" if any(one.error for one in seen.files) else MISSING
    # Of the same names the last file counts, so that is the one that is made anew.
    paths = mine[-1].paths
    releases = {match[1] for match in map(LIBRARY.search, paths) if match}
    if releases and version not in releases:
        return f"it is of driver {', '.join(sorted(releases))}, and {version} is loaded"
    for path, major in sorted(mine[-1].majors):
        current = _majors_now(files, path)
        if current and major not in current:
            return f"it gives {path} the major number {major}, but since this boot that is {min(current)}"
    there = _minors(files, tuple(f"{GPUS}/{address}/information" for address in files.names(GPUS)))
    named = _numbers(GPU_NODE, paths)
    if there and not named <= there:
        return f"it names /dev/nvidia{min(named - there)}, which does not exist"
    instances, capabilities = _instance_minors(files), _numbers(CAPABILITY_NODE, paths)
    gone = capabilities - instances - _minors(files, ALWAYS_THERE)
    if gone:
        return f"it names the MIG instance of /dev/nvidia-caps/nvidia-cap{min(gone)}, which does not exist"
    if not instances <= capabilities:
        new = min(instances - capabilities)
        return f"it does not name the MIG instance of /dev/nvidia-caps/nvidia-cap{new}"
    return CURRENT


def refresh_command(host: Host, seen: Specifications) -> Tuple[str, ...]:
    """What makes the specification anew; empty where the toolkit is not installed.

    The service of the toolkit (from 1.18 on) where it is there, for it also does so at boot. Otherwise the file that
    counts now, and where there is none, one that is still there after the next boot.
    """
    if systemd.enabled(host.files, UNIT) not in (systemd.NOT_FOUND, systemd.MASKED):
        return ("systemctl", "restart", UNIT)
    program = host.commands.find(CTK)
    if program is None:
        return ()
    mine = [one for one in seen.files if one.of_gpus]
    return (program, "cdi", "generate", f"--output={mine[-1].path if mine else f'{STATIC}/nvidia.yaml'}")


def _in_one_folder(files: Tuple[Specification, ...]) -> bool:
    folders = [one.folder for one in files]
    return len(folders) != len(set(folders))


def _listed(paths: Iterator[str]) -> str:
    return ", ".join(paths) or NONE


def _paths(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key in ("path", "hostPath") and isinstance(inner, str):
                yield inner
            else:
                yield from _paths(inner)
    elif isinstance(value, list):
        for item in value:
            yield from _paths(item)


def _majors(value: Any) -> Iterator[Tuple[str, int]]:
    if isinstance(value, dict):
        major = str(value.get("major", ""))
        if isinstance(value.get("path"), str) and major.isdecimal():
            yield value["path"], int(major)
        for inner in value.values():
            yield from _majors(inner)
    elif isinstance(value, list):
        for item in value:
            yield from _majors(item)


def _majors_now(files: Files, path: str) -> Set[int]:
    """The major numbers of the driver of a device node; empty where the kernel does not list it."""
    names: Sequence[str] = ("nvidia-frontend", "nvidia") if GPU_NODE.fullmatch(path) else ()
    for start, drivers in DRIVERS_OF_NODES:
        names = names or (drivers if path.startswith(start) else ())
    listed = (line.split() for line in (files.read_optional("/proc/devices") or "").partition("Block")[0].splitlines())
    return {int(words[0]) for words in listed if len(words) == 2 and words[1] in names and words[0].isdecimal()}


def _numbers(pattern: re.Pattern[str], paths: FrozenSet[str]) -> Set[int]:
    return {int(match[1]) for match in map(pattern.fullmatch, paths) if match}


def _instance_minors(files: Files) -> Set[int]:
    """The numbers of the nodes of all GPU instances and compute instances."""
    access: List[str] = []
    for gpu in files.names(CAPABILITIES):
        for instance in files.names(f"{CAPABILITIES}/{gpu}/mig"):
            below = f"{CAPABILITIES}/{gpu}/mig/{instance}"
            parts = [name for name in files.names(below) if name.startswith("ci")]
            # One without a compute instance is no device yet.
            if instance.startswith("gi") and parts:
                access += [f"{below}/access", *(f"{below}/{part}/access" for part in parts)]
    return _minors(files, tuple(access))


def _minors(files: Files, paths: Tuple[str, ...]) -> Set[int]:
    texts = (files.read_optional(path) or "" for path in paths)
    matches = (re.search(r"^Device(?:File)? ?Minor:\s*(\d+)", text, re.MULTILINE) for text in texts)
    return {int(match[1]) for match in matches if match}


KIND: Kind = Cdi()
