# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Those who set queues by other means than udev. Imported only where there is a trace of one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, FrozenSet, List, Tuple

from .._core.change import Conflict
from .spec import KNOBS, SCHEDULER

if TYPE_CHECKING:
    from .._host.protocols import Files


def owners(files: Files, *, cmdline: str, profiles: str, settings: FrozenSet[str]) -> Tuple[Conflict, ...]:
    """tuned sets queues after us at every boot; ``elevator=`` on the command line counts no more."""
    found = []
    for word in cmdline.split():
        if word.startswith("elevator=") and SCHEDULER in settings:
            # Without effect since the kernel has multi-queue alone (5.0).
            found.append(Conflict("kernel command line", "/proc/cmdline", 1, SCHEDULER, word[len("elevator=") :], "us"))
    for profile in profiles.split():
        found.extend(_tuned(files, profile, settings))
    return tuple(found)


def _tuned(files: Files, profile: str, settings: FrozenSet[str], depth: int = 0) -> List[Conflict]:
    for folder in ("/etc/tuned/profiles", "/etc/tuned", "/usr/lib/tuned/profiles", "/usr/lib/tuned"):
        path = f"{folder}/{profile}/tuned.conf"
        text = files.read_optional(path)
        if text is not None:
            break
    else:
        return []
    found: List[Conflict] = []
    section = ""
    for number, line in enumerate(text.split("\n"), 1):
        header = re.match(r"\s*\[([^\]]+)\]", line)
        if header:
            section = header.group(1)
            continue
        key, _equals, value = (part.strip() for part in line.partition("="))
        setting = ""
        if section == "main" and key == "include" and depth < 5:
            for name in re.split(r"[,\s]+", value):
                found.extend(_tuned(files, name, settings, depth + 1))
        elif section == "disk":
            setting = {"elevator": SCHEDULER, "readahead": "read_ahead_kb"}.get(key, "")
        elif section == "sysfs":
            file = re.fullmatch(r"/sys/(?:block|class/block)/\S+/queue/(\w+)", key)
            setting = next((name for name, knob in KNOBS.items() if file and knob.file == file.group(1)), "")
        if setting in settings:
            found.append(Conflict("tuned", path, number, setting, value, "them"))
    return found
