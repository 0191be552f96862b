# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The way back of a change that the connection to this node passes through.

Before the change is made, systemd is told to undo it after a while. The next connection that comes through what was
changed shows that the node can be reached: the run that it brings calls it off. The record outlasts a boot, so that
what was undone is not made again by a boot that nobody can reach. It ends with a confirmation, or with a declaration
that does not want the change any more.
"""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any, Dict, FrozenSet, List, Mapping, Optional, Tuple

from ..._core.baseline import STATE_FOLDER
from ..._core.record import read_record
from ..._core.setting import Scalar
from ..._core.value import frozen
from . import ethtool, links
from .spec import MTU, NAME

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host

RECORD = f"{STATE_FOLDER}/{NAME}.way_back"
SCHEMA = 1
UNIT = "gpufleet-nic-settings-way-back"
PROGRAM = "systemd-run"

WAITS, UNDONE = "not confirmed", "undone"


@frozen
class Undo:
    """A change of an interface: what is set again if nobody confirms it."""

    interface: str
    setting: str
    before: Scalar
    after: Scalar


@frozen
class WayBack:
    """The changes that wait for a connection other than ``connection``, which is the one that they were made over.

    ``told``: they were undone, and a run has said so.
    """

    connection: str
    changes: Tuple[Undo, ...]
    told: bool = False

    @property
    def interfaces(self) -> Tuple[str, ...]:
        return tuple(dict.fromkeys(change.interface for change in self.changes))

    def state(self, found: Mapping[Tuple[str, str], Scalar]) -> str:
        """Whether the changes wait, or were undone, by what is in effect now."""
        made = all(found.get((one.interface, one.setting)) == one.after for one in self.changes)
        return WAITS if made else UNDONE

    def undoes(self) -> FrozenSet[Tuple[str, str, Scalar]]:
        return frozenset((one.interface, one.setting, one.after) for one in self.changes)


def load(files: Files) -> Optional[WayBack]:
    """The record; None where nothing waits. Raises ``CannotLook`` for a damaged one."""
    return read_record(
        files,
        RECORD,
        _way_back,
        schema=SCHEMA,
        goal="read which changes wait for a connection",
        hint=f"see that the node can be reached, stop {UNIT}.timer, and remove the file",
    )


def _way_back(document: Any) -> WayBack:
    changes = tuple(
        Undo(_text(entry["interface"]), _text(entry["setting"]), _scalar(entry["before"]), _scalar(entry["after"]))
        for entry in document["changes"]
    )
    if not changes:
        raise ValueError("no changes")
    return WayBack(_text(document["connection"]), changes, document["told"] is True)


def _text(value: object) -> str:
    if isinstance(value, str) and value and "/" not in value:
        return value
    raise TypeError(f"{value!r} is not a name")


def _scalar(value: object) -> Scalar:
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return value
    raise TypeError(f"{value!r} is not the value of a setting")


def text_of(way_back: WayBack) -> str:
    document = {
        "schema": SCHEMA,
        "connection": way_back.connection,
        "told": way_back.told,
        "changes": [dict(vars(change)) for change in way_back.changes],
    }
    return json.dumps(document, indent=1) + "\n"


def why_none(host: Host) -> str:
    """Why nothing could undo a change on this machine; empty where systemd can."""
    if not host.files.exists("/run/systemd/system"):
        return "systemd does not run here"
    return "" if host.commands.find(PROGRAM) else f"{PROGRAM} is not installed"


def command(host: Host, way_back: WayBack, seconds: int) -> Tuple[str, ...]:
    """The timer that undoes the changes, the last one first, each whatever becomes of the others."""
    script = "; ".join(_undo(host, one) for one in reversed(way_back.changes))
    return (
        PROGRAM,
        f"--unit={UNIT}",
        "--collect",
        f"--on-active={seconds}",
        "--timer-property=AccuracySec=1s",
        "--description=Undo a change of the network that nobody confirmed",
        "/bin/sh",
        "-c",
        script,
    )


def _undo(host: Host, one: Undo) -> str:
    if one.setting == MTU:
        return f"echo {one.before} > {shlex.quote(links.mtu_path(one.interface))}"
    argv: List[str] = list(ethtool.command(one.interface, ethtool.group_of(one.setting), [(one.setting, one.before)]))
    argv[0] = host.commands.find(ethtool.PROGRAM) or ethtool.PROGRAM
    return " ".join(map(shlex.quote, argv))


def current(host: Host, way_back: WayBack) -> Mapping[Tuple[str, str], Scalar]:
    """What is in effect of all that waits."""
    found: Dict[Tuple[str, str], Scalar] = {}
    for interface in way_back.interfaces:
        mtu = host.files.read_optional(links.mtu_path(interface))
        if mtu is None:
            continue
        found[(interface, MTU)] = int(mtu)
        others = [one.setting for one in way_back.changes if one.interface == interface and one.setting != MTU]
        if others:
            shown = ethtool.read(host, interface, others)
            found.update({(interface, setting): shown.now.get(setting) for setting in others})
    return found
