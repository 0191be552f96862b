# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The values that other owners give interfaces at boot: by ethtool(8), ip-link(8), or by their files in sysfs."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Iterator, Optional, Sequence, Tuple

from ..._core.change import THEM
from ..._kinds import foreign_values
from ..._kinds.foreign_values import ForeignValue, Said
from ..._linux import boot_writers
from ..._linux.network_writers import ETHTOOL as PROGRAM
from ..._linux.network_writers import IP, LASTING, UDEV
from . import ethtool, links
from .spec import (
    CHANNELS,
    COALESCING,
    ETHTOOL,
    FEATURES,
    FUNCTIONS,
    MAXIMUM,
    MTU,
    PAUSE,
    RINGS,
    SET_OPTIONS,
    SHORT_FEATURES,
)

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from ..._core.protocols import Files
    from ..._linux.boot_writers import BootWrite
    from .state import Interface

# ethtool(8) has long names for them, and two for features.
GROUPS = {
    **{option: group for group, option in SET_OPTIONS.items()},
    "--set-ring": RINGS,
    "--set-channels": CHANNELS,
    "--coalesce": COALESCING,
    "--pause": PAUSE,
    "--features": FEATURES,
    "--offload": FEATURES,
}
PCI = "/sys/bus/pci/devices"
UNKNOWN = "*"


def read(files: Files, interfaces: Sequence[Interface], scope: Scope) -> Tuple[ForeignValue, ...]:
    """The values that other owners give to the declared settings of these interfaces."""
    writes = (
        *boot_writers.commands(files, PROGRAM),
        *boot_writers.commands(files, IP),
        *(one for one in boot_writers.read(files) if one.target.startswith((f"{links.FOLDER}/", f"{PCI}/"))),
    )
    if not writes:
        return ()
    lines = [(one, [said for interface in interfaces for said in _said(one, interface)]) for one in writes]
    return foreign_values.read(files, scope, lines, lasting=LASTING, early=(UDEV,))


def _said(write: BootWrite, interface: Interface) -> Iterator[Said]:
    if write.target == PROGRAM:
        found = _by_ethtool(write.arguments, interface)
    elif write.target == IP:
        found = _by_ip(write.arguments, interface)
    else:
        found = _by_sysfs(write, interface)
    yield from (one for one in found if one.setting in interface.declared)


def _by_ethtool(arguments: Sequence[str], interface: Interface) -> Iterator[Said]:
    group = GROUPS.get(arguments[0], "") if len(arguments) > 1 else ""
    if not group or not fnmatchcase(interface.name, arguments[1]):
        return
    words = arguments[2:]
    for word, value in zip(words[::2], words[1::2]):
        if word == UNKNOWN:
            # Any of them, as only the running script knows.
            yield from (Said(interface.name, one, None) for one in interface.declared if ethtool.group_of(one) == group)
        for setting in _settings(group, word):
            yield Said(interface.name, setting, _value(value, setting, interface))


def _settings(group: str, word: str) -> Iterator[str]:
    if group == FEATURES:
        yield SHORT_FEATURES.get(word, word)
    yield from (setting for setting, known in ETHTOOL.items() if (known.group, known.word) == (group, word))


def _value(text: str, setting: str, interface: Interface) -> Optional[str]:
    if UNKNOWN in text:
        return None
    return str(ethtool.resolved(MAXIMUM, setting, interface.shown)) if text == MAXIMUM else text


def _by_ip(arguments: Sequence[str], interface: Interface) -> Iterator[Said]:
    """``ip link set [dev] NAME ... mtu N``; ip(8) takes any beginning of its words."""
    words = list(arguments)
    while words and words[0].startswith("-"):
        if words[0].startswith(("-n", "-b")):
            # Of another network namespace, or from a file.
            return
        words = words[1:]
    if len(words) < 5 or not "link".startswith(words[0]) or not ("set".startswith(words[1]) or words[1] == "change"):
        return
    rest = words[2:]
    name = rest[rest.index("dev") + 1] if "dev" in rest[:-1] else rest[0]
    if MTU in rest[:-1] and rest[0] != "group" and fnmatchcase(interface.name, name):
        mtu = rest[rest.index(MTU) + 1]
        # What is no number ip(8) refuses; it also takes numbers to other bases.
        yield Said(interface.name, MTU, mtu if mtu.isdecimal() else None)


def _by_sysfs(write: BootWrite, interface: Interface) -> Iterator[Said]:
    folder, address = f"{links.FOLDER}/{interface.name}", interface.link.identity.partition("/")[0]
    if fnmatchcase(links.mtu_path(interface.name), write.target):
        yield Said(interface.name, MTU, write.value)
    paths = (f"{folder}/device/sriov_numvfs", f"{PCI}/{address}/sriov_numvfs")
    if any(fnmatchcase(path, write.target) for path in paths):
        yield Said(interface.name, FUNCTIONS, write.value)


def at_lease(interface: Interface) -> Tuple[ForeignValue, ...]:
    """The MTU of the DHCP server, which is no line of the owner's own."""
    stated = interface.stated
    if stated is None or not stated.keep_out:
        return ()
    return (ForeignValue(stated.owner, stated.path, stated.line, interface.name, MTU, str(stated.mtu), THEM),)
