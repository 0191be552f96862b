# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a concern offers, and what comes out of a run: the contract of every module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Protocol, Sequence, Tuple, TypeVar

from .change import Change, Plan, Step
from .errors import CannotLook, DeclarationError, GpuFleetError
from .registration import Registration
from .setting import DRIFTED, EFFECTIVE, INVALID, UNKNOWN, Scalar
from .value import frozen

if TYPE_CHECKING:
    from .baseline import Baseline
    from .protocols import Host

Declaration = TypeVar("Declaration")
State = TypeVar("State")
Desired = TypeVar("Desired")
Params = Mapping[str, Any]

LOCK = "/run/gpufleet/lock"
REBOOT_FOLDER = "/run/gpufleet/reboot-required.d"


@frozen
class Scope:
    """What a run is about: the running system (``immediate``), the next boot (``permanent``), or both.

    ``restoring`` is ``state: absent``. ``declared`` is the declaration that lies on the node for the next boot:
    ``declared.WANTED`` for the one of this run, None for none, or another.
    """

    immediate: bool = True
    permanent: bool = True
    restoring: bool = False
    declared: Scalar = None

    @property
    def carries(self) -> bool:
        """Whether the next boot is to bring the values. What is restored has its own ways to come back."""
        return self.permanent and not self.restoring


class Concern(Protocol[Declaration, State, Desired]):
    """What a room offers for one concern. Every method but ``perform`` only reads.

    Five more it may have: ``devices(state)`` tells in a few words a device what has too many settings to show each,
    ``summary(state)`` in a line what its settings mean together, and ``unique(state)`` what no other node of the fleet
    may have too, a text by what it is called. ``knobs(declaration)`` are those that are declared one by one, where any
    of a kind can be (``.knobs``). ``needs_boot_service(params)`` says of these options whether the boot service applies
    them, where it does so for some declarations only.
    """

    name: str
    options: Mapping[str, Any]
    """The argument specification, as data, without the shared options."""
    apply_at_boot: bool
    """Whether the boot service applies the declaration, because nothing else carries it across a reboot."""
    registration: Registration
    """Its place among the other concerns."""

    def parse(self, params: Params) -> Declaration:
        """Pure. Raises ``DeclarationError`` on what no machine could have, before the machine is asked."""

    def everything(self, params: Params, baseline: Baseline) -> Declaration:
        """Pure: what ``state: absent`` observes, which is all that the baseline holds.

        Of ``params`` only those count that say how something is done, such as for whom to wait.
        """

    def observe(self, host: Host, declaration: Declaration, scope: Scope) -> State:
        """What is in effect and what the next boot will bring. What is declared only narrows what is read."""

    def resolve(self, declaration: Declaration, state: State) -> Desired:
        """The declaration on this machine. Raises ``DeclarationError`` on what this machine cannot have."""

    def restore(self, baseline: Baseline, state: State) -> Desired:
        """What ``state: absent`` wants: the values from before the first change, and no file of ours.

        Raises ``ValueError`` on a value in the baseline that the concern never had.
        """

    def plan(self, state: State, desired: Desired, scope: Scope) -> Plan:
        """Pure: the settings three ways and the steps from here to there, complete and in order."""

    def perform(self, step: Step, host: Host) -> Optional[Tuple[Change, ...]]:
        """One step. The room imports what it needs for it only here.

        None when it made its changes, or the changes that it made, where the machine let it make others than those.
        """

    def report(self, state: State) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        """The state in the module's own words: in effect, and at boot."""


def brings(params: Params) -> bool:
    """Whether a run with these parameters may bring something to the node."""
    return params["state"] == "present" and bool(params["immediate"] or params["permanent"])


AnyConcern = Concern[Any, Any, Any]


@frozen
class Outcome:
    """What a look or a run found and did; ``as_dict`` is the contract of every module."""

    status: str
    changes: Tuple[Change, ...]
    effective: Mapping[str, Any]
    boot: Mapping[str, Any]
    remaining: Plan
    """The plan of the last look: what must still happen."""
    error: Optional[GpuFleetError] = None
    files: Sequence[Mapping[str, str]] = ()
    """The foreign files that changed, as ``file_diffs`` has them; empty without diff mode."""

    def as_dict(self) -> Dict[str, Any]:
        # Ansible prints it as it is, behind the lines of the changes.
        prepared = "".join(one["diff"] for one in self.files)
        result: Dict[str, Any] = {
            "changed": bool(self.changes),
            "status": self.status,
            "changes": [change.as_dict() for change in self.changes],
            "diff": {**diff(self.changes), **({"prepared": prepared} if prepared else {})},
            "needs": list(self.remaining.needs),
            "pending_reasons": list(self.remaining.pending_reasons),
            "unmanaged": [entry.as_dict() for entry in self.remaining.unmanaged],
            "conflicts": [entry.as_dict() for entry in self.remaining.conflicts],
            "reboot_required": bool(self.remaining.reboot_reasons),
            "reboot_reasons": list(self.remaining.reboot_reasons),
            "effective": dict(self.effective),
            "boot": dict(self.boot),
        }
        if self.error is not None:
            result.update(failed=True, msg=str(self.error), failure=self.error.failure())
        return result


def status_of(error: GpuFleetError) -> str:
    """What is declared wrong is invalid, what could not be read unknown; a refused node is not as declared."""
    if isinstance(error, DeclarationError):
        return INVALID
    return UNKNOWN if isinstance(error, CannotLook) and not error.settings else DRIFTED


def refused(error: GpuFleetError) -> Outcome:
    """The outcome of a run that failed before its first change."""
    return Outcome(status_of(error), (), {}, {}, Plan(error.settings, conflicts=error.conflicts), error)


def diff(changes: Tuple[Change, ...]) -> Dict[str, str]:
    """The changes for ``--diff``: one ``object setting: value`` a line, those for the next boot marked as such."""
    sides: Dict[str, str] = {}
    for side in ("before", "after"):
        lines = []
        for change in changes:
            scope = "" if change.scope == EFFECTIVE else " (boot)"
            value = getattr(change, side)
            lines.append(f"{change.object} {change.setting}{scope}: {'-' if value is None else value}\n")
        sides[side] = "".join(lines)
    return sides


def outcome(
    concern: AnyConcern,
    *,
    plan: Plan,
    changes: Tuple[Change, ...],
    state: Any,
    remaining: Plan,
    error: Optional[GpuFleetError] = None,
    files: Sequence[Mapping[str, str]] = (),
) -> Outcome:
    effective, boot = concern.report(state)
    return Outcome(plan.status, changes, effective, boot, remaining, error, files)


def reboot_note(concern: str) -> str:
    """Where the reasons for a reboot are kept, so that the next boot clears them by itself."""
    return f"{REBOOT_FOLDER}/{concern}"


def reboot_text(plan: Plan) -> str:
    return "".join(f"{reason}\n" for reason in plan.reboot_reasons)
