# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel's command line: what of it is ours, three ways, and who else has a say."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Mapping, Tuple

from ..._core.change import US, WINNER_UNKNOWN, Change, Conflict, Plan, Step, Unmanaged
from ..._core.errors import DeclarationError, NotInEffect, OwnedByAnother, refuse_all
from ..._core.setting import BOOT, DRIFTED, NOW, REBOOT, Scalar, Setting
from ..._core.value import field, frozen
from ..._kinds.boot_arguments import COMMAND_LINE, BootArguments
from ..._linux import cpulist, iommu
from ..._linux.bootloader import DEFAULTS, DROP_INS, GRUB, GRUBBY, KERNEL_DROP_INS, SDBOOTUTIL, TUNED
from .grammar import FIRST_WINS, ONLY_PRESENCE, decider_of, name_of, occurrences, value_of
from .state import KernelCmdlineState

if TYPE_CHECKING:
    from ..._core.contract import Scope

# Boot loaders may hand over what is not UTF-8.
AS_READ = ("utf-8", "surrogateescape")
AT_BOOT = "the kernel takes its arguments when it boots"


@frozen
class KernelCmdlineDesired:
    """The arguments by name, and the word that each is written as where it is to be there."""

    arguments: Mapping[str, Scalar] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)
    unmanaged: Tuple[Unmanaged, ...] = ()


def make_plan(state: KernelCmdlineState, desired: KernelCmdlineDesired, scope: Scope) -> Plan:
    """Raises ``OwnedByAnother`` where somebody else's argument would count, ``DeclarationError`` on a line too long."""
    conflicts = _conflicts(state, desired)
    arguments = BootArguments(state.loader, _ours(state, desired))
    conflicts += _doubts(arguments)
    rows: List[Setting] = []
    changes: List[Change] = []
    for name in dict.fromkeys((*desired.arguments, *state.names)):
        if name in desired.arguments:
            row = _declared(name, state, desired, scope)
        else:
            # What was declared once, or before a restore: the others' say counts, and the running kernel keeps ours.
            wanted = value_of(state.others, name)
            row = Setting(
                COMMAND_LINE,
                name,
                wanted,
                value_of(state.running, name),
                state.at_boot(name),
                COMMAND_LINE,
                effective_matters=False,
                boot_matters=scope.permanent,
            )
        rows.append(row)
        if scope.permanent and row.boot != row.wanted:
            effect = NOW if row.effective == row.wanted else REBOOT
            changes.append(Change(COMMAND_LINE, name, row.boot, row.wanted, BOOT, effect))
    steps: Tuple[Step, ...] = ()
    if scope.permanent and (changes or arguments.differs):
        if state.loader.reason and arguments.wanted:
            from ..._linux.bootloader_plan import unsupported

            raise unsupported(state.loader, arguments.wanted, "leave them out")
        _check_length(arguments.command_line, state)
        steps = arguments.steps(changes, probe=DEFAULTS)
    if not steps:
        _refuse_ignored(rows)
    return Plan(tuple(rows), steps, desired.unmanaged, conflicts, files=(state.loader.source,))


def _ours(state: KernelCmdlineState, desired: KernelCmdlineDesired) -> Tuple[str, ...]:
    """The words that are needed beside those of others. One of ours stays where somebody else brings the same too.

    They are in the order of their names, so that a declaration in another order changes nothing; ``quiet`` is before
    ``loglevel``, which then counts.
    """
    needed = []
    for name, word in sorted(desired.words.items(), key=lambda entry: (entry[0] not in ONLY_PRESENCE, entry[0])):
        value = desired.arguments[name]
        if word in state.loader.ours or value_of(state.others, name, value) != value:
            needed.append(word)
    return tuple(needed)


def _declared(name: str, state: KernelCmdlineState, desired: KernelCmdlineDesired, scope: Scope) -> Setting:
    wanted = desired.arguments[name]
    effective = value_of(state.running, name, wanted)
    pending = AT_BOOT if effective != wanted else ""
    if not pending and wanted is not None:
        effective = _verdict(name, wanted, state)
    return Setting(
        COMMAND_LINE,
        name,
        wanted,
        effective,
        state.at_boot(name, wanted),
        COMMAND_LINE,
        effective_matters=scope.immediate,
        boot_matters=scope.permanent,
        pending=pending,
    )


def _verdict(name: str, wanted: Scalar, state: KernelCmdlineState) -> Scalar:
    """``wanted``, or what the kernel made of it where it says another thing."""
    if name in ("isolcpus", "nohz_full"):
        from ..._linux.cpu_topology import isolated_by, split_flags

        flags = split_flags(str(wanted))[0] if name == "isolcpus" else ()
        said = state.verdicts.get(name)
        # Of isolcpus only the domain part has a file, and partitions of cpusets may be in it too.
        if said is None or (flags and "domain" not in flags):
            return wanted
        try:
            accepted = cpulist.parse(said)
            taken = isolated_by(str(wanted), max(accepted, default=0)) <= accepted
        except ValueError:
            taken = False
        return wanted if taken else said or "none"
    said = state.verdicts.get("iommu")
    passed_through = (name, wanted) in (("iommu", "pt"), ("iommu.passthrough", "1"))
    return said if passed_through and said not in (None, "identity") else wanted


def _refuse_ignored(rows: List[Setting]) -> None:
    """Raises ``NotInEffect`` where the running kernel was given an argument and did not take it."""
    for row in rows:
        if row.status == DRIFTED and row.boot == row.wanted and not row.pending:
            where = (
                iommu.GROUPS if row.setting.startswith("iommu") else f"/sys/devices/system/cpu/{_file_of(row.setting)}"
            )
            raise NotInEffect(
                f"set {row.setting}",
                object=COMMAND_LINE,
                cause=f"the running kernel was given it and did not take it, by {where}",
                found=row.effective,
                wanted=row.wanted,
                hint=f"look for {row.setting} in the kernel's log, such as with dmesg",
            )


def _file_of(name: str) -> str:
    return "isolated" if name == "isolcpus" else name


def _check_length(line: str, state: KernelCmdlineState) -> None:
    # GRUB puts the path of the kernel in front.
    image = next((word for word in state.running.split() if word.startswith("BOOT_IMAGE=")), "")
    length = (
        len(f"{image} {line}".strip().encode(*AS_READ)) if image and image not in line else len(line.encode(*AS_READ))
    )
    if state.limit and length > state.limit:
        raise DeclarationError(
            "declare kernel arguments",
            cause=f"the kernel cuts its command line silently after {state.limit} bytes",
            found=f"{length} bytes",
            hint="declare fewer arguments, or remove some of others",
        )


def _conflicts(state: KernelCmdlineState, desired: KernelCmdlineDesired) -> Tuple[Conflict, ...]:
    found = []
    refusals = []
    for name, wanted in desired.arguments.items():
        theirs = value_of(state.others, name, wanted)
        if theirs is None or theirs == wanted:
            continue
        decider = decider_of(state.others, name, wanted)
        # What adds up comes to what others have, but grubby has one of a name.
        if not decider and state.loader.name != GRUBBY:
            continue
        path, line = state.sources.get(decider or name, ("/proc/cmdline", None))
        after = path == TUNED or (path.startswith(DROP_INS) and path > state.loader.source)
        is_added = state.loader.name == SDBOOTUTIL and path.startswith(KERNEL_DROP_INS)
        later = (after and state.loader.name == GRUB) or is_added
        wins = later != (name in FIRST_WINS)
        other = "" if decider == name else decider
        once = state.loader.name == GRUBBY and bool(not other or occurrences(state.others, name))
        if wanted is None or wins or once:
            refusals.append(
                OwnedByAnother(
                    f"remove {name} from the {COMMAND_LINE}" if wanted is None else f"set {name} on the {COMMAND_LINE}",
                    cause=_why(name, wanted, path, line, state),
                    found=theirs,
                    wanted=wanted,
                    hint=f"remove {other or name} there, or {f'{name} ' if other else ''}from the declaration",
                )
            )
            continue
        owner = "tuned" if path == TUNED else COMMAND_LINE
        found.append(Conflict(owner, path, line, COMMAND_LINE, name, str(theirs), US))
    refuse_all(refusals)
    return tuple(found)


def _doubts(arguments: BootArguments) -> Tuple[Conflict, ...]:
    one = arguments.doubt
    if one is None:
        return ()
    names = dict.fromkeys(name_of(word) for word in arguments.wanted)
    return tuple(
        Conflict(COMMAND_LINE, one.path, one.line, COMMAND_LINE, name, one.value, WINNER_UNKNOWN) for name in names
    )


def _why(name: str, wanted: Scalar, path: str, line: object, state: KernelCmdlineState) -> str:
    place = f"{path} line {line}" if line else "another owner, in no file that is read here,"
    if wanted is None:
        return f"{place} sets it, and it is not ours"
    if name in FIRST_WINS:
        return f"{place} sets it too, and the kernel takes only the first"
    if state.loader.name == GRUBBY:
        return f"{place} sets it too, and grubby keeps each name once"
    return f"{place} sets it too, and comes after ours"


def reported(line: str, names: Tuple[str, ...]) -> Mapping[str, Scalar]:
    """The arguments of these names on a line, for the report."""
    return {name: value_of(line, name) for name in names}


def inherited(state: KernelCmdlineState) -> Tuple[str, ...]:
    """Which arguments of ours the crash kernel gets too."""
    kdump = state.kdump
    if kdump is None or kdump.own:
        return ()
    return tuple(word for word in state.loader.ours if name_of(word) not in kdump.removed)
