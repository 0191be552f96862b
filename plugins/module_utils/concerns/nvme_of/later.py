# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What connects that of which a discovery controller tells later: a rule of udev, and the unit that it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._kinds import hotplug
from ..._kinds.own_files import header_of
from ..._linux.program import ARCHIVE, PROGRAM
from .lines import UNIT as CONNECTS
from .spec import NAME

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host
    from ..._kinds.hotplug import Hotplug

UNIT = "gpufleet-nvme-discovery.service"
RULES = f"/etc/udev/rules.d/99-gpufleet-{NAME}.rules"
# A target tells of one after the other, as it is set up.
AGAIN_SECONDS = 2
# Where all distributions have it, also those that keep /bin and /usr/bin apart.
SYSTEMCTL = "/bin/systemctl"
# A notice (2) that the discovery log page has changed (f0), which is 70h: nvme_aen_uevent of drivers/nvme/host/core.c.
CHANGED = "0x70f002"
# Linux sends the first whenever a controller is connected, since 5.18, and the second when one was lost before.
CONNECTED = "connected|rediscover"


def observe(host: Host) -> Hotplug:
    return hotplug.observe(host, UNIT, RULES)


def why_not_later(files: Files) -> str:
    """Empty where the program is there that asks discovery controllers at boot and later, else why not."""
    is_there = files.exists(PROGRAM) and files.exists(ARCHIVE)
    return "" if is_there else f"{PROGRAM}, which asks discovery controllers, is not installed; run the role node_tools"


def unit_text() -> str:
    return hotplug.unit_text(
        NAME,
        header=header_of(NAME).rstrip(),
        description="Connect what NVMe discovery controllers tell of",
        again=AGAIN_SECONDS,
        after=(CONNECTS,),
    )


def rules_text() -> str:
    run = f'RUN+="{SYSTEMCTL} --no-block start {UNIT}"'
    of_nvme = 'SUBSYSTEM=="nvme", ACTION=="change"'
    return (
        f"{header_of(NAME)}#\n# A discovery controller tells of something else, or may have while it was away.\n"
        f'{of_nvme}, ENV{{NVME_AEN}}=="{CHANGED}", {run}\n'
        f'{of_nvme}, ENV{{NVME_EVENT}}=="{CONNECTED}", ATTR{{cntrltype}}=="discovery", {run}\n'
    )
