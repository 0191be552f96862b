# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a plan is made of: settings seen three ways, the changes they need and the steps that make them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Optional, Tuple, Union

from .errors import GpuFleetError
from .setting import BOOT, DRIFTED, EFFECTIVE, IN_SYNC, NOW, PENDING, REBOOT, UNKNOWN, Scalar, Setting, worded
from .value import frozen, replace

if TYPE_CHECKING:
    from .protocols import Host


@frozen
class Change:
    """One change of one setting, either of the running system or of the next boot (``scope``)."""

    object: str
    setting: str
    before: Scalar
    after: Scalar
    scope: str
    takes_effect: str = NOW

    def as_dict(self) -> Dict[str, Scalar]:
        return dict(vars(self))


@frozen
class WriteAttribute:
    """Write a value into a file of the kernel, by one write(2)."""

    path: str
    value: str


@frozen
class ReplaceFile:
    """Give a regular file this text, atomically. ``mode`` counts for a new file; an existing one keeps its own."""

    path: str
    text: str
    mode: int = 0o644


@frozen
class RemoveFile:
    """Remove a file of ours; one that is not there is fine."""

    path: str


@frozen
class RunCommand:
    """Run a command that must succeed; ``goal`` completes "Cannot ..." when it does not."""

    argv: Tuple[str, ...]
    goal: str
    timeout: float = 120.0


class RoomAction:
    """An action only one room knows how to perform; the room's ``apply`` handles it.

    ``writes`` are the files outside of /var/lib/gpufleet and /run that it replaces, ``folders`` those that it makes.
    ``written`` are those whose text the plan has, each with it, or with None where the file goes.
    ``optional_programs`` are those that it runs where they are installed.
    """

    writes: Tuple[str, ...] = ()
    folders: Tuple[str, ...] = ()
    optional_programs: Tuple[str, ...] = ()

    @property
    def programs(self) -> Tuple[str, ...]:
        """The programs without which it fails, by name."""
        return ()

    @property
    def restarts(self) -> Tuple[str, ...]:
        """The units that it restarts, or stops for a while."""
        return ()

    def followed_by(self, plan: Plan, host: Host) -> Tuple[str, ...]:
        """What must happen after it, by the names of ``needs``, that no setting waits for yet; ``plan`` has this step.

        Only a look asks for it.
        """
        return ()

    @property
    def written(self) -> Tuple[Tuple[str, Optional[str]], ...]:
        return ()


@frozen
class Refuse(RoomAction):
    """Refuse this step and those after it, which are not taken.

    Without an error it does nothing: the changes of the step are made by somebody else, such as the boot service.
    """

    error: Optional[GpuFleetError]


Action = Union[WriteAttribute, ReplaceFile, RemoveFile, RunCommand, RoomAction]


@frozen
class Step:
    """One side effect and the changes it makes. A command that completes other steps makes none of its own.

    ``notes`` are files of ours in which it notes what the next step is about to do. They are again as they were where
    that step fails before it did anything. ``probes`` are files that must be writable before the first step is taken.
    """

    action: Action
    changes: Tuple[Change, ...] = ()
    notes: Tuple[str, ...] = ()
    probes: Tuple[str, ...] = ()

    @property
    def programs(self) -> Tuple[str, ...]:
        """The programs without which it fails, by name or path."""
        if isinstance(self.action, RunCommand):
            return self.action.argv[:1]
        return self.action.programs if isinstance(self.action, RoomAction) else ()


@frozen
class Unmanaged:
    """What the declaration matched but the machine does not let anybody set.

    With ``strict: true`` it is an error, with this goal, cause and hint, unless it is ``excused``.
    """

    object: str
    setting: str
    reason: str
    goal: str = ""
    cause: str = ""
    hint: str = "leave it out, or set strict: false"
    excused: bool = False

    def as_dict(self) -> Dict[str, str]:
        return {"object": self.object, "setting": self.setting, "reason": self.reason}


# Whose value stays, of the words of ``Conflict.wins``.
THEM, US, WINNER_UNKNOWN = "them", "us", "unknown"


@frozen
class Conflict:
    """Another owner of a setting of ours. ``wins`` says whose value stays in the end: ``them``, ``us`` or
    ``unknown``.

    ``object`` and ``setting`` are those of the ``Setting`` that it is about, as far as one is. ``accepted`` is why the
    inventory accepts it, and empty where it does not.
    """

    owner: str
    path: str
    line: Optional[int]
    object: str
    setting: str
    value: str
    wins: str
    accepted: str = ""

    @property
    def place(self) -> str:
        """The file, with the line where there is one."""
        return self.path if self.line is None else f"{self.path}:{self.line}"

    def as_dict(self) -> Dict[str, Union[str, int, None]]:
        return dict(vars(self))


@frozen
class Plan:
    """Everything a run will do, complete before its first side effect; every output is derived from it.

    ``files`` are those that hold what is declared, where no setting has their path for its identity.
    """

    settings: Tuple[Setting, ...] = ()
    steps: Tuple[Step, ...] = ()
    unmanaged: Tuple[Unmanaged, ...] = ()
    conflicts: Tuple[Conflict, ...] = ()
    blocker: Optional[Blocker] = None
    files: Tuple[str, ...] = ()

    @property
    def changes(self) -> Tuple[Change, ...]:
        return tuple(change for step in self.steps for change in step.changes)

    @property
    def refusals(self) -> Tuple[GpuFleetError, ...]:
        """The errors of a run on its way, each before a step that cannot be taken."""
        actions = (step.action for step in self.steps)
        return tuple(action.error for action in actions if isinstance(action, Refuse) and action.error is not None)

    @property
    def feasible(self) -> Tuple[Step, ...]:
        """The steps before the first that is refused."""
        for number, step in enumerate(self.steps):
            if isinstance(step.action, Refuse) and step.action.error is not None:
                return self.steps[:number]
        return self.steps

    @property
    def restarts(self) -> Tuple[str, ...]:
        """The units that the steps restart, or stop for a while."""
        actions = (step.action for step in self.steps)
        units = (unit for action in actions if isinstance(action, RoomAction) for unit in action.restarts)
        return tuple(dict.fromkeys(units))

    def split(self) -> Tuple[Tuple[Step, ...], Tuple[Step, ...]]:
        """The steps up to the last that changes the next boot, or where none does the running system; the others."""
        for scopes in ((BOOT,), (EFFECTIVE,)):
            for index in range(len(self.steps), 0, -1):
                if any(change.scope in scopes for change in self.steps[index - 1].changes):
                    return self.steps[:index], self.steps[index:]
        return (), self.steps

    def with_setting(self, setting: Setting, steps: Tuple[Step, ...]) -> Plan:
        """The plan with one more setting, and other steps."""
        return replace(self, settings=(*self.settings, setting), steps=steps)

    @property
    def pending(self) -> Tuple[Setting, ...]:
        """The settings that stay out of effect for now, even when every step is done."""
        return tuple(s for s in self.settings if s.pending and s.effective_matters and s.effective != s.wanted)

    @property
    def status(self) -> str:
        if self.steps or any(s.status == DRIFTED for s in self.settings):
            return DRIFTED
        if self.doubts:
            return UNKNOWN
        return PENDING if self.pending else IN_SYNC

    @property
    def doubts(self) -> Tuple[str, ...]:
        """The settings of which it is not known what the next boot brings, a sentence each."""
        return tuple(f"{s.object} {s.setting}: {s.doubt}" for s in self.settings if s.doubt)

    @property
    def needs(self) -> Tuple[str, ...]:
        return tuple(dict.fromkeys(s.needs for s in self.pending))

    @property
    def pending_reasons(self) -> Tuple[str, ...]:
        return tuple(_reason(s) for s in self.pending)

    @property
    def reboot_reasons(self) -> Tuple[str, ...]:
        return tuple(_reason(s) for s in self.pending if s.needs == REBOOT)


def _reason(pending: Setting) -> str:
    effective, wanted = worded(pending.effective), worded(pending.wanted)
    return f"{pending.object} {pending.setting} is {effective}, wanted {wanted}: {pending.pending}"


@frozen
class Blocker:
    """``error`` says what is in the way. A run waits up to ``timeout`` seconds for it to go away.

    ``recovery_step`` is the step that is taken all the same, such as the end of a run that was killed.
    """

    error: GpuFleetError
    timeout: float = 0.0
    recovery_step: Optional[Step] = None

    @property
    def fatal(self) -> bool:
        """Whether a run fails at once, before its first step."""
        return self.timeout <= 0
