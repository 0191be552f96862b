# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of swap, and the steps from here to there: the next boot first, then systemd, then the areas."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional, Sequence, Tuple

from ..._core.change import THEM, Change, Plan, RemoveFile, ReplaceFile, RoomAction, Step, Unmanaged
from ..._core.errors import DeclarationError, InUse, OwnedByAnother, refuse_all
from ..._core.planning import boot_change, effective_change
from ..._core.setting import IN_SYNC, Setting
from ..._core.value import frozen, replace
from ..._kinds import units
from ..._kinds.own_files import header_of
from ..._linux import fstab, systemd
from .state import (
    AT_BOOT,
    GENERATED,
    MARK,
    NAME,
    NODE,
    OFF,
    ON,
    SIZE,
    SWAP,
    SWAP_FILE,
    UNIT,
    NodeSwapDesired,
    NodeSwapState,
    in_words,
)

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope

UNIT_TEXT = f"""\
{header_of(NAME)}[Unit]
Description=Swap file of gpufleet.node

[Swap]
What={SWAP_FILE}

[Install]
WantedBy=swap.target
"""
UNIT_PATH = f"{systemd.ETC}/{UNIT}"
UNIT_SETTING = "unit"
# Those of which swapon(8) takes a file that fallocate(1) made.
FILE_SYSTEMS = ("ext4", "xfs")
SPARE = 256 * 1024**2
WAS_DELETED = "its file was deleted while it was in use, and only a reboot can let go of it"
LATER = "set immediate: false to have it off from the next boot on"


@frozen
class SwapOff(RoomAction):
    """Let the kernel bring back what is in an area, and give it up."""

    programs = ("swapoff",)
    path: str


@frozen
class SwapOn(RoomAction):
    """Use an area that is formatted already; ``value`` is what ``in_words`` said of it."""

    programs = ("swapon",)
    path: str
    value: str


@frozen
class CreateSwapFile(RoomAction):
    """Make our file, of so many bytes, and format it."""

    writes = (SWAP_FILE,)
    programs = ("install", "fallocate", "mkswap", "mv")
    size: int


@frozen
class ReadFstab(RoomAction):
    """Let systemd make its units of fstab again, where no container would lose its GPUs."""

    optional_programs = ("systemctl",)


def plan(state: NodeSwapState, desired: NodeSwapDesired, scope: Scope) -> Plan:
    rows = [*_boot_rows(state, desired, scope), *_effective_rows(state, desired, scope)]
    conflicts = () if desired.restoring else state.conflicts
    if desired.off and scope.permanent:
        _refuse_owners(state)
    steps: Tuple[Step, ...] = ()
    if any(row.status != IN_SYNC for row in rows):
        steps = tuple(_steps(state, desired, rows, scope))
    return Plan(tuple(rows), steps, desired.unmanaged, conflicts)


def restore(baseline: Baseline, state: NodeSwapState) -> NodeSwapDesired:
    """What ``state: absent`` wants: what was on is on again, and nothing of ours is left."""
    on = set(state.identities.values())
    restored, unmanaged = {}, []
    for (identity, setting), value in baseline.values.items():
        if setting != SWAP or identity in on or identity in (NODE, SWAP_FILE) or value.effective is None:
            continue
        path = path_of(identity)
        if path in state.gone:
            unmanaged.append(Unmanaged(path, SWAP, "it is not there; where the next boot makes it, it is on again"))
        else:
            restored[identity] = (path, str(value.effective))
    starts = [
        key[0] for key, value in baseline.values.items() if key[1] == units.START and value.boot == systemd.ENABLED
    ]
    return NodeSwapDesired(
        restoring=True,
        restored=restored,
        unmasked=state.masks,
        enabled=tuple(unit for unit in starts if unit in state.statuses and unit != UNIT),
        unmanaged=tuple(unmanaged),
    )


def path_of(identity: str) -> str:
    """The path by which an area is switched on again."""
    uuid = identity.partition("UUID=")[2]
    return f"/dev/disk/by-uuid/{uuid}" if uuid else identity


def _boot_rows(state: NodeSwapState, desired: NodeSwapDesired, scope: Scope) -> List[Setting]:
    if not scope.permanent:
        return []
    rows = []
    if desired.off or desired.restoring:
        wanted = OFF if desired.off else ON
        for spec, boot in state.specs.items():
            if desired.off or boot == OFF:
                rows.append(_at_boot(spec, wanted, boot, f"{fstab.PATH} {spec}"))
    if desired.off:
        for unit in state.units:
            if unit.in_etc:
                rows += units.start_row(unit.unit, systemd.DISABLED, systemd.ENABLED)
            else:
                rows.append(_at_boot(unit.unit, OFF, f"{ON} ({unit.source})", unit.mask))
    rows += [_at_boot(mask.rpartition("/")[2], ON, OFF, mask) for mask in desired.unmasked]
    for name in desired.enabled:
        rows += units.start_row(name, systemd.ENABLED, state.statuses[name])
    if desired.size is not None:
        rows += units.start_row(UNIT, systemd.ENABLED, state.unit_status)
    elif state.unit_status == systemd.ENABLED:
        rows += units.start_row(UNIT, systemd.DISABLED, state.unit_status)
    text = None if desired.size is None else UNIT_TEXT
    return [*rows, *state.unit_file.rows_in(text, immediate=scope.immediate)]


def _effective_rows(state: NodeSwapState, desired: NodeSwapDesired, scope: Scope) -> List[Setting]:
    rows = []
    now, boot = bool(state.areas), is_on_at_boot(state)
    stuck = WAS_DELETED if any(area.deleted for area in state.areas) else ""
    if desired.off:
        row = Setting(
            object=NODE,
            setting=SWAP,
            wanted=OFF,
            effective=ON if now else OFF,
            boot=ON if boot else OFF,
            identity=NODE,
            effective_matters=scope.immediate,
            boot_matters=scope.permanent,
            pending=stuck,
        )
        rows.append(row)
    ours = state.area(SWAP_FILE)
    leaves = scope.permanent and (ours is None or scope.immediate)
    if desired.size is not None or (state.file_size is not None and leaves):
        size = state.file_size
        rows.append(
            Setting(
                object=SWAP_FILE,
                setting=SIZE,
                wanted=desired.size,
                effective=size,
                boot=size,
                identity=SWAP_FILE,
                effective_matters=scope.immediate and not scope.permanent,
                boot_matters=scope.permanent,
            )
        )
    if not scope.immediate:
        return rows
    if desired.off and scope.permanent:
        for name in state.generated:
            row = Setting(name, GENERATED, None, "loaded", None, name, boot_matters=False)
            pending = (
                f"systemd must read {fstab.PATH} again, and {state.reload_blocker}" if state.reload_blocker else ""
            )
            rows.append(_with_pending(row, pending, systemd.DAEMON_RELOAD))
    for area in state.areas:
        if desired.off or (area is ours and desired.size is None):
            row = _active(area.path, OFF, in_words(area), state.identities[area.path])
            rows.append(_with_pending(row, WAS_DELETED, "reboot") if area.deleted else row)
    if desired.size is not None:
        rows.append(_active(SWAP_FILE, ON, OFF if ours is None else ON, SWAP_FILE))
    rows += [_active(path, value, OFF, identity) for identity, (path, value) in desired.restored.items()]
    return rows


def is_on_at_boot(state: NodeSwapState) -> bool:
    return ON in state.specs.values() or bool(state.units) or state.unit_status == systemd.ENABLED


def _at_boot(object: str, wanted: str, boot: str, identity: str) -> Setting:
    return Setting(object, AT_BOOT, wanted, None, boot, identity, effective_matters=False)


def _active(path: str, wanted: str, effective: str, identity: str) -> Setting:
    return Setting(path, SWAP, wanted, effective, None, identity, boot_matters=False)


def _with_pending(row: Setting, pending: str, needs: str) -> Setting:
    return replace(row, pending=pending, needs=needs)


def _steps(state: NodeSwapState, desired: NodeSwapDesired, rows: Sequence[Setting], scope: Scope) -> List[Step]:
    wrong = {(row.object, row.setting): row for row in rows if row.status != IN_SYNC}
    node = wrong.get((NODE, SWAP))
    boot = [*_boot_steps(state, desired, list(wrong.values()))]
    write, reload = state.unit_file.steps(wrong.get((UNIT_PATH, UNIT_SETTING)), _unit_text(desired))
    start = wrong.get((UNIT, units.START))
    starts = [] if start is None else [units.start_step(start, state.unit_status)]
    size = wrong.get((SWAP_FILE, SIZE))
    if desired.size is None:
        boot += [*starts, *write]
    else:
        if size is not None:
            boot += _file_steps(state, desired.size, size)
        boot += [*write, *starts]
    if node is not None and node.boot_matters and node.boot != node.wanted:
        boot[-1] = Step(boot[-1].action, (*boot[-1].changes, boot_change(node)), probes=boot[-1].probes)
    boot += reload
    generated = [row for row in wrong.values() if row.setting == GENERATED and not row.pending]
    if state.systemd_runs and (generated or (desired.restoring and boot)):
        boot.append(Step(ReadFstab(), tuple(map(effective_change, generated))))
    running = _running_steps(state, [row for row in wrong.values() if row.setting == SWAP and row.object != NODE])
    if desired.size is not None and size is not None and state.area(SWAP_FILE) is not None:
        # It was on, and went off to be made anew.
        running.append(Step(SwapOn(SWAP_FILE, ON)))
    if node is not None and scope.immediate and node.effective != node.wanted and not node.pending:
        running[-1] = Step(running[-1].action, (*running[-1].changes, effective_change(node)))
    if desired.size is None and size is not None:
        running.append(Step(RemoveFile(SWAP_FILE), _of_file(size), probes=(SWAP_FILE,)))
    return [*boot, *running]


def _unit_text(desired: NodeSwapDesired) -> Optional[str]:
    return None if desired.size is None else UNIT_TEXT


def _boot_steps(state: NodeSwapState, desired: NodeSwapDesired, wrong: Sequence[Setting]) -> List[Step]:
    steps = []
    of_fstab = [row for row in wrong if row.setting == AT_BOOT and row.identity.startswith(f"{fstab.PATH} ")]
    if of_fstab:
        ours = {line.number for line in state.fstab}
        text = fstab.switch(state.fstab_text, MARK, off=lambda line: desired.off and line.number in ours)
        steps.append(Step(ReplaceFile(fstab.PATH, text), tuple(map(boot_change, of_fstab)), probes=(fstab.PATH,)))
    for row in wrong:
        if row.setting == AT_BOOT and row not in of_fstab:
            # An empty file masks a unit as a link to /dev/null does (systemd.unit(5)).
            action = ReplaceFile(row.identity, "") if desired.off else RemoveFile(row.identity)
            steps.append(Step(action, (boot_change(row),), probes=(row.identity,)))
        elif row.setting == units.START and row.object != UNIT:
            steps.append(units.start_step(row, state.statuses.get(row.object, systemd.ENABLED)))
    return steps


def _running_steps(state: NodeSwapState, wrong: Sequence[Setting]) -> List[Step]:
    wrong = [row for row in wrong if not row.pending]
    if any(row.wanted == OFF for row in wrong) and state.obstacle:
        raise _does_not_fit(state.obstacle)
    steps = []
    # What is restored is there before anything of ours goes.
    for row in sorted(wrong, key=lambda row: row.wanted == OFF):
        action = SwapOff(row.object) if row.wanted == OFF else SwapOn(row.object, str(row.wanted))
        steps.append(Step(action, (effective_change(row),)))
    return steps


def _file_steps(state: NodeSwapState, size: int, row: Setting) -> List[Step]:
    """Make our file, or make it anew in another size."""
    if state.root_kind not in FILE_SYSTEMS:
        raise DeclarationError(
            "make the swap file {}",
            object=SWAP_FILE,
            cause=f"the kernel may not swap to a file without holes on {state.root_kind or 'this file system'}",
            hint=f"swap files need {' or '.join(FILE_SYSTEMS)}; make a partition for swap, or leave swap off",
        )
    free = state.free + (state.file_size or 0)
    if size + SPARE > free:
        raise DeclarationError(
            "make the swap file {}",
            object=SWAP_FILE,
            cause=f"it would leave less than {SPARE // 1024**2} MiB of the file system free",
            found=f"{free // 1024**2} MiB free",
            wanted=f"{size // 1024**2} MiB",
            hint="set a smaller size, or make room",
        )
    steps = []
    if state.area(SWAP_FILE) is not None:
        if state.obstacle:
            raise _does_not_fit(state.obstacle)
        steps.append(Step(SwapOff(SWAP_FILE)))
    return [*steps, Step(CreateSwapFile(size), _of_file(row), probes=(SWAP_FILE,))]


def _of_file(row: Setting) -> Tuple[Change, ...]:
    return (boot_change(row) if row.boot_matters else effective_change(row),)


def _does_not_fit(obstacle: str) -> InUse:
    return InUse("switch swap off", cause=obstacle, hint=f"end what needs the memory, or {LATER}")


def _refuse_owners(state: NodeSwapState) -> None:
    """Raises ``OwnedByAnother`` where the next boot would bring swap that nothing of ours can keep off."""
    refusals = [
        OwnedByAnother(
            "keep swap off across a reboot",
            cause=f"{conflict.path}{f' line {conflict.line}' if conflict.line else ''} lets {conflict.owner} make it",
            found=f"{conflict.setting} {conflict.value}",
            hint="remove it there, or set permanent: false",
        )
        for conflict in state.conflicts
        if conflict.wins == THEM
    ]
    refuse_all(refusals, state.conflicts)
