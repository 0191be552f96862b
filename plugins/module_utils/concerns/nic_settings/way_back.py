# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The way back of a change that the connection to this node passes through.

Before the change is made, systemd is told to undo it after a while. A connection that is younger than the change, and
that comes through what was changed, shows that the node can be reached: the run that it brings calls it off. The record
outlasts a boot, so that what was undone is not made again by a boot that nobody can reach. It ends with a confirmation,
or with a declaration that does not want the change any more.
"""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any, Dict, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from ..._core.baseline import STATE_FOLDER
from ..._core.contract import LOCK
from ..._core.errors import CannotLook
from ..._core.record import Damaged, read_record
from ..._core.setting import Scalar
from ..._core.value import frozen
from . import ethtool, links
from .spec import GROUPS, MTU, NAME

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host

RECORD = f"{STATE_FOLDER}/{NAME}.way_back"
SCHEMA = 1
# The timers, and the services that they start, each with a number: a new one begins before an earlier one ends.
UNIT = "gpufleet-nic-settings-way-back"
PROGRAM = "systemd-run"
SYSTEMD_RUNS = "/run/systemd/system"
SECONDS = 30.0
# The undoing waits that long for a run that is still at work, so that nothing is changed behind its back.
LOCK_SECONDS = 60

WAITS, UNDONE = "not confirmed", "undone"
CONFIRMATION = "confirmation"


@frozen
class Undo:
    """A change of an interface: what is set again if nobody confirms it. A boot knows it by its ``identity``."""

    interface: str
    identity: str
    setting: str
    before: Scalar
    after: Scalar


@frozen
class WayBack:
    """The changes that wait for a connection that is younger than they are, in the order in which they are undone.

    ``since`` is when they were made, in hundredths of a second since ``boot``; None where that is not known. ``told``:
    they were undone, and a run has said so.
    """

    changes: Tuple[Undo, ...]
    since: Optional[int] = None
    boot: str = ""
    told: bool = False

    @property
    def interfaces(self) -> Tuple[str, ...]:
        return tuple(dict.fromkeys(change.interface for change in self.changes))

    def made(self, found: Mapping[Tuple[str, str], Scalar]) -> bool:
        """Whether all changes are in effect, by what is found now."""
        return all(found.get((one.interface, one.setting)) == one.after for one in self.changes)

    def undoes(self) -> FrozenSet[Tuple[str, str, Scalar]]:
        """By identity, setting and value."""
        return frozenset((one.identity, one.setting, one.after) for one in self.changes)

    def precedes(self, started: Optional[int], boot: str) -> bool:
        """Whether what started then, in hundredths of a second since this boot, is younger than the changes."""
        if boot != self.boot:
            return True
        return started is not None and self.since is not None and started > self.since


def load(files: Files) -> Optional[WayBack]:
    """The record; None where nothing waits. Raises ``CannotLook`` for a damaged one."""
    return read_record(
        files,
        RECORD,
        _way_back,
        schema=SCHEMA,
        goal="read which changes wait for a connection",
        hint=f"see that the node can be reached, run systemctl stop '{UNIT}*', and remove the file",
    )


def _way_back(document: Any) -> WayBack:
    changes = tuple(
        Undo(
            _text(entry["interface"]),
            str(entry["identity"]),
            _text(entry["setting"]),
            _scalar(entry["before"]),
            _scalar(entry["after"]),
        )
        for entry in document["changes"]
    )
    if not changes:
        raise Damaged("it lists no changes")
    since = document["since"]
    return WayBack(changes, None if since is None else int(since), str(document["boot"]), document["told"] is True)


def _text(value: object) -> str:
    if isinstance(value, str) and value and "/" not in value:
        return value
    raise Damaged(f"{value!r:.80} is not a name")


def _scalar(value: object) -> Scalar:
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return value
    raise Damaged(f"{value!r:.80} is not the value of a setting")


def text_of(way_back: WayBack) -> str:
    document = {
        "schema": SCHEMA,
        "since": way_back.since,
        "boot": way_back.boot,
        "told": way_back.told,
        "changes": [dict(vars(change)) for change in way_back.changes],
    }
    return json.dumps(document, indent=1) + "\n"


def why_none(host: Host) -> str:
    """Why nothing could undo a change on this machine; empty where systemd can."""
    if not host.files.exists(SYSTEMD_RUNS):
        return "systemd does not run here"
    return "" if host.commands.find(PROGRAM) else f"{PROGRAM} is not installed"


def units(host: Host) -> Tuple[str, ...]:
    """The names, without ``.timer`` and ``.service``, of what waits to undo changes or is at it.

    Raises ``CannotLook`` where systemd does not say.
    """
    if not host.files.exists(SYSTEMD_RUNS):
        return ()
    argv = ("systemctl", "list-units", "--plain", "--no-legend", "--no-pager", f"{UNIT}*")
    completed = host.commands.run(argv, timeout=SECONDS)
    if completed.status != 0:
        said = (completed.errors or completed.output).strip() or f"exit status {completed.status}"
        raise CannotLook("ask systemd which changes wait for a connection", cause=said)
    found = (line.split()[0] for line in completed.output.splitlines() if line.startswith(UNIT))
    return tuple(dict.fromkeys(name.rpartition(".")[0] for name in found))


def unused(names: Sequence[str]) -> str:
    """A name for a timer beside these."""
    return next(name for name in (f"{UNIT}-{number}" for number in range(1, len(names) + 2)) if name not in names)


def command(host: Host, way_back: WayBack, *, unit: str, seconds: int) -> Tuple[str, ...]:
    """The timer that undoes the changes, each whatever becomes of the others, once no run is at work any more."""
    undo = f"undo() {{ {'; '.join(_commands(host, way_back))}; }}"
    # Without a lock to wait for they are undone too, and where one failed all are tried again.
    script = f"{undo}; {{ flock -w {LOCK_SECONDS} 9; undo; }} 9>>{LOCK} || undo"
    return (
        PROGRAM,
        f"--unit={unit}",
        "--collect",
        f"--on-active={seconds}",
        "--timer-property=AccuracySec=1s",
        "--description=Undo a change of the network that nobody confirmed",
        "/bin/sh",
        "-c",
        # systemd puts variables of its own in for names after a dollar sign.
        script.replace("$", "$$"),
    )


def _commands(host: Host, way_back: WayBack) -> Sequence[str]:
    """In the order of setting: new channels begin with rings and coalescing of their own."""
    sizes = [one for one in way_back.changes if one.setting == MTU]
    together: Dict[Tuple[str, str], List[Tuple[str, Scalar]]] = {}
    for one in way_back.changes:
        if one.setting != MTU:
            group = ethtool.group_of(one.setting)
            together.setdefault((group, one.interface), []).append((one.setting, one.before))
    program = host.commands.find(ethtool.PROGRAM) or ethtool.PROGRAM
    calls = [
        (program, *ethtool.command(interface, group, values)[1:])
        for (group, interface), values in sorted(together.items(), key=lambda item: GROUPS.index(item[0][0]))
    ]
    return (
        *(f"echo {one.before} > {shlex.quote(links.mtu_path(one.interface))}" for one in sizes),
        *(" ".join(map(shlex.quote, argv)) for argv in calls),
    )


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
