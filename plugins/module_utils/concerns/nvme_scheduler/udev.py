# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rules of udev that bear on queues: ``ATTR{...}`` of files that are settings, and programs, which may write."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from ..._core.match import Glob
from ..._core.value import frozen
from ..._linux import udev_programs, udev_rules
from .rules import OUR_RULES
from .spec import TUNABLES

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from ..._linux.udev_rules import UdevRuleFile, UdevToken

_SETTING_OF_FILE = {tunable.file: setting for setting, tunable in TUNABLES.items()}
# What runs programs, or imports their answers, while a rule is read, and has to succeed for the rule to apply.
ASKING = ("PROGRAM", "IMPORT", "RESULT")


@frozen
class UdevCondition:
    key: str
    attribute: str
    negated: bool
    pattern: Glob
    text: str


@frozen
class UdevAssignment:
    """A part of a rule that writes: ``ATTR{attribute}``, or a program by its ``key``.

    ``in_doubt``: releases of udev differ in whether they read it.
    """

    key: str
    operator: str
    attribute: str
    value: str
    path: str
    line: int
    in_doubt: bool = False

    @property
    def settings(self) -> Tuple[str, ...]:
        """Those that its text names."""
        files = (self.attribute.rpartition("/")[2],) if self.key == "ATTR" else re.findall(r"queue/(\w+)", self.value)
        return tuple(sorted({_SETTING_OF_FILE[file] for file in files if file in _SETTING_OF_FILE}))


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
    """The rules of a file that jump, are jumped to, or write into a queue or run programs.

    Where releases of udev differ in what they read of a file, or of a rule, it is in doubt.
    """
    rules: List[QueueRule] = []
    for rule in entry.rules:
        conditions = []
        assignments = []
        goto = label = ""
        for token in rule.tokens:
            if token.is_condition or token.key in ASKING:
                conditions.append(_condition(token))
            if token.key == "GOTO":
                goto = token.value
            elif token.key == "LABEL":
                label = token.value
            elif _writes(token):
                said = (token.key, token.operator, token.attribute, token.value)
                assignments.append(UdevAssignment(*said, entry.path, rule.number, entry.overlong))
        if rule.malformed:
            # Nothing answers to this: so the rule may apply or not.
            conditions.append(UdevCondition("", "", False, Glob(()), ""))
        if entry.overlong:
            goto = ""
        if assignments or goto or label:
            rules.append(QueueRule(tuple(conditions), tuple(assignments), goto, label))
    return RuleFile(entry.path, tuple(rules), {rule.label: index for index, rule in enumerate(rules) if rule.label})


def _condition(token: UdevToken) -> UdevCondition:
    alternatives = () if token.key in ASKING else token.value.split("|")
    pattern = Glob(alternatives, ignore_case=token.ignore_case)
    return UdevCondition(token.key, token.attribute, token.operator == "!=", pattern, token.value)


def _writes(token: UdevToken) -> bool:
    if token.key == "ATTR":
        return not token.is_condition and token.attribute.rpartition("/")[2] in _SETTING_OF_FILE
    if token.key == "RUN":
        return token.attribute != "builtin" or token.operator != "+="
    return token.key == "PROGRAM" or (token.key == "IMPORT" and token.attribute == "program")


def read_scripts(files: Files, rule_files: Sequence[RuleFile]) -> Dict[str, str]:
    """The scripts that programs of these rules are, by path."""
    found: Dict[str, str] = {}
    for entry in rule_files:
        for rule in entry.rules if entry.path != OUR_RULES else ():
            for one in rule.assignments:
                if one.key != "ATTR":
                    found.update(udev_programs.read_script(files, one.value))
    return found


def asks_bdi(texts: Sequence[Tuple[str, str]]) -> bool:
    """Whether one of these files has a rule for the read-ahead as a device of its own."""
    return any("bdi" in text for path, text in texts if path != OUR_RULES)


def attributes_asked(rule_files: Sequence[RuleFile]) -> FrozenSet[str]:
    """The attributes that conditions of these rules look at."""
    return frozenset(
        condition.attribute
        for entry in rule_files
        for rule in entry.rules
        for condition in rule.conditions
        if condition.key in ("ATTR", "ATTRS")
    )
