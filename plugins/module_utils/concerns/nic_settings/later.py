# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What sets interfaces that come later: a rule of udev, and the unit that it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable, Optional, Sequence, Tuple

from ..._core.match import names_explicitly
from ..._kinds import hotplug
from ..._kinds.own_files import header_of
from .spec import NAME, InterfaceEntry

if TYPE_CHECKING:
    from ..._core.protocols import Host
    from ..._kinds.hotplug import Hotplug

UNIT = "gpufleet-nics.service"
RULES = f"/etc/udev/rules.d/99-gpufleet-{NAME}.rules"
# A card brings its ports one after the other, and a driver that was loaded again its virtual functions.
AGAIN_SECONDS = 2
# Where all distributions have it, also those that keep /bin and /usr/bin apart.
SYSTEMCTL = "/bin/systemctl"


def observe(host: Host) -> Hotplug:
    return hotplug.observe(host, UNIT, RULES)


def unit_text() -> str:
    return hotplug.unit_text(
        NAME,
        header=header_of(NAME).rstrip(),
        description="Set the network interfaces that came after the boot",
        again=AGAIN_SECONDS,
    )


def rules_text(entries: Sequence[InterfaceEntry]) -> str:
    """The rules for cards, and for what software makes under a name that is declared. A new name is a move."""
    run = f'RUN+="{SYSTEMCTL} --no-block start {UNIT}"'
    lines = [f'SUBSYSTEM=="net", ACTION=="add|move", SUBSYSTEMS=="pci", {run}']
    for names in _names(entries):
        lines.append(f'SUBSYSTEM=="net", ACTION=="add|move", KERNEL=="{names}", {run}')
    why = "#\n# An interface comes with the values of its driver.\n"
    return header_of(NAME) + why + "".join(f"{line}\n" for line in lines)


def _names(entries: Sequence[InterfaceEntry]) -> Iterable[str]:
    """The names that can be those of interfaces that software makes, one entry a line."""
    for entry in entries:
        named = [name for name in entry.entry.match.get("name", ()) if names_explicitly(name)]
        if named:
            yield "|".join(named)


def texts(entries: Sequence[InterfaceEntry]) -> Tuple[Optional[str], Optional[str]]:
    """The unit and the rules; none where nothing is to be set later."""
    return (unit_text(), rules_text(entries)) if any(entry.settings for entry in entries) else (None, None)
