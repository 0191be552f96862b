# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of the limits of sessions, and what is wrong whatever the machine."""

from __future__ import annotations

import re
from typing import Any, Dict, Mapping, Optional

from ..._core.errors import DeclarationError
from ..._kinds.own_files import FilesDeclaration, Key

# The asterisk of limits.conf(5) does not mean root, who gets lines of his own.
ALL_USERS, ROOT = "*", "root"
SOFT, HARD = "soft", "hard"
TYPES = (SOFT, HARD)
UNLIMITED = "unlimited"
ITEMS = ("memlock", "nofile", "nproc", "rtprio")
KIB = {"K": 1, "M": 1024, "G": 1024**2, "T": 1024**3}
HIGHEST_PRIORITY = 99
VALID = {
    "memlock": "a size with a unit (K, M, G or T), or unlimited",
    "nofile": "a number, such as 1048576",
    "nproc": "a number, or unlimited",
    "rtprio": f"a number from 0 to {HIGHEST_PRIORITY}",
}


def parse(params: Mapping[str, Any]) -> FilesDeclaration:
    """Raises ``DeclarationError`` on a limit that no machine could have."""
    sessions = params["sessions"] or {}
    values: Dict[Key, Optional[str]] = {}
    for item in ITEMS:
        text = sessions.get(item)
        if text is None:
            continue
        soft, hard = (
            _limit(item, part.strip()) for part in (text.split(":") if text.count(":") == 1 else (text, text))
        )
        if _number(soft) > _number(hard):
            raise _wrong(
                item, "the soft limit is above the hard one", text, "lower the soft limit, or raise the hard one"
            )
        for domain in (ALL_USERS, ROOT):
            values.update({(domain, f"{SOFT} {item}"): soft, (domain, f"{HARD} {item}"): hard})
    if not values:
        raise DeclarationError(
            "read the declaration",
            cause="no limit is set in sessions",
            hint="set at least one limit, such as sessions: {memlock: unlimited}, or state: absent",
        )
    return FilesDeclaration(values)


def _limit(item: str, text: str) -> str:
    """A limit as limits.conf(5) has it: memory in KiB."""
    if text == UNLIMITED and item in ("memlock", "nproc"):
        return text
    size = re.fullmatch(r"([0-9]{1,12})([KMGT])(?:i?B)?", text)
    if item == "memlock" and size:
        return str(int(size[1]) * KIB[size[2]])
    if item == "memlock" or not re.fullmatch(r"[0-9]{1,12}", text):
        raise _wrong(item, f"the limit is not {VALID[item]}", text, f"set {VALID[item]}")
    if item == "rtprio" and int(text) > HIGHEST_PRIORITY:
        raise _wrong(item, f"the highest priority is {HIGHEST_PRIORITY}", text, f"set {VALID[item]}")
    return str(int(text))


def _number(limit: str) -> float:
    return float("inf") if limit == UNLIMITED else int(limit)


def _wrong(item: str, cause: str, wanted: str, hint: str) -> DeclarationError:
    return DeclarationError("set {}", object=f"sessions.{item}", cause=cause, wanted=wanted, hint=hint)
