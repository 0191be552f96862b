# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The values that udev writes into the queues at boot and at hot-plug, by all rules as udev reads them.

Of the rules only what bears on queues is looked at: ``ATTR{...}`` of the disk and of its bdi, by which the read-ahead
is a device of its own, and the programs of ``RUN``, ``PROGRAM`` and ``IMPORT{program}``. What is not known here
(a program's answer, a property that other rules set, the order of events of two devices) is in doubt; doubt is
reported, never decided.
"""

from __future__ import annotations

import re
from posixpath import normpath
from typing import TYPE_CHECKING, Dict, FrozenSet, Iterator, List, Mapping, Optional, Sequence, Tuple

from ..._core.change import THEM, US, WINNER_UNKNOWN, Conflict
from ..._core.errors import OwnedByAnother, refuse_all
from ..._core.setting import Scalar
from ..._core.value import frozen, replace
from ..._linux import udev_programs
from ..._linux.udev_programs import UdevDevice
from .devices import CONTROLLER, Disk, Level, Subject, setting_at
from .owners import owned
from .rules import OF_NFS, OUR_RULES, PCI_PROPERTY
from .spec import READ_AHEAD, SCHEDULER, TUNABLES
from .udev import ASKING

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from .udev import QueueRule, RuleFile, UdevAssignment, UdevCondition

_SETTING_OF_FILE = {tunable.file: setting for setting, tunable in TUNABLES.items()}
_BDI = "/sys/devices/virtual/bdi"
# Stands for the device of an event that is not that of the disk: no path with its name is that of a disk.
_ANOTHER = UdevDevice("-", "/sys/devices/-", "-")
_WINS = (US, WINNER_UNKNOWN, THEM)


@frozen
class QueueWrite:
    """A value that an event gives to a setting of a queue, by a line of a rule or of a script that it runs.

    ``value`` is None where only the program knows it. ``in_doubt`` says that we cannot tell whether it will be written.
    """

    queue: str
    setting: str
    value: Optional[str]
    path: str
    line: int
    in_doubt: bool
    by_program: bool


def subjects(
    disks: Sequence[Disk], *, files: Optional[Files] = None, asked: FrozenSet[str] = frozenset(), bdi: bool = False
) -> Dict[str, Subject]:
    """The disks as rules see them, by name, with the attributes of ``asked`` read for each and for its parents."""
    found = {disk.name: _subject(disk, files, sorted(asked - {*CONTROLLER, "dm/name"})) for disk in disks}
    if not bdi or files is None:
        return found
    # The name of a bdi is the number of its disk (block/genhd.c).
    return {
        name: replace(subject, bdi=(files.read_optional(f"{subject.path}/dev") or "?").strip())
        for name, subject in found.items()
    }


def _subject(disk: Disk, files: Optional[Files], asked: Sequence[str]) -> Subject:
    own = disk.queues[0]
    nothing: Dict[str, Optional[str]] = dict.fromkeys(CONTROLLER)
    levels: List[Level] = []
    place = own.path
    while place.startswith("/sys/devices/") and place.count("/") > 3:
        name = place.rpartition("/")[2]
        depth = len(levels)
        attributes: Dict[str, Optional[str]] = {}
        for key in asked if files is not None else ():
            # What rules themselves change is not known for the next boot from what is there now.
            if files is not None and not (key.startswith("queue/") and key[len("queue/") :] in _SETTING_OF_FILE):
                text = files.read_optional(f"{place}/{key}")
                attributes[key] = None if text is None else text.strip()
        is_pci = re.fullmatch(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", name) is not None
        subsystem = "block" if depth == 0 else "pci" if is_pci else re.sub(r"\d+$|-subsys\d+$", "", name)
        driver = "nvme" if is_pci and depth <= 3 else ""
        known = {**nothing, **disk.controller} if depth == (0 if "dm/name" in disk.controller else 1) else nothing
        levels.append(Level(name, subsystem, driver, {**attributes, **known}))
        place = place.rpartition("/")[0]
    if not levels:
        levels.append(Level(disk.name, "block", "", {**nothing, **disk.controller}))
    addresses = "" if own.mq else " ".join(disk.candidate.values.get("pci_address", ()))
    paths = {queue.name: queue.path for queue in disk.queues}
    hidden = tuple(queue.name for queue in disk.queues if queue.hidden)
    return Subject(tuple(levels), own.mq, addresses, own.missing, own.path, paths, hidden)


def evaluate(
    rule_files: Sequence[RuleFile], subject: Subject, action: str, scripts: Mapping[str, str]
) -> Tuple[QueueWrite, ...]:
    """Everything that udev writes into the queues of this disk, in order; the last without doubt is what stays.

    Behind what its own event does come those of its bdi and of other devices, whose order is not known.
    """
    event = _Event(UdevDevice(subject.levels[0].name, subject.path, "block", f"/dev/{subject.levels[0].name}"), subject)
    written = event.go_through(rule_files, action, scripts)
    if subject.bdi:
        own = replace(subject, levels=(Level(subject.bdi, "bdi", "", {}),))
        written += _doubted(_Event(_bdi_of(subject), own).go_through(rule_files, action, scripts))
    return written + _doubted(event.of_others(rule_files, action, scripts))


def _bdi_of(subject: Subject) -> UdevDevice:
    return UdevDevice(subject.bdi, f"{_BDI}/{subject.bdi}", "bdi")


def _doubted(written: Sequence[QueueWrite]) -> Tuple[QueueWrite, ...]:
    return tuple(replace(one, in_doubt=True) for one in written)


class _Event:
    """An event of a device on its way through the rules."""

    def __init__(self, device: UdevDevice, subject: Subject) -> None:
        self._device = device
        self._subject = subject
        self._taken: List[UdevAssignment] = []
        # By its command: what is there already keeps its place (udev_event.run_list).
        self._programs: Dict[str, UdevAssignment] = {}
        self._is_final: Optional[bool] = False

    def go_through(
        self, rule_files: Sequence[RuleFile], action: str, scripts: Mapping[str, str]
    ) -> Tuple[QueueWrite, ...]:
        written: List[QueueWrite] = []
        for entry in rule_files:
            for rule, in_doubt, is_reached in self._rules_of(entry, action):
                for one in rule.assignments:
                    self._taken.append(one)
                    if one.key == "RUN":
                        self._add(one, in_doubt=in_doubt or one.in_doubt)
                        continue
                    # A program that is asked runs before it is known whether the rule applies.
                    asked = one.key in ASKING and _applies(rule, self._subject, action, but=ASKING) is True
                    doubted = not is_reached if asked else in_doubt
                    written += self._writes_of(one, self._device, scripts, in_doubt=doubted)
        for one in self._programs.values():
            written += self._writes_of(one, self._device, scripts)
        return tuple(written)

    def _rules_of(self, entry: RuleFile, action: str) -> Iterator[Tuple[QueueRule, bool, bool]]:
        """The rules that apply, each with whether that is in doubt, and whether it is certain that it is read."""
        index = 0
        doubtful_until = -1
        while index < len(entry.rules):
            rule = entry.rules[index]
            applies = _applies(rule, self._subject, action)
            if applies is not False:
                is_reached = index >= doubtful_until
                in_doubt = applies is None or not is_reached
                yield rule, in_doubt, is_reached
                target = entry.labels.get(rule.goto, -1) if rule.goto else -1
                if target > index and not in_doubt:
                    index = target
                    continue
                doubtful_until = max(target, doubtful_until)
            index += 1

    def _add(self, one: UdevAssignment, *, in_doubt: bool) -> None:
        """To the programs that run when all rules are through; the signs = and := take those before away."""
        if self._is_final:
            return
        if one.operator != "+=":
            earlier = {key: replace(before, in_doubt=True) for key, before in self._programs.items()}
            self._programs = earlier if in_doubt else {}
        doubted = in_doubt or self._is_final is None
        if one.operator == ":=":
            self._is_final = None if doubted else True
        if one.attribute != "builtin":
            command = udev_programs.substitute(one.value, self._device)
            known = self._programs.get(command)
            self._programs[command] = replace(known or one, in_doubt=doubted and (known is None or known.in_doubt))

    def of_others(
        self, rule_files: Sequence[RuleFile], action: str, scripts: Mapping[str, str]
    ) -> Tuple[QueueWrite, ...]:
        """The writes of events of other devices into this disk, by the rules that its own event does not pass."""
        written: List[QueueWrite] = []
        for entry in rule_files:
            for rule in entry.rules:
                if any(one.key == "ACTION" and not _compare(one, action) for one in rule.conditions):
                    continue
                for one in rule.assignments:
                    if one not in self._taken and one.path != OUR_RULES:
                        written += self._writes_of(one, _ANOTHER, scripts)
        return tuple(written)

    def _writes_of(
        self, one: UdevAssignment, device: UdevDevice, scripts: Mapping[str, str], *, in_doubt: bool = False
    ) -> Iterator[QueueWrite]:
        in_doubt = in_doubt or one.in_doubt
        if one.path == OUR_RULES and one.key != "ATTR":
            for text, file in re.findall(r"echo (\S+) > \$\$q/(\w+)", one.value):
                for name in self._subject.hidden:
                    yield QueueWrite(name, _SETTING_OF_FILE[file], text, one.path, one.line, in_doubt, True)
        elif one.key == "ATTR":
            value = udev_programs.substitute(one.value, device)
            known = None if udev_programs.UNKNOWN in value else value
            for name, setting in self._settings_at(_path_of(one.attribute, device)):
                yield QueueWrite(name, setting, known, one.path, one.line, in_doubt or known is None, False)
        else:
            for write in udev_programs.writes_of(one.value, device, scripts):
                place = (write.path, write.number) if write.path else (one.path, one.line)
                doubted = in_doubt or write.in_doubt or write.value is None
                for name, setting in self._settings_at(write.target):
                    yield QueueWrite(name, setting, write.value, *place, doubted, True)

    def _settings_at(self, target: str) -> Iterator[Tuple[str, str]]:
        """The queues of the disk, each with the setting that a path of sysfs is for it."""
        subject = self._subject
        if subject.bdi and normpath(target) in _read_ahead_of(subject.bdi):
            target = f"{subject.path}/queue/{READ_AHEAD}"
        for name, path in subject.paths.items():
            setting = setting_at(target, name, path)
            if setting:
                yield name, setting


def _read_ahead_of(bdi: str) -> Tuple[str, ...]:
    return tuple(f"{folder}/{bdi}/{READ_AHEAD}" for folder in (_BDI, "/sys/class/bdi"))


def _path_of(attribute: str, device: UdevDevice) -> str:
    """The file of an attribute: one in brackets is that of the device that they name."""
    other = re.fullmatch(r"\[([^/\]]+)/([^\]]+)\]/?(.*)", attribute)
    return f"/sys/class/{other[1]}/{other[2]}/{other[3]}" if other else f"{device.path}/{attribute}"


def _applies(rule: QueueRule, subject: Subject, action: str, *, but: Sequence[str] = ()) -> Optional[bool]:
    """Whether all conditions agree: None where one is not known and no other disagrees."""
    verdict: Optional[bool] = True
    upwards = []
    for condition in rule.conditions:
        if condition.key in but:
            continue
        if condition.key in ("KERNELS", "SUBSYSTEMS", "DRIVERS", "ATTRS"):
            upwards.append(condition)
            continue
        agrees = _agrees(condition, subject, action)
        if agrees is False:
            return False
        if agrees is None:
            verdict = None
    if upwards:
        # All of them must agree at one and the same device.
        answers = [_level_agrees(upwards, level) for level in subject.levels]
        if True not in answers:
            return None if None in answers else False
    return verdict


def _agrees(condition: UdevCondition, subject: Subject, action: str) -> Optional[bool]:
    value: Optional[str] = None
    if condition.key == "ACTION":
        value = action
    elif condition.key == "SUBSYSTEM":
        value = subject.levels[0].subsystem
    elif condition.key == "KERNEL":
        value = subject.levels[0].name
    elif condition.key == "ENV" and condition.attribute == "DEVTYPE":
        value = "disk" if subject.levels[0].subsystem == "block" else ""
    elif condition.key == "PROGRAM" and OF_NFS in f"/{condition.text.split(' ')[0]}":
        return condition.negated
    elif condition.key == "ENV" and condition.attribute == PCI_PROPERTY:
        value = subject.pci_addresses
    elif condition.key == "ATTR" and condition.attribute in subject.levels[0].attributes:
        return _compare(condition, subject.levels[0].attributes[condition.attribute])
    elif condition.key == "TEST" and condition.text == "mq":
        return subject.mq is not condition.negated
    elif condition.key == "TEST" and condition.text.startswith("queue/"):
        setting = _SETTING_OF_FILE.get(condition.text[len("queue/") :])
        return None if setting is None else (setting in subject.missing) is condition.negated
    if value is None:
        return None
    return _compare(condition, value)


def _level_agrees(conditions: Sequence[UdevCondition], level: Level) -> Optional[bool]:
    verdict: Optional[bool] = True
    for condition in conditions:
        if condition.key == "KERNELS":
            agrees = _compare(condition, level.name)
        elif condition.key == "SUBSYSTEMS":
            agrees = _compare(condition, level.subsystem)
        elif condition.key == "DRIVERS":
            agrees = _compare(condition, level.driver)
        elif condition.attribute in level.attributes:
            agrees = _compare(condition, level.attributes[condition.attribute])
        else:
            agrees = None
        if agrees is False:
            return False
        if agrees is None:
            verdict = None
    return verdict


def _compare(condition: UdevCondition, value: Optional[str]) -> Optional[bool]:
    if value is None:
        # Releases of udev differ in what != says about an attribute that is not there.
        return None if condition.negated else False
    if not condition.text[-1:].isspace():
        value = value.rstrip()
    return condition.pattern.match(value) is not condition.negated


def boot(
    rule_files: Sequence[RuleFile],
    disks: Sequence[Disk],
    subjects: Mapping[str, Subject],
    scripts: Mapping[str, str],
) -> Dict[Tuple[str, str], Scalar]:
    """The values in each queue after the ``add`` of a boot, by device and setting."""
    values: Dict[Tuple[str, str], Scalar] = {}
    for disk in disks:
        queues = {queue.name: queue.values for queue in disk.queues}
        for written in evaluate(rule_files, subjects[disk.name], "add", scripts):
            if not written.in_doubt and written.setting in queues[written.queue]:
                values[(written.queue, written.setting)] = _value(written)
    return values


def _value(written: QueueWrite) -> Scalar:
    if written.value and written.setting != SCHEDULER and re.fullmatch(r"-?[0-9]{1,18}", written.value):
        return int(written.value)
    return written.value


def conflicts(
    rule_files: Sequence[RuleFile],
    subjects: Mapping[str, Subject],
    scripts: Mapping[str, str],
    wanted: Mapping[str, Mapping[str, Scalar]],
    *,
    refuse: bool,
) -> Tuple[Conflict, ...]:
    """Others who write what we write. With ``refuse`` raises ``OwnedByAnother`` where one would have the last word.

    ``wanted`` are values by queue and setting.
    """
    found: Dict[Tuple[str, int, str, str], Conflict] = {}
    refusals: List[OwnedByAnother] = []
    for subject in subjects.values():
        for action in ("add", "change") if any(name in wanted for name in subject.paths) else ():
            ours = set()
            for written in evaluate(rule_files, subject, action, scripts):
                name, setting = written.queue, written.setting
                if setting not in wanted.get(name, ()):
                    continue
                if written.path == OUR_RULES:
                    ours.add((name, setting))
                    continue
                value = wanted[name][setting]
                if _value(written) == value:
                    continue
                wins = US if refuse and (name, setting) not in ours else WINNER_UNKNOWN if written.in_doubt else THEM
                if wins == THEM and refuse:
                    refusals.append(_owned(written, value))
                key = (written.path, written.line, name, setting)
                before = found[key].wins if key in found else wins
                wins = max(wins, before, key=_WINS.index)
                found[key] = Conflict("udev", written.path, written.line, name, setting, written.value or "", wins)
    refuse_all(refusals, tuple(found.values()))
    return tuple(found.values())


def _owned(written: QueueWrite, value: Scalar) -> OwnedByAnother:
    verb, when = ("runs", "all") if written.by_program else ("reads", "our")
    cause = f"udev {verb} {written.path} line {written.line} after {when} rules, and it sets another value"
    return owned(written.queue, written.setting, cause, found=written.value, wanted=value)
