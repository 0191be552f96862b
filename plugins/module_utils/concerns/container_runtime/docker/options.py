# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The options that only Docker has, and what is wrong with them whatever the machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Dict, List

from ...._core.nearest import did_you_mean
from ...._core.regex import regex
from ..entries import refuse_relative, wrong
from .meaning import bytes_of

SIZE = regex(r"[1-9]\d*(?:[bkmgtp]|[kmgtp]i?b)?", re.ASCII | re.IGNORECASE)
# The limits of setrlimit(2), as Docker calls them (go-units, ulimit.go).
ULIMITS = (
    *("core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice", "nofile", "nproc", "rss", "rtprio"),
    *("rttime", "sigpending", "stack"),
)
UNLIMITED = -1
# dockerd has both in 64 bits.
LARGEST = (1 << 63) - 1


def checked(where: str, options: Mapping[str, Any]) -> Dict[str, Any]:
    """The options, with each limit as its soft and its hard value. ``where`` is the entry.

    Raises ``DeclarationError``.
    """
    made = dict(options)
    if "default_ulimits" in made:
        made["default_ulimits"] = {
            str(name): _limit(where, str(name), value) for name, value in made["default_ulimits"].items()
        }
    size = made.get("default_shm_size")
    if size is not None and not (SIZE.fullmatch(size) and (bytes_of(size) or 0) <= LARGEST):
        raise wrong(where, f"default_shm_size is {size!r}, and must be a number with a unit", "write it as 8g")
    if "data_root" in made:
        _check_data_root(where, made["data_root"])
    keys: List[str] = []
    for text in made.get("exec_opts", ()):
        if not re.fullmatch(r"[^=\s]+=\S+", text):
            raise wrong(where, f"in exec_opts {text!r} is not key=value", "write it as native.cgroupdriver=systemd")
        key = text.partition("=")[0]
        if key in keys:
            raise wrong(where, f"exec_opts has {key} twice")
        keys.append(key)
    return made


def _check_data_root(where: str, path: str) -> None:
    refuse_relative(where, "data_root", path)
    if not path.strip("/"):
        raise wrong(
            where, "data_root is the root folder, which dockerd would fill with its own files", "use a folder in it"
        )
    if not path.isprintable():
        raise wrong(where, f"data_root is {path!r}, and must have no control character")


def _limit(where: str, name: str, given: Any) -> Dict[str, int]:
    what = f"in default_ulimits {name}"
    if name not in ULIMITS:
        hint = did_you_mean(name, ULIMITS, otherwise=f"the limits are {', '.join(ULIMITS)}")
        raise wrong(where, f"in default_ulimits there is no limit {name}", hint)
    both = given if isinstance(given, Mapping) else {"soft": given, "hard": given}
    soft, hard = _number(both.get("soft")), _number(both.get("hard"))
    if set(both) != {"soft", "hard"} or soft is None or hard is None:
        raise wrong(
            where,
            f"{what} is {given!r}, and must be a number, or soft and hard with one each",
            f"{UNLIMITED} is unlimited",
        )
    if hard != UNLIMITED and (soft == UNLIMITED or soft > hard):
        raise wrong(where, f"{what} has a soft limit of {soft}, above the hard one of {hard}")
    return {"soft": soft, "hard": hard}


def _number(given: Any) -> Any:
    """A limit from what YAML or a template made of it, None where it is none."""
    if isinstance(given, str) and re.fullmatch(r"-1|\d{1,19}", given, re.ASCII):
        given = int(given)
    return given if isinstance(given, int) and not isinstance(given, bool) and UNLIMITED <= given <= LARGEST else None
