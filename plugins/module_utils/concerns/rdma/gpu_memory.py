# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a network card reaches the memory of a GPU here: by DMA-BUF of the kernel, or by the module nvidia_peermem.

What NCCL asks for before it uses either is read (src/transport/net_ib of NCCL, and NVIDIA's GPUDirect RDMA guide).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Iterator, Sequence, Tuple

from ..._core.value import frozen
from ..._linux.kernel_modules import read_installed
from .devices import Device

if TYPE_CHECKING:
    from ..._core.protocols import Files

DRIVER = "/proc/driver/nvidia/version"
KERNEL = "/proc/sys/kernel/osrelease"
# The first kernel in which an RDMA driver takes memory of other devices as DMA-BUF (ib_umem_dmabuf_get).
FIRST_KERNEL = (5, 12)
# The drivers of cards whose RDMA part has reg_user_mr_dmabuf.
DMA_BUF_DRIVERS = ("bnxt_en", "efa", "ice", "mlx5_core")
MODULE = "nvidia_peermem"
# Of Mellanox, before the driver had its own. Both register themselves under one name, so that only one can be loaded.
OLD_MODULE = "nv_peer_mem"
SYS_MODULE = "/sys/module"


@frozen
class GpuMemory:
    """``peermem`` is whether nvidia_peermem is loaded, ``in_use`` whether memory is registered with it or it cannot be
    unloaded, and ``no_peermem`` why it cannot be loaded, empty where it may. ``dma_buf_lacks`` is what DMA-BUF lacks.
    """

    has_driver: bool
    peermem: bool
    old_peermem: bool
    in_use: bool
    no_peermem: str
    dma_buf_lacks: Tuple[str, ...]


def read(files: Files, devices: Sequence[Device]) -> GpuMemory:
    driver = files.read_optional(DRIVER)
    loaded = files.is_folder(f"{SYS_MODULE}/{MODULE}")
    no_peermem = ""
    if not loaded:
        installed = read_installed(files)
        there = installed.dependencies(MODULE) is not None
        no_peermem = "" if there else f"this kernel ({installed.release}) has no module {MODULE}"
    return GpuMemory(
        has_driver=driver is not None,
        peermem=loaded,
        old_peermem=files.is_folder(f"{SYS_MODULE}/{OLD_MODULE}"),
        in_use=(files.read_optional(f"{SYS_MODULE}/{MODULE}/refcnt") or "0").strip() != "0",
        no_peermem=no_peermem,
        dma_buf_lacks=tuple(_lacking(files, driver or "", devices)),
    )


def _lacking(files: Files, driver: str, devices: Sequence[Device]) -> Iterator[str]:
    kernel = (files.read_optional(KERNEL) or "").strip()
    release = re.match(r"(\d+)\.(\d+)", kernel)
    if release and (int(release[1]), int(release[2])) < FIRST_KERNEL:
        yield f"the kernel {kernel} is older than {'.'.join(map(str, FIRST_KERNEL))}"
    if "Open Kernel Module" not in driver:
        yield "the NVIDIA driver does not have the open kernel modules"
    others = sorted({device.driver for device in devices if device.driver} - {*DMA_BUF_DRIVERS})
    if others and not any(device.driver in DMA_BUF_DRIVERS for device in devices):
        yield f"{', '.join(others)} does not take DMA-BUF"
