# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``kernel_tunables``: values of sysctl, in effect and at the next boot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core.change import Conflict, Plan, Step, Unmanaged
from ..._core.registration import Registration
from ..._core.setting import IN_SYNC, Scalar, Setting
from ..._core.value import field, frozen, replace
from . import spec
from .keys import AT_LEAST, NR_OPEN, OPTIONAL, ZEROED, decimals, dotted, read_by_kernel
from .next_boot import boot_values, file_text, lines_with, rules_text, said_by_others
from .options import OPTIONS
from .spec import OBJECT, KernelTunablesDeclaration, check_numbers
from .state import NAME, PROC, KernelTunablesState, as_scalar, missing, read_state

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Host
    from .next_boot import Values

UNKNOWN_BEFORE = "its value from before is not known, as it was not there then: the next boot brings the kernel's own"


@frozen
class KernelTunablesDesired:
    """What is wanted of this machine: values by key, those that are managed with them included, and our files."""

    values: Mapping[str, str]
    text: Optional[str] = None
    rules: Optional[str] = None
    unmanaged: Tuple[Unmanaged, ...] = ()
    declared: Mapping[str, str] = field(default_factory=dict)


class KernelTunables:
    """``convergence.Concern`` for sysctl."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = False
    # Modules bring keys, and khugepaged raises vm.min_free_kbytes.
    registration = Registration(after=("kernel_modules", "hugepages"), cures=("nr_open_too_low",))

    def parse(self, params: Mapping[str, Any]) -> KernelTunablesDeclaration:
        return spec.parse(params)

    def knobs(self, declaration: KernelTunablesDeclaration) -> Sequence[str]:
        return [f"{OBJECT} {dotted(key)}" for key in declaration.values]

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> KernelTunablesDeclaration:
        keys = (path[len(PROC) + 1 :] for path, _setting in baseline.values if path.startswith(f"{PROC}/"))
        return KernelTunablesDeclaration(looked_at=tuple(keys))

    def observe(self, host: Host, declaration: KernelTunablesDeclaration, scope: Scope) -> KernelTunablesState:
        state = read_state(host, declaration)
        if all(state.found[key] == value for key, value in declaration.values.items()):
            return state
        from .refusals import find_refusals

        return replace(state, refusals=find_refusals(host.files, declaration, state))

    def resolve(self, declaration: KernelTunablesDeclaration, state: KernelTunablesState) -> KernelTunablesDesired:
        declared: Dict[str, str] = {}
        unmanaged: List[Unmanaged] = []
        for key, value in declaration.values.items():
            if key in state.refusals:
                raise state.refusals[key]
            now = state.found[key]
            if now is None and key in OPTIONAL:
                unmanaged.append(Unmanaged(OBJECT, dotted(key), "this kernel does not have the key, or not here"))
                continue
            if now is not None and now != value and decimals(now):
                check_numbers(key, value, len(decimals(now)))
            declared[key] = value
        values = {**declared, **{ZEROED[key]: "0" for key in declared if key in ZEROED}}
        return KernelTunablesDesired(
            {key: value for key, value in values.items() if key in declared or state.found[key] is not None},
            file_text(declared),
            rules_text(declared),
            tuple(unmanaged),
            declared,
        )

    def restore(self, baseline: Baseline, state: KernelTunablesState) -> KernelTunablesDesired:
        values: Dict[str, str] = {}
        unmanaged = []
        for (path, setting), before in baseline.values.items():
            key = path[len(PROC) + 1 :]
            if not path.startswith(f"{PROC}/") or key not in state.found:
                continue
            now = state.found[key]
            if before.effective is None:
                if now is not None:
                    unmanaged.append(Unmanaged(OBJECT, setting, UNKNOWN_BEFORE, excused=True))
            elif now is not None:
                value = str(before.effective)
                if read_by_kernel(key, value, now) != value:
                    raise ValueError(f"{path} has {value!r}, which is not a value of it")
                values[key] = value
        return KernelTunablesDesired(values, unmanaged=tuple(unmanaged))

    def plan(self, state: KernelTunablesState, desired: KernelTunablesDesired, scope: Scope) -> Plan:
        now = boot_values(state, state.sources.lines)
        lines = lines_with(state, desired.text if scope.permanent else state.file.text)
        after = now if lines is state.sources.lines else boot_values(state, lines)
        rows: List[Setting] = []
        for key in state.found:
            rows += _rows(key, state, desired, now, after, scope)
        if state.nofile:
            _refuse_too_few_files(state, desired, now, after, scope)
        if scope.permanent:
            rows += [*state.rules.rows(desired.rules), *state.file.rows(desired.text)]
        conflicts: Tuple[Conflict, ...] = ()
        if not scope.restoring and (state.kubelet or any(said_by_others(state, tuple(state.found)))):
            from .conflicts import find_conflicts

            wanted = {row.identity[len(PROC) + 1 :]: row.wanted for row in rows}
            conflicts = find_conflicts(desired.declared, after, wanted, state, scope)
        steps: Tuple[Step, ...] = ()
        if any(row.status != IN_SYNC for row in rows):
            from .plan import plan_steps

            steps = plan_steps(rows, state, desired.text, desired.rules)
        return Plan(tuple(rows), steps, desired.unmanaged, conflicts)

    def perform(self, step: Step, host: Host) -> None:
        from .apply import perform

        perform(step, host)

    def report(self, state: KernelTunablesState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        at_boot = boot_values(state, state.sources.lines)
        effective = {dotted(key): as_scalar(value) for key, value in state.found.items()}
        return {"sysctl": effective}, {"sysctl": {dotted(key): value for key, (value, _line) in at_boot.items()}}


CONCERN = KernelTunables()


def _refuse_too_few_files(
    state: KernelTunablesState, desired: KernelTunablesDesired, now: Values, after: Values, scope: Scope
) -> None:
    """Raise ``NofileTooHigh`` where ``fs.nr_open`` would go below a limit with which sessions are opened.

    ``now`` and ``after`` are what the next boot brings without this plan and with it.
    """
    from ..._kinds.open_files import at_boot_by_itself, refuse_lowered

    found = _number(as_scalar(state.found[NR_OPEN]))
    wanted = found
    if scope.immediate and NR_OPEN in desired.values:
        wanted = _number(as_scalar(desired.values[NR_OPEN]))
        refuse_lowered(state.nofile, "now", found, wanted)
    boots = [
        at_boot_by_itself(current) if source is None else _number(value)
        for current, (value, source) in ((found, now[NR_OPEN]), (wanted, after[NR_OPEN]))
    ]
    refuse_lowered(state.nofile, "after the next boot", *boots)


def _number(value: Scalar) -> Optional[int]:
    return value if isinstance(value, int) else None


def _rows(
    key: str, state: KernelTunablesState, desired: KernelTunablesDesired, now: Values, after: Values, scope: Scope
) -> List[Setting]:
    path, name = f"{PROC}/{key}", dotted(key)
    effective, at_boot = as_scalar(state.found[key]), now[key][0]
    if key not in desired.values:
        # An earlier declaration gave it a value at boot, or this one gives it up.
        row = Setting(OBJECT, name, after[key][0], effective, at_boot, path, effective_matters=False)
        return [replace(row, boot_matters=scope.permanent)]
    wanted = as_scalar(desired.values[key])
    if scope.restoring:
        row = Setting(OBJECT, name, wanted, effective, at_boot, path, scope.immediate, boot_matters=False)
        # What was in effect and what the next boot brought need not have been the same.
        later = replace(row, wanted=after[key][0], effective_matters=False, boot_matters=scope.permanent)
        return [row, later]
    pending, needs = missing(key, state)
    row = Setting(OBJECT, name, wanted, effective, at_boot, path, scope.immediate, scope.permanent, pending)
    if pending:
        row = replace(row, needs=needs)
    if key in AT_LEAST and isinstance(effective, int) and isinstance(wanted, int) and effective > wanted:
        return [replace(row, wanted=effective, boot_matters=False), replace(row, effective_matters=False)]
    return [row]
