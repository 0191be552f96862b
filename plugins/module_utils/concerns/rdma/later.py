# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What sets RDMA devices that come later: rules of udev, and the unit that they start."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Tuple

from ..._kinds import hotplug
from ..._kinds.own_files import header_of
from .spec import DMA_BUF, IGNORE, NAME, RdmaDeclaration

if TYPE_CHECKING:
    from ..._core.protocols import Host
    from ..._kinds.hotplug import Hotplug

UNIT = "gpufleet-rdma.service"
RULES = f"/etc/udev/rules.d/99-gpufleet-{NAME}.rules"
# The devices of a card come one after the other, and rdma-core gives them other names.
AGAIN_SECONDS = 2
# Where all distributions have it, also those that keep /bin and /usr/bin apart.
SYSTEMCTL = "/bin/systemctl"
# rdma-core has loaded its modules by then, or MLNX_OFED its own.
STACK = ("rdma-hw.target", "openibd.service")


def observe(host: Host) -> Hotplug:
    return hotplug.observe(host, UNIT, RULES)


def unit_text() -> str:
    return hotplug.unit_text(
        NAME,
        header=header_of(NAME).rstrip(),
        description="Set the RDMA devices that came after the boot",
        again=AGAIN_SECONDS,
        after=STACK,
    )


def rules_text(*, with_gpus: bool) -> str:
    """The rules for RDMA devices, of which a new name is a move, and for GPUs that get their driver."""
    run = f'RUN+="{SYSTEMCTL} --no-block start {UNIT}"'
    lines = [f'SUBSYSTEM=="infiniband", ACTION=="add|move", {run}']
    if with_gpus:
        lines.append(f'SUBSYSTEM=="pci", ACTION=="bind", ENV{{DRIVER}}=="nvidia", {run}')
    why = "#\n# A device comes with the values of its driver.\n"
    return header_of(NAME) + why + "".join(f"{line}\n" for line in lines)


def texts(declaration: RdmaDeclaration) -> Tuple[Optional[str], Optional[str]]:
    """The unit and the rules; none where nothing is to be set later."""
    with_gpus = declaration.gpudirect not in (IGNORE, DMA_BUF)
    if not with_gpus and not any(entry.settings for entry in declaration.entries):
        return None, None
    return unit_text(), rules_text(with_gpus=with_gpus)
