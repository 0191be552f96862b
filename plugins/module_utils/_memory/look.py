# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``hugepages``: pools of huge pages by NUMA node, and transparent huge pages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple

from .._core.change import DIFFERS, Conflict, Plan, Setting, Step
from .._core.errors import DeclarationError, Scalar
from .._host import bootloader
from . import spec
from .owners import Assignment, in_effect, parse_tmpfiles
from .spec import Desired, Want
from .state import (
    NAME,
    TMPFILES,
    Pool,
    State,
    boot_values,
    command_line_assignments,
    format_size,
    read_state,
)

if TYPE_CHECKING:
    from .._core.before import Before
    from .._host.protocols import Host


@dataclass(frozen=True)
class Boot:
    """The next boot as it is and as the plan leaves it: our lines, our arguments, and each knob's value."""

    lines: Tuple[Assignment, ...]
    arguments: Tuple[str, ...]
    old_arguments: Tuple[str, ...]
    now: Mapping[str, Tuple[Scalar, Optional[Assignment]]]
    after: Mapping[str, Tuple[Scalar, Optional[Assignment]]]

    def changes(self, state: State, desired: Desired) -> bool:
        """Whether anything of it is still to be done."""
        if not desired.permanent:
            return False
        files = bool(self.lines) != (state.our_text is not None) or bool(self.arguments) < state.loader.marked
        values = any(value[0] != self.after[knob][0] for knob, value in self.now.items())
        return files or values or self.arguments != self.old_arguments


class Hugepages:
    """``road.Concern`` for huge pages."""

    name = NAME
    options = spec.OPTIONS
    apply_at_boot = False

    def observe(self, host: Host, params: Mapping[str, Any]) -> State:
        absent = params["state"] == "absent"
        every_knob = absent or bool((params["transparent"] or {}).get("sizes"))
        state = read_state(host, every_knob=every_knob)
        if not any(pool.in_use for pool in state.pools.values()):
            return state
        try:
            desired = self._given_back(host, params, state) if absent else spec.normalise(params, state)
        except DeclarationError:
            return state  # The road comes to the same error, with nothing to say about processes.
        pools = ((want, state.pools.get(want.knob)) for want in desired.wants)
        if not any(pool is not None and int(want.value or 0) < pool.lasting for want, pool in pools):
            return state
        from .plan import below_use, read_holders

        return replace(state, holders=read_holders(host.files)) if below_use(state, desired) else state

    def normalise(self, params: Mapping[str, Any], state: State) -> Desired:
        return spec.normalise(params, state)

    def restore(self, params: Mapping[str, Any], found: Before, state: State) -> Desired:
        known = {*state.pools, *state.knobs}
        for (path, _setting), values in found.found.items():
            if path in state.pools and not (isinstance(values.effective, int) and values.effective >= 0):
                from .._core.before import damaged

                raise damaged(NAME, f"{path} has {values.effective!r}, which is no number of pages")
        wants = (Want(path, values.effective) for (path, _setting), values in found.found.items() if path in known)
        return Desired(tuple(wants), immediate=params["immediate"], permanent=params["permanent"], giving_back=True)

    def _given_back(self, host: Host, params: Mapping[str, Any], state: State) -> Desired:
        from .._core import before

        return self.restore(params, before.load(host.files, NAME), state)

    def plan(self, state: State, desired: Desired) -> Plan:
        boot = _plan_boot(state, desired)
        conflicts = _conflicts(state, desired, boot)
        settings = [row for want in desired.wants for row in _settings(want, state, desired, boot)]
        steps: Tuple[Step, ...] = ()
        if any(row.status == DIFFERS for row in settings) or boot.changes(state, desired):
            from .plan import plan_steps

            steps = plan_steps(state, desired, boot, settings)
        return Plan(tuple(settings), steps, desired.unmanaged, conflicts)

    def perform(self, step: Step, host: Host) -> None:
        from .apply import perform

        perform(step, host)

    def report(self, state: State) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        command_line = state.loader.command_line
        at_boot = boot_values(state, ours=state.ours, command_line=command_line)
        effective: Dict[str, Any] = {"pools": {}, "transparent": {}}
        boot: Dict[str, Any] = {"pools": {}, "transparent": {}, "boot_loader": state.loader.name}
        for pool in state.pools.values():
            size, node = format_size(pool.size_kb), pool.node.name
            counts = {"pages": pool.lasting, "free": pool.free, "in_use": pool.in_use, "surplus": pool.surplus}
            effective["pools"].setdefault(size, {})[node] = counts
            boot["pools"].setdefault(size, {})[node] = at_boot[pool.knob][0]
        for path, knob in state.knobs.items():
            effective["transparent"].setdefault(knob.object, {})[knob.setting] = knob.value
            boot["transparent"].setdefault(knob.object, {})[knob.setting] = at_boot[path][0]
        return effective, boot


CONCERN = Hugepages()


def _plan_boot(state: State, desired: Desired) -> Boot:
    """Our lines and arguments for the next boot: for each knob that would not come right, or that we carry already."""
    command_line = state.loader.command_line
    old = state.loader.ours
    stripped = bootloader.without(command_line, old)
    now = boot_values(state, ours=state.ours, command_line=command_line)
    if not desired.permanent:
        return Boot(state.ours, old, old, now, now)
    lines: List[Assignment] = []
    arguments: Tuple[str, ...] = ()
    if not desired.giving_back:
        without = boot_values(state, ours=(), command_line=stripped)
        carried = {line.knob for line in in_effect(state.ours)}
        gigantic: Dict[int, Dict[Pool, int]] = {}
        for want in desired.wants:
            pool = state.pools.get(want.knob)
            if pool is not None and spec.is_gigantic(pool):
                gigantic.setdefault(pool.size_kb, {})[pool] = int(want.value or 0)
            elif without[want.knob][0] != want.value or want.knob in carried:
                lines.extend(parse_tmpfiles(TMPFILES, f"w! {want.knob} - - - - {want.value}"))
        if gigantic:
            from .command_line import wanted_arguments

            arguments = wanted_arguments(gigantic, without, stripped, state)
    after = boot_values(state, ours=lines, command_line=" ".join((stripped, *arguments)))
    return Boot(tuple(lines), arguments, old, now, after)


def _settings(want: Want, state: State, desired: Desired, boot: Boot) -> Tuple[Setting, ...]:
    object_, setting = names_of(want.knob, state)
    pool = state.pools.get(want.knob)
    effective = state.knobs[want.knob].value if pool is None else pool.lasting
    at_boot, after = boot.now[want.knob][0], boot.after[want.knob][0]
    pending = ""
    if pool is not None and pool.lasting < int(want.value or 0) and desired.permanent and after == want.value:
        from .plan import why_pending

        pending = why_pending(pool, int(want.value or 0), state, desired)
    row = Setting(
        object_, setting, want.value, effective, at_boot, want.knob, desired.immediate, desired.permanent, pending
    )
    if not desired.giving_back:
        return (row,)
    # What was in effect and what the next boot brought need not have been the same.
    return (
        replace(row, boot_matters=False),
        replace(row, wanted=after, effective_matters=False, pending=""),
    )


def _conflicts(state: State, desired: Desired, boot: Boot) -> Tuple[Conflict, ...]:
    """Who else sets what is declared. Raises ``OwnedByAnother`` where the value would not stay the declared one."""
    stripped = bootloader.without(state.loader.command_line, boot.old_arguments)
    others = [*command_line_assignments(state, stripped), *state.others, *state.foreign]
    if desired.giving_back or not others:
        return ()
    from .conflicts import find_conflicts

    return find_conflicts(others, state, desired, boot)


def names_of(knob: str, state: State) -> Tuple[str, str]:
    pool = state.pools.get(knob)
    if pool is not None:
        return pool.node.name, pool.setting
    return state.knobs[knob].object, state.knobs[knob].setting
