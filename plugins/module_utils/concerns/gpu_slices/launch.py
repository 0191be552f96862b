# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who may use the launcher ``gpufleet run`` beside root: the rule of polkit that lets a group.

Whoever may start units of systemd (``org.freedesktop.systemd1.manage-units``) can be root by that, as polkit is not
told which unit it is about. So the group may do one thing only: run our program as root with the one command that moves
the process that called it into slices of ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..._linux.program import ON_PATH, PROGRAM
from .spec import NAME

if TYPE_CHECKING:
    from ..._core.protocols import Host

RULE = "/etc/polkit-1/rules.d/49-gpufleet-gpu_slices.rules"
RULE_SETTING = "rule"
RULE_FOLDERS = ("/etc/polkit-1/rules.d", "/usr/share/polkit-1/rules.d")
PKEXEC = "pkexec"
PLACE = "place"
LINE = "    // launch_group: "

RULE_TEXT = """\
// Written by the module gpufleet.node.{name}; changes are lost.
polkit.addRule(function (action, subject) {{
{line}{group}
    if (action.id == "org.freedesktop.policykit.exec" &&
        action.lookup("user") == "root" &&
        ["{program}", "{on_path}"].indexOf(action.lookup("program")) >= 0 &&
        action.lookup("command_line").indexOf(action.lookup("program") + " {place} ") == 0 &&
        subject.isInGroup("{group}")) {{
        return polkit.Result.YES;
    }}
}});
"""


def rule_text(group: str) -> str:
    return RULE_TEXT.format(name=NAME, line=LINE, group=group, program=PROGRAM, on_path=ON_PATH, place=PLACE)


def group_of(text: str) -> str:
    """The group that a rule of ours lets, empty where it is not one."""
    return next((line[len(LINE) :] for line in text.splitlines() if line.startswith(LINE)), "")


def fault_of(host: Host, group: str) -> str:
    """Why the group cannot be let: the cause, and after a semicolon what to do. Empty where it can."""
    if host.commands.find(PKEXEC) is None:
        return "this machine has no pkexec; install polkit with pkexec, or leave launch_group out"
    if not any(map(host.files.is_folder, RULE_FOLDERS)):
        return "this polkit reads no rules, as releases before 0.106 do not; leave launch_group out"
    local = (host.files.read_optional("/etc/group") or "").splitlines()
    if any(line.startswith(f"{group}:") for line in local):
        return ""
    # It may be one of a directory.
    if host.commands.run(("getent", "group", group)).status != 0:
        return f"there is no group {group}; make the group first, or name another one"
    return ""
