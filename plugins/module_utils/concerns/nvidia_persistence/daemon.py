# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The unit of nvidia-persistenced: what its files make of persistence mode at the next boot.

The daemon switches it on for every GPU when it starts, unless its last word on the command line is
``--no-persistence-mode`` (nvidia-persistenced(1)).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, List, Optional, Sequence, Tuple

from ..._core.regex import regex
from ..._core.value import frozen
from ..._kinds.own_files import header_of
from ..._linux import systemd, udev_rules
from .spec import NAME, OFF, ON

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from ..._linux.udev_rules import UdevRule

UNIT = "nvidia-persistenced.service"
SOCKET = "/var/run/nvidia-persistenced/socket"
DROP_IN = f"{systemd.ETC}/{UNIT}.d/gpufleet.conf"
EXEC_START = "Service.ExecStart"
STOP_WHEN_UNNEEDED = "Unit.StopWhenUnneeded"
FLAG = regex(r"\s+--?(no-)?persistence-mode(?:=\S*)?(?=\s|$)")


@frozen
class UnitSource:
    """The unit file or a drop-in: its assignments of the two keys that count here, an empty one resets."""

    path: str
    values: Tuple[Tuple[str, str], ...]

    def of(self, key: str) -> Tuple[str, ...]:
        return tuple(value for name, value in self.values if name == key)


@frozen
class Persistenced:
    """``status`` is that of ``systemd.enabled``. ``started_by`` is what starts it at boot: ``enabled``, or the rule
    file of udev that does; empty where nothing does.

    ``sources`` are the files of the unit in the order they count, without ours, whose text is ``drop_in``.
    """

    status: str
    started_by: str
    running: bool
    sources: Tuple[UnitSource, ...]
    drop_in: Optional[str]

    @property
    def exists(self) -> bool:
        return self.status != systemd.NOT_FOUND

    @property
    def masked(self) -> bool:
        return self.status == systemd.MASKED

    @property
    def boot(self) -> str:
        """The mode that the next boot brings for every GPU."""
        return self.boot_with(self.drop_in)

    def boot_with(self, drop_in: Optional[str]) -> str:
        """The same when this is our drop-in."""
        return self.default(drop_in) if self.started_by else OFF

    def undisputed(self, drop_in: Optional[str], mode: str) -> bool:
        """Whether nobody else has a say in its default, which is this mode with this drop-in of ours."""
        if mode == OFF and not self.started_by:
            return True
        return len(self.sources) == 1 and self.default(drop_in) == mode

    def default(self, drop_in: Optional[str]) -> str:
        """The mode that the daemon starts with when this is our drop-in."""
        lines = _last(_with_ours(self.sources, drop_in), EXEC_START)
        return mode_of(lines[0]) if len(lines) == 1 else OFF

    def wanted_drop_in(self, mode: str) -> Optional[str]:
        """What our drop-in must say so that the daemon starts with this mode, and stays; None for no drop-in."""
        text = ""
        stops = _last(self.sources, STOP_WHEN_UNNEEDED)
        if mode == ON and stops and stops[-1].lower() in systemd.TRUE:
            text += "[Unit]\nStopWhenUnneeded=no\n"
        lines = _last(self.sources, EXEC_START)
        if lines and self.default(None) != mode:
            text += f"[Service]\nExecStart=\nExecStart={line_for(lines[-1], mode)}\n"
        return header_of(NAME) + text if text else None


def observe(files: Files) -> Persistenced:
    status = systemd.enabled(files, UNIT)
    if status in (systemd.NOT_FOUND, systemd.MASKED):
        return Persistenced(status, "", files.exists(SOCKET), (), files.read_optional(DROP_IN))
    started_by = systemd.ENABLED if status == systemd.ENABLED else udev_rule(files)
    return Persistenced(status, started_by, files.exists(SOCKET), _sources(files), files.read_optional(DROP_IN))


def mode_of(line: str) -> str:
    """The mode that the daemon starts with on this command line; the last flag counts (nvgetopt.c of NVIDIA)."""
    flags = FLAG.findall(line)
    return OFF if flags and flags[-1] else ON


def line_for(line: str, mode: str) -> str:
    """The command line with every other argument as it is."""
    if mode == OFF:
        return f"{line} --no-persistence-mode"
    return FLAG.sub(lambda flag: "" if flag[1] else flag[0], line)


def udev_rule(files: Files) -> str:
    """The rule file that lets systemd start the daemon with the driver, as on Ubuntu; empty where there is none."""
    for path in sorted(udev_rules.walk(files), key=lambda path: "nvidia" not in path):
        text = files.read_optional(path) or ""
        if UNIT in text and any(map(_wants_daemon, udev_rules.parse(path, text).rules)):
            return path
    return ""


def _wants_daemon(rule: UdevRule) -> bool:
    return any(
        token.attribute == "SYSTEMD_WANTS" and not token.is_condition and UNIT in token.value.split()
        for token in rule.tokens
    )


def after_ours(sources: Sequence[UnitSource]) -> Tuple[UnitSource, ...]:
    """The drop-ins that have the last word against ours: drop-ins count in the order of their names."""
    ours = os.path.basename(DROP_IN)
    return tuple(source for source in sources[1:] if os.path.basename(source.path) > ours)


def _with_ours(sources: Sequence[UnitSource], drop_in: Optional[str]) -> Tuple[UnitSource, ...]:
    if drop_in is None:
        return tuple(sources)
    after = after_ours(sources)
    return (*sources[: len(sources) - len(after)], UnitSource(DROP_IN, _values(drop_in)), *after)


def _sources(files: Files) -> Tuple[UnitSource, ...]:
    """The unit file, and the drop-ins of others that say something of the two keys."""
    places = [f"{folder}/{UNIT}" for folder in systemd.FOLDERS]
    fragments = [path for path in places if files.exists(path)][:1]
    paths = [path for path in systemd.drop_ins(files, UNIT) if path != DROP_IN]
    found = [UnitSource(path, _values(files.read(path))) for path in (*fragments, *paths)]
    return (*found[:1], *(source for source in found[1:] if source.values))


def _values(text: str) -> Tuple[Tuple[str, str], ...]:
    return tuple((key, value) for key, value in systemd.assignments(text) if key in (EXEC_START, STOP_WHEN_UNNEEDED))


def _last(sources: Sequence[UnitSource], key: str) -> List[str]:
    """The values of a key once all sources are merged."""
    values: List[str] = []
    for source in sources:
        for value in source.of(key):
            values = [*values, value] if value else []
    return values
