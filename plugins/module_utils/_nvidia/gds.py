# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What GPUDirect Storage needs of a node: the module nvidia_fs, or P2PDMA of the kernel, and what they lack."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Iterator, Tuple

from .._core.value import frozen

if TYPE_CHECKING:
    from .._core.protocols import Files

DRIVER = "/proc/driver/nvidia/version"
DRIVER_PARAMETERS = "/proc/driver/nvidia/params"
NVIDIA_FS = "/proc/driver/nvidia-fs"
NVIDIA_FS_VERSION = "/sys/module/nvidia_fs/version"
MULTIPATH = "/sys/module/nvme_core/parameters/multipath"
KERNEL = "/proc/sys/kernel/osrelease"
OPTION = "CONFIG_PCI_P2PDMA"
# The first kernel whose P2PDMA the driver finds, and the first driver with P2PDMA that NVIDIA's documents agree on.
FIRST_KERNEL, FIRST_DRIVER = (6, 2), 570
STATIC_BAR = "RMForceStaticBar1=1"


@frozen
class Ways:
    """How cuFile can read into the memory of a GPU here: the release of nvidia_fs, empty where it is not loaded, and
    what P2PDMA lacks."""

    nvidia_fs: str
    p2pdma_lacks: Tuple[str, ...]


def read_ways(files: Files) -> Ways:
    version = ""
    if files.exists(NVIDIA_FS):
        version = (files.read_optional(NVIDIA_FS_VERSION) or "").strip() or "unknown"
    return Ways(version, tuple(_lacking(files)))


def _lacking(files: Files) -> Iterator[str]:
    kernel = (files.read_optional(KERNEL) or "").strip()
    release = re.match(r"(\d+)\.(\d+)", kernel)
    if release and (int(release[1]), int(release[2])) < FIRST_KERNEL:
        yield f"the kernel {kernel} is older than 6.2"
    option = _option(files, kernel)
    if option != "y":
        yield f"the kernel {kernel} was built without {OPTION}" if option else f"nothing tells whether it has {OPTION}"
    driver = files.read_optional(DRIVER) or ""
    found = re.search(r"\s(\d+)\.\d+", driver)
    if not found:
        yield "the NVIDIA driver is not loaded"
    elif "Open Kernel Module" not in driver:
        yield "the NVIDIA driver does not have the open kernel modules"
    elif int(found[1]) < FIRST_DRIVER:
        yield f"the NVIDIA driver is of release {found[1]}, and {FIRST_DRIVER} is needed"
    if (files.read_optional(MULTIPATH) or "N").strip() == "Y":
        yield "nvme_core has multipath on (it needs the parameter multipath=N)"
    if "x86_64" in driver and STATIC_BAR not in (files.read_optional(DRIVER_PARAMETERS) or ""):
        yield f"the NVIDIA driver was loaded without {STATIC_BAR} in NVreg_RegistryDwords"


def _option(files: Files, kernel: str) -> str:
    """``y`` or ``n``; empty where the kernel's configuration is not on the machine."""
    for path in (f"/boot/config-{kernel}", f"/lib/modules/{kernel}/config"):
        text = files.read_optional(path)
        if text:
            return "y" if f"\n{OPTION}=y" in text else "n"
    return ""
