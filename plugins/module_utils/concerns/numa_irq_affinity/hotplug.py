# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What places the interrupts of devices that come later: a rule of udev, and the unit that it asks systemd to start.

systemd starts what a device wants when the device comes. While the unit runs, further devices change nothing: it looks
again until nothing was left to do, so that many events give one run. For a device that goes systemd starts nothing, but
where an interface has fewer queues its driver may have asked for the others anew. So the rule lets something that is
always there go and come back, for udev and systemd only: a module that is built into every kernel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Tuple

from ..._core.declared import path_of
from ..._core.setting import Setting
from ..._core.value import frozen
from ..._kinds.own_files import OwnFile
from ..._kinds.units import UnitFile, unit_file
from ..._linux import systemd
from ..._linux.boot_service import UNIT as BOOT_SERVICE
from ..._linux.program import PROGRAM
from .irqbalance import HEADER
from .irqbalance import UNIT as IRQBALANCE
from .spec import NAME

if TYPE_CHECKING:
    from ..._core.protocols import Host

UNIT = "gpufleet-interrupts.service"
UNIT_PATH = f"{systemd.ETC}/{UNIT}"
RULES = f"/etc/udev/rules.d/99-gpufleet-{NAME}.rules"
UDEV_RUNS = "/run/udev/control"
# What goes and comes back when a queue goes: the parameters of the kernel itself, in /sys/module.
STAND_IN = "kernel"
SAY = f"ATTR{{[module/{STAND_IN}]uevent}}"

# A driver may ask for its interrupts a moment after its device came, such as when its interface is brought up.
AGAIN_SECONDS = 5
TIMEOUT_SECONDS = 240
# For the start of Python, and for ending a program that outlived the deadline.
MARGIN_SECONDS = 30
STOP_SECONDS = 5

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


@frozen
class Hotplug:
    """The two files; None for a text where one is not there."""

    unit: UnitFile
    rules: OwnFile
    udev_runs: bool = False


def observe(host: Host) -> Hotplug:
    files = host.files
    unit = unit_file(host, UNIT, UNIT_PATH, "unit", files.read_optional(UNIT_PATH))
    return Hotplug(unit, OwnFile(RULES, "rules", files.read_optional(RULES)), files.exists(UDEV_RUNS))


def unit_text(*, irqbalance: bool) -> str:
    """The unit. ``irqbalance``: it leaves devices alone because we told it to, by numbers that may be others now.

    It knows an interrupt by its number, and asks about each number once. So it starts anew before anything is placed.
    """
    lines = [
        HEADER,
        "[Unit]",
        "Description=Place the interrupts of devices that came after the boot",
        "Documentation=https://github.com/gpufleet/node/tree/main/docs",
        f"ConditionPathExists={path_of(NAME)}",
        # At boot, interfaces are brought up meanwhile, and many drivers ask for their interrupts only then.
        f"After={BOOT_SERVICE} network.target network-online.target",
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        "Type=oneshot",
        *([f"ExecStartPre=-systemctl try-restart {IRQBALANCE}"] if irqbalance else []),
        f"ExecStart={PROGRAM} boot --concern {NAME} --again {AGAIN_SECONDS} --timeout {TIMEOUT_SECONDS}",
        f"TimeoutStartSec={TIMEOUT_SECONDS + MARGIN_SECONDS}",
        f"TimeoutStopSec={STOP_SECONDS}",
        # What it did it tells the journal itself, with fields.
        "StandardOutput=null",
    ]
    return "".join(f"{line}\n" for line in lines)


def settings(found: Hotplug, *, unit: Optional[str], immediate: bool) -> Tuple[Setting, ...]:
    """Both files as settings of the next boot. ``unit`` is the text that is wanted, None for no file of ours."""
    rules = None if unit is None else RULES_TEXT
    return (*found.unit.rows_in(unit, immediate=immediate), *found.rules.rows(rules))
