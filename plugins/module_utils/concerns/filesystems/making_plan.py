# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The settings of what is made here, and the step that makes it.

None of them is of the next boot: what is on a drive stays there. And none is restored: nothing is ever taken apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Mapping, Optional, Sequence, Tuple

from ..._core.change import Step, Unmanaged
from ..._core.planning import effective_change
from ..._core.setting import Scalar, Setting
from ..._core.wording import counted
from .actions import Make

if TYPE_CHECKING:
    from .made import Made
    from .spec import Entry, MadeOf
    from .state import FilesystemsState

ARRAY, FILESYSTEM, STRIPE, LABEL = SETTINGS_OF_MADE = ("array", "filesystem", "stripe", "label")


def rows_of_made(entry: Entry, made: Made) -> Tuple[List[Setting], List[Unmanaged]]:
    """The array, and the file system on it with its geometry."""
    made_of = entry.made_of
    rows: List[Setting] = []
    unmanaged: List[Unmanaged] = []
    if made_of is None:
        return rows, unmanaged

    def add(setting: str, wanted: Scalar, effective: Scalar, reason: str = "") -> None:
        # What was made otherwise is taken over as it is.
        rows.append(
            Setting(
                object=entry.path,
                setting=setting,
                wanted=wanted,
                effective=effective,
                boot=None,
                identity=entry.path,
                effective_matters=not reason,
                boot_matters=False,
            )
        )
        if reason:
            unmanaged.append(Unmanaged(entry.path, setting, reason))

    if not made.single:
        wanted = _array(len(made.drives), made_of.chunk_kb)
        add(ARRAY, wanted, None if made.array is None else _array(made.array.disks, made.array.chunk_kb))
    if not made.single and made.array is None and made.drives[0].member is not None and not made.begun:
        # What is on an array that does not run, the look after that will say.
        return rows, unmanaged
    found = made.superblock if made.superblock is not None and made.superblock.complete else None
    add(FILESYSTEM, entry.fstype, found.fstype if found is not None else None)
    stripe = None if made.single else _stripe((made_of.chunk_kb, len(made.drives)))
    if stripe is not None:
        has = _stripe(found.stripe) if found is not None else None
        otherwise = found is not None and has != stripe
        add(STRIPE, stripe, has, f"the file system was made with {has or 'none'}" if otherwise else "")
    if made_of.label:
        label = found.label if found is not None else None
        otherwise = found is not None and label != made_of.label
        add(LABEL, made_of.label, label, f"the file system was made with {label or 'none'}" if otherwise else "")
    return rows, unmanaged


def making_steps(
    state: FilesystemsState, entries: Mapping[str, Entry], wrong: Mapping[str, Sequence[Setting]]
) -> List[Step]:
    """A step for each file system of which something is left to be made."""
    steps: List[Step] = []
    for path, made in state.made.items():
        made_of: Optional[MadeOf] = entries[path].made_of
        rows = [row for row in wrong.get(path, ()) if row.setting in SETTINGS_OF_MADE]
        if made_of is not None and rows:
            steps.append(Step(Make(path, made, made_of), tuple(map(effective_change, rows))))
    return steps


def _array(disks: int, chunk_kb: int) -> str:
    return f"raid0 of {counted(disks, 'drive')}, chunk {chunk_kb} KiB"


def _stripe(stripe: Optional[Tuple[int, int]]) -> Optional[str]:
    return None if stripe is None else f"{stripe[0]} KiB x {stripe[1]}"
