# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What sets CPUs that come online later: a rule of udev, and the unit that it starts.

A CPU that was offline is a device that systemd knows already, and so it starts nothing for it by SYSTEMD_WANTS. The
kernel says ``online`` for a CPU that was switched on alone, and for one that came back with SMT.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Tuple

from ..._core.setting import Setting
from ..._kinds import hotplug
from ..._kinds.hotplug import Hotplug
from ..._kinds.own_files import header_of
from .spec import NAME

if TYPE_CHECKING:
    from ..._core.protocols import Host

UNIT = "gpufleet-cpus.service"
RULES = f"/etc/udev/rules.d/99-gpufleet-{NAME}.rules"
# CPUs come one after the other, each some milliseconds after the last.
AGAIN_SECONDS = 2
# Where all distributions have it, also those that keep /bin and /usr/bin apart.
SYSTEMCTL = "/bin/systemctl"

RULES_TEXT = f"""\
{header_of(NAME)}\
#
# A CPU that comes online has the values of its driver, or those from before it went.
SUBSYSTEM=="cpu", ACTION=="online", RUN+="{SYSTEMCTL} --no-block start {UNIT}"
"""


def observe(host: Host) -> Hotplug:
    return hotplug.observe(host, UNIT, RULES)


def unit_text() -> str:
    return hotplug.unit_text(
        NAME,
        header=header_of(NAME).rstrip(),
        description="Set the CPUs that came online after the boot",
        again=AGAIN_SECONDS,
    )


def rules_text(unit: Optional[str]) -> Optional[str]:
    """The rules that belong to the unit of this text; None where there is no unit."""
    return None if unit is None else RULES_TEXT


def settings(found: Hotplug, *, unit: Optional[str], immediate: bool) -> Tuple[Setting, ...]:
    return hotplug.settings(found, unit=unit, rules=rules_text(unit), immediate=immediate)
