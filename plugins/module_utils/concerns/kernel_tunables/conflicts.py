# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who else gives a declared key its value."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Mapping, Tuple

from ..._core.change import THEM, US, WINNER_UNKNOWN, Conflict
from ..._core.errors import OwnedByAnother, refuse_all
from ..._kinds.tunables import SYSCTL_CONF
from ..._linux.tuned import modified
from .keys import KUBELET, ZEROED, dotted
from .next_boot import TUNED, left_by, said_by_others
from .spec import OBJECT
from .state import FILE

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from .next_boot import Values
    from .state import KernelTunablesState


def find_conflicts(
    values: Mapping[str, str], after: Values, wanted: Mapping[str, object], state: KernelTunablesState, scope: Scope
) -> Tuple[Conflict, ...]:
    """Who else sets what is declared. Raises ``OwnedByAnother`` where the next boot would not bring the declared value,
    with all of them.

    ``after`` is what the next boot brings when the plan is done.
    """
    _refuse_beside_kubelet(values, state)
    # Who gives the other one of a pair a value sets the declared one to 0.
    said = {**{ZEROED[key]: "0" for key in values if key in ZEROED}, **values}
    winners = [source for _value, source in after.values()]
    found: List[Conflict] = []
    for one in said_by_others(state, tuple(said)):
        wanted_text = said[one.tunable]
        is_left = one.owner == TUNED and modified(one.value, wanted_text) is None
        if not is_left and left_by(one, wanted_text, state) != wanted_text:
            # `sysctl --system` reads that file last, and systemd-sysctl at its link or not at all.
            wins = THEM if one.owner == SYSCTL_CONF or one in winners else WINNER_UNKNOWN if one.in_doubt else US
            found.append(Conflict(one.owner, one.path, one.line, OBJECT, dotted(one.tunable), one.value, wins))
    refusals: List[OwnedByAnother] = []
    for key in values if scope.permanent else ():
        value, source = after[key]
        if value != wanted[key] and source is not None:
            what = "sets it too" if source.tunable == key else f"sets {dotted(source.tunable)}, which sets it to 0"
            refusal = OwnedByAnother(
                "set {}",
                object=f"{OBJECT} {dotted(key)}",
                cause=f"{source.owner} {what}, at {source.place}, and wins over {FILE}",
                found=source.value,
                wanted=str(wanted[key]),
                hint="remove it there, or declare the same value",
            )
            refusals.append(refusal)
    refuse_all(refusals, tuple(found))
    return tuple(found)


def _refuse_beside_kubelet(values: Mapping[str, str], state: KernelTunablesState) -> None:
    for key in KUBELET.keys() & values.keys() if state.kubelet else ():
        if values[key] != str(KUBELET[key]):
            raise OwnedByAnother(
                "set {}",
                object=f"{OBJECT} {dotted(key)}",
                cause=f"the kubelet of {state.kubelet} sets it when it starts, or refuses to start without its value",
                found=KUBELET[key],
                wanted=values[key],
                hint="declare that value, or leave the key out",
            )
