# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps to the files for devices that come later, for ``systemd_apply``."""

from __future__ import annotations

from typing import List, Optional, Tuple

from ..._core.change import RunCommand, Step
from ..._core.planning import boot_change, file_action
from ..._core.setting import IN_SYNC, Setting
from ..._linux.systemd_apply import file_steps
from .hotplug import RULES, RULES_TEXT, Hotplug


def steps_of(found: Hotplug, made: Tuple[Setting, ...], *, unit: Optional[str]) -> Tuple[Step, ...]:
    """The unit before the rules that ask for it, and away after them."""
    wrong = {setting.setting: setting for setting in made if setting.status != IN_SYNC}
    write, reload = file_steps(found.unit, wrong.get("unit"), unit)
    units = (*write, *reload)
    rules: List[Step] = []
    if "rules" in wrong:
        action = file_action(RULES, None if unit is None else RULES_TEXT)
        rules.append(Step(action, (boot_change(wrong["rules"]),)))
        if found.udev_runs:
            # udevd would also notice by itself, within seconds; a run that ends here loses nothing.
            rules.append(Step(RunCommand(("udevadm", "control", "--reload"), "reload the rules of udev")))
    return (*units, *rules) if unit is not None else (*rules, *units)
