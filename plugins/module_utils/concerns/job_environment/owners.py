# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who gives a process another value than the declared one, as far as that can be seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, Iterator, Mapping, Sequence, Set, Tuple

from ..._core.change import THEM, Conflict
from ..._linux import shell_profiles
from . import nccl_conf

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from ..._kinds.own_files import Line

CONF_FILE = "NCCL_CONF_FILE"
PASSWD = "/etc/passwd"
# Below it are the users of the system, whose services start jobs. The homes of others may be far away, and hang.
FIRST_PERSON = 1000
LOCAL = ("/root", "/var/", "/opt/", "/srv/", "/usr/", "/etc/", "/run/")


def of_sessions(files: Files, wanted: Mapping[str, str]) -> Iterator[Conflict]:
    """The files that login shells read after pam_env did its work."""
    for path, number, name, value in shell_profiles.assignments(files, wanted):
        if value != wanted[name]:
            yield Conflict("profile", path, number, "sessions", name, value, THEM)


def of_nccl(
    files: Files, wanted: Mapping[str, str], environment: Sequence[Line], ours: Mapping[str, str]
) -> Iterator[Conflict]:
    """What NCCL takes before /etc/nccl.conf: the environment, and the file of the user or of NCCL_CONF_FILE.

    ``environment`` are the lines that decide about sessions, ``ours`` what this declaration has for others.
    """
    named: Dict[str, str] = {CONF_FILE: ours[CONF_FILE]} if CONF_FILE in ours else {}
    for line in environment:
        if line.setting in wanted and line.value != wanted[line.setting]:
            yield Conflict("environment", line.path, line.number, "nccl", line.setting, line.value, THEM)
        elif line.setting == CONF_FILE:
            named[CONF_FILE] = line.value
    for path in dict.fromkeys((*named.values(), *(f"{home}/.nccl.conf" for home in _homes(files)))):
        decided: Set[str] = set()
        for number, name, value in nccl_conf.parse(files.read_optional(path) or ""):
            if name in wanted and name not in decided and value != wanted[name]:
                yield Conflict("nccl", path, number, "nccl", name, value, THEM)
            decided.add(name)


def _homes(files: Files) -> Tuple[str, ...]:
    """The homes of root and of the users of the system."""
    found = []
    for line in (files.read_optional(PASSWD) or "").splitlines():
        fields = line.split(":")
        if len(fields) == 7 and fields[2].isdecimal() and int(fields[2]) < FIRST_PERSON and fields[5].startswith(LOCAL):
            found.append(fields[5].rstrip("/"))
    return tuple(dict.fromkeys(found))
