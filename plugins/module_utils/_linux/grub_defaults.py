# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A variable of GRUB's defaults, in the scripts that the generator of the menu sources behind ours.

Debian's grub-mkconfig sources /etc/default/grub and then /etc/default/grub.d/*.cfg in the order of their names, all in
one shell, so that the last assignment counts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, List, Optional, Sequence, Set

from .._core.regex import regex
from .._core.value import frozen
from .shell_words import UNKNOWN, commands, lines

if TYPE_CHECKING:
    from .._core.protocols import Files

_BLOCKS = {"fi": "if", "done": "do", "esac": "case", "}": "{", ")": "("}
_OPENING = ("if", "do", "case", "{", "(")
# Words before a command that begin no block.
_PREFIXES = ("then", "else", "elif", "while", "until", "!", "time")
_DECLARING = ("export", "readonly", "local", "declare", "typeset")
_ASSIGNED = regex(r"(\w+)(\+?)=(.*)", re.DOTALL)


@frozen
class Overwrite:
    """A line that gives the variable a ``value`` without the one from before; ``in_doubt`` says that it may do so."""

    path: str
    line: int
    value: str
    in_doubt: bool


def find_overwrite(files: Files, variable: str, paths: Sequence[str]) -> Optional[Overwrite]:
    """The first line in these scripts by which the value of the variable is lost; one in doubt where no other is."""
    scripts = _Scripts(files, variable)
    for path in paths:
        scripts.read(path, files.read_optional(path) or "", in_doubt=False)
    return next((one for one in scripts.found if not one.in_doubt), scripts.found[0] if scripts.found else None)


class _Scripts:
    def __init__(self, files: Files, variable: str) -> None:
        self._files = files
        self._variable = variable
        # The variables whose value has that of ours in it.
        self._holding: Set[str] = {variable}
        self._sourced: List[str] = []
        self.found: List[Overwrite] = []

    def read(self, path: str, text: str, *, in_doubt: bool) -> None:
        """Read a script. ``in_doubt`` says that it may not be sourced."""
        blocks: List[str] = []
        for number, words in lines(text):
            for separator, found in commands(words):
                command = _enter(found, blocks)
                maybe = in_doubt or bool(blocks) or separator in ("&&", "||", "|")
                if command[:1] in (["return"], ["exit"]):
                    if not maybe:
                        return
                    in_doubt = True
                self._of_command(command, path, number, in_doubt=maybe)

    def _of_command(self, command: Sequence[str], path: str, number: int, *, in_doubt: bool) -> None:
        words = list(command[1:] if command[:1] and command[0] in _DECLARING else command)
        is_declared = len(words) < len(command)
        assigned: Dict[str, str] = {}
        while words:
            found = _ASSIGNED.fullmatch(words[0])
            if found is None and not is_declared:
                break
            if found and not found[2]:
                assigned[found[1]] = found[3]
            words.pop(0)
        for name, value in assigned.items():
            # Before a command it is for that one alone, unless it is one of the shell's own.
            self._assign(name, value, path, number, in_doubt=in_doubt or bool(words))
        if not words:
            return
        program, arguments = words[0], words[1:]
        if program in (".", "source") and arguments:
            self._source(arguments[0], path, number, in_doubt=in_doubt)
        elif program == "unset" and self._variable in arguments:
            self._lose(path, number, "", in_doubt=in_doubt)
        elif program == "eval":
            if any(self._variable in word or "${" in word for word in arguments):
                self._lose(path, number, " ".join(arguments), in_doubt=True)
        elif self._variable in arguments:
            # Such as read, or the variable of a loop.
            self._lose(path, number, "", in_doubt=True)

    def _assign(self, name: str, value: str, path: str, number: int, *, in_doubt: bool) -> None:
        holds = any(f"${{{other}}}" in value for other in self._holding)
        if name != self._variable:
            if holds:
                self._holding.add(name)
            elif not in_doubt:
                self._holding.discard(name)
        elif not holds:
            self._lose(path, number, value, in_doubt=in_doubt or UNKNOWN in value)

    def _source(self, target: str, path: str, number: int, *, in_doubt: bool) -> None:
        if not target.startswith("/") or "${" in target:
            self._lose(path, number, f". {target}", in_doubt=True)
        elif target not in self._sourced:
            self._sourced.append(target)
            self.read(target, self._files.read_optional(target) or "", in_doubt=in_doubt)

    def _lose(self, path: str, number: int, value: str, *, in_doubt: bool) -> None:
        self.found.append(Overwrite(path, number, value.replace(UNKNOWN, "..."), in_doubt))


def _enter(command: Sequence[str], blocks: List[str]) -> Sequence[str]:
    """Keep account of the blocks that a command begins and ends; the command without the words for it."""
    while command:
        word = command[0]
        if word in _OPENING:
            blocks.append(word)
        elif word in _BLOCKS:
            # A parenthesis closes a pattern of ``case`` too.
            if blocks[-1:] == [_BLOCKS[word]]:
                blocks.pop()
        elif word not in _PREFIXES:
            break
        command = command[1:]
    return command
