# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit that binds functions to vfio-pci at boot, before anything loads the driver of the host.

A rule of udev would race: the event of one GPU loads the driver of the host, which takes all GPUs whose events are not
through yet. The unit is done before udev is asked about any device.
"""

from __future__ import annotations

from typing import Dict, Iterable, Optional

from ..._core.regex import regex
from ..._core.value import frozen
from ..._kinds.own_files import header_of
from ..._linux import systemd
from ..._nvidia.gpus import PCI, VFIO
from .spec import NAME

UNIT = "gpufleet-passthrough.service"
PATH = f"{systemd.ETC}/{UNIT}"
PROBE = "/sys/bus/pci/drivers_probe"
DRIVERS = "/sys/bus/pci/drivers"
# The GPUs that take no new client, from before they are closed until they are unbound: a run that is killed between
# leaves them so.
CLOSED = "/run/gpufleet/gpu_virtualization.closed"
# systemd ignores X-. What a function was bound to before us is what it returns to when it is no longer declared.
RECORD = "X-GpuFleet-Function"
NONE = "-"
ADDRESS = regex(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
NAME_OF_DRIVER = regex(r"[A-Za-z0-9_.-]+")


@frozen
class Recorded:
    """A function that our unit binds: ``ids`` must still be there at boot, ``driver`` had it before us."""

    address: str
    ids: str
    driver: Optional[str]


def render(functions: Iterable[Recorded]) -> str:
    functions = tuple(functions)
    lines = (
        "[Unit]",
        "Description=Keep GPUs for virtual machines",
        "Documentation=https://github.com/gpufleet/node/tree/main/docs",
        "DefaultDependencies=no",
        # Both load drivers, each of which takes what it finds.
        "Before=systemd-modules-load.service systemd-udev-trigger.service sysinit.target",
        "ConditionPathIsReadWrite=/sys",
        *(f"{RECORD}={one.address} {one.ids} {one.driver or NONE}" for one in functions),
        "",
        "[Service]",
        "Type=oneshot",
        "RemainAfterExit=yes",
        f"ExecStart=-/sbin/modprobe {VFIO}",
        *(f"ExecStart=-/bin/sh -c '{_command(one)}'" for one in functions),
        "",
        "[Install]",
        "WantedBy=sysinit.target",
    )
    return "".join((header_of(NAME), *(f"{line}\n" for line in lines)))


def parse(text: Optional[str]) -> Dict[str, Recorded]:
    """The functions of a unit of ours, by address; none of one that others wrote."""
    found: Dict[str, Recorded] = {}
    if not is_ours(text):
        return found
    for key, value in systemd.assignments(text or ""):
        words = value.split()
        if key == f"Unit.{RECORD}" and len(words) == 3:
            found[words[0]] = Recorded(words[0], words[1], None if words[2] == NONE else words[2])
    return found


def is_ours(text: Optional[str]) -> bool:
    return text is not None and text.startswith(header_of(NAME))


def _command(one: Recorded) -> str:
    """Addresses move when hardware does, so that something else may be there by now."""
    vendor, _colon, device = one.ids.partition(":")
    return " && ".join(
        (
            f"cd {PCI}/{one.address}",
            f"grep -qx 0x{vendor} vendor",
            f"grep -qx 0x{device} device",
            f"echo {VFIO} > driver_override",
            f"echo {one.address} > {PROBE}",
        )
    )
