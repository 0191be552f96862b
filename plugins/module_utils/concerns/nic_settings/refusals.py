# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What this machine cannot have, found before anything changes."""

from __future__ import annotations

from typing import Dict, NoReturn

from ..._core.errors import DeclarationError, InUse, Refused
from ..._core.nearest import did_you_mean
from . import links
from .spec import ETHTOOL, FUNCTIONS, MTU, SHORT_FEATURES
from .state import Interface, NicSettingsState
from .way_back import WayBack

UNDONE_HINT = (
    "the interface is as it was before; check that every switch and host on the way supports the new value, then run "
    "again"
)


def fixed_features(interface: Interface) -> Dict[str, str]:
    """The features that differ and that nobody can set, each with the reason."""
    return {
        setting: f"its driver has it fixed to {interface.values[setting]}"
        for setting in interface.differing
        if setting in interface.shown.fixed
    }


def refuse_feature(interface: Interface, setting: str) -> NoReturn:
    raise DeclarationError(
        "set {}",
        object=f"{interface.name} {setting}",
        cause="this kernel has no such feature",
        hint=did_you_mean(
            setting, (*interface.shown.now, *SHORT_FEATURES), otherwise="write it as ethtool -k shows it"
        ),
    )


def refuse_impossible(interface: Interface, state: NicSettingsState) -> None:
    """Raise what the kernel would refuse, as far as it tells beforehand, or what would take something away."""
    for setting in interface.differing:
        wanted = interface.wanted[setting]
        if setting == MTU:
            _refuse_mtu(interface, state)
        elif setting == FUNCTIONS:
            _refuse_functions(interface)
        elif setting in ETHTOOL and isinstance(wanted, int):
            largest = interface.shown.largest.get(setting)
            if largest is not None and wanted > largest:
                raise _wrong(interface, setting, f"the driver takes up to {largest}", "set max for the largest")
    if state.no_way_back and state.login is not None and state.login.passes(interface.name) and interface.moves:
        raise DeclarationError(
            "change {}",
            object=interface.name,
            cause=f"this run came over it, and nothing could undo the change if it cut the node off: "
            f"{state.no_way_back}",
            hint="run it over another interface, or from the console",
        )


def _refuse_mtu(interface: Interface, state: NicSettingsState) -> None:
    wanted = interface.wanted_mtu
    low, high = state.ranges.get(interface.name, (0, 0))
    if high and wanted > high:
        raise _wrong(
            interface, MTU, f"its driver takes up to {high}", "declare what all interfaces of the network take"
        )
    if wanted < low:
        raise _wrong(interface, MTU, f"its driver takes no less than {low}", "declare more")
    declared = {other.name: other.wanted_mtu for other in state.interfaces}

    def mtu_of(name: str) -> int:
        there = state.neighbours.get(name)
        return declared.get(name, there.mtu if there is not None else wanted)

    bond = interface.link.bond
    if bond and mtu_of(bond) != wanted:
        raise _wrong(
            interface, MTU, f"it is a port of {bond}, which has {mtu_of(bond)}", f"declare the MTU of {bond} instead"
        )
    if interface.link.kind in links.WITHIN_LOWER:
        for lower in interface.link.lowers:
            if mtu_of(lower) < wanted:
                cause = f"it is on top of {lower}, which has {mtu_of(lower)}"
                raise _wrong(interface, MTU, cause, f"declare mtu: {wanted} for {lower} too")
    for upper in interface.link.uppers:
        other = state.neighbours.get(upper)
        # Of one that is declared, its own values say that it fits.
        if other is not None and other.kind in links.WITHIN_LOWER and other.mtu > wanted:
            cause = (
                f"the kernel would reduce the MTU of {upper}, which is on top of it and has {other.mtu}, and never "
                "restore it"
            )
            raise _wrong(interface, MTU, cause, f"declare the MTU of {upper} too")


def _refuse_functions(interface: Interface) -> None:
    wanted = interface.wanted[FUNCTIONS]
    if interface.most_functions is not None and isinstance(wanted, int) and wanted > interface.most_functions:
        raise _wrong(interface, FUNCTIONS, f"the card has at most {interface.most_functions}", "declare fewer")
    if interface.functions_in_use:
        raise InUse(
            f"set {FUNCTIONS}",
            object=interface.name,
            cause=f"a change removes all of them first, and {interface.functions_in_use}",
            found=interface.values[FUNCTIONS],
            wanted=wanted,
            hint="nothing was changed; stop what uses them first",
        )


def undone(way_back: WayBack) -> Refused:
    """The error for changes that were undone before a connection came through."""
    first = way_back.changes[0]
    return Refused(
        f"keep {first.setting}",
        object=first.interface,
        cause="no connection confirmed the change in time, and the node has undone it",
        found=first.before,
        wanted=first.after,
        hint=UNDONE_HINT,
    )


def _wrong(interface: Interface, setting: str, cause: str, hint: str) -> DeclarationError:
    return DeclarationError(
        f"set {setting}",
        object=interface.name,
        cause=cause,
        found=interface.values[setting],
        wanted=interface.wanted[setting],
        hint=hint,
    )
