# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``nvme_scheduler``: block queues as they are, as the next boot will make them, and as declared."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from ..._core import match
from ..._core.change import Conflict, Plan, Step, Unmanaged
from ..._core.registration import Registration
from ..._core.setting import IN_SYNC, Scalar, Setting
from ..._kinds.own_files import OwnFile
from ..._linux import boot_writers
from ..._linux.tuned import read_active
from . import devices, rules
from .devices import Disk, Queue, Subject
from .options import OPTIONS
from .rules import OUR_RULES
from .spec import NAME, NR_REQUESTS, QUEUE_FILES, SCHEDULER, TUNABLES, WBT, NvmeSchedulerDeclaration, QueueEntry, parse
from .state import OUR_MODULES, NvmeSchedulerDesired, NvmeSchedulerState, WantedQueue

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Files, Host
    from .owners import LateOwners


class NvmeScheduler:
    """``convergence.Concern`` for block queues."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = False
    # Disks that are reached over a network have queues too.
    registration = Registration(after=("hugepages", "nvme_of"))

    def parse(self, params: Mapping[str, Any]) -> NvmeSchedulerDeclaration:
        entries = parse(params["queues"])
        return NvmeSchedulerDeclaration(entries, frozenset(setting for entry in entries for setting in entry.settings))

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> NvmeSchedulerDeclaration:
        settings = frozenset(setting for _identity, setting in baseline.values if setting in TUNABLES)
        stacked = any(identity.startswith(("md:", "dm:")) for identity, _setting in baseline.values)
        return NvmeSchedulerDeclaration((), settings, stacked)

    def observe(self, host: Host, declaration: NvmeSchedulerDeclaration, scope: Scope) -> NvmeSchedulerState:
        files, entries, settings = host.files, declaration.entries, declaration.settings
        if SCHEDULER in settings:
            # A new scheduler takes these with it, declared or not.
            settings |= {NR_REQUESTS, WBT}
        elif NR_REQUESTS in settings:
            # Its bound depends on the scheduler.
            settings |= {SCHEDULER}
        texts = rules.read_texts(files)
        asked = frozenset(re.findall(r"ATTRS\{(model|address)\}", "".join(text for _path, text in texts)))
        disks = devices.observe(files, settings=settings, entries=entries, asked=asked, others=declaration.stacked)
        winners = match.select([entry.entry for entry in entries], [disk.candidate for disk in disks])
        subjects: Mapping[str, Subject] = {}
        boot: Mapping[Tuple[str, str], Scalar] = {}
        scripts: Mapping[str, str] = {}
        if texts == ((OUR_RULES, rules.render(entries)),):
            # Nobody else has a say: the rules are read in their own words only where somebody has.
            boot = _declared(entries, disks, winners)
        elif texts:
            from . import udev, udev_events

            rule_files = udev.parse_texts(texts)
            scripts = udev.read_scripts(files, rule_files)
            asked = udev.attributes_asked(rule_files)
            subjects = udev_events.subjects(disks, files=files, asked=asked, bdi=udev.asks_bdi(texts))
            boot = udev_events.boot(rule_files, disks, subjects, scripts)
        late = _late_owners(files)
        if late:
            from . import owners

            boot = owners.after_late(late, disks, boot)
        return NvmeSchedulerState(
            disks=disks,
            winners=winners,
            texts=texts,
            subjects=subjects,
            scripts=scripts,
            boot=boot,
            rules_file=OwnFile(OUR_RULES, "rules", files.read_optional(OUR_RULES)),
            modules_file=OwnFile(OUR_MODULES, "modules", files.read_optional(OUR_MODULES)),
            modules=_modules(files, entries),
            udev_runs=files.exists("/run/udev/control"),
            owners=_owners(files, settings) if entries else (),
            late=late,
        )

    def resolve(self, declaration: NvmeSchedulerDeclaration, state: NvmeSchedulerState) -> NvmeSchedulerDesired:
        entries = declaration.entries
        wants: List[WantedQueue] = []
        unmanaged: List[Unmanaged] = []
        for disk, winner in zip(state.disks, state.winners):
            if winner is None:
                continue
            for queue in disk.queues:
                values, lacking = _possible(queue, disk, entries[winner].settings)
                unmanaged.extend(lacking)
                if any(queue.values[setting] != value for setting, value in values.items()):
                    from .plan import refuse_impossible

                    refuse_impossible(queue, values, state)
                if values:
                    wants.append(WantedQueue(queue, values))
        return NvmeSchedulerDesired(
            wants=tuple(wants),
            rules_text=rules.render(entries),
            modules_text=_modules_text(entries, state.modules),
            unmanaged=tuple(unmanaged),
        )

    def restore(self, baseline: Baseline, state: NvmeSchedulerState) -> NvmeSchedulerDesired:
        from . import plan

        return plan.restore(baseline, state)

    def plan(self, state: NvmeSchedulerState, desired: NvmeSchedulerDesired, scope: Scope) -> Plan:
        settings = tuple(setting for want in desired.wants for setting in _settings_of(want, state, scope))
        conflicts: Tuple[Conflict, ...] = () if scope.restoring else state.owners
        if state.late and not scope.restoring:
            from . import owners

            wanted = [(want.queue, want.values) for want in desired.wants]
            conflicts += owners.of_late(state.late, wanted, permanent=scope.permanent)
        if scope.permanent:
            settings += (*state.modules_file.rows(desired.modules_text), *state.rules_file.rows(desired.rules_text))
        if any(path != OUR_RULES for path, _text in state.texts) and not scope.restoring:
            from . import udev, udev_events

            conflicts += udev_events.conflicts(
                udev.with_ours(state.texts, desired.rules_text if scope.permanent else state.rules_file.text),
                state.subjects,
                state.scripts,
                {want.queue.name: want.values for want in desired.wants},
                refuse=scope.permanent,
            )
        steps: Tuple[Step, ...] = ()
        if any(setting.status != IN_SYNC for setting in settings):
            from .plan import steps_of

            taken_along, steps = steps_of(state, desired, settings, scope)
            settings += taken_along
        return Plan(settings=settings, steps=steps, unmanaged=desired.unmanaged, conflicts=conflicts)

    def perform(self, step: Step, host: Host) -> None:
        from . import apply

        apply.perform(step, host)

    def report(self, state: NvmeSchedulerState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        effective = {queue.name: dict(queue.values) for queue in state.queues}
        boot = {
            queue.name: {setting: state.boot.get((queue.name, setting)) for setting in queue.values}
            for queue in state.queues
        }
        return {"queues": effective}, {"queues": boot}


CONCERN = NvmeScheduler()


def _possible(queue: Queue, disk: Disk, settings: Mapping[str, Scalar]) -> Tuple[Dict[str, Scalar], List[Unmanaged]]:
    """What of an entry this queue can have, and what not, with the reason."""
    values = {}
    lacking = []
    for setting, value in settings.items():
        if setting in queue.values:
            values[setting] = value
        elif setting in queue.missing:
            lacking.append(Unmanaged(queue.name, setting, f"this kernel has no queue/{TUNABLES[setting].file} for it"))
        elif not queue.hidden and not queue.mq and len(disk.queues) == 1:
            nvme = queue.name.startswith("nvme")
            below = "none of its paths is present" if nvme else "declare it for the disks below it"
            lacking.append(Unmanaged(queue.name, setting, f"it has no request queue of its own; {below}"))
    return values, lacking


def _declared(
    entries: Sequence[QueueEntry], disks: Sequence[Disk], winners: Sequence[Optional[int]]
) -> Dict[Tuple[str, str], Scalar]:
    """What our own rules leave in each queue."""
    return {
        (queue.name, setting): value
        for disk, winner in zip(disks, winners)
        if winner is not None
        for queue in disk.queues
        for setting, value in _possible(queue, disk, entries[winner].settings)[0].items()
    }


def _settings_of(want: WantedQueue, state: NvmeSchedulerState, scope: Scope) -> List[Setting]:
    queue = want.queue
    return [
        Setting(
            object=queue.name,
            setting=setting,
            wanted=value,
            effective=queue.values[setting],
            boot=state.boot.get((queue.name, setting)),
            identity=queue.identity,
            effective_matters=scope.immediate,
            boot_matters=scope.carries,
        )
        for setting, value in want.values.items()
    ]


def _modules(files: Files, entries: Sequence[QueueEntry]) -> Dict[str, str]:
    """The module of each scheduler that is one on this kernel. Built-in ones and ``none`` have none."""
    asked: FrozenSet[str] = frozenset(str(entry.settings.get(SCHEDULER, "none")) for entry in entries) - {"none"}
    if not asked:
        return {}
    from .modules import of_schedulers

    return of_schedulers(files, asked)


def _modules_text(entries: Sequence[QueueEntry], modules: Mapping[str, str]) -> Optional[str]:
    if not modules:
        return None
    from .modules import text_of

    return text_of([str(entry.settings.get(SCHEDULER)) for entry in entries], modules)


def _owners(files: Files, settings: FrozenSet[str]) -> Tuple[Conflict, ...]:
    cmdline = files.read_optional("/proc/cmdline") or ""
    if "elevator=" not in cmdline:
        return ()
    from .owners import of_command_line

    return of_command_line(cmdline, settings)


def _late_owners(files: Files) -> Optional[LateOwners]:
    """None where there are none, which is most nodes."""
    options = read_active(files) if files.exists("/etc/tuned/active_profile") else ()
    writes = tuple(one for one in boot_writers.read(files) if one.target.endswith(QUEUE_FILES))
    if not options and not writes:
        return None
    from .owners import LateOwners

    return LateOwners(options, writes)
