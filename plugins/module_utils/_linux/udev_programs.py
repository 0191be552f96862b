# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The programs that rules of udev(7) run for a device, and what these write into files of the kernel.

Substitutions: ``map`` and ``get_subst_type`` of src/udev/udev-format.c. Words of a command, and the folder of a program
without a path: ``udev_event_spawn`` of src/udev/udev-spawn.c. Both as in systemd 257.
"""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Tuple

from .._core.regex import regex
from .._core.value import frozen
from . import interpreters, shell_writes

if TYPE_CHECKING:
    from .._core.protocols import Files

LIBEXEC = "/usr/lib/udev"
# For a shell and its reader this is a variable without a value that is known.
UNKNOWN = "${0}"
# By the order of ``map``, in which the first name that the text begins with counts.
_NAMES: Mapping[str, str] = {
    "devnode": "N",
    "tempnode": "N",
    "attr": "s",
    "sysfs": "s",
    "env": "E",
    "kernel": "k",
    "number": "n",
    "driver": "d",
    "devpath": "p",
    "id": "b",
    "major": "M",
    "minor": "m",
    "result": "c",
    "parent": "P",
    "name": "D",
    "links": "L",
    "root": "r",
    "sys": "S",
}
_SIGNS = "".join(dict.fromkeys(_NAMES.values()))
_SUBSTITUTION = regex(rf"\$\$|%%|(?:\$({'|'.join(_NAMES)})|%([{_SIGNS}]))(?:\{{([^}}]*)\}})?")


@frozen
class UdevDevice:
    """A device as rules see it: ``path`` is its folder in /sys, ``node`` its file in /dev, if it has one."""

    name: str
    path: str
    subsystem: str
    node: str = ""

    @property
    def properties(self) -> Dict[str, str]:
        """Those that the kernel gives its events, by which programs find them in their environment."""
        found = {"DEVPATH": self.path[len("/sys") :], "SUBSYSTEM": self.subsystem}
        return {**found, "DEVNAME": self.node} if self.node else found


@frozen
class ProgramWrite:
    """A write into ``target`` by line ``number`` of the script ``path``, which is empty where the rule itself has it.

    ``value`` is None where it is not known before it is written.
    """

    path: str
    number: int
    target: str
    value: Optional[str]
    in_doubt: bool


def substitute(text: str, device: UdevDevice) -> str:
    """A text of a rule with its substitutions made; ``UNKNOWN`` for each that only udev can make."""
    known = {
        "N": device.node,
        "D": device.node[len("/dev/") :] or device.name,
        "k": device.name,
        "n": re.sub(r".*\D", "", device.name),
        "p": device.path[len("/sys") :],
        "r": "/dev",
        "S": "/sys",
    }

    def replaced(match: re.Match[str]) -> str:
        if match[1] is None and match[2] is None:
            return match[0][0]
        sign = match[2] or _NAMES[match[1]]
        return device.properties.get(match[3] or "", UNKNOWN) if sign == "E" else known.get(sign, UNKNOWN)

    return _SUBSTITUTION.sub(replaced, text)


def words_of(command: str) -> List[str]:
    """The words of a command: quotes are taken off, and a backslash is a character as any other."""
    lexer = shlex.shlex(command, posix=True)
    lexer.whitespace_split, lexer.commenters, lexer.escape = True, "", ""
    try:
        words = list(lexer)
    except ValueError:
        words = command.split()
    if words and "/" not in words[0]:
        words[0] = f"{LIBEXEC}/{words[0]}"
    return words


def read_script(files: Files, command: str) -> Dict[str, str]:
    """The script that a command runs, by its path; none where it is another program."""
    path = interpreters.script_file(words_of(command))
    if not path.startswith("/") or "$" in path or "%" in path or not interpreters.is_script(files, path):
        return {}
    return {path: files.read_optional(path) or ""}


def writes_of(command: str, device: UdevDevice, scripts: Mapping[str, str]) -> Tuple[ProgramWrite, ...]:
    """The writes of a command for a device; ``scripts`` are the texts of scripts by path."""
    words = words_of(substitute(command, device))
    if not words:
        return ()
    given = interpreters.given_script(words)
    if given is not None:
        arguments = interpreters.arguments_behind(words, given)
        return _located("", shell_writes.read_script(given, {**device.properties, **arguments}))
    path = interpreters.script_file(words)
    found = _located("", shell_writes.read_command(words))
    if path in scripts:
        arguments = interpreters.arguments_behind(words, path)
        found += _located(path, shell_writes.read_script(scripts[path], {**device.properties, **arguments}))
    return found


def _located(path: str, writes: Tuple[shell_writes.ShellWrite, ...]) -> Tuple[ProgramWrite, ...]:
    return tuple(ProgramWrite(path, one.number, one.target, one.value, one.in_doubt) for one in writes)
