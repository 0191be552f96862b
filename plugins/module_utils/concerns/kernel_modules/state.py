# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Modules of the kernel as they are, as the next boot will have them, and as declared."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Mapping, Optional, Tuple

from ..._core.change import Unmanaged
from ..._core.value import frozen
from ..._kinds.own_files import OwnFile
from ..._linux.kernel_modules import Installed
from ..._linux.modprobe import BLACKLIST, LOAD, ModprobeLine, ModprobeLines, install_of, lines_of, stop_of

LOAD_FILE = "/etc/modules-load.d/gpufleet-kernel_modules.conf"
BLOCK_FILE = "/etc/modprobe.d/gpufleet-kernel_modules.conf"
# It is there from before the block list changes until the initramfs was built anew.
OUTDATED = "/var/lib/gpufleet/kernel_modules.initramfs"
STATE = "state"
LOADED = "loaded"
NOT_LOADED = "not loaded"
BLOCKED = "blocked"
ANOTHER = "another"
INITRAMFS = "initramfs"
BLACKLISTED = "blacklisted"
ON_DEMAND = "on demand"
NVIDIA = ("nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_peermem", "nvidia_uvm")


@frozen
class Module:
    """A line of /proc/modules. ``references`` counts also ``users``, the modules that use it; None: it has to stay."""

    references: Optional[int]
    users: Tuple[str, ...]


@frozen
class KernelModulesState:
    """What was seen. ``names`` are the modules it is about, ``lines`` what files say of modules, ours too.

    ``running`` and ``coming`` is what the command lines of this boot and of the next say. ``rebuild`` is the command
    that builds the initramfs anew, ``outdated`` whether that is still to be done.
    """

    names: Tuple[str, ...]
    installed: Installed
    loaded: Mapping[str, Module]
    lines: Tuple[ModprobeLine, ...]
    running: Tuple[ModprobeLine, ...]
    coming: Tuple[ModprobeLine, ...]
    load_file: OwnFile
    block_file: OwnFile
    rebuild: Tuple[str, ...]
    outdated: bool

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

    def needs(self, name: str) -> Tuple[str, ...]:
        return self.installed.dependencies(name) or ()

    def has(self, name: str) -> bool:
        """Whether this kernel can have it. Debian's NVIDIA driver has other names, which its install commands say."""
        if self.effective(name) == LOADED or self.installed.dependencies(name) is not None:
            return True
        command = install_of(name, self.at_boot)
        real = re.findall(r"(?:-i|--ignore-install)\s+([\w-]+)", command.text) if command else []
        return any(self.installed.dependencies(other) is not None for other in real)


@frozen
class KernelModulesDesired:
    """What shall be loaded and what not. None for a text means: no such file."""

    load: Tuple[str, ...]
    block: Tuple[str, ...]
    load_text: Optional[str] = None
    block_text: Optional[str] = None
    unmanaged: Tuple[Unmanaged, ...] = ()


def why_lacking(name: str, state: KernelModulesState) -> str:
    installed = state.installed
    if name in NVIDIA and not state.has("nvidia"):
        return f"the NVIDIA driver is not installed for this kernel ({installed.release})"
    if not installed.depends:
        return f"there is no /lib/modules/{installed.release}/modules.dep"
    return f"this kernel ({installed.release}) has no such module"
