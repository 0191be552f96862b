# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one tree of errors that an operator can meet.

A message reads "Cannot <goal> on <object>: <cause>", then what was found, what was wanted and the next step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Sequence, Tuple

from .nearest import QUESTION
from .setting import DRIFTED, Scalar
from .wording import printable

if TYPE_CHECKING:
    from .setting import Setting


class GpuFleetError(Exception):
    """Something we expected could go wrong.

    ``goal`` completes the sentence "Cannot ...", ``object`` is the thing it was about, ``hint`` is the next step. The
    object stands at the ``{}`` of the goal; without one it comes after it, "in" a path or "on" anything else.
    ``settings`` are those that are known to differ all the same, for the table, and ``conflicts`` the other owners, as
    ``Conflict`` of ``change.py``, which stands above this file.
    """

    code = "failed"
    settings: Tuple[Setting, ...] = ()
    conflicts: Tuple[Any, ...] = ()

    def __init__(
        self,
        goal: str,
        *,
        cause: str,
        object: str = "",
        found: Scalar = None,
        wanted: Scalar = None,
        hint: str = "",
    ) -> None:
        self.object = object
        self.cause = cause
        self.found = found
        self.wanted = wanted
        self.hint = hint
        values = [f"{word} {value}" for word, value in (("found", found), ("wanted", wanted)) if value is not None]
        details = f" ({', '.join(values)})" if values else ""
        # "Did you mean one? Otherwise ..." has asked already, and ends with a statement.
        mark = "?" if hint.startswith(QUESTION) and "?" not in hint else "."
        ending = f" {_ended(hint[0].upper() + hint[1:], mark)}" if hint else ""
        self.statement = f"{_about(goal, object)}: {cause}{details}"
        super().__init__(printable(f"Cannot {_ended(self.statement, '.')}{ending}"))

    def failure(self) -> Dict[str, Scalar]:
        """The error as the result key ``failure``."""
        return {
            "code": self.code,
            "object": self.object,
            "found": self.found,
            "wanted": self.wanted,
            "hint": self.hint,
        }


def _ended(sentence: str, mark: str) -> str:
    """The sentence with its mark. A question, or a text of another program, has one already; ``..`` is a folder."""
    is_ended = sentence.endswith((".", "?", "!")) and not sentence.endswith("..")
    return sentence if is_ended else f"{sentence}{mark}"


def _about(goal: str, object: str) -> str:
    if "{}" in goal:
        # What an inventory names may have no name at all.
        return goal.replace("{}", object or "''")
    if not object:
        return goal
    return f"{goal} {'in' if object.startswith('/') else 'on'} {object}"


class DeclarationError(GpuFleetError):
    """The declaration asks for what this machine cannot have. Raised before anything changes."""

    code = "declaration"


class CannotLook(GpuFleetError):
    """The state could not be read: neither right nor wrong, but ``unknown``."""

    code = "cannot_look"

    def with_drift(self, settings: Sequence[Setting]) -> CannotLook:
        """The same error, with those of the settings that are known to differ all the same."""
        self.settings = tuple(setting for setting in settings if setting.status == DRIFTED)
        return self


class NotPermitted(GpuFleetError):
    """We lack a right: not root, a read-only file system."""

    code = "not_permitted"


class OwnedByAnother(GpuFleetError):
    """Another owner of the same setting would undo ours, or we theirs, at every boot."""

    code = "conflict"


def refuse_all(refusals: Sequence[GpuFleetError], conflicts: Tuple[Any, ...] = (), *, by_object: bool = False) -> None:
    """Raise the first of them with the others in its message, so that one run shows every line to correct.

    Returns if there are none. ``conflicts`` become those of the error. A cause is named once, as one line of a file may
    be about many objects, but for ``by_object``: there each object has its own.
    """
    if not refusals:
        return
    first = refusals[0]
    statements: Dict[str, str] = {}
    for one in refusals:
        statements.setdefault(one.statement if by_object else one.cause, one.statement)
    others = [*statements.values()][1:]
    if others:
        first.args = (printable(f"{first} Also cannot {_ended('; '.join(others), '.')}"),)
    first.conflicts = conflicts
    raise first


class InUse(GpuFleetError):
    """Somebody uses what the change would take away.

    ``late``: since the look, and the step has changed nothing. With ``when_busy: skip`` a new plan leaves it alone.
    """

    code = "in_use"
    late = False


class Refused(GpuFleetError):
    """The kernel or a program refused a value."""

    code = "refused"


class MissingProgram(Refused):
    """A program is not installed without which a step fails."""

    code = "no_program"


class NotSent(GpuFleetError):
    """A file of the controller is needed that did not come: the module asks for it, and runs again."""

    code = "not_sent"


class NotInEffect(GpuFleetError):
    """The value was written and accepted, and is not what the machine now says."""

    code = "not_in_effect"


class NoPackage(NotInEffect):
    """Something is missing that packages bring, which the role installs first."""

    code = "no_package"


def not_understood(path: str, cause: str) -> CannotLook:
    """The error for a file that its engine would not take either; ``cause`` has the place in it where there is one."""
    return CannotLook(
        "parse {}",
        object=path,
        cause=cause,
        hint="correct the file, then run again; nothing was written",
    )
