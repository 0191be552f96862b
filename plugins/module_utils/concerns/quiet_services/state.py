# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Units as systemd has them now, as the next boot will have them, and what is wanted of them."""

from __future__ import annotations

from typing import Mapping, Optional, Tuple

from ..._core.change import Conflict, Unmanaged
from ..._core.value import field, frozen
from ..._kinds.units import RUNNING, STOPPED
from .spec import DeclaredUnit

# The setting of a service that does a job and ends, which a timer starts.
JOB = "job in progress"


@frozen
class Unit:
    """A unit as it was found.

    ``status`` is what ``systemd.enabled`` says, ``beneath`` the same without a mask, and
    ``installable`` whether its file says how to enable it. ``active`` is None where systemd
    does not run. ``masked_now``: systemd itself has it as masked. ``brought_by`` is the declared unit that it would
    start, ``job`` whether it is at work and ends by itself.
    """

    name: str
    status: str
    beneath: str
    installable: bool
    active: Optional[bool]
    masked_now: bool = False
    brought_by: str = ""
    job: bool = False

    @property
    def service(self) -> Optional[str]:
        return None if self.active is None else RUNNING if self.active else STOPPED


@frozen
class QuietServicesState:
    """What was seen. ``methods`` is how each unit is to be quiet, by its real name, triggers included.

    ``lacking`` are units that are declared and not there, ``nearest`` what may have been meant by them. ``blocker``
    says why systemd must not read its units again, ``starters`` who starts a unit that is only disabled, ``in_use``
    what else runs and would stop with a unit, ``in_place`` the files where a mask would have to be, ``shipped`` the
    folder of a link that nothing can remove.
    """

    units: Mapping[str, Unit]
    methods: Mapping[str, str]
    jobs: Tuple[Unit, ...] = ()
    lacking: Tuple[DeclaredUnit, ...] = ()
    nearest: Mapping[str, str] = field(default_factory=dict)
    blocker: str = ""
    starters: Tuple[Conflict, ...] = ()
    in_use: Mapping[str, str] = field(default_factory=dict)
    in_place: Mapping[str, str] = field(default_factory=dict)
    shipped: Mapping[str, str] = field(default_factory=dict)


@frozen
class Want:
    """What is wanted of a unit: its status at boot and whether it runs; None where that may be as it is."""

    start: Optional[str]
    service: Optional[str]


@frozen
class QuietServicesDesired:
    """What is wanted of this machine."""

    wants: Mapping[str, Want]
    stop_jobs: bool = False
    unmanaged: Tuple[Unmanaged, ...] = ()
