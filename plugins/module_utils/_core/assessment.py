# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The first half of the way every module takes: read the machine and plan, without a change."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any, Tuple

from . import accepted, baseline, declared, targets
from .arguments import refuse_booleans_as_numbers
from .change import Plan, Refuse, Step
from .contract import LOCK, AnyConcern, Params, Scope
from .errors import CannotLook, DeclarationError, MissingProgram, NotPermitted
from .setting import EFFECTIVE
from .shared_options import SHARED_OPTIONS
from .snapshot import snapshot
from .value import replace

if TYPE_CHECKING:
    from .protocols import Files, Host

KERNEL_FILES = ("/sys/", "/proc/")
KEEP_STATE = "make it writable: the original values and the program gpufleet are kept there"


def assess(concern: AnyConcern, params: Params, host: Host, declaration: Any = None) -> Tuple[Any, Plan]:
    """All but the performing: parse, read the machine and plan, without a change.

    ``declaration`` is what the parameters are parsed to, where the caller has it.
    """
    host = snapshot(host)
    try:
        refuse_booleans_as_numbers(concern.options, params)
        if params["state"] == "absent":
            state, plan = _assess_absent(concern, params, host)
        else:
            known = concern.parse(params) if declaration is None else declaration
            state, plan = _assess_present(concern, params, known, host)
        if host.may_change:
            targets.refuse_links(plan, host.files, permanent=params["permanent"])
            _refuse_damaged(concern.name, plan, host.files)
            if plan.steps:
                _refuse_read_only(concern.name, params, plan, host.files)
        return state, _with_refusal(plan, host)
    except OSError as error:
        raise CannotLook(
            f"look at {concern.name}",
            object=error.filename or "",
            cause=error.strerror or str(error),
            hint="run as root, or with become: true"
            if error.errno in (errno.EACCES, errno.EPERM)
            else targets.remedy(error),
        ) from error


def _assess_present(concern: AnyConcern, params: Params, declaration: Any, host: Host) -> Tuple[Any, Plan]:
    acceptances = accepted.parse(params[accepted.OPTION])
    lying, step = declared.plan_present(host.files, concern, params, SHARED_OPTIONS)
    scope = Scope(params["immediate"], params["permanent"], declared=lying.boot)
    state = concern.observe(host, declaration, scope)
    plan = concern.plan(state, concern.resolve(declaration, state), scope)
    if plan.conflicts:
        plan = accepted.judge(plan, acceptances, permanent=scope.permanent)
    if params["strict"]:
        _refuse_unmanaged(plan)
    # What cannot even begin is not declared either.
    if not scope.permanent or (plan.blocker is not None and plan.blocker.fatal and not plan.steps):
        return state, plan
    # With the rest of the next boot: a room that writes that last leaves no declaration of what the kernel refused.
    boot, running = plan.split()
    return state, plan.with_setting(lying, (*boot, *step, *running))


def _assess_absent(concern: AnyConcern, params: Params, host: Host) -> Tuple[Any, Plan]:
    known = baseline.load(host.files, concern.name)
    declaration = concern.everything(params, known)
    lying, step = declared.plan_absent(host.files, concern.name)
    scope = Scope(params["immediate"], params["permanent"], restoring=True, declared=lying.boot)
    state = concern.observe(host, declaration, scope)
    try:
        desired = concern.restore(known, state)
    except ValueError as error:
        raise baseline.damaged(concern.name, str(error)) from error
    plan = concern.plan(state, desired, scope)
    return state, plan.with_setting(lying, (*plan.steps, *step)) if scope.permanent else plan


def _refuse_damaged(concern: str, plan: Plan, files: Files) -> None:
    """Raise ``CannotLook`` for a damaged baseline, also while nothing differs: the first change would need it."""
    try:
        baseline.load(files, concern, believed=False)
    except CannotLook as error:
        error.conflicts = plan.conflicts
        error.with_drift(plan.settings)
        raise


def _refuse_read_only(concern: str, params: Params, plan: Plan, files: Files) -> None:
    """Raise ``NotPermitted`` for what a run would write and access(2) denies root: it is on a read-only file system."""
    probes = [(step, path) for step in plan.steps for path in step.probes]
    for step, path in probes:
        if path.startswith(KERNEL_FILES):
            _refuse_kernel_file(step, path, files)
    paths = [path for _step, path in probes]
    paths += [path for step in plan.steps for path in targets.targets_of(step)]
    record = baseline.path_of(concern)
    if (
        baseline.is_to_be_saved(files, concern, plan.settings, plan.feasible)
        if params["state"] == "present"
        else files.exists(record)
    ):
        paths.append(record)
    for path in (*paths, LOCK):
        folder = "" if path.startswith(KERNEL_FILES) else targets.read_only_folder(files, path)
        if folder:
            is_kept = path.startswith(f"{baseline.STATE_FOLDER}/")
            or_not = ", or set permanent: false" if params["permanent"] and path != LOCK else ""
            raise NotPermitted(
                "write {}",
                object=path,
                cause=f"{folder} is on a read-only file system, or is immutable (see lsattr -d)",
                hint=KEEP_STATE if is_kept else f"make it writable{or_not}",
            )


def _with_refusal(plan: Plan, host: Host) -> Plan:
    """The plan, which takes no step where a program is missing without which one of them fails."""
    names = dict.fromkeys(name for step in plan.steps for name in step.programs)
    missing = [name for name in names if host.commands.find(name) is None]
    if not missing:
        return plan
    cause = "it is not installed" if len(missing) == 1 else "they are not installed"
    hint = "install the package that has it, then run again" if len(missing) == 1 else "install them, then run again"
    error = MissingProgram("run {}", object=", ".join(missing), cause=cause, hint=hint)
    return replace(plan, steps=(Step(Refuse(error)), *plan.steps))


def _refuse_kernel_file(step: Step, path: str, files: Files) -> None:
    if files.exists(path) and not files.writable(path):
        change = next(change for change in step.changes if change.scope == EFFECTIVE)
        raise NotPermitted(
            f"set {change.setting}",
            object=change.object,
            cause=f"{'/sys' if path.startswith('/sys/') else os.path.dirname(path)} is read-only here",
            hint="run on the host itself, not in a container without the right to change it",
        )


def _refuse_unmanaged(plan: Plan) -> None:
    for entry in plan.unmanaged:
        if not entry.excused:
            goal = entry.goal or f"set {entry.setting}"
            raise DeclarationError(goal, object=entry.object, cause=entry.cause or entry.reason, hint=entry.hint)
