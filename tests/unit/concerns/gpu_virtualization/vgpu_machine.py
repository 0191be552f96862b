# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine whose first GPU can be divided: sriov-manage, the files of virtual functions, and what the driver offers.

Types and numbers have the form of those that NVIDIA's device plugin for KubeVirt shows of an H200. There are four
virtual functions, 80 GB of memory for their vGPUs, and types of one size only, as without heterogeneous mode.
"""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._linux import boot_service, systemd
from ansible_collections.gpufleet.node.plugins.module_utils._linux.program import EXEC_START
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_virtualization.vgpus import TOOL
from ansible_collections.gpufleet.node.tests.unit.concerns.gpu_virtualization.virtualization_machine import (
    FIRST,
    PCI,
    Machine,
)
from ansible_collections.gpufleet.node.tests.unit.support import KernelFiles

TYPES = {1020: ("H100-20C", 20), 1040: ("H100-40C", 40), 1080: ("H100-80C", 80)}
PARTS = tuple(f"0000:17:00.{number}" for number in range(4, 8))
MEMORY = 80
BOOT_SERVICE = {
    f"{systemd.ETC}/{boot_service.UNIT}": f"[Service]\nExecStart={EXEC_START} boot\n",
    f"{systemd.ETC}/multi-user.target.wants/{boot_service.UNIT}": "",
    boot_service.PROGRAM: "",
    boot_service.ARCHIVE: "",
}


class Offered:
    """``protocols.Nvml`` of a driver that is asked for the types only."""

    def __init__(self, types: Mapping[str, Mapping[int, str]]) -> None:
        self.types = types
        self.open = False

    def begin(self) -> None:
        self.open = True

    def ask(self, question: Any, *arguments: Any) -> Any:
        self.open = True
        return self.types

    def close(self) -> None:
        self.open = False


class VgpuMachine(Machine):
    """``persistent``: whether the persistence mode of the GPU is on."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, {f"{PCI}/{FIRST}/sriov_totalvfs": "4\n", TOOL: "", **BOOT_SERVICE})
        self.persistent = True
        self.offered = Offered({FIRST: {number: name for number, (name, _memory) in TYPES.items()}})
        self.host.nvml = self.offered
        self.host.files.rules.append((f"{PCI}/([^/]+)/nvidia/current_vgpu_type", self._make))
        self.host.commands.programs[os.path.basename(TOOL)] = self._sriov_manage
        smi = self.host.commands.programs["nvidia-smi"]

        def with_persistence(argv: Sequence[str]) -> Completed:
            if "--query-gpu=persistence_mode" in argv:
                return Completed(0, "Enabled\n" if self.persistent else "Disabled\n", "")
            if "-pm" in argv:
                self.persistent = argv[-1] == "1"
            return smi(argv)

        self.host.commands.programs["nvidia-smi"] = with_persistence

    @property
    def enabled(self) -> bool:
        return self.at(f"{PCI}/{FIRST}/virtfn0").is_symlink()

    def types(self) -> List[int]:
        """The number of the type of each virtual function."""
        return [int(self.at(f"{PCI}/{part}/nvidia/current_vgpu_type").read_text()) for part in PARTS if self.enabled]

    def switch(self, verb: str) -> None:
        """Enable the virtual functions, or disable them as a boot does, while nobody has the GPU open."""
        self.offered.close()
        self.persistent = False
        assert self._sriov_manage((TOOL, verb, FIRST)).status == 0

    def _sriov_manage(self, argv: Sequence[str]) -> Completed:
        assert not self.offered.open, "the process that asks the driver has the GPU open"
        if self._opened(FIRST) or self.persistent:
            return Completed(1, "", "GPU is in use\n")
        for number, part in enumerate(PARTS):
            link, folder = self.at(f"{PCI}/{FIRST}/virtfn{number}"), self.at(f"{PCI}/{part}")
            if argv[1] == "-d":
                link.unlink()
                shutil.rmtree(folder)
            else:
                link.symlink_to(f"../{part}")
                for name, text in {"vendor": "0x10de", "device": "0x2330", "class": "0x030200"}.items():
                    folder.mkdir(exist_ok=True)
                    (folder / name).write_text(f"{text}\n")
                (folder / "physfn").symlink_to(f"../{FIRST}")
                (folder / "iommu_group").symlink_to(f"../../../../kernel/iommu_groups/{30 + number}")
                (folder / "nvidia").mkdir()
                (folder / "nvidia/current_vgpu_type").write_text("0\n")
        if argv[1] == "-e":
            self._offer()
        return Completed(0, "", "")

    def _make(self, files: KernelFiles, match: Any, value: str) -> None:
        there = self.at(f"{PCI}/{match[1]}/nvidia/current_vgpu_type")
        creatable = self.at(f"{PCI}/{match[1]}/nvidia/creatable_vgpu_types").read_text()
        if value != "0" and f"{value} :" not in creatable:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), str(there))
        there.write_text(f"{value}\n")
        self._offer()

    def _offer(self) -> None:
        made = [number for number in self.types() if number]
        left = MEMORY - sum(TYPES[number][1] for number in made)
        lines: Dict[int, str] = {
            number: f"{number} : NVIDIA {name}\n"
            for number, (name, memory) in TYPES.items()
            if memory <= left and set(made) <= {number}
        }
        for part in PARTS:
            self.at(f"{PCI}/{part}/nvidia/creatable_vgpu_types").write_text("".join(lines.values()))
