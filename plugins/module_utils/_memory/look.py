# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``hugepages``: pools of huge pages by NUMA node, and transparent huge pages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple

from .._core import before
from .._core.before import Before
from .._core.change import DIFFERS, Conflict, Plan, Setting, Step
from .._core.errors import DeclarationError, OwnedByAnother, Scalar
from .._host import bootloader
from . import spec
from .owners import Assignment, in_effect, parse_tmpfiles
from .spec import Desired, Want
from .state import (
    COMMAND_LINE,
    NAME,
    SHORT,
    TMPFILES,
    Pool,
    State,
    arguments_of_sizes,
    boot_values,
    command_line_assignments,
    format_size,
    is_total,
    parse_pages,
    read_holders,
    read_state,
    touches,
)

if TYPE_CHECKING:
    from .._host.protocols import Host

AT_BOOT = "the kernel reserves pages of this size at boot"


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
        files = bool(self.lines) != (state.our_text is not None) or bool(self.arguments) < bool(state.loader.carried)
        values = any(value[0] != self.after[knob][0] for knob, value in self.now.items())
        return files or values or self.arguments != self.old_arguments


class Hugepages:
    """``road.Concern`` for huge pages."""

    name = NAME
    options = spec.OPTIONS

    def observe(self, host: Host, params: Mapping[str, Any]) -> State:
        absent = params["state"] == "absent"
        every_knob = absent or bool((params["transparent"] or {}).get("sizes"))
        state = read_state(host, every_knob=every_knob)
        if not any(pool.in_use for pool in state.pools.values()):
            return state
        try:
            known = before.load(host.files, NAME) if absent else None
            desired = spec.normalise(params, state) if known is None else self.restore(known, state)
        except DeclarationError:
            return state  # The road comes to the same error, with nothing to say about processes.
        pools = ((want, state.pools.get(want.knob)) for want in desired.wants)
        if not any(pool is not None and int(want.value or 0) < pool.lasting for want, pool in pools):
            return state
        from .plan import below_use

        return replace(state, holders=read_holders(host.files)) if below_use(state, desired) else state

    def normalise(self, params: Mapping[str, Any], state: State) -> Desired:
        return spec.normalise(params, state)

    def restore(self, found: Before, state: State) -> Desired:
        known = {*state.pools, *state.knobs}
        wants = (Want(path, values.effective) for (path, _setting), values in found.found.items() if path in known)
        return Desired(tuple(wants), giving_back=True)

    def plan(self, state: State, desired: Desired) -> Plan:
        boot = _plan_boot(state, desired)
        conflicts = () if desired.giving_back else _conflicts(state, desired, boot)
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
    old = arguments_of_sizes(command_line, state.our_sizes)
    stripped = bootloader.without(command_line, old)
    now = boot_values(state, ours=state.ours, command_line=command_line)
    if not desired.permanent:
        return Boot(state.ours, old, old, now, now)
    lines: List[Assignment] = []
    arguments: List[str] = []
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
        for size_kb, counts in sorted(gigantic.items()):
            others = parse_pages(stripped, state.default_kb)
            differs = any(without[pool.knob][0] != count for pool, count in counts.items())
            if size_kb not in others and (differs or size_kb in state.our_sizes):
                arguments.extend(spec.command_line_arguments(counts, state))
    after = boot_values(state, ours=lines, command_line=" ".join((stripped, *arguments)))
    return Boot(tuple(lines), tuple(arguments), old, now, after)


def _settings(want: Want, state: State, desired: Desired, boot: Boot) -> Tuple[Setting, ...]:
    object_, setting = names_of(want.knob, state)
    pool = state.pools.get(want.knob)
    effective = state.knobs[want.knob].value if pool is None else pool.lasting
    at_boot, after = boot.now[want.knob][0], boot.after[want.knob][0]
    pending = "" if pool is None else _pending(pool, int(want.value or 0), state, desired, after)
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


def _pending(pool: Pool, wanted: int, state: State, desired: Desired, after: Scalar) -> str:
    """Why growth has to wait for the next boot; empty when it has not to."""
    if pool.lasting >= wanted or after != wanted or not desired.permanent:
        return ""
    if spec.is_gigantic(pool):
        asked = parse_pages(state.running, state.default_kb).get(pool.size_kb, {})
        asked_here = asked.get(pool.node.number, 0) if None not in asked else asked[None] // len(state.nodes)
        if asked_here < wanted:
            return AT_BOOT
    known = f"{pool.node.name} {pool.setting} {wanted}" in state.short
    return SHORT if known and desired.on_shortage == spec.REBOOT else ""


def _conflicts(state: State, desired: Desired, boot: Boot) -> Tuple[Conflict, ...]:
    """Who else sets what is declared. Raises ``OwnedByAnother`` where the value would not stay the declared one."""
    stripped = bootloader.without(state.loader.command_line, boot.old_arguments)
    others = [*command_line_assignments(state, stripped), *state.others, *state.foreign]
    found: List[Conflict] = []
    chosen = {want.knob: want.value for want in desired.wants}
    for line in others:
        for want in desired.wants:
            if not touches(line, want.knob, state):
                continue
            object_, setting = names_of(want.knob, state)
            pool = state.pools.get(want.knob)
            wanted = want.value
            after, source = boot.after[want.knob]
            if pool is not None and is_total(line, pool, state):
                object_ = "all nodes"
                knobs = [other.knob for other in state.of_size(pool.size_kb)]
                wanted = sum(int(chosen.get(knob, boot.after[knob][0]) or 0) for knob in knobs)
            wins = "us" if source is not None and source.path == TMPFILES else "them"
            conflict = Conflict(line.owner, line.path, line.line, f"{object_} {setting}", line.value, wins)
            if conflict not in found:
                found.append(conflict)
            # A count on the command line is somebody's declaration; a policy there is only the kernel's first value.
            stays = line.later or (line.owner == COMMAND_LINE and pool is not None) or after != want.value
            if desired.permanent and line.value != str(wanted) and stays:
                where = line.path if line.line is None else f"{line.path}:{line.line}"
                raise OwnedByAnother(
                    f"set {setting}",
                    object=object_,
                    cause=f"{line.owner} sets it too, at {where}",
                    found=line.value,
                    wanted=wanted,
                    hint="remove it there, or declare the same value",
                )
    return tuple(found)


def names_of(knob: str, state: State) -> Tuple[str, str]:
    pool = state.pools.get(knob)
    if pool is not None:
        return pool.node.name, pool.setting
    return state.knobs[knob].object, state.knobs[knob].setting
