# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Services, timers and scripts that give GPUs their settings at boot with nvidia-smi."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional, Sequence, Tuple

from .._core.change import WINNER_UNKNOWN, Conflict
from .._core.value import frozen, replace
from .._linux import boot_writers

if TYPE_CHECKING:
    from .._core.contract import Scope
    from .._core.protocols import Files
    from .._core.setting import Scalar
    from .._nvidia.driver import Identity
    from .foreign_values import Finding

PROGRAM = "nvidia-smi"


@frozen
class SmiWrite:
    """A line by which ``owner`` sets ``setting`` to ``value``, both as ``smi_arguments`` has them.

    ``in_doubt``: it is not certain that it does. ``wins`` says whose value stays if it does.
    """

    owner: str
    path: str
    line: Optional[int]
    setting: str
    value: str
    ids: Tuple[str, ...]
    in_doubt: bool
    wins: str


def read(files: Files, scope: Scope, *, otherwise: str = "") -> Tuple[SmiWrite, ...]:
    """All writes, in the order in which each owner makes them; none where the values from before are restored.

    ``otherwise`` is the unit that sets the declared values at boot where the boot service does not.
    """
    lines = () if scope.restoring else boot_writers.commands(files, PROGRAM)
    if not lines:
        return ()
    from .._nvidia import smi_arguments
    from .boot_order import carrier_of, last_word

    carrier = carrier_of(files, scope) or otherwise
    wins = {owner: last_word(files, owner, carrier) for owner in {one.owner for one in lines}}
    return tuple(
        SmiWrite(
            one.owner,
            one.path,
            one.line,
            said.setting,
            said.value,
            said.ids,
            one.in_doubt or said.in_doubt,
            wins[one.owner],
        )
        for one in lines
        for said in smi_arguments.parse(one.arguments)
    )


def of_gpu(writes: Sequence[SmiWrite], gpu: Identity) -> Tuple[SmiWrite, ...]:
    """Those that set this GPU. One that may be about another is in doubt."""
    from .._nvidia.smi_arguments import selects

    found = []
    for one in writes:
        selected = selects(one.ids, gpu)
        if selected is not False:
            found.append(replace(one, in_doubt=one.in_doubt or selected is None))
    return tuple(found)


def last_of_gpu(writes: Sequence[SmiWrite], gpu: Identity) -> Tuple[SmiWrite, ...]:
    """The same without those that a later line of the same owner undoes for certain."""
    found: List[SmiWrite] = []
    for one in of_gpu(writes, gpu):
        if not one.in_doubt:
            found = [before for before in found if (before.owner, before.setting) != (one.owner, one.setting)]
        found.append(one)
    return tuple(found)


def finding(write: SmiWrite, object: str, setting: str, value: Scalar, wanted: Scalar) -> Finding:
    """The finding that it sets another value than is wanted; None for a value that is not known."""
    wins = WINNER_UNKNOWN if write.in_doubt or value is None else write.wins
    said = str(value)
    if value is None:
        # What only the running script knows is not worth showing.
        said = "" if "*" in write.value else write.value
    return Conflict(write.owner, write.path, write.line, object, setting, said, wins), wanted
