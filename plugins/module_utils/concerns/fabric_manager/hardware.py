# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which daemon the hardware of a machine needs, as sysfs tells it.

HGX boards up to H200 have NVSwitches on the bus of the host, PCI class 0x0680. On those of B200 and later the switches
are behind a ConnectX whose vital product data names the management software. The compute nodes of GB200 and GB300 racks
have their switches elsewhere, and need IMEX instead (Fabric Manager user guide; nvidia-fabricmanager-start.sh).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Mapping, Tuple

from ..._core.errors import CannotLook
from ..._core.value import frozen
from ..._core.wording import counted
from ..._nvidia.fabric import RACK_GPUS
from ..._nvidia.gpus import DISPLAY_CLASSES, NVIDIA, PCI

if TYPE_CHECKING:
    from ..._core.protocols import Host

SWITCH_CLASS = "0x0680"
MELLANOX = "0x15b3"
MARK = "SW_MNG"
# What nvidia-fabricmanager-start.sh needs to reach switches behind such ports: '"/opt/nvidia/nvlsm/sbin/nvlsm" does not
# exist', 'Kernel module "ib_umad" has not been loaded, fabric manager cannot start'; without ibstat it finds no port.
NVLSM, IBSTAT, IB_UMAD = "nvlsm", "ibstat", "ib_umad"
NVLSM_PATH = "/opt/nvidia/nvlsm/sbin/nvlsm"
# The module's class is there too where it is built into the kernel.
IB_UMAD_SIGNS = (f"/sys/module/{IB_UMAD}", "/sys/class/infiniband_mad")
# A device whose firmware is broken answers after many seconds, or never.
VPD_SECONDS = 10.0


@frozen
class Hardware:
    """``switches`` are the NVSwitches and ``ports`` the management ports of such, by PCI address; ``gpus`` all GPUs.

    ``asked`` are the bridges whose vital product data was read, for the next look.
    """

    gpus: int = 0
    switches: Tuple[str, ...] = ()
    ports: Tuple[str, ...] = ()
    rack: bool = False
    asked: Tuple[str, ...] = ()

    @property
    def needs_fabric_manager(self) -> bool:
        return bool(self.switches or self.ports) and not self.rack

    @property
    def needs_imex(self) -> bool:
        return self.rack

    @property
    def words(self) -> str:
        """What there is, for a person."""
        if self.rack:
            return "a compute node of an NVL72 rack"
        if self.switches:
            return counted(len(self.switches), "NVSwitch", "NVSwitches")
        if self.ports:
            return counted(len(self.ports), "management port of NVSwitches", "management ports of NVSwitches")
        return "no NVSwitch" if self.gpus else "no NVIDIA GPU"


def read(host: Host, known: Mapping[str, bool]) -> Hardware:
    """``known`` are the bridges that were asked since the boot, and whether they manage switches."""
    files = host.files
    switches: List[str] = []
    bridges: List[str] = []
    models: List[str] = []
    for name in files.names(PCI):
        folder = f"{PCI}/{name}"
        vendor = (files.read_optional(f"{folder}/vendor") or "").strip()
        if vendor == NVIDIA:
            kind = (files.read_optional(f"{folder}/class") or "").strip()
            if kind.startswith(SWITCH_CLASS):
                switches.append(name)
            elif kind.startswith(DISPLAY_CLASSES):
                models.append((files.read_optional(f"{folder}/device") or "").strip().replace("0x", ""))
        elif vendor == MELLANOX:
            bridges.append(name)
    rack = any(model in RACK_GPUS for model in models)
    if switches or rack or not any(map(_is_behind_bridges, models)):
        return Hardware(len(models), tuple(switches), rack=rack)
    there = [name for name in bridges if files.exists(f"{PCI}/{name}/vpd")]
    if all(name in known for name in there):
        ports = tuple(name for name in there if known[name])
    else:
        ports = _managing(host, there)
    return Hardware(len(models), ports=ports, asked=tuple(there))


def lacking(host: Host) -> Tuple[str, ...]:
    """The parts that a machine with management ports lacks, without which the Fabric Manager does not start."""
    files, find = host.files, host.commands.find
    there = {
        NVLSM: files.exists(NVLSM_PATH),
        IBSTAT: find(IBSTAT) is not None,
        IB_UMAD: any(map(files.exists, IB_UMAD_SIGNS)),
    }
    return tuple(name for name, is_there in there.items() if not is_there)


def _is_behind_bridges(model: str) -> bool:
    """Whether a GPU of this device id may be one of those: GB100 and the data centre chips after it."""
    try:
        number = int(model, 16)
    except ValueError:
        return False
    return 0x2900 <= number < 0x2A00 or number >= 0x3000


def _managing(host: Host, names: List[str]) -> Tuple[str, ...]:
    """Those whose vital product data has the mark. One that cannot be read has it not."""
    paths = [f"{PCI}/{name}/vpd" for name in names]
    # In a process of its own, so that it is bounded in time; the kernel bounds the text to 32 KiB.
    argv = ["grep", "--files-with-matches", "--text", "--no-messages", "--fixed-strings", MARK, *paths]
    try:
        completed = host.commands.run(argv, timeout=VPD_SECONDS)
    except OSError as error:
        raise _cannot_look(error.strerror or str(error)) from error
    if completed.timed_out:
        raise _cannot_look(f"{', '.join(names)} did not respond within {VPD_SECONDS:g} s")
    found = completed.output.split()
    return tuple(name for name, path in zip(names, paths) if path in found)


def _cannot_look(cause: str) -> CannotLook:
    return CannotLook(
        "read the vital product data of the ConnectX bridges",
        cause=cause,
        hint="check the firmware of these devices with mlxfwmanager, and the kernel log for VPD",
    )
