# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The step that only interrupts have: write where each belongs, and note what the kernel places by itself."""

from __future__ import annotations

import errno
import os
import time
from typing import TYPE_CHECKING, Dict, List, Optional, Sequence, Set, Tuple

from ..._core import baseline
from ..._core.change import Change, Step
from ..._core.errors import Refused
from ..._core.setting import BOOT, EFFECTIVE, Setting
from ..._core.value import frozen
from ..._linux.cpulist import render
from ..._linux.masks import render_mask
from . import devices, irqbalance_apply, steering
from .observation import observe_devices
from .plan import SetAffinity
from .spec import NAME
from .state import WantedAffinity, text_of

if TYPE_CHECKING:
    from ..._core.protocols import Host
    from .model import IrqDevice
    from .spec import IrqAffinityDeclaration
    from .state import Key

# What the kernel turns out to place by itself is no longer assigned with the others, which may then move once more.
ROUNDS = 4
# What keeps the kernel busy, such as a move that waits for the next interrupt, is over by then.
TRIES = 5
PAUSE_SECONDS = 0.01
TRANSIENT = (errno.EBUSY, errno.EAGAIN)
GONE = (errno.ENOENT, errno.ENODEV, errno.ENXIO)
# EIO before 6.12, EPERM since.
NOT_OURS = (errno.EIO, errno.EPERM, errno.EACCES)
NO_STEERING = (errno.ENOENT, errno.EINVAL, errno.EOPNOTSUPP)
OTHERS = "every other interrupt and queue is set, and what the next boot brings is as before"


@frozen
class IrqRefusal:
    """The interrupt or queue that did not take its CPUs, why, and what to do about it."""

    want: WantedAffinity
    cause: str
    hint: str


def perform(step: Step, host: Host) -> Optional[Tuple[Change, ...]]:
    if isinstance(step.action, SetAffinity):
        return set_affinity(step.action, step.changes, host)
    irqbalance_apply.perform(step, host)
    return None


def set_affinity(action: SetAffinity, planned: Sequence[Change], host: Host) -> Tuple[Change, ...]:
    """Every interrupt and queue gets its try. Returns the changes that were made.

    What the kernel keeps to itself is noted and no failure. Raises ``Refused``, which names all others that did not
    take their CPUs.
    """
    setter = Setter(host)
    wants = action.wants
    read_only = host.files.exists(devices.DEFAULT) and not host.files.writable(devices.DEFAULT)
    if action.moved and action.declaration is not None and not read_only:
        wants = differing(action.declaration, setter, host)
    for _round in range(ROUNDS):
        if not setter.set_all(wants) or action.declaration is None:
            break
        # What is not there to be assigned leaves room for the others.
        wants = differing(action.declaration, setter, host)
    if setter.refusals:
        raise _refused(list(setter.refusals.values()))
    return _made(planned, setter)


def differing(declaration: IrqAffinityDeclaration, setter: Setter, host: Host) -> Tuple[WantedAffinity, ...]:
    """What is not where it belongs now and has not refused to go there, with the CPUs of before kept."""
    _devices, found, _unmanaged = observe_devices(host.files, declaration)
    wants = tuple(want for want in found if want.wanted != want.effective and want.key not in setter.refusals)
    save_baseline(wants, host)
    return wants


def _made(planned: Sequence[Change], setter: Setter) -> Tuple[Change, ...]:
    """The changes that were made: the planned ones in their order, then those of the later rounds."""
    made = {(change.object, change.setting): change for change in setter.made.values()}
    changes = []
    for change in planned:
        key = (change.object, change.setting)
        if change.scope == BOOT:
            changes.extend([change] if key not in setter.left else [])
        elif key in made:
            changes.append(made.pop(key))
    return (*changes, *made.values())


def save_baseline(wants: Sequence[WantedAffinity], host: Host) -> None:
    """Keep the CPUs of what the plan of the run did not change, before it is changed."""
    settings = [
        Setting(want.object, want.setting, None, text_of(want.effective), None, identity=want.key[0]) for want in wants
    ]
    changes = tuple(Change(want.object, want.setting, None, None, EFFECTIVE) for want in wants)
    baseline.save(host.files, NAME, settings, [Step(SetAffinity(()), changes)])


class Setter:
    """Sets interrupts and queues, and keeps what came of each: ``made`` are changes, ``left`` (object and setting) is
    what is not there any more or not ours to set.
    """

    def __init__(self, host: Host) -> None:
        self._files = host.files
        self.made: Dict[Key, Change] = {}
        self.left: Set[Tuple[str, str]] = set()
        self.refusals: Dict[Key, IrqRefusal] = {}

    def set_all(self, wants: Sequence[WantedAffinity]) -> bool:
        """Whether some were left, so that the others may belong elsewhere."""
        by_device: Dict[str, List[WantedAffinity]] = {}
        for want in wants:
            by_device.setdefault(want.device.address if want.device else "", []).append(want)
        left = len(self.left)
        kept: Dict[Key, str] = {}
        for of_device in by_device.values():
            kept.update(self._set_device(of_device))
        if kept:
            self._files.replace(devices.NOTE, devices.note_text({**devices.noted(self._files), **kept}))
        return len(self.left) > left

    def _set_device(self, wants: Sequence[WantedAffinity]) -> Dict[Key, str]:
        """What the kernel keeps to itself, with the reason."""
        paths = self._paths(wants[0].device)
        kept: Dict[Key, str] = {}
        for want in wants:
            number = self._write(want, paths.get(want.setting, want.path))
            if number == errno.ENOENT and want.device:
                # Given back meanwhile, and perhaps requested again by another number.
                paths = self._paths(want.device)
                number = self._write(want, paths.get(want.setting, ""))
            if number is None:
                first = self.made.get(want.key)
                found = first.before if first else text_of(want.effective)
                self.made[want.key] = Change(want.object, want.setting, found, text_of(want.wanted), EFFECTIVE)
            elif number in GONE and not (want.path and self._files.exists(want.path)):
                self.left.add((want.object, want.setting))
            elif number in (NOT_OURS if want.device else NO_STEERING):
                self.left.add((want.object, want.setting))
                kept[want.key] = devices.REFUSED if want.device else steering.REFUSED
            else:
                self.refusals[want.key] = IrqRefusal(want, *_explained(want, number))
        return kept

    def _paths(self, device: Optional[IrqDevice]) -> Dict[str, str]:
        """The file of each interrupt of a device by its setting, by the numbers of now.

        They may be others than at the look, after a reload of the driver or a change of its queues.
        """
        if device is None:
            return {}
        return {
            devices.setting_of(interrupt.name): f"{devices.IRQ}/{interrupt.number}/smp_affinity_list"
            for interrupt in devices.complete(self._files, [device])[0].interrupts
        }

    def _write(self, want: WantedAffinity, path: str) -> Optional[int]:
        """Hand it the CPUs. None, or the error of the kernel."""
        if not path:
            return errno.ENOENT
        value = render(want.wanted) if want.device else render_mask(want.wanted)
        number: Optional[int] = None
        for attempt in range(TRIES):
            try:
                self._files.write_attribute(path, value)
                return None
            except OSError as error:
                # One that was given back while it was open says EIO.
                number = error.errno if self._files.exists(path) else errno.ENOENT
            if number not in TRANSIENT:
                break
            time.sleep(PAUSE_SECONDS * attempt)
        return number


def _explained(want: WantedAffinity, number: int) -> Tuple[str, str]:
    """Why the kernel refused, and what to do about it."""
    said = f"the kernel returned {os.strerror(number)}"
    if number == errno.ENOSPC:
        return (
            f"the interrupt vectors of CPU {render(want.wanted)} are exhausted",
            "give the device more CPUs, or fewer queues",
        )
    if number in TRANSIENT:
        return f"{said} {TRIES} times", "run again"
    if number == errno.EINVAL:
        return f"{said}: none of these CPUs is online any more", "run again"
    if number in (errno.ERANGE, errno.EOVERFLOW):
        return f"{said}: it has no CPU with that number", "run again"
    return said, ""


def _refused(refusals: Sequence[IrqRefusal]) -> Refused:
    first = refusals[0]
    others = [f"; {refusal.want.object}, {refusal.want.setting}: {refusal.cause}" for refusal in refusals[1:]]
    return Refused(
        f"set {first.want.setting}",
        object=first.want.object,
        cause=first.cause + "".join(others),
        found=text_of(first.want.effective),
        wanted=text_of(first.want.wanted),
        hint="; ".join(hint for hint in (first.hint, OTHERS) if hint),
    )
