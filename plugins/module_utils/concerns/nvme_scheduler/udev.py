# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What udev will write into the queues at boot and at hot-plug: everybody's rules as udev reads them.

Of the rules only what bears on ``ATTR{queue/...}`` is looked at. A condition that cannot be told from
here (a program's answer, a property that other rules set) leaves its rule in doubt; doubt is reported, never decided.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from ..._core.change import Conflict
from ..._core.errors import OwnedByAnother
from ..._core.match import Glob
from ..._core.setting import Scalar
from ..._core.value import frozen, replace
from ..._linux import udev_rules
from .devices import CONTROLLER, Disk, Level, Subject
from .rules import OUR_RULES, PCI_PROPERTY
from .spec import SCHEDULER, TUNABLES

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from ..._linux.udev_rules import UdevRuleFile

_SETTING_OF_FILE = {tunable.file: setting for setting, tunable in TUNABLES.items()}


@frozen
class UdevCondition:
    key: str
    attribute: str
    negated: bool
    pattern: Glob
    text: str


@frozen
class UdevAssignment:
    """What a rule writes: into the queue of the device itself, or of the hidden paths below it.

    ``in_doubt`` says that we cannot tell whether it will be written, ``by_program`` that a program of RUN does it.
    """

    setting: str
    value: str
    path: str
    line: int
    below: bool = False
    in_doubt: bool = False
    by_program: bool = False


@frozen
class QueueRule:
    conditions: Tuple[UdevCondition, ...]
    assignments: Tuple[UdevAssignment, ...]
    goto: str
    label: str


@frozen
class RuleFile:
    """The rules of one file that bear on queues, in order, and where its labels are."""

    path: str
    rules: Tuple[QueueRule, ...]
    labels: Mapping[str, int]


def parse_texts(texts: Sequence[Tuple[str, str]]) -> Tuple[RuleFile, ...]:
    return tuple(_bearing_on_queues(udev_rules.parse(path, text)) for path, text in texts)


def with_ours(texts: Sequence[Tuple[str, str]], text: Optional[str]) -> Tuple[RuleFile, ...]:
    """The rules of these files with our own replaced by ``text`` or, for None, without them."""
    others = [entry for entry in texts if entry[0] != OUR_RULES]
    if text is not None:
        others.append((OUR_RULES, text))
    return parse_texts(sorted(others, key=lambda entry: entry[0].rsplit("/", 1)[1]))


def _bearing_on_queues(entry: UdevRuleFile) -> RuleFile:
    """The rules of a file that jump, are jumped to, or write into a queue.

    Where releases of udev differ in what they read of a file, or of a rule, it is in doubt.
    """
    rules: List[QueueRule] = []
    for rule in entry.rules:
        conditions = []
        assignments = []
        goto = label = ""
        for token in rule.tokens:
            key, attribute, value = token.key, token.attribute, token.value
            if token.is_condition:
                pattern = Glob(value.split("|"), ignore_case=token.ignore_case)
                conditions.append(UdevCondition(key, attribute, token.operator == "!=", pattern, value))
            elif key == "GOTO":
                goto = value
            elif key == "LABEL":
                label = value
            elif key == "ATTR" and attribute.startswith("queue/"):
                setting = _SETTING_OF_FILE.get(attribute[len("queue/") :])
                if setting:
                    assignments.append(UdevAssignment(setting, value, entry.path, rule.number))
            elif key == "RUN":
                assignments.extend(_run_assignments(entry.path, rule.number, value))
            elif key == "PROGRAM":
                conditions.append(UdevCondition(key, attribute, False, Glob(()), value))
        if rule.malformed:
            # Nothing answers to this: so the rule may apply or not.
            conditions.append(UdevCondition("", "", False, Glob(()), ""))
        if entry.overlong:
            assignments = [replace(assignment, in_doubt=True) for assignment in assignments]
            goto = ""
        if assignments or goto or label:
            rules.append(QueueRule(tuple(conditions), tuple(assignments), goto, label))
    return RuleFile(entry.path, tuple(rules), {rule.label: index for index, rule in enumerate(rules) if rule.label})


def attributes_asked(rule_files: Sequence[RuleFile]) -> FrozenSet[str]:
    """The attributes that conditions of these rules look at."""
    return frozenset(
        condition.attribute
        for entry in rule_files
        for rule in entry.rules
        for condition in rule.conditions
        if condition.key in ("ATTR", "ATTRS")
    )


def subjects(
    disks: Sequence[Disk], *, files: Optional[Files] = None, asked: FrozenSet[str] = frozenset()
) -> Dict[str, Subject]:
    """The disks as rules see them, by name, with the attributes of ``asked`` read for each and for its parents."""
    return {disk.name: _subject(disk, files, sorted(asked - {*CONTROLLER, "dm/name"})) for disk in disks}


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
            # What rules themselves change cannot be told for the next boot from what is there now.
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
    return Subject(tuple(levels), own.mq, addresses, own.missing)


def evaluate(rule_files: Sequence[RuleFile], subject: Subject, action: str) -> Tuple[UdevAssignment, ...]:
    """Everything that an event of this disk writes into queues, in order; the last without doubt is what stays."""
    written: List[UdevAssignment] = []
    for entry in rule_files:
        index = 0
        doubtful_until: Optional[int] = None
        while index < len(entry.rules):
            rule = entry.rules[index]
            if doubtful_until is not None and index >= doubtful_until:
                doubtful_until = None
            applies = _applies(rule, subject, action)
            if applies is not False:
                in_doubt = applies is None or doubtful_until is not None
                for assignment in rule.assignments:
                    written.append(replace(assignment, in_doubt=True) if in_doubt else assignment)
                target = entry.labels.get(rule.goto, -1) if rule.goto else -1
                if target > index and not in_doubt:
                    index = target
                    continue
                if target > index:
                    doubtful_until = max(target, doubtful_until or 0)
            index += 1
    # Programs run when all rules are through.
    return tuple(sorted(written, key=lambda assignment: assignment.by_program))


def _applies(rule: QueueRule, subject: Subject, action: str) -> Optional[bool]:
    """Whether all conditions agree: None where one cannot be told and no other disagrees."""
    verdict: Optional[bool] = True
    upwards = []
    for condition in rule.conditions:
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
        value = "block"
    elif condition.key == "KERNEL":
        value = subject.levels[0].name
    elif condition.key == "ENV" and condition.attribute == "DEVTYPE":
        value = "disk"
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


def _run_assignments(path: str, line: int, value: str) -> List[UdevAssignment]:
    if path == OUR_RULES:
        return [
            UdevAssignment(_SETTING_OF_FILE[file], text, path, line, below=True, by_program=True)
            for text, file in re.findall(r"echo (\S+) > \$\$q/(\w+)", value)
        ]
    settings = {_SETTING_OF_FILE[file] for file in re.findall(r"queue/(\w+)", value) if file in _SETTING_OF_FILE}
    return [UdevAssignment(setting, value, path, line, in_doubt=True, by_program=True) for setting in sorted(settings)]


def boot(
    rule_files: Sequence[RuleFile], disks: Sequence[Disk], subjects: Mapping[str, Subject]
) -> Dict[Tuple[str, str], Scalar]:
    """What udev's rules leave in each queue after the ``add`` of a boot, by device and setting."""
    values: Dict[Tuple[str, str], Scalar] = {}
    for disk in disks:
        for assignment in evaluate(rule_files, subjects[disk.name], "add"):
            if not assignment.in_doubt:
                for queue in disk.queues:
                    if queue.hidden is assignment.below and assignment.setting in queue.values:
                        values[(queue.name, assignment.setting)] = _value(assignment)
    return values


def _value(assignment: UdevAssignment) -> Scalar:
    if assignment.setting != SCHEDULER and re.fullmatch(r"-?\d+", assignment.value):
        return int(assignment.value)
    return assignment.value


def conflicts(
    rule_files: Sequence[RuleFile],
    subjects: Mapping[str, Subject],
    wanted: Mapping[str, Mapping[str, Scalar]],
    *,
    restoring: bool,
) -> Tuple[Conflict, ...]:
    """Others who write what we write. Raises ``OwnedByAnother`` where one of them would have the last word.

    ``wanted`` are values by device and setting.
    """
    found: Dict[Tuple[str, int, str], Conflict] = {}
    for name, subject in subjects.items():
        values = wanted.get(name, {})
        for action in ("add", "change") if values else ():
            ours = set()
            for written in evaluate(rule_files, subject, action):
                setting = written.setting
                if written.below or setting not in values:
                    continue
                if written.path == OUR_RULES:
                    ours.add(setting)
                elif written.in_doubt or _value(written) != values[setting]:
                    if setting in ours and not written.in_doubt and not restoring:
                        raise _owned(name, written, values[setting])
                    wins = "them" if setting in ours or restoring else "us"
                    found[(written.path, written.line, setting)] = Conflict(
                        "udev", written.path, written.line, setting, written.value, wins
                    )
    return tuple(found.values())


def _owned(name: str, assignment: UdevAssignment, value: Scalar) -> OwnedByAnother:
    return OwnedByAnother(
        f"keep {assignment.setting}",
        object=name,
        cause=f"udev reads {assignment.path} line {assignment.line} after our rules, and it sets another value",
        found=assignment.value,
        wanted=value,
        hint="remove that line, declare its value, or set permanent: false",
    )
