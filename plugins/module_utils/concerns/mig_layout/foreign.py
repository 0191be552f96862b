# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Services and scripts that divide GPUs at boot with nvidia-smi.

``-mig`` sets the mode. Of the instances, what all lines of an owner make together counts: those that it creates, alone
where it destroys the others first or finds none, else beside them as far as there is room.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core.change import US
from ..._core.regex import regex
from ..._core.value import frozen, replace
from ..._kinds import smi_writers
from ..._kinds.foreign_values import conflicts_of
from ..._nvidia import smi_arguments
from .solver import left
from .spec import DISABLED, ENABLED, INSTANCES, MIG
from .text import NONE, layout_text, profile_of

if TYPE_CHECKING:
    from ..._core.change import Conflict
    from ..._core.contract import Scope
    from ..._kinds.foreign_values import Finding
    from ..._kinds.smi_writers import SmiWrite
    from .model import Layout, Profile, WantedInstance
    from .state import MigLayoutDesired, MigLayoutState, WantedGpu

_INSTANCES = (
    smi_arguments.CREATE,
    smi_arguments.DESTROY,
    smi_arguments.CREATE_COMPUTE,
    smi_arguments.DESTROY_COMPUTE,
)
START = regex(r"[0-9]{1,2}")


@frozen
class _Made:
    """The instances that an owner creates, as profile and memory slice, None for any. ``last`` is its last line.

    ``emptied``: it destroys all others first. ``whole``: each has one compute instance of all its slices.
    ``unknown``: it makes something that is not understood.
    """

    last: SmiWrite
    created: Tuple[Tuple[Profile, Optional[int]], ...] = ()
    emptied: bool = False
    whole: bool = False
    unknown: bool = False

    @property
    def text(self) -> str:
        places = (f"{profile.name}{'' if start is None else f'@{start}'}" for profile, start in self.created)
        return " ".join(place if self.whole else f"{place}[]" for place in places) or NONE


def find_conflicts(
    state: MigLayoutState, desired: MigLayoutDesired, targets: Mapping[str, Layout], scope: Scope
) -> Tuple[Conflict, ...]:
    """``targets`` are the layouts that the GPUs are to have, by name.

    Raises ``OwnedByAnother`` where one of them would undo a declared mode or layout at boot.
    """
    found: List[Finding] = []
    begins_empty = not (scope.permanent or state.carrier.applies)
    for gpu in desired.gpus:
        if not gpu.declared or gpu.undone:
            continue
        found += _of_mode(gpu, state.foreign)
        if gpu.mig and gpu.wanted is not None:
            for made in _all_made(gpu, state.foreign):
                found += _of_instances(gpu, gpu.wanted, targets[gpu.name], made, begins_empty=begins_empty)
    return conflicts_of(found, scope)


def _of_mode(gpu: WantedGpu, foreign: Sequence[SmiWrite]) -> List[Finding]:
    found = []
    for write in smi_writers.last_of_gpu(foreign, gpu.reading.gpu):
        enabled = smi_arguments.switch(write.value)
        if write.setting == smi_arguments.MIG and enabled != gpu.mig:
            value = None if enabled is None else _mode(enabled)
            found.append(smi_writers.finding(write, gpu.name, MIG, value, _mode(gpu.mig)))
    return found


def _mode(enabled: bool) -> str:
    return ENABLED if enabled else DISABLED


def _of_instances(
    gpu: WantedGpu, wanted: Tuple[WantedInstance, ...], target: Layout, made: _Made, *, begins_empty: bool
) -> List[Finding]:
    last, value = made.last, made.text
    same = None if made.unknown else _is_wanted(made, wanted)
    if not (made.unknown or made.emptied or begins_empty) and last.wins != US:
        beside = {profile.number for profile, _count in left(gpu.geometry, target)}
        if any(profile.number in beside for profile, _start in made.created):
            same, value = False, f"also {value}"
        else:
            # Whichever is first: nothing can be created beside the declared layout, and this one replaces another.
            last = replace(last, wins=US)
    if same:
        return []
    text = layout_text(target, gpu.geometry)
    return [smi_writers.finding(last, gpu.name, INSTANCES, None if same is None else value, text)]


def _all_made(gpu: WantedGpu, foreign: Sequence[SmiWrite]) -> List[_Made]:
    by_owner: Dict[str, List[SmiWrite]] = {}
    for write in smi_writers.of_gpu(foreign, gpu.reading.gpu):
        if write.setting in _INSTANCES:
            by_owner.setdefault(write.owner, []).append(write)
    return [_made(writes, gpu) for writes in by_owner.values()]


def _made(writes: Sequence[SmiWrite], gpu: WantedGpu) -> _Made:
    in_doubt = any(write.in_doubt for write in writes)
    # Of several lines none alone says what they make.
    made = _Made(replace(writes[-1], value="", in_doubt=in_doubt))
    without_compute = False
    for write in writes:
        if write.setting == smi_arguments.DESTROY_COMPUTE:
            without_compute = True
        elif write.setting == smi_arguments.DESTROY:
            # The driver keeps a GPU instance that has compute instances.
            made = replace(made, created=(), whole=False, emptied=without_compute, unknown=not without_compute)
        elif write.setting == smi_arguments.CREATE_COMPUTE:
            made = replace(made, whole=True, unknown=made.unknown or write.value != smi_arguments.WHOLE)
        else:
            created = [_profile(text, gpu) for text in write.value.split(",")]
            known = tuple(one for one in created if one is not None)
            made = replace(made, created=(*made.created, *known), unknown=made.unknown or len(known) < len(created))
    return replace(made, unknown=made.unknown or (without_compute and not made.emptied))


def _profile(text: str, gpu: WantedGpu) -> Optional[Tuple[Profile, Optional[int]]]:
    """A profile by name or number, with the memory slice where it begins behind a colon; None for another text."""
    name, colon, start = text.partition(":")
    profile = profile_of(name, gpu.geometry, device_id=gpu.reading.device_id)
    if profile is None or (colon and not START.fullmatch(start)):
        return None
    return profile, int(start) if colon else None


def _is_wanted(made: _Made, wanted: Sequence[WantedInstance]) -> Optional[bool]:
    """Whether these are the declared instances; None where that depends on where the driver puts them."""
    if sorted(profile.number for profile, _start in made.created) != sorted(one.profile for one in wanted):
        return False
    slices = {profile.number: profile.slices for profile, _start in made.created}
    if any(not made.whole or [part.slices for part in one.compute] != [slices[one.profile]] for one in wanted):
        return False
    if all(one.start is None for one in wanted):
        return True
    if any(start is None for _profile, start in made.created):
        return None
    places = {(profile.number, start) for profile, start in made.created}
    return all(one.start is None or (one.profile, one.start) in places for one in wanted)
