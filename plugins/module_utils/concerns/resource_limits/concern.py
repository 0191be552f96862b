# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``resource_limits``: how much a session may lock in memory, open, start and run in real time.

pam_limits reads /etc/security/limits.conf and then limits.d, by the names of its files, each time that it opens a
session (limits.conf(5) and pam_limits.c of Linux-PAM). Of lines of the same domain the last counts.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Optional, Sequence, Tuple

from ..._core.change import Unmanaged
from ..._core.errors import DeclarationError
from ..._core.value import replace
from ..._kinds.own_files import FilesDeclaration, FilesDesired, FilesState, Key, Line, OwnFilesConcern, header_of
from .options import OPTIONS
from .spec import ALL_USERS, ITEMS, ROOT, TYPES, UNLIMITED, parse

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from ..._core.protocols import Files, Host

CONF = "/etc/security/limits.conf"
FOLDER = "/etc/security/limits.d"
MOST_FILES = "/proc/sys/fs/nr_open"
# As pam_limits reads a value that is no number.
WORDS = ("-1", UNLIMITED, "infinity")
# What those have whom a line "name -" takes out of pam_limits.
EXEMPT = "exempt"


class ResourceLimits(OwnFilesConcern):
    """``convergence.Concern`` for the limits of sessions."""

    name = "resource_limits"
    options = OPTIONS
    path = f"{FOLDER}/99-gpufleet-resource_limits.conf"
    setting = "limits"
    owner = "limits.d"

    def parse(self, params: Mapping[str, Any]) -> FilesDeclaration:
        return parse(params)

    def read(self, files: Files) -> Mapping[str, str]:
        paths = [CONF, *(f"{FOLDER}/{name}" for name in files.names(FOLDER) if name.endswith(".conf"))]
        texts = ((path, files.read_optional(path)) for path in paths)
        return {path: text for path, text in texts if text}

    def place(self, path: str) -> Tuple[bool, str]:
        return path != CONF, os.path.basename(path)

    def lines(self, path: str, text: str) -> Iterator[Line]:
        for number, line in enumerate(text.split("\n"), 1):
            fields = line.partition("#")[0].split()
            if len(fields) == 2 and fields[1] == "-" and fields[0] != ALL_USERS:
                yield from (Line(path, number, fields[0], f"{kind} {item}", EXEMPT) for kind in TYPES for item in ITEMS)
            elif len(fields) >= 4:
                domain, kind, item, value = fields[0], *(field.lower() for field in fields[1:4])
                limit = _limit(value)
                if item in ITEMS and kind in (*TYPES, "-") and limit:
                    kinds = TYPES if kind == "-" else (kind,)
                    yield from (Line(path, number, domain, f"{one} {item}", limit) for one in kinds)

    def render(self, values: Mapping[Key, Optional[str]]) -> str:
        return header_of(self.name) + "".join(
            f"{domain} {setting} {value}\n" for (domain, setting), value in values.items()
        )

    def winners(self, lines: Sequence[Line]) -> Mapping[Key, Line]:
        """Who is exempt is so whatever other lines say."""
        return {**super().winners(lines), **super().winners([line for line in lines if line.value == EXEMPT])}

    def exceptions(self, lines: Sequence[Line], values: Mapping[Key, Optional[str]]) -> Iterator[Line]:
        """A line for a user or a group is stronger than one for all, wherever it stands."""
        for line in lines:
            if line.object not in (ALL_USERS, ROOT) and line.value != values.get((ALL_USERS, line.setting), line.value):
                yield line

    def observe(self, host: Host, declaration: FilesDeclaration, scope: Scope) -> FilesState:
        state = super().observe(host, declaration, scope)
        most = host.files.read_optional(MOST_FILES)
        facts = {MOST_FILES: int(most) if most else None, FOLDER: int(host.files.is_folder(os.path.dirname(FOLDER)))}
        return replace(state, facts=facts)

    def resolve(self, declaration: FilesDeclaration, state: FilesState) -> FilesDesired:
        if not state.facts[FOLDER]:
            reason = f"{os.path.dirname(FOLDER)} does not exist, so pam_limits is not installed"
            lacking = tuple(Unmanaged(*key, reason) for key in declaration.values)
            return FilesDesired({}, None, lacking)
        most = state.facts.get(MOST_FILES)
        for (domain, setting), value in declaration.values.items():
            if setting.endswith(" nofile") and isinstance(most, int) and int(value or 0) > most:
                raise DeclarationError(
                    f"set {setting}",
                    object=domain,
                    cause=f"it is above {MOST_FILES}, which is {most}, so pam_limits would refuse every new session",
                    wanted=value,
                    hint="raise the sysctl fs.nr_open first, or set a lower nofile",
                )
        return super().resolve(declaration, state)


CONCERN = ResourceLimits()


def _limit(value: str) -> str:
    """As pam_limits reads it: the number that it begins with, decimal. Empty where it has none, and the line does not
    count.
    """
    if value in WORDS:
        return UNLIMITED
    number = re.match(r"[+-]?[0-9]+", value)
    return str(int(number[0])) if number else ""
