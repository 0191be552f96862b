# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules of the kernel as they are, as the next boot will have them, and as declared."""

from __future__ import annotations

import re
from functools import cached_property
from typing import TYPE_CHECKING, Dict, Mapping, Optional, Sequence, Tuple

from ..._core.change import Unmanaged
from ..._core.value import field, frozen
from ..._kinds.own_files import OwnFile
from ..._linux.kernel_modules import Installed, normal
from ..._linux.modprobe import BLACKLIST, LOAD, ModprobeLine, ModprobeLines, install_of, lines_of, stop_of

if TYPE_CHECKING:
    from ..._linux.module_options import OptionLine

LOAD_FILE = "/etc/modules-load.d/gpufleet-kernel_modules.conf"
BLOCK_FILE = "/etc/modprobe.d/gpufleet-kernel_modules.conf"
# Apart from the block list: of install commands the first counts, of options the last.
OPTIONS_FILE = "/etc/modprobe.d/zz-gpufleet-kernel_modules.conf"
# It is there from before one of the two changes until the initramfs was built anew, which has copies of them.
OUTDATED = "/var/lib/gpufleet/kernel_modules.initramfs"
# What was listed in the images after that (initramfs.py). It may be lost, and the images are listed again.
INITRAMFS_NOTE = "/var/lib/gpufleet/kernel_modules.images.json"
POSSIBLE_CPUS = "/sys/devices/system/cpu/possible"
STATE = "state"
PARAMETER = "parameter "
LOADED = "loaded"
NOT_LOADED = "not loaded"
BLOCKED = "blocked"
ANOTHER = "another"
INITRAMFS = "initramfs"
MODPROBE_COPY = "copy of modprobe.d"
BLACKLISTED = "blacklisted"
ON_DEMAND = "on demand"
NVIDIA = ("nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_peermem", "nvidia_uvm")


Key = Tuple[str, str]
"""A module and a parameter of it."""


def setting_of(parameter: str) -> str:
    return f"{PARAMETER}{parameter}"


@frozen
class Module:
    """A line of /proc/modules. ``references`` counts also ``users``, the modules that use it; None: it has to stay."""

    references: Optional[int]
    users: Tuple[str, ...]


@frozen
class ParametersState:
    """What was seen of the parameters ``keys``. ``shown`` is what loaded modules show of them, None where they do not.

    ``lines`` is what files say, ours too, and ``coming`` what the command line of the next boot says. ``types`` are the
    parameters of modules that get new values, and ``possible_cpus`` how many CPUs there can be; else they are empty.
    """

    keys: Tuple[Key, ...]
    shown: Mapping[Key, Optional[str]]
    lines: Tuple[OptionLine, ...]
    coming: Tuple[OptionLine, ...]
    types: Mapping[str, Mapping[str, str]]
    possible_cpus: int


@frozen
class InitramfsState:
    """The known state of the initramfs images. ``lister`` is the program that lists one.

    ``early`` are the modules that the command line blacklists there. ``faults`` are the images that have a module
    without our file, by the declared name of the module. ``unread`` is an image of which nothing is known.
    """

    lister: str
    early: Tuple[str, ...]
    faults: Mapping[str, str] = field(default_factory=dict)
    unread: str = ""


@frozen
class KernelModulesState:
    """What was seen. ``names`` are the modules it is about, ``lines`` what files say of modules, ours too.

    ``running`` and ``coming`` is what the command lines of this boot and of the next say. ``rebuild`` is the command
    that builds the initramfs, ``outdated`` whether that is still to be done, and ``noted`` whether there is a note of
    what the images have.
    """

    names: Tuple[str, ...]
    installed: Installed
    loaded: Mapping[str, Module]
    lines: Tuple[ModprobeLine, ...]
    running: Tuple[ModprobeLine, ...]
    coming: Tuple[ModprobeLine, ...]
    load_file: OwnFile
    block_file: OwnFile
    options_file: OwnFile
    rebuild: Tuple[str, ...]
    outdated: bool
    noted: bool = False
    parameters: Optional[ParametersState] = None
    initramfs: Optional[InitramfsState] = None

    def effective(self, name: str) -> str:
        return LOADED if name in self.loaded or self.installed.has_built_in(name) else NOT_LOADED

    @cached_property
    def at_boot(self) -> ModprobeLines:
        return ModprobeLines((*self.lines, *self.coming))

    def boot(self, name: str, after: Optional[ModprobeLines] = None) -> str:
        """What the next boot brings, by these lines in place of those that are there."""
        if self.installed.has_built_in(name):
            return LOADED
        every = after or self.at_boot
        if stop_of(name, every):
            return BLOCKED
        if lines_of(BLACKLIST, name, every):
            return BLACKLISTED
        asked = lines_of(LOAD, name, every) and not stop_of(name, every, self.needs(name))
        return LOADED if asked else ON_DEMAND

    @property
    def faults(self) -> Mapping[str, str]:
        """The images that have a module without our file, by module."""
        return self.initramfs.faults if self.initramfs is not None else {}

    @property
    def unread(self) -> str:
        """An image of which it is not known whether it has these files; empty for no such image."""
        return self.initramfs.unread if self.initramfs is not None else ""

    def next_boot(self, name: str) -> str:
        """The state after the next boot, by all files and the initramfs, which loads what a device asks for."""
        return ON_DEMAND if name in self.faults else self.boot(name)

    @property
    def modprobe_copy(self) -> str:
        """The contents of the images in place of copies of these files."""
        if self.faults:
            return f"missing: {', '.join(f'for {name} in {path}' for name, path in self.faults.items())}"
        return (
            ANOTHER
            if self.outdated or not self.unread
            else f"unknown: {self.unread} was built since its files were listed"
        )

    def needs(self, name: str) -> Tuple[str, ...]:
        return self.installed.dependencies(name) or ()

    def has(self, name: str) -> bool:
        """Whether this kernel can have it. Debian's NVIDIA driver has other names, which its install commands say."""
        on_disk = self.effective(name) == LOADED or self.installed.dependencies(name) is not None
        return on_disk or bool(self.real_names(name))

    def real_names(self, name: str) -> Tuple[str, ...]:
        """The modules on disk that its install command loads in its place."""
        command = install_of(name, self.at_boot)
        real = re.findall(r"(?:-i|--ignore-install)\s+([\w-]+)", command.text) if command else []
        found = (normal(other) for other in real)
        return tuple(other for other in found if other != name and self.installed.dependencies(other) is not None)

    @cached_property
    def declared_names(self) -> Mapping[str, str]:
        """The modules whose parameters are declared, by the names that their install commands load."""
        names: Dict[str, str] = {}
        for module, _parameter in self.parameters.keys if self.parameters is not None else ():
            names.update(dict.fromkeys(self.real_names(module), module))
        return names

    def name_of(self, line: OptionLine) -> str:
        """The module of a line by the name by which it is declared."""
        return self.declared_names.get(line.module, line.module)

    def winners(self, lines: Optional[Sequence[OptionLine]] = None) -> Mapping[Key, OptionLine]:
        """The line that decides about each parameter at the next load, of these lines of files or those there are."""
        if self.parameters is None:
            return {}
        of_files = self.parameters.lines if lines is None else lines
        every = [line for line in of_files if not self.installed.has_built_in(line.module)]
        return {(self.name_of(line), line.parameter): line for line in (*every, *self.parameters.coming)}


@frozen
class KernelModulesDesired:
    """What shall be loaded and what not, and the values of parameters. None for a text means: no such file."""

    load: Tuple[str, ...]
    block: Tuple[str, ...]
    load_text: Optional[str] = None
    block_text: Optional[str] = None
    options_text: Optional[str] = None
    parameters: Mapping[Key, Optional[str]] = field(default_factory=dict)
    unmanaged: Tuple[Unmanaged, ...] = ()


def why_lacking(name: str, state: KernelModulesState) -> str:
    installed = state.installed
    if name in NVIDIA and not state.has("nvidia"):
        return f"the NVIDIA driver is not installed for this kernel ({installed.release})"
    if not installed.depends:
        return f"there is no /lib/modules/{installed.release}/modules.dep"
    return f"this kernel ({installed.release}) has no such module"
