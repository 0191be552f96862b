# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node and its jobs as slurmctld tells of them: ``scontrol show node NAME --oneliner`` and ``squeue``. Pure.

Where the fields of a node are, and which end the line, is in ``slurm_sprint_node_table`` (src/api/node_info.c).
"""

from __future__ import annotations

from typing import Dict, FrozenSet, List, Mapping, Sequence, Set, Tuple

from .._core.errors import CannotLook
from .._core.procedure import MARK, NOBODYS, OURS, THEIRS
from .._core.regex import regex
from .._core.value import frozen, replace
from .._core.wording import first_of

DOWN, IDLE, ALLOCATED, MIXED = "DOWN", "IDLE", "ALLOCATED", "MIXED"
UNKNOWN, ERROR, FUTURE = "UNKNOWN", "ERROR", "FUTURE"
BASES = (UNKNOWN, DOWN, IDLE, ALLOCATED, ERROR, MIXED, FUTURE)

DRAIN, FAIL, COMPLETING, INVALID = "DRAIN", "FAIL", "COMPLETING", "INVALID_REG"
NOT_RESPONDING, POWERING_UP = "NOT_RESPONDING", "POWERING_UP"
REBOOT_REQUESTED, REBOOT_ISSUED = "REBOOT_REQUESTED", "REBOOT_ISSUED"

# One word for more than one thing, as sinfo has it, and the names of older releases.
WORDS: Mapping[str, Tuple[str, ...]] = {
    "DRAINED": (IDLE, DRAIN),
    "DRAINING": (ALLOCATED, DRAIN),
    "FAILING": (ALLOCATED, FAIL),
    "INVAL": (INVALID,),
    "MAINT": ("MAINTENANCE",),
    "NO_RESPOND": (NOT_RESPONDING,),
    "REBOOT": (REBOOT_ISSUED,),
    "POWER": ("POWERED_DOWN",),
}
# These are flags of an idle node that sinfo shows in place of its state.
ALONE = frozenset(
    {
        *(FAIL, COMPLETING, INVALID, REBOOT_REQUESTED, REBOOT_ISSUED, POWERING_UP),
        *("MAINTENANCE", "PLANNED", "RESERVED", "PERFCTRS", "BLOCKED"),
        *("POWER_UP", "POWER_DOWN", "POWERING_DOWN", "POWERED_DOWN"),
    }
)
# What follows a state in the short form, see sinfo(1), "NODE STATE CODES".
SIGNS: Mapping[str, str] = {
    "*": NOT_RESPONDING,
    "~": "POWERED_DOWN",
    "#": POWERING_UP,
    "!": "POWER_DOWN",
    "%": "POWERING_DOWN",
    "$": "MAINTENANCE",
    "@": REBOOT_REQUESTED,
    "^": REBOOT_ISSUED,
    "-": "PLANNED",
}

STATE = regex(r"(?:^| )State=(\S+)")
NAME = regex(r"NodeName=(\S+)")
NONE = "(null)"
NO_NODES = "No nodes in the system"
GRES = regex(r" Gres=(\S+)")
STARTED = regex(r" SlurmdStartTime=(\S+)")
# The first line of a reason ends with who gave it and when. What follows is of other fields, else of its other lines;
# the reason itself may have something like it in it. Users of a directory have blanks and an @ in their names.
GIVEN = r" Reason=(?P<text>.*?) \[(?P<user>[^\[\]]+)@(?P<since>[^@\[\]]+)\]"
REASON = regex(rf"{GIVEN}(?=\s*$|\s+[A-Z]\w*=)")
REASON_OF_LINES = regex(GIVEN)

SEPARATOR = "|"
# Number, state, user, partition, what is left of its time limit. Not the name, which may have anything in it.
FORMAT = SEPARATOR.join(("%i", "%T", "%u", "%P", "%L"))
# A job that waits is on no node, also where a reservation names one.
WAITING = "PENDING"
SHOWN = 5


@frozen
class SlurmNode:
    """``base`` is one of ``BASES``, ``flags`` what qualifies it, ``state`` both as slurmctld says them.

    ``reason`` is empty where there is none; ``user`` gave it, and ``since`` is when, in the format of slurmctld.
    ``gres`` are the generic resources that slurmctld has of it, with the sockets of those that are bound to some, and
    ``slurmd_start`` is when its slurmd began; both are empty where there is none.
    """

    name: str
    state: str
    base: str
    flags: FrozenSet[str]
    reason: str = ""
    user: str = ""
    since: str = ""
    gres: str = ""
    slurmd_start: str = ""

    @property
    def drained(self) -> bool:
        """Whether it gets no new jobs; those of before may still run."""
        return DRAIN in self.flags

    @property
    def owner(self) -> str:
        """Whose the drain is: ``ours``, ``theirs``, or ``nobody`` where there is none."""
        if not self.drained:
            return NOBODYS
        return OURS if self.reason.startswith(MARK) else THEIRS

    @property
    def left_over(self) -> bool:
        """Whether our mark is on a node that is not drained any more: Slurm 24.11 keeps a reason after a resume."""
        return not self.drained and self.reason.startswith(MARK)

    @property
    def occupied(self) -> bool:
        """Whether jobs run or end on it. Those that are suspended leave a node idle, and only squeue tells of them."""
        return self.base in (ALLOCATED, MIXED) or COMPLETING in self.flags

    @property
    def rebooting(self) -> bool:
        """Whether a reboot is requested in Slurm: that would come when it is idle, and end the drain."""
        return bool(self.flags & {REBOOT_REQUESTED, REBOOT_ISSUED})

    def has(self, *flags: str) -> bool:
        return bool(self.flags.intersection(flags))


def parse_node(text: str, name: str) -> SlurmNode:
    """What ``scontrol`` says of one node. Raises ``CannotLook`` where that is not one line about it."""
    lines = [line for line in text.splitlines() if line.strip()]
    name_said = NAME.match(lines[0]) if lines else None
    state = STATE.search(lines[0]) if lines else None
    if len(lines) != 1 or name_said is None or name_said[1] != name or state is None:
        raise CannotLook(
            "ask slurmctld for {}",
            object=name,
            cause="scontrol did not return exactly one line about it",
            found=text.strip()[:200] or "nothing",
        )
    base, flags = parse_state(state[1])
    rest = lines[0][state.end() :]
    reason = REASON.search(rest) or REASON_OF_LINES.search(rest)
    gres = GRES.search(lines[0], 0, state.start())
    began = STARTED.search(rest)
    node = SlurmNode(
        *(name, state[1], base, flags),
        gres="" if gres is None or gres[1] == NONE else gres[1],
        slurmd_start="" if began is None else began[1],
    )
    if reason is None:
        return node
    return replace(node, reason=reason["text"], user=reason["user"], since=reason["since"])


def parse_marked(text: str) -> Tuple[SlurmNode, ...]:
    """The nodes that are drained with our mark, of all that ``scontrol`` tells of, a line each, in its order.

    Raises ``CannotLook`` on a line that is about no node. The states of others are not looked at.
    """
    found: List[SlurmNode] = []
    for line in text.splitlines():
        if not line.strip() or line.strip() == NO_NODES:
            continue
        name_said = NAME.match(line)
        if name_said is None:
            raise CannotLook(
                "ask slurmctld for its nodes", cause="scontrol returned an unexpected format", found=line[:200]
            )
        if f" Reason={MARK}" in line:
            found.append(parse_node(line, name_said[1]))
    return tuple(node for node in found if node.owner == OURS)


def parse_names(text: str) -> Tuple[str, ...]:
    """The names of all nodes that ``scontrol`` tells of, a line each."""
    return tuple(name[1] for name in map(NAME.match, text.splitlines()) if name is not None)


def parse_configuration(text: str) -> Dict[str, str]:
    """``scontrol show config``: ``Name = value`` a line. Raises ``CannotLook`` where it has none."""
    found = {
        name.strip(): value.strip()
        for name, equals, value in (line.partition("=") for line in text.splitlines())
        if equals
    }
    if not found:
        cause = "scontrol returned an unexpected format"
        raise CannotLook("read the configuration of slurmctld", cause=cause, found=text.strip()[:200] or "nothing")
    return found


def parse_state(text: str) -> Tuple[str, FrozenSet[str]]:
    """A state and its flags, such as ``MIXED+DRAIN+NOT_RESPONDING`` or ``draining*``.

    A flag that we do not know is one all the same. Raises ``CannotLook`` where there is the state is not known.
    """
    bases: Set[str] = set()
    flags: Set[str] = set()
    for part in text.upper().split("+"):
        word = part.rstrip("".join(SIGNS))
        flags.update(SIGNS[sign] for sign in part[len(word) :])
        for meaning in WORDS.get(word, (word,)):
            (bases if meaning in BASES else flags).add(meaning)
    flags.discard("")
    if not bases and flags & ALONE:
        bases.add(IDLE)
    if len(bases) != 1:
        raise CannotLook("understand the state of a node", cause="the state is not known", found=text)
    return bases.pop(), frozenset(flags)


@frozen
class Job:
    """One job. ``time_left`` is as squeue has it, such as ``1-02:30:00`` or ``UNLIMITED``."""

    job: str
    state: str
    user: str
    partition: str
    time_left: str

    def __str__(self) -> str:
        return f"{self.job} of {self.user} ({self.state.lower()} in {self.partition}, {self.time_left.lower()} left)"

    def as_dict(self) -> Dict[str, str]:
        return dict(vars(self))


def parse_jobs(text: str) -> Tuple[Job, ...]:
    """The jobs that are on the node, in the order of squeue. Raises ``CannotLook`` on a line that is none."""
    jobs = []
    for line in text.splitlines():
        if not line.strip():
            continue
        fields = [field.strip() for field in line.split(SEPARATOR)]
        if len(fields) != len(FORMAT.split(SEPARATOR)):
            raise CannotLook("read the jobs of a node", cause="squeue returned an unexpected format", found=line)
        if fields[1] != WAITING:
            jobs.append(Job(*fields))
    return tuple(jobs)


def named(jobs: Sequence[Job]) -> str:
    """The jobs in words, the first few of many."""
    if not jobs:
        return "jobs that squeue does not show to this user"
    return f"job{'s' if len(jobs) > 1 else ''} {first_of([str(job) for job in jobs], SHOWN)}"
