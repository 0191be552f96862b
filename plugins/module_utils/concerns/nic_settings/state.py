# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is seen of network interfaces, and what is wanted of them."""

from __future__ import annotations

from typing import Mapping, Optional, Tuple

from ..._core.change import Unmanaged
from ..._core.setting import Scalar
from ..._core.value import field, frozen
from ..._kinds.foreign_values import ForeignValue
from ..._kinds.hotplug import Hotplug
from ..._linux.boot_service import BootCarrier
from .ethtool import Shown
from .links import Link
from .login import Login
from .owners import StatedMtu
from .spec import FUNCTIONS, MTU, NicSettingsDeclaration
from .way_back import WayBack


@frozen
class Interface:
    """One interface that is declared, or that was changed.

    ``declared`` are its settings, with ``max`` as the number that it is; those that it does not have are not in
    ``values``. ``answers`` says in words what size of packets each of its peers answers, and ``no_answers`` why none
    was asked.
    """

    link: Link
    declared: Mapping[str, Scalar]
    values: Mapping[str, Scalar]
    shown: Shown
    most_functions: Optional[int] = None
    functions_in_use: str = ""
    stated: Optional[StatedMtu] = None
    answers: Mapping[str, str] = field(default_factory=dict)
    no_answers: str = ""

    @property
    def name(self) -> str:
        return self.link.name

    @property
    def wanted(self) -> Mapping[str, Scalar]:
        """What is declared and can be had."""
        return {setting: value for setting, value in self.declared.items() if self.values.get(setting) is not None}

    @property
    def differing(self) -> Tuple[str, ...]:
        return tuple(setting for setting, value in self.wanted.items() if self.values[setting] != value)

    @property
    def wanted_mtu(self) -> int:
        """The MTU that it will have."""
        return int(self.wanted.get(MTU) or self.link.mtu)

    @property
    def moves(self) -> bool:
        """Whether its packets are affected by what differs."""
        return any(setting != FUNCTIONS for setting in self.differing)


@frozen
class NicSettingsState:
    """What was seen.

    ``ranges`` are the smallest and largest MTU of those whose MTU differs, ``neighbours`` what lies right above and
    below them. ``undone`` says whether the changes of ``way_back`` wait to be confirmed, or were undone, ``made``
    whether all of them are in effect, and ``younger`` whether the connection of this run began after them. ``foreign``
    is what others give these interfaces at boot.
    """

    interfaces: Tuple[Interface, ...]
    declaration: NicSettingsDeclaration
    way_back: Optional[WayBack] = None
    undone: str = ""
    made: bool = False
    younger: bool = False
    login: Optional[Login] = None
    no_way_back: str = ""
    ranges: Mapping[str, Tuple[int, int]] = field(default_factory=dict)
    neighbours: Mapping[str, Link] = field(default_factory=dict)
    missing: Tuple[str, ...] = ()
    foreign: Tuple[ForeignValue, ...] = ()
    carrier: BootCarrier = BootCarrier()
    later: Optional[Hotplug] = None


@frozen
class NicSettingsDesired:
    """What is wanted of this machine. ``wanted`` are the settings by interface that it can have."""

    wanted: Mapping[str, Mapping[str, Scalar]]
    unmanaged: Tuple[Unmanaged, ...] = ()
    unit: Optional[str] = None
    rules: Optional[str] = None
