# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Those who set queues by other means than udev: the kernel command line, tuned, and services and scripts."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from ..._core.change import THEM, US, WINNER_UNKNOWN, Conflict
from ..._core.errors import OwnedByAnother, refuse_all
from ..._core.regex import regex
from ..._core.setting import Scalar
from ..._core.value import frozen
from ..._linux.tuned import modified
from .devices import Disk, Queue, setting_at
from .spec import READ_AHEAD, SCHEDULER

if TYPE_CHECKING:
    from ..._linux.boot_writers import BootWrite
    from ..._linux.tuned import Option

_MULTIPLY = "readahead_multiply"
_OF_DISK = {"elevator": SCHEDULER, "readahead": READ_AHEAD, _MULTIPLY: READ_AHEAD}
NUMBER, FACTOR = regex(r"[0-9]{1,18}"), regex(r"[0-9]{1,9}(\.[0-9]{0,9})?")


@frozen
class Claim:
    """A line by which ``owner`` sets one setting of one queue; ``in_doubt`` where we cannot tell whether or what.

    ``rule`` is its plugin of tuned; services and scripts have none. ``multiplies``: the value is a factor.
    """

    owner: str
    path: str
    line: Optional[int]
    value: str
    in_doubt: bool
    rule: str = ""
    multiplies: bool = False

    @property
    def place(self) -> str:
        return self.path if self.line is None else f"{self.path} line {self.line}"

    def result(self, before: Scalar) -> Scalar:
        """The value behind it; ``>`` and ``<`` of [disk] leave what is larger or smaller already."""
        if self.rule != "disk":
            return int(self.value) if NUMBER.fullmatch(self.value) else self.value
        if self.multiplies:
            # A value that is no number makes tuned fail, which leaves what is there.
            if not FACTOR.fullmatch(self.value):
                return before
            return int(float(self.value) * before) if isinstance(before, int) else None
        value = modified(self.value, None if before is None else str(before))
        if value is None:
            return before
        # _parse_ra of plugin_disk.py: an s behind the number counts sectors. What it cannot read, it leaves.
        match = re.fullmatch(r"([0-9]{1,18})(\s+s.*|\s.*)?", value)
        if match is None:
            return value if value[:1].isalpha() else before
        return int(match[1]) // 2 if (match[2] or "").strip()[:1] == "s" else int(match[1])


def of_command_line(cmdline: str, settings: FrozenSet[str]) -> Tuple[Conflict, ...]:
    """``elevator=`` on the command line: without effect since the kernel has multi-queue alone (5.0)."""
    words = [word for word in cmdline.split() if word.startswith("elevator=") and SCHEDULER in settings]
    return tuple(
        Conflict("kernel command line", "/proc/cmdline", 1, "all queues", SCHEDULER, word[len("elevator=") :], US)
        for word in words
    )


@frozen
class LateOwners:
    """All that set queues behind udev: the options of tuned's profile, then services and scripts."""

    options: Tuple[Option, ...]
    writes: Tuple[BootWrite, ...]


def after_late(
    late: LateOwners, disks: Sequence[Disk], boot: Mapping[Tuple[str, str], Scalar]
) -> Dict[Tuple[str, str], Scalar]:
    """The next boot by device and setting, once all of them have started."""
    values = dict(boot)
    for disk in disks:
        for queue in disk.queues:
            for setting, claim in _claims(late, queue).items():
                if setting in queue.values and not claim.in_doubt:
                    values[(queue.name, setting)] = claim.result(values.get((queue.name, setting)))
    return values


def of_late(
    late: LateOwners, wants: Sequence[Tuple[Queue, Mapping[str, Scalar]]], *, permanent: bool
) -> Tuple[Conflict, ...]:
    """Their lines for what is wanted, as conflicts. Raises ``OwnedByAnother`` where ``permanent`` could not be kept."""
    found: List[Conflict] = []
    refusals: List[OwnedByAnother] = []
    for queue, values in wants:
        for setting, claim in _claims(late, queue).items():
            if setting not in values:
                continue
            value = values[setting]
            stays = not claim.in_doubt and claim.result(value) == value
            if permanent and not stays and not claim.in_doubt:
                cause = f"{claim.owner} starts after our rules, and {claim.place} sets another value"
                refusals.append(owned(queue.name, setting, cause, found=claim.value, wanted=value))
            wins = WINNER_UNKNOWN if claim.in_doubt else THEM
            conflict = Conflict(claim.owner, claim.path, claim.line, queue.name, setting, claim.value, wins)
            if not stays and conflict not in found:
                found.append(conflict)
    refuse_all(refusals, tuple(found))
    return tuple(found)


def owned(queue: str, setting: str, cause: str, *, found: Optional[str], wanted: Scalar) -> OwnedByAnother:
    """The refusal of a value that would not stay."""
    return OwnedByAnother(
        f"keep {setting}",
        object=queue,
        cause=cause,
        found=found,
        wanted=wanted,
        hint="remove that line, declare its value, or set permanent: false",
    )


def _claims(late: LateOwners, queue: Queue) -> Dict[str, Claim]:
    """By setting what they do to this queue: the later line counts."""
    claims = _claims_of_tuned(late.options, queue)
    for one in late.writes:
        setting = setting_at(one.target, queue.name, queue.path)
        # What only may be written does not take the place of what is.
        if setting and not (one.in_doubt and setting in claims):
            claims[setting] = Claim(one.owner, one.path, one.line, one.value or "", one.in_doubt)
    return claims


def _claims_of_tuned(options: Sequence[Option], queue: Queue) -> Dict[str, Claim]:
    claims: Dict[str, Claim] = {}
    section = ""
    for option in options:
        setting = ""
        in_doubt = "${" in option.value or option.conditional
        if option.plugin == "disk":
            # The first section that asks for a device has it.
            if (section or option.section) != option.section or not _is_for(option.devices, queue.name):
                continue
            section = option.section
            setting = _OF_DISK.get(option.key, "")
            # Of NVMe this plugin knows what hangs below a controller; a multipath disk hangs below its subsystem.
            is_head = queue.name.startswith("nvme") and not queue.mq
            in_doubt = in_doubt or is_head or "$" in option.devices
        elif option.plugin == "sysfs":
            setting = setting_at(option.key, queue.name, queue.path)
        if setting:
            multiplies = option.key == _MULTIPLY
            line = (option.path, option.line, option.value, in_doubt, option.plugin)
            claims[setting] = Claim("tuned", *line, multiplies=multiplies)
    return claims


def _is_for(devices: str, name: str) -> bool:
    """Whether a list of globs of tuned, those with an exclamation mark excepted, means a device."""
    words = [word for word in re.split(r"[,;\s]+", devices) if word]
    if any(word[0] == "!" and fnmatchcase(name, word[1:]) for word in words):
        return False
    wanted = [word for word in words if word[0] != "!"]
    return not wanted or any("$" in word or fnmatchcase(name, word) for word in wanted)
