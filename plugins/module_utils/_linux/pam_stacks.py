# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The modules that PAM runs when a service opens a session (pam.conf(5)), and whether sshd asks PAM at all."""

from __future__ import annotations

import fnmatch
import os
import re
from typing import TYPE_CHECKING, Iterator, Optional, Set, Tuple

from .pam_env import FOLDERS

if TYPE_CHECKING:
    from .._core.protocols import Files

# What opens sessions in which people and their jobs run.
SERVICES = ("sshd", "login", "su", "cron", "crond")
LIMITS = "pam_limits.so"
SSHD = "/etc/ssh/sshd_config"
_LINE = re.compile(r"-?session\s+(?:\[[^\]]*\]|\S+)\s+(\S+)\s*(.*)", re.IGNORECASE)
_INCLUDE = re.compile(r"(?:@include|-?session\s+(?:include|substack))\s+(\S+)", re.IGNORECASE)


def without_limits(files: Files, conf: str) -> Iterator[Tuple[str, str]]:
    """The services whose sessions do not get the limits of the file ``conf``, each with the reason.

    Services that this machine does not have are left out.
    """
    for service in SERVICES:
        path = path_of(files, service)
        if path is None:
            continue
        why = use_pam(files) if service == "sshd" else ""
        read = [_conf_of(words) for module, words in session_modules(files, service) if module.endswith(LIMITS)]
        if not read:
            why = why or f"{path} does not run {LIMITS} for sessions"
        elif not {"", conf}.intersection(read):
            why = why or f"{path} gives {LIMITS} another file: conf={read[0]}"
        if why:
            yield service, why


def _conf_of(arguments: str) -> str:
    return next((word[len("conf=") :] for word in arguments.split() if word.startswith("conf=")), "")


def path_of(files: Files, service: str) -> Optional[str]:
    return next((path for folder in FOLDERS for path in (f"{folder}/{service}",) if files.exists(path)), None)


def session_modules(files: Files, service: str, seen: Tuple[str, ...] = ()) -> Iterator[Tuple[str, str]]:
    """The modules of the stack ``session`` in their order, with their arguments, also of files that it includes."""
    path = path_of(files, service)
    text = (files.read_optional(path) or "") if path is not None and service not in seen else ""
    for raw in text.replace("\\\n", " ").splitlines():
        line = raw.partition("#")[0].strip()
        included = _INCLUDE.match(line)
        if included:
            yield from session_modules(files, included[1], (*seen, service))
            continue
        found = _LINE.match(line)
        if found:
            yield found[1], found[2]


def use_pam(files: Files) -> str:
    """Return why sshd opens sessions without PAM; empty if it uses PAM, or if its configuration cannot be read."""
    try:
        first = next(_use_pam(files, SSHD, set()), None)
    except PermissionError:
        # On some systems it is for root alone to read, and a look without root leaves it out.
        return ""
    if first is not None:
        path, number, value = first
        return "" if value.lower() == "yes" else f"{path} line {number} has UsePAM {value}"
    return f"{SSHD} does not have UsePAM yes" if files.exists(SSHD) else ""


def _use_pam(files: Files, path: str, seen: Set[str]) -> Iterator[Tuple[str, int, str]]:
    """All lines outside of Match blocks, as sshd_config(5) reads them: the first counts."""
    if path in seen:
        return
    seen.add(path)
    for number, line in enumerate((files.read_optional(path) or "").splitlines(), 1):
        words = line.replace("=", " ", 1).split()
        key = words[0].lower() if words else ""
        if key == "match":
            return
        if key == "usepam" and len(words) > 1:
            yield path, number, words[1].strip('"')
        for quoted in words[1:] if key == "include" else ():
            pattern = quoted.strip('"')
            place = pattern if pattern.startswith("/") else f"/etc/ssh/{pattern}"
            folder, name = os.path.split(place)
            for one in sorted(files.names(folder)):
                if fnmatch.fnmatchcase(one, name):
                    yield from _use_pam(files, f"{folder}/{one}", seen)
