# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who says what of a module: modules-load.d(5), modprobe.d(5) and the kernel command line.

What stops what, by libkmod and systemd: ``blacklist`` stops loads by an alias, which is how udev asks, and those of
systemd-modules-load, but neither modprobe with the name nor another module that needs it. An ``install`` command takes
the place of the load, also where another module needs it; of several the first counts, and none for a module that has a
``softdep``. ``module_blacklist=`` stops all.
"""

from __future__ import annotations

import re
from fnmatch import translate
from typing import TYPE_CHECKING, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from .._core.value import frozen
from .dropins import read_texts
from .kernel_modules import normal

if TYPE_CHECKING:
    from .._core.protocols import Files

MODULES_LOAD = "modules-load.d"
MODPROBE = "modprobe.d"
COMMAND_LINE = "kernel command line"

LOAD = "load"
BLACKLIST = "blacklist"
INSTALL = "install"
SOFTDEP = "softdep"
REFUSE = "refuse"
# rd.driver.blacklist= is not here: it counts in the initramfs alone, and stops nothing that comes after it.
ARGUMENTS = {
    "modules_load": LOAD,
    "rd.modules_load": LOAD,
    "rd.driver.pre": LOAD,
    "rd.driver.post": LOAD,
    "modprobe.blacklist": BLACKLIST,
    "module_blacklist": REFUSE,
}


@frozen
class ModprobeLine:
    """What one line (one argument) says of one module; for ``INSTALL`` and ``SOFTDEP`` of all that a pattern fits."""

    owner: str
    path: str
    number: Optional[int]
    word: str
    name: str
    text: str

    @property
    def where(self) -> str:
        return self.path if self.number is None else f"{self.path} line {self.number}"

    @property
    def stops(self) -> bool:
        """Whether an install command is there only to fail, or to do nothing."""
        program = self.text.split(None, 2)[2].strip()
        return program == ":" or program.rpartition("/")[2] in ("false", "true")


class ModprobeLines:
    """Lines in the order in which they are read, and what they say of one module without a walk over all of them."""

    def __init__(self, lines: Iterable[ModprobeLine]) -> None:
        self._named: Dict[str, List[Tuple[int, ModprobeLine]]] = {}
        self._patterns: List[Tuple[int, ModprobeLine, re.Pattern[str]]] = []
        self._said: Dict[str, Sequence[ModprobeLine]] = {}
        for number, line in enumerate(lines):
            if line.word in (INSTALL, SOFTDEP) and any(sign in line.name for sign in "*?["):
                self._patterns.append((number, line, re.compile(translate(line.name))))
            else:
                self._named.setdefault(line.name, []).append((number, line))

    def of(self, name: str) -> Sequence[ModprobeLine]:
        said = self._said.get(name)
        if said is None:
            fitting = [(number, line) for number, line, pattern in self._patterns if pattern.match(name)]
            said = self._said[name] = [line for _number, line in sorted([*self._named.get(name, ()), *fitting])]
        return said


def read_modprobe(files: Files) -> Dict[str, str]:
    """The files of modprobe.d by path, in the order in which they are read. A link that leads nowhere is none."""
    return read_texts(files, MODPROBE, ".conf")


def read_lines(files: Files, texts: Mapping[str, str]) -> Tuple[ModprobeLine, ...]:
    """What they all say: those of modprobe.d, which are ``texts``, and those of modules-load.d."""
    lines: List[ModprobeLine] = []
    # In /etc/modules-load.d Debian has a link to its /etc/modules.
    for path, text in read_texts(files, MODULES_LOAD, ".conf").items():
        lines.extend(parse_load(path, text))
    for path, text in texts.items():
        lines.extend(parse_modprobe(path, text))
    return tuple(lines)


def parse_load(path: str, text: str) -> Iterator[ModprobeLine]:
    for number, line in enumerate(text.splitlines(), 1):
        name = line.strip()
        if name and name[0] not in "#;":
            yield ModprobeLine(MODULES_LOAD, path, number, LOAD, normal(name), name)


def parse_modprobe(path: str, text: str) -> Iterator[ModprobeLine]:
    for number, line in logical_lines(text):
        words = line.split(None, 2)
        word = words[0] if len(words) > 1 else ""
        if word == BLACKLIST or (word in (INSTALL, SOFTDEP) and len(words) > 2):
            yield ModprobeLine(MODPROBE, path, number, word, normal(words[1]), line.strip())


def logical_lines(text: str) -> Iterator[Tuple[int, str]]:
    """The lines of a file of modprobe.d with their numbers: one that ends with a backslash goes on in the next."""
    start, pending = 0, ""
    for number, line in enumerate(text.split("\n"), 1):
        start = start or number
        pending += line
        if pending.endswith("\\"):
            pending = pending[:-1]
            continue
        yield start, pending
        start, pending = 0, ""


def parse_command_line(path: str, text: str) -> Tuple[ModprobeLine, ...]:
    lines: List[ModprobeLine] = []
    for argument in text.split():
        key, _equals, value = argument.partition("=")
        word = ARGUMENTS.get(normal(key))
        if word == REFUSE:
            # The kernel keeps one value of it, the last.
            lines = [line for line in lines if line.word != REFUSE]
        for name in value.split(",") if word else ():
            # The kernel and libkmod take the names in their lists as they are, with - for -.
            lines.append(
                ModprobeLine(
                    COMMAND_LINE, path, None, word or "", normal(name) if word == LOAD else name, f"{key}={name}"
                )
            )
    return tuple(lines)


def install_of(name: str, lines: ModprobeLines) -> Optional[ModprobeLine]:
    """The install command that counts for a module."""
    return next((line for line in lines.of(name) if line.word == INSTALL), None)


def softdep_of(name: str, lines: ModprobeLines) -> Optional[ModprobeLine]:
    return next((line for line in lines.of(name) if line.word == SOFTDEP), None)


def stop_of(name: str, lines: ModprobeLines, needs: Sequence[str] = ()) -> Optional[ModprobeLine]:
    """What stops every load of a module, be it by a module that it needs."""
    for module in (name, *needs):
        for line in lines.of(module):
            if line.word == REFUSE:
                return line
        command = install_of(module, lines)
        if command is not None and command.stops and softdep_of(module, lines) is None:
            return command
    return None


def lines_of(word: str, name: str, lines: ModprobeLines) -> Tuple[ModprobeLine, ...]:
    return tuple(line for line in lines.of(name) if line.word == word)
