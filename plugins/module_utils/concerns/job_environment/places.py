# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files from which jobs get variables, each with the rules of its reader, which reads it anew each time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ..._core.change import US, Change, Conflict, Step
from ..._core.declared import WANTED
from ..._core.errors import OwnedByAnother
from ..._core.planning import boot_change, effective_change, file_action
from ..._core.setting import IN_SYNC, Setting
from ..._core.value import frozen
from ..._kinds.own_files import OTHERS, Line
from ..._linux import pam_env
from ..._text.block import MADE, Block
from . import cdi, nccl_conf, slurm
from .spec import CONTAINERS, NCCL, SESSIONS, SLURM

if TYPE_CHECKING:
    from ..._core.protocols import Files

FILE = "variables"
BLOCK = Block("job_environment")


@frozen
class Place:
    """A file that carries variables.

    ``ours`` are our lines in it, ``lines`` all that count, in the order of their reader. ``lacking`` says why nobody
    reads it here; ``absent``: what would is not here at all, so that nothing is written. ``real`` is what goes where
    nothing was before: a link that led nowhere stays.
    """

    name: str
    path: str
    text: Optional[str]
    lines: Tuple[Line, ...]
    ours: Mapping[str, str]
    lacking: str = ""
    absent: bool = False
    real: str = ""

    @property
    def winners(self) -> Mapping[str, Line]:
        """The line that decides about each name."""
        return winners(self.name, self.lines)


def winners(place: str, lines: Sequence[Line]) -> Dict[str, Line]:
    """For NCCL the first line counts, for the others the last."""
    return {line.setting: line for line in (reversed(lines) if place == NCCL else lines)}


def read(files: Files, name: str, *, wanted: bool) -> Place:
    """A place as it is; who reads it is asked only where something is ``wanted`` there.

    Raises ``CannotLook`` where our lines in a file of others cannot be told from theirs.
    """
    path = PATHS[name]
    text = files.read_optional(path)
    if name in SHARED:
        BLOCK.check(path, text)
    lines: List[Line] = []
    lacking, absent = "", False
    if name == SESSIONS and wanted:
        lines += _lines(name, pam_env.CONF, pam_env.parse_conf(files.read_optional(pam_env.CONF) or ""))
        if not pam_env.is_read(files):
            lacking, absent = f"no service in /etc/pam.d has pam_env.so read {path}, so no session would get it", True
    elif name == SLURM and wanted:
        configuration, lacking = slurm.named(files)
        absent = configuration is None
    lines += lines_of(name, text)
    real = files.resolve(path) if MADE in (text or "") else path
    return Place(name, path, text, tuple(lines), ours_in(name, text), lacking, absent, real)


def lines_of(name: str, text: Optional[str]) -> List[Line]:
    return _lines(name, PATHS[name], PARSERS[name](text or ""))


def _lines(name: str, path: str, parsed: Iterator[Tuple[int, str, str]]) -> List[Line]:
    return [Line(path, number, name, setting, value) for number, setting, value in parsed]


def ours_in(name: str, text: Optional[str]) -> Dict[str, str]:
    """The variables that a file has from us."""
    if text is None:
        return {}
    lines = lines_of(name, text)
    if name in SHARED:
        start, stop = BLOCK.numbers(text)
        lines = [line for line in lines if start <= line.number < stop]
    return {line.setting: line.value for line in lines}


def text_with(place: Place, values: Optional[Mapping[str, str]], *, mount: bool) -> Optional[str]:
    """The file as it is to be; ``values`` is None where nothing of ours is to be in it."""
    if place.name in SHARED:
        if not values or place.absent:
            return BLOCK.without_lines(place.text)
        lines = "".join(f"{name}={value}\n" for name, value in sorted(values.items()))
        return BLOCK.with_lines(place.text, lines, first=place.name == NCCL)
    if values is None or place.absent:
        return None
    return cdi.render(values, mount=mount) if place.name == CONTAINERS else slurm.render(values)


def plan(
    place: Place, values: Optional[Mapping[str, str]], *, mount: bool, restoring: bool
) -> Tuple[List[Setting], List[Step], List[Conflict]]:
    """The variables and the file as settings, the step, and who else sets them. Raises ``OwnedByAnother``."""
    text = text_with(place, values, mount=mount)
    wanted: Mapping[str, str] = {} if values is None or place.absent else values
    now = place.winners
    after, lines = now, list(place.lines)
    if text != place.text:
        lines = [line for line in place.lines if line.path != place.path] + lines_of(place.name, text)
        after = winners(place.name, lines)
    rows: List[Setting] = []
    # What nobody reads is in effect nowhere, and only the file is there.
    for name in dict.fromkeys((*wanted, *place.ours) if not place.lacking else ()):
        found = now[name].value if name in now else None
        goal = wanted.get(name, after[name].value if name in after else None)
        rows.append(Setting(place.name, name, goal, found, found, place.name))
    has_file = bool(values) or (values is not None and place.name == CONTAINERS)
    rows += _file_rows(place, has_file and not place.absent, text)
    conflicts = [] if restoring else _conflicts(place, lines, after, wanted)
    differing = [row for row in rows if row.status != IN_SYNC]
    if not differing:
        return rows, [], conflicts
    changes: List[Change] = [effective_change(row) for row in differing if row.effective_matters]
    changes += map(boot_change, differing)
    mode = 0o755 if place.name == SLURM else 0o644
    step = Step(
        file_action(place.path if text is not None else place.real, text, mode), tuple(changes), probes=(place.path,)
    )
    return rows, [step], conflicts


def _file_rows(place: Place, wanted: bool, text: Optional[str]) -> List[Setting]:
    """What is ours of the file: there as declared, there in another way, or not there."""
    there = place.text is not None
    if there and place.name in SHARED:
        there = BLOCK.begin in (place.text or "")
    if not there and not wanted:
        return []
    found = None if not there else WANTED if text == place.text or not wanted else OTHERS
    goal = WANTED if wanted else None
    return [Setting(place.path, FILE, goal, found, found, place.path, effective_matters=False)]


def _conflicts(
    place: Place, lines: Sequence[Line], after: Mapping[str, Line], wanted: Mapping[str, str]
) -> List[Conflict]:
    for name, value in wanted.items():
        line = after.get(name)
        if line is None:
            raise OwnedByAnother(
                f"set {name}",
                object=place.name,
                cause=f"a line of {place.path} before those of this module ends in a backslash, which joins them to it",
                hint="remove that backslash, or leave the variable out of the declaration",
            )
        if line.value != value:
            raise OwnedByAnother(
                f"set {name} for {{}}",
                object=place.name,
                cause=f"line {line.number} of {line.path} takes precedence over the line of this module",
                found=line.value or "not set",
                wanted=value,
                hint="remove that line, declare the same value, or leave the variable out of the declaration",
            )
    return [
        Conflict("environment", line.path, line.number, place.name, line.setting, line.value, US)
        for line in lines
        if line.setting in wanted and line.value != wanted[line.setting]
    ]


PATHS: Mapping[str, str] = {
    NCCL: nccl_conf.PATH,
    SESSIONS: pam_env.PATH,
    SLURM: slurm.PATH,
    CONTAINERS: cdi.PATH,
}
PARSERS = {NCCL: nccl_conf.parse, SESSIONS: pam_env.parse, SLURM: slurm.parse, CONTAINERS: cdi.parse}
# Files of others, in which lines of ours stand.
SHARED = (NCCL, SESSIONS)
