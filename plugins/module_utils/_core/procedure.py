# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a procedure offers, the one way that all take, and what those share that take a node out of service."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Dict, Iterator, Mapping, Optional, Protocol, Tuple, TypeVar

from .contract import Params, diff
from .errors import DeclarationError, GpuFleetError

if TYPE_CHECKING:
    from .change import Change
    from .protocols import Host

Options = TypeVar("Options")
State = TypeVar("State")
Decision = TypeVar("Decision")


class Result(Protocol):
    """What came of a procedure, or in check mode would."""

    @property
    def error(self) -> Optional[GpuFleetError]:
        """What went wrong after the first change."""

    @property
    def changes(self) -> Tuple[Change, ...]:
        """What changed, for the difference."""

    @property
    def changed(self) -> bool:
        """Whether anything was done."""

    def report(self) -> Dict[str, Any]:
        """The state after it, in the module's own words."""


class Procedure(Protocol[Options, State, Decision]):
    """What the package of a procedure offers. Every method but ``perform`` only reads.

    A procedure runs once and ends: nothing is declared, and it reads the machine to see what is to be done.
    """

    name: str
    """That of its module, and the one that the journal has."""
    options: Mapping[str, Any]
    """The argument specification, as data."""

    def parse(self, params: Params) -> Options:
        """Pure. Raises ``DeclarationError`` on what makes no sense anywhere."""

    def look(self, host: Host, options: Options) -> State:
        """What the procedure is about, as it is now, and through whom more can be asked of it."""

    def decide(self, state: State, options: Options) -> Decision:
        """Pure: what has to be done, empty for nothing. Raises ``GpuFleetError`` where it may not be done."""

    def predict(self, host: Host, options: Options, state: State, decision: Decision) -> Result:
        """What ``perform`` would come to, as far as that can be asked without doing it."""

    def perform(self, host: Host, options: Options, state: State, decision: Decision) -> Result:
        """Do it, and wait until it is done; with nothing to do only wait.

        Raises ``GpuFleetError`` before anything changed; a failure after that is in ``Result.error``.
        """


AnyProcedure = Procedure[Any, Any, Any]


def run_through(procedure: AnyProcedure, params: Params, host: Host, *, check_mode: bool) -> Dict[str, Any]:
    """The result of the module. ``check_mode`` is asked here and nowhere else.

    Raises ``GpuFleetError`` where nothing was touched.
    """
    options = procedure.parse(params)
    state = procedure.look(host, options)
    decision = procedure.decide(state, options)
    take = procedure.predict if check_mode else procedure.perform
    result = take(host, options, state, decision)
    answer = {"changed": result.changed, **result.report(), "diff": diff(result.changes)}
    if result.error is not None:
        answer.update(failure_of(result.error))
    return answer


def failure_of(error: GpuFleetError) -> Dict[str, Any]:
    """What a result has of an error."""
    return {"failed": True, "msg": str(error), "failure": error.failure()}


# Whose drain it is, by how its reason begins. Who takes a node over from us gives it a reason of his own.
MARK = "gpufleet: "
OURS, THEIRS, NOBODYS = "ours", "theirs", "nobody"
DRAINED, IN_SERVICE = "drained", "in_service"

FIRST_POLL_SECONDS = 1.0


def refusal(option: str, cause: str, found: str) -> DeclarationError:
    """What is said of an option that makes no sense."""
    return DeclarationError("use {}", object=option, cause=cause, found=found)


def refuse_senseless_times(timeout: int, poll: int) -> None:
    """Raise ``DeclarationError`` where these are not numbers of seconds."""
    for option, seconds, least in (("timeout", timeout, 0), ("poll", poll, 1)):
        if seconds < least:
            raise refusal(option, f"it must be at least {least} s", str(seconds))


def turns(timeout: float, poll: float) -> Iterator[None]:
    """One turn at once and others after pauses that grow to ``poll``, until ``timeout`` is over. All are seconds."""
    begin = time.monotonic()
    pause = FIRST_POLL_SECONDS
    while True:
        yield
        left = timeout - (time.monotonic() - begin)
        if left <= 0:
            return
        time.sleep(min(pause, left))
        pause = min(2 * pause, float(poll))
