# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What places the interrupts of devices that come later: a rule of udev, and the unit that it asks systemd to start.

systemd starts what a device wants when the device comes. For a device that goes it starts nothing, but where an
interface has fewer queues its driver may have asked for the others anew. So the rule lets something that is always
there go and come back, for udev and systemd only: a module that is built into every kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Tuple

from ..._core.setting import Setting
from ..._kinds import hotplug
from ..._kinds.hotplug import Hotplug
from .irqbalance import HEADER
from .irqbalance import UNIT as IRQBALANCE
from .spec import NAME

if TYPE_CHECKING:
    from ..._core.protocols import Host

UNIT = "gpufleet-interrupts.service"
RULES = f"/etc/udev/rules.d/99-gpufleet-{NAME}.rules"
# What goes and comes back when a queue goes: the parameters of the kernel itself, in /sys/module.
STAND_IN = "kernel"
SAY = f"ATTR{{[module/{STAND_IN}]uevent}}"

# A driver may ask for its interrupts a moment after its device came, such as when its interface is brought up.
AGAIN_SECONDS = 5

RULES_TEXT = f"""\
{HEADER}
#
# What brings interrupts, or new ones: interfaces and their queues, InfiniBand devices, which may have no interface,
# NVMe controllers, and drivers of which one loaded anew may find its devices there. Only below PCI: interfaces of
# containers come and go without an interrupt.
# Also when a device goes, for the tag: systemd must hear of it, else it takes no notice when the device is back.
SUBSYSTEM=="net|queues|infiniband|nvme", DEVPATH=="*/pci*", TAG+="systemd", ENV{{SYSTEMD_WANTS}}+="{UNIT}"
SUBSYSTEM=="module", KERNEL=="nvidia|mlx5_core|{STAND_IN}", TAG+="systemd", ENV{{SYSTEMD_WANTS}}+="{UNIT}"
# An interface with fewer queues may have new interrupts for the others. systemd starts nothing for what goes, so
# something that is always there is said to have gone and to be back.
SUBSYSTEM=="queues", ACTION=="remove", DEVPATH=="*/pci*", {SAY}="remove", {SAY}="add"
"""


def observe(host: Host) -> Hotplug:
    return hotplug.observe(host, UNIT, RULES)


def unit_text(*, irqbalance: bool) -> str:
    """The unit. ``irqbalance``: it leaves devices alone because we told it to, by numbers that may be others now.

    It knows an interrupt by its number, and asks about each number once. So it starts anew before anything is placed.
    """
    return hotplug.unit_text(
        NAME,
        header=HEADER,
        description="Place the interrupts of devices that came after the boot",
        again=AGAIN_SECONDS,
        # At boot, interfaces are brought up meanwhile, and many drivers ask for their interrupts only then.
        after=("network.target", "network-online.target"),
        first=(f"-systemctl try-restart {IRQBALANCE}",) if irqbalance else (),
    )


def rules_text(unit: Optional[str]) -> Optional[str]:
    """The rules that belong to the unit of this text; None where there is no unit."""
    return None if unit is None else RULES_TEXT


def settings(found: Hotplug, *, unit: Optional[str], immediate: bool) -> Tuple[Setting, ...]:
    """Both files as settings of the next boot. ``unit`` is the text that is wanted, None for no file of ours."""
    return hotplug.settings(found, unit=unit, rules=rules_text(unit), immediate=immediate)
