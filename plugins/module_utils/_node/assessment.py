# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One look at a whole node: every declared concern, in one process, each within its own deadline."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Callable, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from .._core import declared
from .._core.assessment import assess
from .._core.change import Change, Plan, RoomAction
from .._core.contract import AnyConcern, Params, diff, status_of
from .._core.errors import CannotLook, GpuFleetError
from .._core.setting import DRIFTED, IN_SYNC, INVALID, PENDING, UNKNOWN
from .._core.snapshot import snapshot
from .._core.wording import counted
from .._linux import os_release
from .deadline import DeadlineExceeded, deadline
from .footprint import managed, reboot_noted
from .order import RegisteredConcern, in_order, to_converge
from .registry import REGISTRY

if TYPE_CHECKING:
    from .._core.protocols import Host

# More than a person reads, and what keeps the answer of a converged node below 8 KiB whatever the number of devices.
UNMANAGED_SHOWN = 8
PACKAGE_MANAGERS = ("apt-get", "dnf", "yum", "zypper", "pacman")

# What is looked at where a change was interrupted and nobody declares anything: the running system, and no file.
ORPHANED: Mapping[str, Any] = {"permanent": False}

# The concerns that say which CPUs are whose (``_linux.cpu_claims``), and what of the command line does.
COMMAND_LINE = "kernel_cmdline"
DIVIDING_CPUS = ("cpu_isolation", COMMAND_LINE, "kubelet_config", "numa_irq_affinity")
ISOLATING = ("isolcpus", "nohz_full")
# The concerns that say how many files may be open (``_kinds.open_files``).
LIMITING_FILES = frozenset(("kernel_tunables", "resource_limits"))

READ_IT = "Read that line, then delete it, declare its value, or add an entry to gpufleet_accepted in the inventory"
DEFECT = "this is a defect of the collection, report it with the exception in the result"

Validate = Callable[[AnyConcern, Mapping[str, Any]], Params]
Parsed = Tuple[Params, Any]
"""The parameters of a concern, and the declaration that they are parsed to."""


def assess_node(
    declarations: Mapping[str, Mapping[str, Any]],
    host: Host,
    *,
    validate: Validate,
    full: bool,
    devices: bool = False,
    excluded: Sequence[str] = (),
    no_diff: Optional[Sequence[str]] = None,
    registry: Sequence[RegisteredConcern] = REGISTRY,
) -> Dict[str, Any]:
    """Look at every declared concern and say what must run.

    ``validate`` turns a declaration into complete parameters or raises ``DeclarationError``. No concern stops another:
    its failure is in its own result. ``full`` adds the state of each concern and every setting, also the right ones.
    ``devices`` adds a line for each device of those concerns that tell of them, and the line of those that have one
    for all, which one that is not right has anyway.
    Unless ``no_diff`` is None, a concern has ``files`` too: how foreign files would change, but for those that match
    one of its globs.
    ``excluded`` are concerns that are declared too, and that this look is not about. A concern that nobody declares is
    looked at while a change of it was interrupted.
    """
    host = snapshot(host)
    interrupted = [
        entry.name
        for entry in registry
        if entry.registration.interrupted
        and entry.name not in (*declarations, *excluded)
        and host.files.exists(entry.registration.interrupted)
    ]
    declarations = {**declarations, **dict.fromkeys(interrupted, ORPHANED)}
    results: Dict[str, Dict[str, Any]] = {}
    wants_work: List[str] = []
    declared_here = [entry for entry in in_order(registry) if entry.name in declarations]
    parsed = _parse_knobs(declared_here, declarations, validate)
    refused = {
        **_overlapping(declarations, host),
        **_too_many_open_files(declarations),
        **_contested(declared_here, parsed),
    }
    for entry in declared_here:
        if entry.name in refused:
            result = failed(refused[entry.name])
        else:
            result = _assess_concern(
                entry,
                declarations[entry.name],
                host,
                validate=validate,
                parsed=parsed.get(entry.name),
                full=full,
                devices=devices,
                no_diff=no_diff,
            )
        results[entry.name] = result
        notifies = any(need in entry.registration.tells for need in result["needs"])
        if notifies or (result["status"] in (DRIFTED, UNKNOWN, INVALID) and not _is_doubted(result)):
            wants_work.append(entry.name)
    waits = waiting(results, registry)
    refusing = [result for result in results.values() if "refusals" in result]
    coming = _coming(results, registry) if refusing else frozenset()
    for result in refusing:
        result["refusals"] = [one for one in result["refusals"] if one["code"] not in coming]
    for name in waits:
        if results[name]["status"] == INVALID:
            # Whether it is wrong is known when the other concern is in place.
            results[name]["status"] = UNKNOWN
    statuses = {name: result["status"] for name, result in results.items()}
    doubted = [name for name, result in results.items() if _is_doubted(result)]
    return {
        "concerns": results,
        "drifted": [name for name, status in statuses.items() if status == DRIFTED],
        # What waits does so whatever the next boot brings.
        "pending": [
            name
            for name, status in statuses.items()
            if status == PENDING or (name in doubted and results[name]["needs"])
        ],
        "unknown": [name for name, status in statuses.items() if status == UNKNOWN and name not in doubted],
        "unknown_at_boot": doubted,
        "in_sync": [name for name, status in statuses.items() if status == IN_SYNC],
        "waiting": waits,
        "invalid": [name for name, status in statuses.items() if status == INVALID],
        "to_converge": list(to_converge(wants_work, declared=statuses, registry=registry)),
        "orphaned": [
            name
            for name in declared.names(host.files)
            if name in interrupted or (name not in declarations and name not in excluded)
        ],
        "interrupted": interrupted,
        "managed": list(managed(host.files)),
        "reboot_noted": reboot_noted(host.files),
        "facts": node_facts(host),
    }


def _is_doubted(result: Mapping[str, Any]) -> bool:
    """Whether another owner may set something at boot, and all else is right. No run can change that."""
    return result["status"] == UNKNOWN and "failure" not in result


def waiting(results: Mapping[str, Mapping[str, Any]], registry: Sequence[RegisteredConcern] = REGISTRY) -> List[str]:
    """The concerns that cannot be looked at because of what another concern has yet to bring."""
    coming = _coming(results, registry)
    return [
        name
        for name, result in results.items()
        if result["status"] in (DRIFTED, UNKNOWN, INVALID) and result.get("failure", {}).get("code") in coming
    ]


def _coming(results: Mapping[str, Mapping[str, Any]], registry: Sequence[RegisteredConcern]) -> FrozenSet[str]:
    """The codes of failures that a run ends by what it does for other concerns."""
    return frozenset(
        code
        for entry in registry
        for code in entry.registration.cures
        if results.get(entry.name, {}).get("status") == DRIFTED
    )


def _parse_knobs(
    entries: Sequence[RegisteredConcern], declarations: Mapping[str, Mapping[str, Any]], validate: Validate
) -> Mapping[str, Parsed]:
    """The concerns that name knobs, with what their look begins with as well."""
    parsed: Dict[str, Parsed] = {}
    for entry in entries:
        if entry.names_knobs:
            # What is declared wrong is refused by its own look.
            with contextlib.suppress(GpuFleetError):
                concern = entry.concern
                params = validate(concern, declarations[entry.name])
                if params["state"] == "present":
                    parsed[entry.name] = params, concern.parse(params)
    return parsed


def _contested(entries: Sequence[RegisteredConcern], parsed: Mapping[str, Parsed]) -> Mapping[str, GpuFleetError]:
    """The concerns that declare what another declared one owns."""
    named: Dict[str, Sequence[str]] = {}
    for entry in entries:
        if entry.name in parsed:
            concern: Any = entry.concern
            named[entry.name] = concern.knobs(parsed[entry.name][1])
    if not named:
        return {}
    from .._core.knobs import contested

    return contested({entry.name: entry.registration.owns for entry in entries}, named)


def _overlapping(declarations: Mapping[str, Mapping[str, Any]], host: Host) -> Mapping[str, GpuFleetError]:
    """The concerns that declare the same CPUs for different things, as for the system and to be isolated from it."""
    if not _divide_cpus(declarations):
        return {}
    from .._linux.cpu_claims import contradictions

    # What cannot be read is told by the look of the concern that needs it.
    with contextlib.suppress(GpuFleetError, OSError):
        return contradictions(declarations, host.files)
    return {}


def _too_many_open_files(declarations: Mapping[str, Mapping[str, Any]]) -> Mapping[str, GpuFleetError]:
    """The concerns of which one declares more open files than the other lets sessions have."""
    if not declarations.keys() >= LIMITING_FILES:
        return {}
    from .._kinds.open_files import contradictions

    return contradictions(declarations)


def _divide_cpus(declarations: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether two concerns have a say in it. Most command lines isolate nothing, and then nothing is read for them."""
    arguments = declarations.get(COMMAND_LINE, {}).get("arguments")
    isolates = isinstance(arguments, dict) and any(str(name).replace("-", "_") in ISOLATING for name in arguments)
    return sum(name in declarations and (name != COMMAND_LINE or isolates) for name in DIVIDING_CPUS) > 1


def _assess_concern(
    entry: RegisteredConcern,
    declaration: Mapping[str, Any],
    host: Host,
    *,
    validate: Validate,
    parsed: Optional[Parsed],
    full: bool,
    devices: bool,
    no_diff: Optional[Sequence[str]],
) -> Dict[str, Any]:
    try:
        with deadline(entry.registration.deadline):
            concern = entry.concern
            params, known = parsed or (validate(concern, declaration), None)
            state, plan = assess(concern, params, host, known)
            result = _describe(plan, full=full, followed_by=_followed_by(plan, host))
            if plan.steps and no_diff is not None:
                from .._core.file_diff import file_diffs

                result["files"] = file_diffs(plan.steps, host.files, no_diff)
            if plan.blocker is not None and plan.blocker.fatal:
                result.update(msg=str(plan.blocker.error), failure=plan.blocker.error.failure())
            if full:
                result["effective"], result["boot"] = concern.report(state)
            unique = getattr(concern, "unique", None)
            if unique is not None:
                result["unique"] = unique(state)
            if devices or full or plan.status != IN_SYNC:
                for name in ("devices", "summary"):
                    overview = getattr(concern, name, None)
                    if overview is not None:
                        result[name] = overview(state)
            return result
    except DeadlineExceeded:
        return failed(
            CannotLook(
                f"look at {entry.name}",
                cause=f"it took longer than {entry.registration.deadline:g} s",
                hint="check the load of the node, and for devices that do not respond in its kernel log",
            )
        )
    except GpuFleetError as error:
        return failed(error)
    except Exception as error:
        # A defect of ours in one concern is no reason to say nothing about the others. Only it has a use for traceback,
        # which costs two milliseconds to import.
        import traceback

        return {
            **failed(CannotLook(f"look at {entry.name}", cause=f"{type(error).__name__}: {error}", hint=DEFECT)),
            "exception": traceback.format_exc(),
        }


def _followed_by(plan: Plan, host: Host) -> List[str]:
    """The needs that come with the steps."""
    actions = (step.action for step in plan.steps)
    return [need for action in actions if isinstance(action, RoomAction) for need in action.followed_by(plan, host)]


def _describe(plan: Plan, *, full: bool, followed_by: Sequence[str] = ()) -> Dict[str, Any]:
    settings = [setting.row() for setting in plan.settings if full or setting.status != IN_SYNC]
    unmanaged = [entry.as_dict() for entry in plan.unmanaged]
    refusals = [{"code": error.code, "msg": str(error)} for error in plan.refusals]
    return {
        "status": plan.status,
        "settings": settings,
        "settings_in_sync": sum(setting.status == IN_SYNC for setting in plan.settings),
        "changes": [change.as_dict() for change in plan.changes],
        "needs": list(dict.fromkeys((*plan.needs, *followed_by))),
        "unmanaged": unmanaged if full else unmanaged[:UNMANAGED_SHOWN],
        "unmanaged_total": len(unmanaged),
        "conflicts": [entry.as_dict() for entry in plan.conflicts],
        "reboot_required": bool(plan.reboot_reasons),
        "reboot_reasons": list(plan.reboot_reasons),
        **({"msg": _doubted(plan.doubts)} if plan.status == UNKNOWN else {}),
        **({"refusals": refusals} if refusals else {}),
        **({"restarts": list(plan.restarts)} if plan.restarts else {}),
    }


def _doubted(doubts: Sequence[str]) -> str:
    more = f" ({counted(len(doubts) - 1, 'more setting')} may change too)" if len(doubts) > 1 else ""
    return f"The next boot may change {doubts[0]}{more}. {READ_IT}."


def failed(error: GpuFleetError) -> Dict[str, Any]:
    """The result of a concern that could not be looked at, or that was refused."""
    return {
        **_describe(Plan(error.settings, conflicts=error.conflicts), full=False),
        "status": status_of(error),
        "msg": str(error),
        "failure": error.failure(),
    }


def node_diff(answer: Mapping[str, Any]) -> Dict[str, str]:
    """The changes of all concerns of an answer, as one difference."""
    return diff(tuple(Change(**change) for result in answer["concerns"].values() for change in result["changes"]))


def node_facts(host: Host) -> Dict[str, Optional[str]]:
    """The few facts that roles branch on."""
    release = os_release.parse(_readable(host, os_release.PATH))
    manager = next((name for name in PACKAGE_MANAGERS if host.commands.find(name)), None)
    return {
        "distribution": release.get("ID"),
        "distribution_version": release.get("VERSION_ID"),
        "package_manager": manager,
        "kernel": _readable(host, "/proc/sys/kernel/osrelease").strip() or None,
    }


def _readable(host: Host, path: str) -> str:
    """The text of a file, empty where it is not there or we may not read it: no fact is worth the whole answer."""
    try:
        return host.files.read_optional(path) or ""
    except OSError:
        return ""
