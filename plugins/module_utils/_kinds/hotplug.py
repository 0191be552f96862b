# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kind *hotplug*: what is plugged in later gets its values too, by a rule of udev and a unit that it starts.

The unit applies the declaration of one concern as the boot service does. While it runs, further devices change nothing:
it looks again until nothing was left to do, so that many events give one run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional, Sequence, Tuple

from .._core.change import RunCommand, Step
from .._core.declared import path_of
from .._core.planning import boot_change
from .._core.setting import IN_SYNC, Setting
from .._core.value import frozen
from .._linux import systemd
from .._linux.boot_service import UNIT as BOOT_SERVICE
from .._linux.program import EXEC_START
from .own_files import OwnFile
from .units import UnitFile, unit_file

if TYPE_CHECKING:
    from .._core.protocols import Host

UDEV_RUNS = "/run/udev/control"
TIMEOUT_SECONDS = 240
# For the start of Python, and for ending a program that outlived the deadline.
MARGIN_SECONDS = 30
STOP_SECONDS = 5


@frozen
class Hotplug:
    """The two files; None for a text where one is not there."""

    unit: UnitFile
    rules: OwnFile
    udev_runs: bool = False


def observe(host: Host, unit: str, rules: str) -> Hotplug:
    """The unit of this name, and the rules at this path."""
    files = host.files
    path = f"{systemd.ETC}/{unit}"
    found = unit_file(host, unit, path, "unit", files.read_optional(path))
    return Hotplug(found, OwnFile(rules, "rules", files.read_optional(rules)), files.exists(UDEV_RUNS))


def unit_text(
    concern: str, *, header: str, description: str, again: int, after: Sequence[str] = (), first: Sequence[str] = ()
) -> str:
    """The unit. It looks again every ``again`` seconds, starts ``after`` these units too, and runs ``first`` before."""
    lines = [
        header,
        "[Unit]",
        f"Description={description}",
        "Documentation=https://github.com/gpufleet/node/tree/main/docs",
        f"ConditionPathExists={path_of(concern)}",
        f"After={' '.join((BOOT_SERVICE, *after))}",
        "StartLimitIntervalSec=0",
        "",
        "[Service]",
        "Type=oneshot",
        *(f"ExecStartPre={command}" for command in first),
        f"ExecStart={EXEC_START} boot --concern {concern} --again {again} --timeout {TIMEOUT_SECONDS}",
        f"TimeoutStartSec={TIMEOUT_SECONDS + MARGIN_SECONDS}",
        f"TimeoutStopSec={STOP_SECONDS}",
        # What it did it tells the journal itself, with fields.
        "StandardOutput=null",
    ]
    return "".join(f"{line}\n" for line in lines)


def settings(found: Hotplug, *, unit: Optional[str], rules: Optional[str], immediate: bool) -> Tuple[Setting, ...]:
    """Both files as settings of the next boot, with the texts that are wanted; None for no file of ours."""
    return (*found.unit.rows_in(unit, immediate=immediate), *found.rules.rows(rules))


def steps(found: Hotplug, made: Sequence[Setting], *, unit: Optional[str], rules: Optional[str]) -> Tuple[Step, ...]:
    """The unit before the rules that ask for it, and away after them."""
    wrong = {setting.setting: setting for setting in made if setting.status != IN_SYNC}
    write, reload = found.unit.steps(wrong.get("unit"), unit)
    units = (*write, *reload)
    of_rules: List[Step] = []
    if "rules" in wrong:
        of_rules.append(found.rules.step(rules, [boot_change(wrong["rules"])]))
        if found.udev_runs:
            # udevd would also notice by itself, within seconds; a run that ends here loses nothing.
            of_rules.append(Step(RunCommand(("udevadm", "control", "--reload"), "reload the rules of udev")))
    return (*units, *of_rules) if unit is not None else (*of_rules, *units)
