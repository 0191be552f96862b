# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``gds``: what programs with GPUDirect Storage read from ``/etc/cufile.json`` (cuFile API of NVIDIA).

A program reads it once, when it opens the driver of cuFile. So what the file says counts at once, for all that start
from now on, and after the next boot. It is a file of the package, in which others may set keys too: ours have a mark,
beside which stands what was there before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple

from ..._core.change import Plan, Step, Unmanaged
from ..._core.declared import WANTED
from ..._core.planning import boot_change, effective_change, file_action
from ..._core.registration import Registration
from ..._core.setting import IN_SYNC, Setting
from ..._core.value import field, frozen
from ..._kinds.own_files import OTHERS
from ..._text.json_comments import parse_commented
from . import schema
from .observation import MARKS, PATH, GdsState, observe
from .options import OPTIONS
from .spec import NAME, GdsDeclaration, parse

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Host

FILE = "configuration"


@frozen
class GdsDesired:
    """The values that are wanted; without any nothing of ours is to be in the file."""

    values: Mapping[str, Any] = field(default_factory=dict)
    unmanaged: Tuple[Unmanaged, ...] = ()


class Gds:
    """``convergence.Concern`` for cuFile."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = False
    # A mount or a folder that it names, and nvidia_fs, come from others.
    registration = Registration(after=("kernel_modules",))

    def parse(self, params: Mapping[str, Any]) -> GdsDeclaration:
        return parse(params)

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> GdsDeclaration:
        # All that is ours is found by our marks.
        return GdsDeclaration()

    def observe(self, host: Host, declaration: GdsDeclaration, scope: Scope) -> GdsState:
        return observe(host.files, declaration)

    def resolve(self, declaration: GdsDeclaration, state: GdsState) -> GdsDesired:
        from .check import check

        return GdsDesired(declaration.values, check(state, declaration.values))

    def restore(self, baseline: Baseline, state: GdsState) -> GdsDesired:
        """Without our marks the file is as others have it."""
        return GdsDesired()

    def plan(self, state: GdsState, desired: GdsDesired, scope: Scope) -> Plan:
        if not (scope.immediate or scope.permanent):
            return Plan()
        conflicts = () if scope.restoring else state.conflicts
        rows = _rows(state, desired.values, {})
        stale = [name for name in state.ours if name not in desired.values]
        made = state.text is None or MARKS.is_ours(state.text)
        if all(row.status == IN_SYNC for row in rows) and not stale and not (made and not desired.values):
            return Plan((*rows, *_file_rows(state, state.text)), (), desired.unmanaged, conflicts)
        before = None if state.text is None else MARKS.without(state.text)
        theirs = {} if before is None else schema.flat(parse_commented(before, PATH))
        wanted = {
            name: value for name, value in desired.values.items() if not schema.same(name, theirs.get(name), value)
        }
        text = MARKS.with_values(before, schema.nested(wanted)) if wanted else before
        rows = [*_rows(state, desired.values, theirs), *_file_rows(state, text)]
        differing = [row for row in rows if row.status != IN_SYNC]
        if not differing and text != state.text:
            # Somebody gave a key its old value, and left our mark.
            differing = [Setting(PATH, FILE, WANTED, OTHERS, OTHERS, PATH, effective_matters=False)]
            rows += differing
        steps: Tuple[Step, ...] = ()
        if differing:
            changes = [effective_change(row) for row in differing if row.effective_matters]
            changes += map(boot_change, differing)
            steps = (Step(file_action(PATH, text), tuple(changes), probes=(PATH,)),)
        return Plan(tuple(rows), steps, desired.unmanaged, conflicts)

    def perform(self, step: Step, host: Host) -> None:
        from ..._core import steps

        steps.perform(step, host)

    def report(self, state: GdsState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        values = {name: schema.shown(value) for name, value in sorted(state.values.items())}
        programs = [{"pid": int(one.pid), "name": one.name, "file": one.other_file or PATH} for one in state.programs]
        return {"cufile": values, "releases": list(state.releases.values()), "programs": programs}, {"cufile": values}


CONCERN = Gds()


def _rows(state: GdsState, wanted: Mapping[str, Any], theirs: Mapping[str, Any]) -> List[Setting]:
    """The keys that are declared, and those of ours that are declared no more: what others had comes back."""
    rows = []
    for name in dict.fromkeys((*wanted, *state.ours)):
        found: Optional[Any] = state.values.get(name)
        goal = wanted.get(name, theirs.get(name))
        # In the words of the file where both mean the same.
        text = schema.shown(found)
        wording = text if schema.same(name, found, goal) else schema.shown(goal)
        rows.append(Setting(PATH, name, wording, text, text, PATH))
    return rows


def _file_rows(state: GdsState, text: Optional[str]) -> List[Setting]:
    """A file that was not there before us."""
    if state.text is not None and not MARKS.is_ours(state.text):
        return []
    found = None if state.text is None else WANTED
    goal = None if text is None else WANTED
    if found is None and goal is None:
        return []
    return [Setting(PATH, FILE, goal, found, found, PATH, effective_matters=False)]
