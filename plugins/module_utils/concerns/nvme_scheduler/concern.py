# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``nvme_scheduler``: block queues as they are, as the next boot will make them, and as declared."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from ..._core import match
from ..._core.change import Conflict, Plan, Step, Unmanaged
from ..._core.declared import WANTED
from ..._core.errors import DeclarationError
from ..._core.registration import Registration
from ..._core.setting import IN_SYNC, Scalar, Setting
from ..._linux.tuned import Option, read_active
from . import devices, rules
from .devices import Disk, Queue, Subject
from .options import OPTIONS
from .rules import OUR_RULES
from .spec import NAME, NR_REQUESTS, SCHEDULER, TUNABLES, WBT, QueueEntry, parse
from .state import OUR_MODULES, NvmeSchedulerDesired, NvmeSchedulerState, WantedQueue

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.protocols import Files, Host


class NvmeScheduler:
    """``convergence.Concern`` for block queues."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = False
    registration = Registration(
        after=("hugepages",),
    )

    def observe(self, host: Host, params: Mapping[str, Any]) -> NvmeSchedulerState:
        files = host.files
        absent = params["state"] == "absent"
        entries = () if absent else parse(params["queues"])
        settings = frozenset(setting for entry in entries for setting in entry.settings)
        stacked = False
        if absent:
            from .plan import settings_in_baseline

            settings, stacked = settings_in_baseline(files)
        if SCHEDULER in settings:
            # A new scheduler takes these with it, declared or not.
            settings |= {NR_REQUESTS, WBT}
        elif NR_REQUESTS in settings:
            # Its bound depends on the scheduler.
            settings |= {SCHEDULER}
        texts = rules.read_texts(files)
        asked = frozenset(re.findall(r"ATTRS\{(model|address)\}", "".join(text for _path, text in texts)))
        disks = devices.observe(files, settings=settings, entries=entries, asked=asked, others=stacked)
        winners = match.select([entry.entry for entry in entries], [disk.candidate for disk in disks])
        subjects: Mapping[str, Subject] = {}
        boot: Mapping[Tuple[str, str], Scalar] = {}
        if texts == ((OUR_RULES, rules.render(entries)),):
            # Nobody else has a say: the rules are read in their own words only where somebody has.
            boot = _declared(entries, disks, winners)
        elif texts:
            from . import udev

            rule_files = udev.parse_texts(texts)
            subjects = udev.subjects(disks, files=files, asked=udev.attributes_asked(rule_files))
            boot = udev.boot(rule_files, disks, subjects)
        tuned = _tuned(files)
        if tuned:
            from . import owners

            boot = owners.after_tuned(tuned, disks, boot)
        return NvmeSchedulerState(
            entries=entries,
            disks=disks,
            winners=winners,
            texts=texts,
            subjects=subjects,
            boot=boot,
            rules_text=files.read_optional(OUR_RULES),
            modules_text=files.read_optional(OUR_MODULES),
            modules=_modules(files, entries),
            udev_runs=files.exists("/run/udev/control"),
            read_only=_read_only(files, disks) if host.may_change else (),
            owners=_owners(files, settings) if entries else (),
            tuned=tuned,
        )

    def normalise(self, params: Mapping[str, Any], state: NvmeSchedulerState) -> NvmeSchedulerDesired:
        entries = state.entries
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
        if params["strict"] and unmanaged:
            first = unmanaged[0]
            raise DeclarationError(
                f"set {first.setting}",
                object=first.object,
                cause=first.reason,
                hint="leave it out, or set strict: false",
            )
        return NvmeSchedulerDesired(
            wants=tuple(wants),
            rules_text=rules.render(entries),
            modules_text=_modules_text(entries, state.modules),
            unmanaged=tuple(unmanaged),
            immediate=params["immediate"],
            permanent=params["permanent"],
        )

    def restore(self, params: Mapping[str, Any], baseline: Baseline, state: NvmeSchedulerState) -> NvmeSchedulerDesired:
        from . import plan

        return plan.restore(params, baseline, state)

    def plan(self, state: NvmeSchedulerState, desired: NvmeSchedulerDesired) -> Plan:
        settings = tuple(setting for want in desired.wants for setting in _settings_of(want, state, desired))
        conflicts: Tuple[Conflict, ...] = () if desired.restoring else state.owners
        if state.tuned and not desired.restoring:
            from . import owners

            wanted = [(want.queue, want.values) for want in desired.wants]
            conflicts += owners.of_tuned(state.tuned, wanted, permanent=desired.permanent)
        if desired.permanent:
            settings += tuple(_file_settings(state, desired))
            if any(path != OUR_RULES for path, _text in state.texts):
                from . import udev

                conflicts += udev.conflicts(
                    udev.with_ours(state.texts, desired.rules_text),
                    state.subjects,
                    {want.queue.name: want.values for want in desired.wants},
                    restoring=desired.restoring,
                )
        steps: Tuple[Step, ...] = ()
        if any(setting.status != IN_SYNC for setting in settings):
            from .plan import steps_of

            taken_along, steps = steps_of(state, desired, settings)
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


def _settings_of(want: WantedQueue, state: NvmeSchedulerState, desired: NvmeSchedulerDesired) -> List[Setting]:
    queue = want.queue
    return [
        Setting(
            object=queue.name,
            setting=setting,
            wanted=value,
            effective=queue.values[setting],
            boot=state.boot.get((queue.name, setting)),
            identity=queue.identity,
            effective_matters=desired.immediate,
            boot_matters=desired.permanent and not desired.restoring,
        )
        for setting, value in want.values.items()
    ]


def _file_settings(state: NvmeSchedulerState, desired: NvmeSchedulerDesired) -> List[Setting]:
    made = []
    for path, setting, found, wanted in (
        (OUR_MODULES, "modules", state.modules_text, desired.modules_text),
        (OUR_RULES, "rules", state.rules_text, desired.rules_text),
    ):
        goal = None if wanted is None else WANTED
        present = None if found is None else WANTED if found == wanted else "others"
        if goal is not None or present is not None:
            made.append(Setting(path, setting, goal, present, present, path, effective_matters=False))
    return made


def _read_only(files: Files, disks: Sequence[Disk]) -> Tuple[str, ...]:
    """Where root may not write: what access(2) denies root is on a read-only file system."""
    queues = [queue for disk in disks for queue in disk.queues if queue.values][:1]
    tunables = [f"{queue.path}/queue/{TUNABLES[next(iter(queue.values))].file}" for queue in queues]
    folder = OUR_RULES.rpartition("/")[0]
    while folder and not files.exists(folder):
        folder = folder.rpartition("/")[0]
    places = {"/sys": tunables, OUR_RULES: [f"{folder}/."]}
    return tuple(place for place, paths in places.items() if not all(map(files.writable, paths)))


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


def _tuned(files: Files) -> Tuple[Option, ...]:
    return read_active(files) if files.exists("/etc/tuned/active_profile") else ()
