# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kernel modules: the steps to what is declared, in the order in which modules need each other."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Container, Dict, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from ..._core.change import THEM, US, Action, Change, Conflict, RemoveFile, ReplaceFile, RunCommand, Step, Unmanaged
from ..._core.declared import WANTED
from ..._core.errors import InUse, OwnedByAnother, refuse_all
from ..._core.setting import BOOT, EFFECTIVE, NOW, REBOOT, Setting
from ..._core.value import replace
from ..._linux.modprobe import (
    BLACKLIST,
    LOAD,
    REFUSE,
    ModprobeLine,
    ModprobeLines,
    install_of,
    lines_of,
    parse_load,
    parse_modprobe,
    softdep_of,
    stop_of,
)
from .state import (
    BLOCK_FILE,
    BLOCKED,
    INITRAMFS,
    INITRAMFS_NOTE,
    LOAD_FILE,
    LOADED,
    MODPROBE_COPY,
    NOT_LOADED,
    NVIDIA,
    OUTDATED,
    STATE,
    KernelModulesDesired,
    KernelModulesState,
    Module,
    why_lacking,
)

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from .initramfs import ListInitramfs

# What drives NVIDIA's GPUs without NVIDIA's driver.
OTHER_DRIVERS = ("nouveau", "nova_core")
# Some machines take minutes for each of their kernels.
REBUILD_SECONDS = 1800.0
NOTE = "The files in modprobe.d changed, and the initramfs still has to be rebuilt.\n"


def plan_steps(
    state: KernelModulesState, desired: KernelModulesDesired, rows: Sequence[Setting], scope: Scope
) -> Tuple[List[Setting], Tuple[Step, ...]]:
    """The rows, with what has to wait, and the steps. Raises ``OwnedByAnother`` or ``InUse``.

    What is blocked comes first, so that nothing loads it again. What is to be loaded at boot comes after it was loaded
    here: no boot then meets a module that this machine refuses. Last is the initramfs, which takes longest.
    """
    after = _lines_after(state, desired, scope)
    at_boot, now = ModprobeLines((*after, *state.coming)), ModprobeLines((*after, *state.running))
    if scope.carries:
        _refuse_owned(state, desired, at_boot)
    order, stuck = unload_order(desired.block, state.loaded)
    settled = [_wait(row, stuck, state, scope, now) for row in rows]
    waiting = {row.identity for row in settled if row.pending}
    block, load = _file_steps(state, desired, settled, after, at_boot, waiting)
    due = bool(block) and _concerns_initramfs(state, after)
    options: Tuple[Step, ...] = ()
    if state.parameters is not None or desired.parameters:
        from . import parameters_plan

        if scope.carries:
            parameters_plan.refuse_owned(state, desired)
        pending = {(row.object, row.setting) for row in settled if row.pending and row.effective_matters}
        options = parameters_plan.plan_options(state, desired, settled, pending)
        due = due or (bool(options) and parameters_plan.concerns_initramfs(state, desired))
    note = (Step(ReplaceFile(OUTDATED, NOTE), notes=(OUTDATED,)),) if due and not state.outdated else ()
    images: Tuple[Step, ...] = ()
    if scope.permanent:
        changed = {(change.object, change.setting) for step in (*block, *options) for change in step.changes}
        unchanged = [row for row in settled if (row.object, row.setting) not in changed]
        images = _image_steps(state, _list_action(state, desired, after), unchanged, due=due)
    # First, so that no run that is killed leaves it behind.
    is_idle = state.noted and scope.permanent and not _has_files(desired)
    forget = (Step(RemoveFile(INITRAMFS_NOTE)),) if is_idle else ()
    differing = {r.identity: r for r in settled if r.effective_matters and r.effective != r.wanted and not r.pending}
    unload = [_run("rmmod", "unload", differing[name]) for name in order if name in differing]
    along, loads = _loads(state, desired, differing)
    return [*settled, *along], (*forget, *note, *block, *options, *unload, *loads, *load, *images)


def unload_order(names: Sequence[str], loaded: Mapping[str, Module]) -> Tuple[List[str], Dict[str, str]]:
    """Those of the modules that can be unloaded, each after the ones that use it, and why the others cannot."""
    order: List[str] = []
    gone: Set[str] = set()
    left = [name for name in names if name in loaded]
    while True:
        free = [
            name
            for name in left
            if loaded[name].references == len(loaded[name].users) and gone.issuperset(loaded[name].users)
        ]
        if not free:
            return order, {name: _why_stuck(loaded[name], gone) for name in left}
        order += free
        gone.update(free)
        left = [name for name in left if name not in gone]


def conflicts_of(
    found: Iterable[Tuple[str, str, ModprobeLine]],
    state: KernelModulesState,
    desired: KernelModulesDesired,
    scope: Scope,
) -> Tuple[Conflict, ...]:
    """``found`` are a module, what is wanted of it at boot, and a line that wants the contrary."""
    after = ModprobeLines((*_lines_after(state, desired, scope), *state.coming))
    return tuple(
        Conflict(
            line.owner,
            line.path,
            line.number,
            name,
            STATE,
            line.text,
            US if state.boot(name, after) == wanted else THEM,
        )
        for name, wanted, line in found
    )


def leave_impossible(state: KernelModulesState, desired: KernelModulesDesired, scope: Scope) -> KernelModulesDesired:
    """What is restored, without the modules that cannot be now: they stay as they are, and are named."""
    left: List[Unmanaged] = []
    order, stuck = unload_order(desired.block, state.loaded)
    unloaded = frozenset(order)
    for name in desired.block:
        if state.effective(name) == LOADED and name not in unloaded:
            reason = stuck.get(name, "it is built into this kernel")
            left.append(Unmanaged(name, STATE, f"it stays loaded: {reason}"))
    lines = ModprobeLines((*_lines_after(state, desired, scope), *state.running))
    for name in desired.load:
        if state.effective(name) == NOT_LOADED:
            stop = stop_of(name, lines, state.needs(name))
            if stop or not state.has(name):
                reason = f"{stop.where} says {stop.text}" if stop else why_lacking(name, state)
                left.append(Unmanaged(name, STATE, f"it is not loaded again: {reason}"))
    gone = {entry.object for entry in left}
    return replace(
        desired,
        load=tuple(name for name in desired.load if name not in gone),
        block=tuple(name for name in desired.block if name not in gone),
        unmanaged=tuple(left),
    )


def _why_stuck(module: Module, gone: Container[str]) -> str:
    users = [user for user in module.users if user not in gone]
    if module.references is None:
        return "it cannot be unloaded"
    if users:
        return f"in use by {', '.join(users)}"
    return "an open device, a console or a mount uses it"


def _lines_after(state: KernelModulesState, desired: KernelModulesDesired, scope: Scope) -> Tuple[ModprobeLine, ...]:
    """The lines of files as the plan leaves them, in the order in which they are read."""
    if not scope.permanent:
        return state.lines
    others = [line for line in state.lines if line.path not in (LOAD_FILE, BLOCK_FILE)]
    ours = [
        *parse_load(LOAD_FILE, desired.load_text or ""),
        *parse_modprobe(BLOCK_FILE, desired.block_text or ""),
    ]
    return tuple(sorted((*others, *ours), key=lambda line: os.path.basename(line.path)))


def _refuse_owned(state: KernelModulesState, desired: KernelModulesDesired, after: ModprobeLines) -> None:
    """Raise ``OwnedByAnother`` where the next boot would bring another state than the declared one."""
    refusals: List[OwnedByAnother] = []
    hint = "remove that line, or set permanent: false"
    for name in desired.load:
        found = state.boot(name, after)
        if found != LOADED:
            stop = stop_of(name, after, state.needs(name)) or lines_of(BLACKLIST, name, after)[0]
            cause = f"{stop.where} says {stop.text}"
            refused = OwnedByAnother("load {}", object=name, cause=cause, found=found, wanted=LOADED, hint=hint)
            refusals.append(refused)
    for name in desired.block:
        found = state.boot(name, after)
        softdep, command = softdep_of(name, after), install_of(name, after)
        if found != BLOCKED and softdep:
            cause = f"{softdep.where} says {softdep.text}, and modprobe runs no install command then"
        elif found != BLOCKED and command:
            cause = f"{command.where} comes before our line and says {command.text}"
        else:
            continue
        refused = OwnedByAnother("block {}", object=name, cause=cause, found=found, wanted=BLOCKED, hint=hint)
        refusals.append(refused)
    refuse_all(refusals)


def _wait(
    row: Setting,
    stuck: Mapping[str, str],
    state: KernelModulesState,
    scope: Scope,
    lines: ModprobeLines,
) -> Setting:
    """The row, with the reason where it must wait for a reboot. Raises where no reboot would help."""
    if row.setting != STATE or not row.effective_matters or row.effective == row.wanted:
        return row
    name = row.identity
    if row.wanted == NOT_LOADED:
        if name in stuck and not scope.permanent:
            hint = "stop what uses it, or set permanent: true and reboot"
            raise InUse("unload {}", object=name, cause=stuck[name], found=row.effective, wanted=NOT_LOADED, hint=hint)
        # A boot with an initramfs that loads it again does not help.
        return replace(row, pending="" if name in state.faults else stuck.get(name, ""))
    holder = next((other for other in OTHER_DRIVERS if other in stuck and scope.permanent), None)
    if holder and name in NVIDIA and "nvidia" not in state.loaded:
        # It would find no device that is free, and refuse to be loaded.
        return replace(row, pending=f"{holder} has the GPUs until then, {stuck[holder]}")
    stop = stop_of(name, lines, state.needs(name))
    if stop is None:
        return row
    if stop.word == REFUSE and scope.permanent:
        return replace(row, pending=f"the running kernel was booted with {stop.text}")
    cause = f"{stop.where} says {stop.text}"
    hint = "set permanent: true" if stop.path == BLOCK_FILE else "remove it there"
    raise OwnedByAnother("load {}", object=name, cause=cause, found=row.effective, wanted=LOADED, hint=hint)


def _file_steps(
    state: KernelModulesState,
    desired: KernelModulesDesired,
    rows: Sequence[Setting],
    after: Sequence[ModprobeLine],
    at_boot: ModprobeLines,
    waiting: Container[str],
) -> Tuple[List[Step], List[Step]]:
    """The steps for the block list and for the load list, each with what it changes at boot."""
    files = {BLOCK_FILE: (state.block_file, desired.block_text), LOAD_FILE: (state.load_file, desired.load_text)}
    differing = [row for row in rows if row.identity in files and row.boot != row.wanted]
    written = [row.identity for row in differing]
    in_load_list = {line.name for line in (*state.lines, *after) if line.path == LOAD_FILE}
    names = [line.name for line in (*state.lines, *after) if line.path in written and line.word in (LOAD, BLACKLIST)]
    made: Dict[str, List[Step]] = {BLOCK_FILE: [], LOAD_FILE: []}
    for row in differing:
        path = row.identity
        file, text = files[path]
        changes = [Change(path, row.setting, row.boot, row.wanted, BOOT)]
        for name in dict.fromkeys(names):
            # A name that goes from one list to the other is done with the second.
            mine = LOAD_FILE if name in in_load_list and LOAD_FILE in written else BLOCK_FILE
            before, then = state.boot(name), state.boot(name, at_boot)
            if mine == path and before != then:
                changes.append(Change(name, STATE, before, then, BOOT, REBOOT if name in waiting else NOW))
        made[path].append(file.step(text, changes))
    return made[BLOCK_FILE], made[LOAD_FILE]


def _concerns_initramfs(state: KernelModulesState, after: Sequence[ModprobeLine]) -> bool:
    """Whether a module that an initramfs may hold gets onto the block list, or leaves it."""
    old, new = ({line.name for line in lines if line.path == BLOCK_FILE} for lines in (state.lines, after))
    return bool(state.rebuild) and any(state.installed.dependencies(name) is not None for name in old ^ new)


def _has_files(desired: KernelModulesDesired) -> bool:
    """Whether there shall be files of this concern in modprobe.d, and so in the images."""
    return desired.block_text is not None or desired.options_text is not None


def _image_steps(
    state: KernelModulesState, listing: Optional[ListInitramfs], rows: Sequence[Setting], *, due: bool
) -> Tuple[Step, ...]:
    """The steps that build the images where that is due, and list what is in them.

    The last of the two makes the changes, also those of ``rows``, which no file makes: what was built counts once it
    was listed.
    """
    build = due or state.outdated or bool(state.faults)
    if not build and (listing is None or not state.unread):
        return ()
    changes = [Change(INITRAMFS, MODPROBE_COPY, state.modprobe_copy, WANTED, BOOT)]
    changes += [
        Change(row.object, row.setting, row.boot, row.wanted, BOOT)
        for row in rows
        if row.object in state.faults and row.boot_matters and row.boot != row.wanted
    ]
    actions: List[Action] = []
    if build and state.rebuild:
        actions.append(RunCommand(state.rebuild, "build the initramfs", REBUILD_SECONDS))
    if listing is not None:
        actions.append(listing)
    drop: List[Action] = [RemoveFile(OUTDATED)] if build else []
    if not actions:
        actions, drop = drop, []
    return (*map(Step, actions[:-1]), Step(actions[-1], tuple(changes)), *map(Step, drop))


def _list_action(
    state: KernelModulesState, desired: KernelModulesDesired, after: Sequence[ModprobeLine]
) -> Optional[ListInitramfs]:
    """The action that lists the images, None where nothing has to be in them, or nothing can list them."""
    if state.initramfs is None or not _has_files(desired):
        return None
    from .initramfs import ListInitramfs, needs_of

    needs = needs_of(state, desired.block, desired.parameters, after, state.initramfs.early)
    return ListInitramfs(state.initramfs.lister, needs) if needs else None


def _run(program: str, goal: str, row: Setting, along: Sequence[Setting] = ()) -> Step:
    changes = [Change(r.object, STATE, r.effective, r.wanted, EFFECTIVE) for r in (*along, row)]
    return Step(RunCommand((program, row.identity), f"{goal} {row.identity}"), tuple(changes))


def _loads(
    state: KernelModulesState, desired: KernelModulesDesired, differing: Mapping[str, Setting]
) -> Tuple[List[Setting], List[Step]]:
    """The steps that load, and what comes along: a module brings those that it needs, which absent then takes away."""
    along: List[Setting] = []
    steps: List[Step] = []
    known = set(desired.load)
    for name in desired.load:
        row: Optional[Setting] = differing.get(name)
        if row is not None:
            needs = [
                other for other in state.needs(name) if state.effective(other) == NOT_LOADED and other not in known
            ]
            known.update(needs)
            made = [
                Setting(other, STATE, LOADED, NOT_LOADED, state.boot(other), other, boot_matters=False)
                for other in needs
            ]
            along += made
            steps.append(_run("modprobe", "load", row, made))
    return along, steps
