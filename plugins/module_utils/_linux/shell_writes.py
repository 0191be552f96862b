# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The values that a shell script writes into files of the kernel, read without running it.

What is understood: redirections of echo and printf, tee, loops over globs, variables with plain values, cd, branches by
what the script is started with, and the programs of command_writes.py by their arguments.
The arguments of ``COMMANDS`` are for the concern whose devices these programs set. What another condition decides, or a
value that only exists when the script runs, is in doubt. A path that is merely read or mentioned is no write.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from .._core.regex import regex
from .._core.value import frozen, replace
from .command_writes import PROGRAMS, RELOAD, SWAP
from .interpreters import SHELLS, given_script, unwrapped
from .shell_variables import VARIABLE, Variables
from .shell_words import UNKNOWN, Sign, commands, lines, printed, redirected

COMMANDS = (
    "ethtool",
    "ip",
    "nvidia-smi",
    "nvme",
    # Of iproute2, and of mlnx-tools.
    "dcb",
    "mlnx_qos",
    "cma_roce_mode",
    "cma_roce_tos",
    "set_irq_affinity.sh",
    "set_irq_affinity_bynode.sh",
    "set_irq_affinity_cpulist.sh",
    "mlnx_affinity",
)
"""Programs that stand for a target themselves: they set devices, by arguments that a concern understands."""


BEARING = regex(
    rf"/sys[/$]|/proc/|sysctl|cpupower|cpufreq-set|blockdev|swapon|zramctl|hugeadm"
    rf"|(?<![\w.-])(?:{'|'.join(COMMANDS)})[\s\"'`)]"
)
_TREES = ("/sys/", "/proc/sys/", "/proc/irq/")
_OPENING = ("if", "case", "while", "until", "for")
_CLOSING = ("fi", "esac", "done", "}")
# How certain it is that a command succeeds, or that it comes to one. Either is presumed where a condition only says
# that a file of the kernel is there. Two together say the least of what they say, and one or the other says the most.
_YES, _PRESUMED, _MAYBE, _HARDLY, _NO = 2, 1, 0, -1, -2
# The kinds of blocks by this, beside "done" which comes behind a branch that is taken.
_KINDS = {_YES: "always", _PRESUMED: "loop", _MAYBE: "condition", _HARDLY: "unlikely", _NO: "never"}
_DOUBTFUL = frozenset(("condition", "unlikely"))
_NOT_TAKEN = frozenset(("never", "done"))
_ELSE = {"always": "done", "done": "done", "loop": "unlikely", "unlikely": "loop", "never": "always"}
# test(1): what says that a file of the kernel is there, which it is where its setting is managed.
_IS_THERE = ("-e", "-f", "-w", "-r", "-d")
_TEST = ("[", "[[", "test", "]", "]]")
# What only the running script knows.
_UNKNOWN = regex(r"\$\([^)]*\)|`[^`]*`|" + VARIABLE.pattern)
_ASSIGNED = regex(r"(\w+)(\+?)=(.*)", re.DOTALL)
_DECLARING = ("export", "readonly", "local", "declare", "typeset")


@frozen
class ShellWrite:
    """A write into ``target``, a path below /sys or /proc, maybe with the signs of glob(7), by line ``number``.

    ``value`` is None where only the running script knows it. ``in_doubt`` says that it may not come to the write.
    Of a program of ``COMMANDS`` there are its ``arguments`` in place of a value; ``*`` is in these where only the
    running script knows a part.
    """

    number: int
    target: str
    value: Optional[str]
    in_doubt: bool
    arguments: Tuple[str, ...] = ()


def read_script(
    text: str, variables: Optional[Mapping[str, str]] = None, *, calls: Optional[Mapping[str, bool]] = None
) -> Tuple[ShellWrite, ...]:
    """The writes of a script in the order of its lines.

    ``variables`` are those that it is started with, its arguments (``1``) among them; what these decide is not in
    doubt. ``calls`` says of functions whether they are called, where that is known.
    """
    given = variables or {}
    bears = any(BEARING.search(one) for one in (text, *given.values()))
    return tuple(_Script(given, calls or {}).read(text)) if bears else ()


def read_command(words: Sequence[str], number: int = 1) -> Tuple[ShellWrite, ...]:
    """The writes of one program by its arguments."""
    return tuple(_Script({}, {}).of_program(unwrapped(words), number, in_doubt=False))


class _Case:
    """A ``case`` in a block of this depth; ``subject`` is None where it is not known.

    ``is_over``: an earlier branch is the one that is taken; None where it may be.
    """

    def __init__(self, depth: int, subject: Optional[str]) -> None:
        self.depth = depth
        self._subject = subject
        self._is_over: Optional[bool] = False
        self.awaits_pattern = True

    def kind_of(self, patterns: Sequence[str]) -> str:
        """The kind of the block that is the branch of these patterns."""
        self.awaits_pattern = False
        if self._is_over:
            return "done"
        matches = None if self._subject is None else any(fnmatchcase(self._subject, one) for one in patterns)
        if matches is None or any("$" in one for one in patterns):
            self._is_over = None
            return "condition"
        if not matches:
            return "never"
        kind = "condition" if self._is_over is None else "always"
        self._is_over = True
        return kind


class _Script:
    def __init__(self, variables: Mapping[str, str], calls: Mapping[str, bool]) -> None:
        self._variables = Variables(variables)
        self._calls = calls
        # The first is the script itself.
        self._blocks: List[str] = ["always"]
        self._cases: List[_Case] = []
        self._folder = ""
        # How certain it is that it comes to this command, and of each ``if`` whose condition is read, by its depth, how
        # certain it is that it comes to it and that it is met.
        self._comes = _YES
        self._conditions: Dict[int, Tuple[int, int]] = {}
        # The one whose body begins next, the names of those whose body this is with the depth, and those that may exit.
        self._function: Optional[str] = None
        self._functions: List[Tuple[int, str]] = []
        self._leaving: Set[str] = set()
        self._subshells: List[int] = []
        self._is_inner = False

    def read(self, text: str) -> Iterator[ShellWrite]:
        for number, words in lines(text):
            yield from self._of_line(words, number)

    def _of_line(self, words: Sequence[str], number: int) -> Iterator[ShellWrite]:
        if "()" in words[1:]:
            self._function = words[words.index("()", 1) - 1]
        rest = list(words)
        while rest:
            if self._awaits_pattern() and rest[0] != "esac":
                end = rest.index(")") if ")" in rest else len(rest)
                self._blocks[-1] = self._cases[-1].kind_of([word for word in rest[:end] if word not in ("(", "|")])
            elif rest[0] == "case" and "in" in rest:
                end = rest.index("in")
                self._blocks.append("condition")
                self._cases.append(_Case(len(self._blocks), self._variables.given_text(rest[1])))
            else:
                end = rest.index(";;") if ";;" in rest else len(rest)
                yield from self._of_commands(rest[:end], number)
                if end < len(rest) and self._is_in_case():
                    self._cases[-1].awaits_pattern = True
            rest = rest[end + 1 :]

    def _is_in_case(self) -> bool:
        return bool(self._cases) and self._cases[-1].depth == len(self._blocks)

    def _awaits_pattern(self) -> bool:
        return self._is_in_case() and self._cases[-1].awaits_pattern

    def _of_commands(self, words: Sequence[str], number: int) -> Iterator[ShellWrite]:
        said: Optional[str] = None
        succeeds = _MAYBE
        for separator, command in commands(words):
            if separator != "|":
                said = None
            before = succeeds
            self._comes = {"&&": before, "||": -before}.get(separator, _YES)
            command = self._enter(command)
            is_denied = command[:1] == ["!"]
            targets, command = redirected(command[1:] if is_denied else command)
            is_last = command[:1] == ["exec"] and len(command) > 1
            command = self._named(command)
            answer = self._answer(command) * (-1 if is_denied else 1)
            succeeds = {"&&": min(before, answer), "||": max(before, answer)}.get(separator, answer)
            self._keep_condition(succeeds)
            if self._is_taken():
                yield from self._of_command(command, targets, said, number)
                self._go_on_behind("exit" if is_last else _name_of(command))
                said = printed(command)

    def _is_taken(self) -> bool:
        return self._comes != _NO and _NOT_TAKEN.isdisjoint(self._blocks)

    def _of_command(
        self, command: List[str], targets: Sequence[str], said: Optional[str], number: int
    ) -> Iterator[ShellWrite]:
        """The writes of a command whose output goes to these files; ``said`` is what it gets through a pipe."""
        in_doubt = self._comes <= _MAYBE or not _DOUBTFUL.isdisjoint(self._blocks)
        for target in targets:
            yield from self._writes(number, target, printed(command), in_doubt=in_doubt)
        if _name_of(command) != "tee":
            yield from self.of_program(command, number, in_doubt=in_doubt)
            return
        for target in command[1:]:
            yield from self._writes(number, target, said, in_doubt=in_doubt)

    def _named(self, command: Sequence[str]) -> List[str]:
        """The command that is run, with the variables of its name replaced; none where that is not known."""
        found = unwrapped(command)
        if not found or "$" not in found[0] or found[0].startswith("(("):
            return found
        names = self._variables.expand(found[0])
        return unwrapped([*names[0].split(), *found[1:]]) if len(names) == 1 and "$" not in names[0] else []

    def _go_on_behind(self, program: str) -> None:
        if program in ("exit", "return"):
            self._leave(program)
        elif program in self._leaving:
            self._leave("exit", certainly=False)

    def _leave(self, program: str, *, certainly: bool = True) -> None:
        """Nothing follows in the script, subshell or function that is left, or it is in doubt whether it does."""
        depths = [depth for depth, _name in self._functions[-1:]]
        if program != "return":
            self._leaving.update(name for _depth, name in self._functions[-1:])
            depths += self._subshells[-1:]
        scope = max(depths, default=1)
        inner = self._blocks[scope:]
        if self._comes < _MAYBE or "unlikely" in inner:
            return
        is_certain = certainly and self._comes > _MAYBE and _DOUBTFUL.isdisjoint(inner)
        self._blocks[scope - 1] = "done" if is_certain else "condition"

    def _enter(self, command: List[str]) -> List[str]:
        """Keep account of blocks; the command without the words that begin or end one."""
        while command:
            word = command[0]
            if isinstance(word, Sign):
                self._of_parenthesis(word)
            elif word in _OPENING:
                command = ["", *self._open(word, command[1:])]
            elif word in _CLOSING:
                self._close()
            elif word in ("else", "elif") and len(self._blocks) > 1:
                self._otherwise(word)
            elif word == "then":
                self._begin_branch()
            elif word == "{":
                self._begin_body()
            elif word == "function":
                self._function = command[1] if len(command) > 1 else ""
                command = command[1:]
            elif word not in ("do", "time"):
                break
            command = command[1:]
        return self._assign(command)

    def _of_parenthesis(self, word: str) -> None:
        if word == "(":
            self._blocks.append(self._kind())
            self._subshells.append(len(self._blocks))
        elif word == ")" and self._subshells and self._subshells[-1] == len(self._blocks):
            self._close()

    def _kind(self) -> str:
        """The kind of a block that begins here without a condition of its own."""
        return "loop" if self._comes == _YES else _KINDS[self._comes]

    def _close(self) -> None:
        if len(self._blocks) == 1:
            return
        if self._is_in_case():
            self._cases.pop()
        self._conditions.pop(len(self._blocks), None)
        self._blocks.pop()
        depth = len(self._blocks)
        if self._functions and self._functions[-1][0] > depth:
            self._functions.pop()
            self._variables.are_of_function = bool(self._functions)
        if self._subshells and self._subshells[-1] > depth:
            self._subshells.pop()

    def _begin_body(self) -> None:
        if self._function is None:
            self._blocks.append(self._kind())
            return
        # The body of a function runs when it is called, if it is.
        is_called = self._calls.get(self._function)
        self._blocks.append("condition" if is_called is None else "always" if is_called else "never")
        self._functions.append((len(self._blocks), self._function))
        self._variables.are_of_function = True
        self._function = None

    def _open(self, word: str, rest: List[str]) -> List[str]:
        """Begin a block; its condition, which is a command."""
        if word == "if":
            self._blocks.append(self._kind())
            self._conditions[len(self._blocks)] = (self._comes, _MAYBE)
            return rest
        self._blocks.append(self._kind() if word == "for" else "condition")
        if word == "for" and rest:
            self._begin_loop(rest)
        return [] if word in ("for", "case") else rest

    def _begin_loop(self, words: Sequence[str]) -> None:
        name = words[0]
        if not self._is_taken():
            return
        if name.startswith("(("):
            self._variables.count(name)
        elif words[1:2] == ["in"]:
            self._variables.set(name, (path for item in words[2:] for path in self._variables.expand(item)))
        else:
            # Over the arguments.
            self._variables.set(name, (UNKNOWN,))

    def _keep_condition(self, succeeds: int) -> None:
        """Keep how certain it is that the condition of the innermost block is met, while it is read."""
        depth = len(self._blocks)
        if depth in self._conditions:
            self._conditions[depth] = (self._conditions[depth][0], succeeds)

    def _begin_branch(self) -> None:
        certainties = self._conditions.pop(len(self._blocks), None)
        if certainties:
            self._blocks[-1] = _KINDS[min(certainties)]

    def _otherwise(self, word: str) -> None:
        self._blocks[-1] = _ELSE.get(self._blocks[-1], "condition")
        if word == "elif" and self._blocks[-1] in ("always", "loop"):
            comes = _YES if self._blocks[-1] == "always" else _PRESUMED
            self._conditions[len(self._blocks)] = (comes, _MAYBE)

    def _answer(self, command: Sequence[str]) -> int:
        """How certain it is that a command succeeds: what test(1) says, as far as that is known from here."""
        if command[:1] == ["cd"]:
            return _PRESUMED if self._are_of_kernel(command[1:]) else _MAYBE
        words = [word for word in command if word not in _TEST]
        if len(words) == len(command):
            return _MAYBE
        if words[:1] == ["!"]:
            return -self._answer(["[", *words[1:]])
        if len(words) == 2 and words[0] in _IS_THERE:
            return _PRESUMED if self._are_of_kernel(words[1:]) else _MAYBE
        if len(words) != 3 or words[1] not in ("=", "==", "!="):
            return _MAYBE
        left, right = self._variables.given_text(words[0]), self._variables.given_text(words[2])
        if left is None or right is None:
            return _MAYBE
        return _YES if (left == right) is (words[1] != "!=") else _NO

    def _are_of_kernel(self, words: Sequence[str]) -> bool:
        return len(words) == 1 and all(f"{path}/".startswith(_TREES) for path in self._variables.expand(words[0]))

    def _assign(self, command: List[str]) -> List[str]:
        is_declared = bool(command) and command[0] in _DECLARING
        command = command[1:] if is_declared else command
        while command:
            assigned = _ASSIGNED.fullmatch(command[0])
            if assigned is None and not is_declared:
                break
            if assigned and self._is_taken():
                name, adds, text = assigned.groups()
                self._variables.assign(name, f"${{{name}}}{text}" if adds else text)
            # Others are options and names without a value.
            command = command[1:]
        return command

    def of_program(self, command: List[str], number: int, *, in_doubt: bool) -> Iterator[ShellWrite]:
        if not command:
            return
        program, arguments = _name_of(command), command[1:]
        if program in COMMANDS:
            yield from self._of_arguments(program, arguments, number, in_doubt=in_doubt)
        elif program in PROGRAMS:
            yield from self._of_settings(program, arguments, number, in_doubt=in_doubt)
        elif program == "eval":
            yield from self._of_given(" ".join(arguments), number, in_doubt=in_doubt)
        elif program in SHELLS:
            yield from self._of_given(given_script(command) or "", number, in_doubt=in_doubt)
        elif program == "cd" and arguments:
            self._folder = self._variables.expand(arguments[0])[0]
        elif program == "shift" or (program == "set" and "--" in arguments):
            self._variables.drop_arguments()
        elif program.startswith("(("):
            self._variables.count(command[0])

    def _of_settings(
        self, program: str, arguments: Sequence[str], number: int, *, in_doubt: bool
    ) -> Iterator[ShellWrite]:
        for target, value in PROGRAMS[program](arguments):
            if target == SWAP:
                made = self._variables.expand(value or "")[0]
                yield ShellWrite(number, target, made, in_doubt or _UNKNOWN.search(made) is not None)
            elif target == RELOAD:
                yield ShellWrite(number, target, value, in_doubt)
            else:
                yield from self._writes(number, target, value, in_doubt=in_doubt)

    def _of_given(self, text: str, number: int, *, in_doubt: bool) -> Iterator[ShellWrite]:
        """The writes of a script within this one, which has the variables of this one; none within such a script."""
        if self._is_inner:
            return
        for made in self._variables.expand(text):
            if BEARING.search(made):
                inner = _Script({}, {})
                inner._variables, inner._folder, inner._is_inner = self._variables.copy(), self._folder, True
                for write in inner.read(made):
                    yield replace(write, number=number, in_doubt=in_doubt or write.in_doubt)

    def _of_arguments(
        self, program: str, arguments: Sequence[str], number: int, *, in_doubt: bool
    ) -> Iterator[ShellWrite]:
        """The program once for each value of a loop's variable."""
        for line in self._variables.expand("\0".join(arguments)):
            known = _UNKNOWN.sub("*", line)
            yield ShellWrite(number, program, None, in_doubt or known != line, tuple(known.split("\0")))

    def _writes(self, number: int, target: str, value: Optional[str], *, in_doubt: bool) -> Iterator[ShellWrite]:
        values = (None,) if value is None else self._variables.expand(value)
        known = values[0] if len(values) == 1 else None
        if known is not None and ("$" in known or "`" in known):
            known = None
        for path in self._variables.expand(target):
            if self._folder and not path.startswith("/"):
                path = f"{self._folder}/{path}"
            # The part of a path that only the running script knows may be anything.
            place = _UNKNOWN.sub("*", path)
            place = re.sub(r"/{2,}", "/", place)
            if place.startswith(_TREES):
                yield ShellWrite(number, place, known, in_doubt or place != re.sub(r"/{2,}", "/", path))


def _name_of(command: Sequence[str]) -> str:
    return command[0].rpartition("/")[2] if command else ""
