# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``hugepages``: pools of huge pages by NUMA node, and transparent huge pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Tuple

from ..._core.change import WINNER_UNKNOWN, Conflict, Plan, Step
from ..._core.errors import DeclarationError
from ..._core.registration import Registration
from ..._core.setting import DRIFTED, Setting
from ..._core.value import replace
from ..._kinds.boot_arguments import COMMAND_LINE
from ..._kinds.tunables import of_tmpfiles
from . import spec
from .next_boot import NextBoot, boot_values, command_line_assignments, plan_next_boot
from .observation import read_state
from .options import OPTIONS
from .spec import HugepagesDeclaration, HugepagesDesired, WantedTunable
from .state import NAME, HugepagesState, format_size, names_of

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Host


class Hugepages:
    """``convergence.Concern`` for huge pages."""

    name = NAME
    options = OPTIONS
    apply_at_boot = False
    registration = Registration(
        owns=(
            "sysctl vm.nr_hugepages*",
            "sysctl vm.nr_overcommit_hugepages",
            "kernel argument hugepages",
            "kernel argument hugepagesz",
            "kernel argument default_hugepagesz",
            "kernel argument transparent_hugepage*",
        ),
    )

    def parse(self, params: Mapping[str, Any]) -> HugepagesDeclaration:
        return spec.parse(params)

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> HugepagesDeclaration:
        return HugepagesDeclaration(changed=baseline)

    def observe(self, host: Host, declaration: HugepagesDeclaration, scope: Scope) -> HugepagesState:
        changed = declaration.changed
        state = read_state(host, every_tunable=changed is not None or bool(declaration.sizes))
        if not any(pool.in_use for pool in state.pools.values()):
            return state
        try:
            desired = self.resolve(declaration, state) if changed is None else self.restore(changed, state)
        except (DeclarationError, ValueError):
            return state  # The convergence comes to the same error, with nothing to say about processes.
        pools = ((want, state.pools.get(want.tunable)) for want in desired.wants)
        if not any(pool is not None and int(want.value or 0) < pool.lasting for want, pool in pools):
            return state
        from .plan import below_use, read_holders

        return replace(state, holders=read_holders(host.files)) if below_use(state, desired, scope) else state

    def resolve(self, declaration: HugepagesDeclaration, state: HugepagesState) -> HugepagesDesired:
        return spec.resolve(declaration, state)

    def restore(self, baseline: Baseline, state: HugepagesState) -> HugepagesDesired:
        known = {*state.pools, *state.tunables}
        for (path, _setting), values in baseline.values.items():
            if path in state.pools and not (isinstance(values.effective, int) and values.effective >= 0):
                raise ValueError(f"{path} has {values.effective!r}, which is not a number of pages")
        return HugepagesDesired(
            tuple(
                WantedTunable(path, values.effective)
                for (path, _setting), values in baseline.values.items()
                if path in known
            )
        )

    def plan(self, state: HugepagesState, desired: HugepagesDesired, scope: Scope) -> Plan:
        boot = plan_next_boot(state, desired, scope)
        conflicts = (*_conflicts(state, desired, boot, scope), *_doubts(state, desired, boot))
        settings = [row for want in desired.wants for row in _settings(want, state, desired, boot, scope)]
        steps: Tuple[Step, ...] = ()
        if any(row.status == DRIFTED for row in settings) or (scope.permanent and boot.changes(state)):
            from .plan import plan_steps

            steps = plan_steps(state, desired, boot, settings, scope)
        files = (state.file.path, state.loader.source)
        return Plan(tuple(settings), steps, desired.unmanaged, conflicts, files=files)

    def perform(self, step: Step, host: Host) -> None:
        from .apply import perform

        perform(step, host)

    def report(self, state: HugepagesState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        command_line = state.loader.command_line
        at_boot = boot_values(state, ours=state.ours, command_line=command_line)
        effective: Dict[str, Any] = {"pools": {}, "transparent": {}}
        boot: Dict[str, Any] = {"pools": {}, "transparent": {}, "boot_loader": state.loader.name}
        for pool in state.pools.values():
            size, node = format_size(pool.size_kb), pool.node.name
            counts = {"pages": pool.lasting, "free": pool.free, "in_use": pool.in_use, "surplus": pool.surplus}
            effective["pools"].setdefault(size, {})[node] = counts
            boot["pools"].setdefault(size, {})[node] = at_boot[pool.tunable][0]
        for path, tunable in state.tunables.items():
            effective["transparent"].setdefault(tunable.object, {})[tunable.setting] = tunable.value
            boot["transparent"].setdefault(tunable.object, {})[tunable.setting] = at_boot[path][0]
        return effective, boot


CONCERN = Hugepages()


def _settings(
    want: WantedTunable, state: HugepagesState, desired: HugepagesDesired, boot: NextBoot, scope: Scope
) -> Tuple[Setting, ...]:
    object_, setting = names_of(want.tunable, state)
    pool = state.pools.get(want.tunable)
    effective = state.tunables[want.tunable].value if pool is None else pool.lasting
    at_boot, after = boot.now[want.tunable][0], boot.after[want.tunable][0]
    pending = ""
    if pool is not None and pool.lasting < int(want.value or 0) and scope.permanent and after == want.value:
        from .plan import why_pending

        pending = why_pending(pool, int(want.value or 0), state, desired)
    row = Setting(
        object_, setting, want.value, effective, at_boot, want.tunable, scope.immediate, scope.permanent, pending
    )
    if not scope.restoring:
        return (row,)
    # What was in effect and what the next boot brought need not have been the same.
    return (
        replace(row, boot_matters=False),
        replace(row, wanted=after, effective_matters=False, pending=""),
    )


def _conflicts(state: HugepagesState, desired: HugepagesDesired, boot: NextBoot, scope: Scope) -> Tuple[Conflict, ...]:
    """Who else sets what is declared. Raises ``OwnedByAnother`` where the value would not stay the declared one."""
    others = [
        *command_line_assignments(state, boot.arguments.others),
        *state.others,
        *map(of_tmpfiles, state.foreign),
    ]
    if scope.restoring or not others:
        return ()
    from .conflicts import find_conflicts

    return find_conflicts(others, state, desired, boot, scope)


def _doubts(state: HugepagesState, desired: HugepagesDesired, boot: NextBoot) -> Tuple[Conflict, ...]:
    """What would be lost with our arguments to a line that may set their variable of GRUB again."""
    one = boot.arguments.doubt
    if one is None:
        return ()
    lost = boot_values(state, ours=boot.lines, command_line=boot.arguments.others)
    tunables = [want.tunable for want in desired.wants if lost[want.tunable][0] != boot.after[want.tunable][0]]
    names = dict.fromkeys(names_of(tunable, state) for tunable in tunables)
    return tuple(Conflict(COMMAND_LINE, one.path, one.line, *name, one.value, WINNER_UNKNOWN) for name in names)
