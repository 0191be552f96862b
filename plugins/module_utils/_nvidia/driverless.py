# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine whose GPUs no driver serves: what of that is a fault, for every concern of GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Sequence, Tuple

from .._core import match
from .._core.change import Unmanaged
from .._core.setting import Setting
from .._core.value import replace
from .errors import DriverMismatch, NoBinding, NoDriver
from .gpus import VFIO, candidate_on_bus, ids_of, is_passed_through, on_the_bus
from .unresponsive_gpu import DRIVER

if TYPE_CHECKING:
    from .._core.errors import CannotLook
    from .._core.protocols import Files

LOADED = "loaded"
MISMATCH = "of another version than its library"
BINDING = "nvidia-ml-py"
ALL = "NVIDIA GPUs"
NONE = "there is none on the PCI bus"
PASSED_THROUGH = f"it is bound to {VFIO}, for a virtual machine"


def unserved(error: CannotLook, entries: Sequence[match.MatchEntry], files: Files) -> Tuple[Unmanaged, ...]:
    """What nobody can set here, where nobody misses the driver: no GPU on the bus is for it, and no entry insists.

    Raises the error otherwise, with a setting for each GPU that lacks its driver, whether its entry is optional or not.
    That of a driver that hangs has none: whether anything differs is not known.
    """
    addresses = on_the_bus(files)
    missed = [address for address in addresses if not is_passed_through(files, address)]
    if missed:
        error.settings = _settings(error, missed)
    if missed or not isinstance(error, NoDriver) or not all(entry.optional for entry in entries):
        raise error
    if not addresses:
        return (Unmanaged(ALL, DRIVER, NONE, excused=True),)
    return tuple(Unmanaged(address, DRIVER, PASSED_THROUGH, excused=True) for address in addresses)


def without_handed_on(
    entries: Sequence[match.MatchEntry], files: Files
) -> Tuple[Tuple[match.MatchEntry, ...], Tuple[Unmanaged, ...]]:
    """The entries, of which those are optional that are about a GPU of a virtual machine, and these GPUs.

    What no driver has is known by its address and its ID alone.
    """
    addresses = [address for address in on_the_bus(files) if is_passed_through(files, address)]
    handed_on = [candidate_on_bus(address, ids_of(files, address)) for address in addresses]
    relaxed = [replace(entry, optional=True) for entry in entries]
    winners = match.select(relaxed, handed_on)
    named = [(one.name, winner) for one, winner in zip(handed_on, winners) if winner is not None]
    about = {winner for _name, winner in named}
    return (
        tuple(relaxed[index] if index in about else entry for index, entry in enumerate(entries)),
        tuple(Unmanaged(name, DRIVER, PASSED_THROUGH, excused=True) for name, _winner in named),
    )


def _settings(error: CannotLook, missed: Sequence[str]) -> Tuple[Setting, ...]:
    if isinstance(error, NoBinding):
        return (_setting(BINDING, BINDING, "installed", error.state),)
    if not isinstance(error, (NoDriver, DriverMismatch)):
        return ()
    found = error.state if isinstance(error, NoDriver) else MISMATCH
    return tuple(_setting(address, DRIVER, LOADED, found) for address in missed)


def _setting(name: str, setting: str, wanted: str, found: str) -> Setting:
    """What the next boot brings is the matter of another concern."""
    return Setting(name, setting, wanted, found, None, name, boot_matters=False)
