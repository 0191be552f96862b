# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What this machine cannot have, found before anything changes."""

from __future__ import annotations

from typing import NoReturn

from ..._core.errors import DeclarationError, OwnedByAnother
from ..._core.setting import Scalar
from .devices import MODES, Port
from .gpu_memory import MODULE, OLD_MODULE, GpuMemory
from .spec import PEERMEM, ROCE_MODE


def refuse_mode(port: Port, mode: Scalar) -> NoReturn:
    there = ", ".join(MODES[one] for one in port.modes)
    raise DeclarationError(
        "set {}",
        object=f"{port.name} {ROCE_MODE}",
        cause=f"it has only addresses of {there}",
        found=port.values[ROCE_MODE],
        wanted=mode,
        hint=f"set {port.modes[0]}",
    )


def refuse_way(declared: str, memory: GpuMemory) -> NoReturn:
    if declared == PEERMEM:
        raise OwnedByAnother(
            f"load {MODULE}",
            cause=f"{OLD_MODULE} is loaded, which is in the same place of the RDMA stack",
            hint=f"remove its package, such as nvidia-peer-memory, and unload {OLD_MODULE}",
        )
    raise DeclarationError(
        "give RDMA devices GPU memory by DMA-BUF",
        cause=", ".join(memory.dma_buf_lacks),
        hint=f"set {PEERMEM}, or auto for what there is",
    )


def refuse_managed(port: Port, setting: str) -> NoReturn:
    raise OwnedByAnother(
        "set {}",
        object=f"{port.name} {setting}",
        cause=f"the firmware of the card agrees on the priorities of {port.netdev} with the switch (DCBX)",
        found=port.values[setting],
        wanted=port.declared[setting],
        hint="turn LLDP and DCBX of the firmware off with mlxconfig, or declare what the switch says",
    )
