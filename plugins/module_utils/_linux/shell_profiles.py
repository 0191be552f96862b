# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files that login shells read for all users: what they give to variables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Collection, Iterator, Tuple

if TYPE_CHECKING:
    from .._core.protocols import Files

PROFILES = ("/etc/profile", "/etc/bash.bashrc", "/etc/bashrc", "/etc/zsh/zshenv")
FOLDER = "/etc/profile.d"


def assignments(files: Files, names: Collection[str]) -> Iterator[Tuple[str, int, str, str]]:
    """Each line that gives one of these variables a value: its file and number, the name and the value."""
    scripts = (name for name in files.names(FOLDER) if name.endswith(".sh"))
    for path in (*PROFILES, *(f"{FOLDER}/{name}" for name in scripts)):
        text = files.read_optional(path) or ""
        # Most have none of the names.
        for name in (name for name in names if name in text):
            for number, line in enumerate(text.split("\n"), 1):
                found = re.match(rf"\s*(?:export\s+|readonly\s+)*{name}=(\"[^\"]*\"|'[^']*'|[^\s;]*)", line)
                if found:
                    yield path, number, name, found[1].strip("\"'")
