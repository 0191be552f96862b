# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel's command line as it is: what was passed and what the kernel made of it, and what the next boot brings."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, Mapping, Optional, Sequence, Tuple

from ..._core.setting import Scalar
from ..._core.value import field, frozen, replace
from ..._linux import bootloader, iommu
from .grammar import decider_of, name_of, value_of

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host
    from ..._linux.bootloader import BootLoader
    from ..._linux.cpu_topology import CpuTopology
    from .spec import KernelCmdlineDeclaration

NAME = "kernel_cmdline"
RUNNING = "/proc/cmdline"
CPUS = "/sys/devices/system/cpu"
# COMMAND_LINE_SIZE, with the zero at its end; 2048 on x86, arm64 and all that are not here.
SIZES = {"s390x": 4096, "riscv64": 1024, "riscv": 1024}


@frozen
class Kdump:
    """What the crash kernel is started with: its ``own`` line, or that of the running kernel without ``removed``."""

    path: str
    own: str
    removed: Tuple[str, ...]
    appended: str


@frozen
class KernelCmdlineState:
    """What was seen. ``verdicts`` are what the kernel made of arguments, by name, None where it lacks the file."""

    names: Tuple[str, ...]
    running: str
    loader: BootLoader
    verdicts: Mapping[str, Optional[str]] = field(default_factory=dict)
    sources: Mapping[str, Tuple[str, int]] = field(default_factory=dict)
    topology: Optional[CpuTopology] = None
    limit: int = 0
    kdump: Optional[Kdump] = None

    @property
    def others(self) -> str:
        """The command line of the next boot without what is ours."""
        return bootloader.without(self.loader.command_line, self.loader.ours)

    def at_boot(self, name: str, wanted: Scalar = None) -> Scalar:
        return value_of(self.loader.command_line, name, wanted)


def read_state(host: Host, declaration: KernelCmdlineDeclaration) -> KernelCmdlineState:
    """Look at the machine. Its CPUs, and the files of others, are read only where something is to change."""
    files = host.files
    running = (files.read_optional(RUNNING) or "").strip()
    loader = bootloader.detect(host, NAME, running, variable=bootloader.NORMAL_ENTRIES)
    names = tuple(dict.fromkeys((*declaration.names, *map(name_of, loader.ours))))
    state = KernelCmdlineState(names, running, loader, _read_verdicts(files, names))
    wanted = declaration.arguments
    changing = {name for name, value in wanted.items() if state.at_boot(name, value) != value}
    foreign = {
        decider_of(state.others, name, value) or name
        for name, value in wanted.items()
        if value_of(state.others, name, value) not in (None, value)
    }
    topology: Optional[CpuTopology] = None
    if changing.intersection(declaration.lists):
        from ..._linux.cpu_topology import read_cpu_topology

        topology = read_cpu_topology(files)
    limit = 0
    if changing:
        limit = SIZES.get((files.read_optional("/proc/sys/kernel/arch") or "").strip(), 2048) - 1
    return replace(
        state,
        sources=bootloader.find_sources(files, loader, sorted(foreign)) if foreign else {},
        topology=topology,
        limit=limit,
        kdump=read_kdump(files) if "crashkernel=" in loader.command_line else None,
    )


def _read_verdicts(files: Files, names: Sequence[str]) -> Dict[str, Optional[str]]:
    found: Dict[str, Optional[str]] = {}
    for name, path in (("isolcpus", f"{CPUS}/isolated"), ("nohz_full", f"{CPUS}/nohz_full")):
        if name in names:
            text = files.read_optional(path)
            # Some kernels write "(null)" where there is none.
            found[name] = None if text is None else text.strip().replace("(null)", "")
    if "iommu" in names or "iommu.passthrough" in names:
        found["iommu"] = _read_iommu(files)
    return found


def _read_iommu(files: Files) -> Optional[str]:
    """The types of the groups of an IOMMU, None where there is none; ``identity`` as soon as one is passed through."""
    types: Dict[str, None] = {}
    for kind in iommu.types(files):
        if kind == iommu.IDENTITY:
            return kind
        types[kind] = None
    return ",".join(types) or None


# The file, the beginning of its variables, and what is taken out in any case: by kdump-config of kdump-tools, kdumpctl.
KDUMP = (
    ("/etc/default/kdump-tools", "KDUMP_CMDLINE", "crashkernel hugepages hugepagesz abm"),
    ("/etc/sysconfig/kdump", "KDUMP_COMMANDLINE", "crashkernel"),
)


def read_kdump(files: Files) -> Optional[Kdump]:
    """Where the line of the crash kernel is decided, and how; None without such a service."""
    for path, name, removed in KDUMP:
        text = files.read_optional(path)
        if text is not None:
            values = dict(re.findall(r"""^(\w+)=["']?([^"'\n]*)["']?\s*$""", text, re.MULTILINE))
            gone = f"{removed} {values.get(f'{name}_REMOVE', '')}".split()
            return Kdump(path, values.get(name, ""), tuple(gone), values.get(f"{name}_APPEND", ""))
    return None
