# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the directives of apptainer.conf mean."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional

from ...._core.errors import not_understood
from ...._core.regex import regex
from ..model import BIND_PATH, SettingName, Settings

# A switch is called as its directive. Of a bound path the directive is the kind, and the path the name.
ALWAYS_NV, CONTAINER_CLI = SettingName("always use nv"), SettingName("use nvidia-container-cli")
SWITCHES = (ALWAYS_NV, CONTAINER_CLI)
WORDS = {"yes": True, "no": False}
# As its own reader has it (pkg/util/apptainerconf/parser.go). \s there has no \v.
DIRECTIVE = regex(r"^[ \t\n\f\r]*([a-zA-Z _-]+)[ \t]*=[ \t]*(.*)$", re.MULTILINE)


def values(text: str) -> Dict[str, List[str]]:
    """The values of every directive, in the order of their lines."""
    found: Dict[str, List[str]] = {}
    for match in DIRECTIVE.finditer(text):
        value = match[2].strip()
        if value:
            found.setdefault(match[1].strip(), []).extend(value.split(","))
    return found


def settings_of(path: str, text: str) -> Settings:
    found = values(text)
    settings: Dict[SettingName, Any] = {
        switch: _switch(path, text, switch.kind, found.get(switch.kind)) for switch in SWITCHES
    }
    for bind in found.get(BIND_PATH, ()):
        settings[SettingName(BIND_PATH, bind.strip())] = True
    return settings


def _switch(path: str, text: str, name: str, said: Optional[List[str]]) -> bool:
    # Both are off where nothing is said.
    word = said[0] if said else "no"
    if word not in WORDS:
        at = next(match for match in DIRECTIVE.finditer(text) if match[1].strip() == name and match[2].strip())
        line = text.count("\n", 0, at.start(1)) + 1
        column = at.start(2) - text.rfind("\n", 0, at.start(2))
        raise not_understood(path, f"line {line}, column {column}: {name} is {word}, and Apptainer takes yes or no")
    return WORDS[word]
