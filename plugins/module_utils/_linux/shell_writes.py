# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The values that a shell script writes into files of the kernel, read without running it.

What is understood: redirections of echo and printf, tee, loops over globs, variables with plain values, cd, and
sysctl, cpupower, cpufreq-set, blockdev and swapon by their arguments. What a condition decides, or a value that only
exists when the script runs, is in doubt. A path that is merely read or mentioned is no write.
"""

from __future__ import annotations

import re
import shlex
from typing import Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from .._core.regex import regex
from .._core.value import frozen
from .sysctl_d import normal

SWAP = "swap"
"""Stands for a target where a script brings swap."""
RELOAD = "sysctl file"
"""Stands for a target where a script has sysctl(8) read files: the value is the file, empty for ``--system``."""
CPUFREQ = "/sys/devices/system/cpu/cpu*/cpufreq"

BEARING = regex(r"/sys/|/proc/|sysctl|cpupower|cpufreq-set|blockdev|swapon|zramctl")
_TREES = ("/sys/", "/proc/sys/", "/proc/irq/")
_SEPARATORS = (";", "&&", "||", "|", "&", "(", ")", ";;", "|&")
_OPENING = {"if": "condition", "case": "condition", "while": "condition", "until": "condition", "for": "loop"}
_CLOSING = ("fi", "esac", "done", "}")
# test(1): what says that a file of the kernel is there, which it is where its setting is managed.
_IS_THERE = ("-e", "-f", "-w", "-r", "-d")
_VARIABLE = regex(r"\$(?:\{(\w+)\}|(\w+))")
_ASSIGNED = regex(r"(\w+)=(.*)", re.DOTALL)
_WRAPPERS = ("sudo", "exec", "command", "nice", "ionice", "timeout", "nohup", "builtin", "eval")


@frozen
class ShellWrite:
    """A write into ``target``, a path below /sys or /proc, maybe with the signs of glob(7), by line ``number``.

    ``value`` is None where only the running script knows it. ``in_doubt`` says that it may not come to the write.
    """

    number: int
    target: str
    value: Optional[str]
    in_doubt: bool


def read_script(text: str) -> Tuple[ShellWrite, ...]:
    """The writes of a script in the order of its lines."""
    return tuple(_Script().read(text)) if BEARING.search(text) else ()


def read_command(words: Sequence[str], number: int = 1) -> Tuple[ShellWrite, ...]:
    """The writes of one program by its arguments."""
    return tuple(_Script().of_program(_unwrapped(words), number, in_doubt=False))


class _Script:
    def __init__(self) -> None:
        self._variables: Dict[str, Tuple[str, ...]] = {}
        self._blocks: List[str] = []
        self._folder = ""
        self._begins_function = False

    def read(self, text: str) -> Iterator[ShellWrite]:
        for number, words in _lines(text):
            yield from self._of_line(words, number)

    def _of_line(self, words: Sequence[str], number: int) -> Iterator[ShellWrite]:
        self._begins_function |= "()" in words
        said: Optional[str] = None
        tested = False
        for separator, command in _commands(words):
            if separator != "|":
                said = None
            command = _unwrapped(self._enter(command))
            in_doubt = "condition" in self._blocks or separator == "||" or (separator == "&&" and not tested)
            tested = self._says_that_it_is_there(command)
            targets, command = _redirected(command)
            for target in targets:
                yield from self._writes(number, target, _printed(command), in_doubt=in_doubt)
            program = command[0].rpartition("/")[2] if command else ""
            if program == "tee":
                for target in command[1:]:
                    yield from self._writes(number, target, said, in_doubt=in_doubt)
            else:
                yield from self.of_program(command, number, in_doubt=in_doubt)
            said = _printed(command)

    def _enter(self, command: List[str]) -> List[str]:
        """Keep account of blocks; the command without the words that begin or end one."""
        while command:
            word = command[0]
            if word in _OPENING:
                return self._open(word, command[1:])
            if word in _CLOSING:
                if self._blocks:
                    self._blocks.pop()
            elif word in ("else", "elif") and self._blocks:
                self._blocks[-1] = "condition"
            elif word == "{":
                # The body of a function runs when it is called, if it is.
                self._blocks.append("condition" if self._begins_function else "loop")
                self._begins_function = False
            elif word == "function":
                self._begins_function = True
                command = command[1:]
            elif word not in ("then", "do", "!", "time"):
                break
            command = command[1:]
        return self._assign(command)

    def _open(self, word: str, rest: List[str]) -> List[str]:
        kind = _OPENING[word]
        if word == "if" and self._says_that_it_is_there(rest):
            kind = "loop"
        self._blocks.append(kind)
        if word == "for" and len(rest) > 1 and rest[1] == "in":
            self._variables[rest[0]] = tuple(path for item in rest[2:] for path in self._expand(item))
        return [] if word in ("for", "case") else rest

    def _assign(self, command: List[str]) -> List[str]:
        while command:
            assigned = _ASSIGNED.fullmatch(command[0])
            if assigned is None:
                break
            self._variables[assigned[1]] = self._expand(assigned[2])
            command = command[1:]
        return command

    def _says_that_it_is_there(self, command: Sequence[str]) -> bool:
        words = [word for word in command if word not in ("[", "[[", "test", "]", "]]")]
        if len(words) == len(command) or len(words) != 2 or words[0] not in _IS_THERE:
            return False
        return all(path.startswith(_TREES) for path in self._expand(words[1]))

    def of_program(self, command: List[str], number: int, *, in_doubt: bool) -> Iterator[ShellWrite]:
        if not command:
            return
        program, arguments = command[0].rpartition("/")[2], command[1:]
        if program == "cd" and arguments:
            self._folder = self._expand(arguments[0])[0]
        reader = _PROGRAMS.get(program)
        for target, value in reader(arguments) if reader else ():
            if target in (SWAP, RELOAD):
                yield ShellWrite(number, target, value, in_doubt)
            else:
                yield from self._writes(number, target, value, in_doubt=in_doubt)

    def _writes(self, number: int, target: str, value: Optional[str], *, in_doubt: bool) -> Iterator[ShellWrite]:
        values = (None,) if value is None else self._expand(value)
        known = values[0] if len(values) == 1 else None
        if known is not None and ("$" in known or "`" in known):
            known = None
        for path in self._expand(target):
            if self._folder and not path.startswith("/"):
                path = f"{self._folder}/{path}"
            # The part of a path that only the running script knows may be anything.
            place = re.sub(r"\$\([^)]*\)|`[^`]*`|" + _VARIABLE.pattern, "*", path)
            place = re.sub(r"/{2,}", "/", place)
            if place.startswith(_TREES):
                yield ShellWrite(number, place, known, in_doubt or place != re.sub(r"/{2,}", "/", path))

    def _expand(self, text: str) -> Tuple[str, ...]:
        """A word with its variables replaced: one for each value of the first that has several."""
        found: Tuple[str, ...] = (text,)
        for match in _VARIABLE.finditer(text):
            values = self._variables.get(match[1] or match[2])
            if values:
                found = tuple(one.replace(match[0], value) for one in found for value in values)
        return found


def _lines(text: str) -> Iterator[Tuple[int, List[str]]]:
    """The words of each line by number, quotes removed; lines that belong together are joined."""
    start, pending = 0, ""
    for number, line in enumerate(text.split("\n"), 1):
        start = start or number
        pending += line
        if pending.endswith("\\"):
            pending = pending[:-1]
            continue
        words = _words(pending)
        if words is None and len(pending) < 4096:
            pending += "\n"
            continue
        if words:
            yield start, words
        start, pending = 0, ""


def _words(line: str) -> Optional[List[str]]:
    """None where a quote is open at the end."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        return list(lexer)
    except ValueError:
        return None


def _commands(words: Sequence[str]) -> Iterator[Tuple[str, List[str]]]:
    """The commands of a line, each with what stands before it."""
    separator = ""
    command: List[str] = []
    for word in words:
        if word in _SEPARATORS or word == "()":
            if command:
                yield separator, command
            separator, command = word, []
        else:
            command.append(word)
    if command:
        yield separator, command


def _unwrapped(command: Sequence[str]) -> List[str]:
    """A command without the programs that only run it."""
    rest = list(command)
    while rest and rest[0].rpartition("/")[2] in _WRAPPERS:
        rest = rest[1:]
        while rest and re.match(r"-|[0-9]", rest[0]):
            rest = rest[1:]
    return rest


def _redirected(command: Sequence[str]) -> Tuple[List[str], List[str]]:
    """The files that the output of a command goes to, and the command without them."""
    targets: List[str] = []
    rest: List[str] = []
    words = iter(command)
    for word in words:
        if word in (">", ">>", ">|"):
            # What stands before it may be the number of another stream.
            if rest and rest[-1] == "2" and len(rest) > 1:
                rest.pop()
                next(words, "")
                continue
            targets.append(next(words, ""))
        elif word in ("<", ">&", "&>", "<<<", "&>>"):
            next(words, "")
        else:
            rest.append(word)
    return targets, rest


def _printed(command: Sequence[str]) -> Optional[str]:
    """The output of a command; None where that is not known."""
    program = command[0].rpartition("/")[2] if command else ""
    if program == "echo":
        return " ".join(word for word in command[1:] if word not in ("-n", "-e", "-ne", "-en"))
    if program == "printf" and len(command) > 1:
        text = command[1].replace("\\n", "")
        if text == "%s" and len(command) == 3:
            return command[2]
        return text if "%" not in text else None
    return None


_Said = Iterator[Tuple[str, Optional[str]]]


def _sysctl(arguments: Sequence[str]) -> _Said:
    """sysctl(8)."""
    loads = False
    for word in arguments:
        if word == "--system":
            yield RELOAD, ""
        elif word.startswith("--load") or re.fullmatch(r"-[a-zA-Z]*[pf][a-zA-Z]*", word):
            loads = True
            inline = word.partition("=")[2]
            if inline:
                yield RELOAD, inline
        elif word[:1] != "-" and "=" in word:
            key, _equals, value = word.partition("=")
            yield f"/proc/sys/{normal(key.strip())}", value.strip()
        elif word[:1] != "-" and loads:
            yield RELOAD, word
    if loads and not any(word[:1] != "-" or "=" in word for word in arguments):
        yield RELOAD, "/etc/sysctl.conf"


def _cpupower(arguments: Sequence[str]) -> _Said:
    """cpupower-frequency-set(1) and cpupower-set(1); frequencies have units of their own."""
    options = _options(arguments)
    if "frequency-set" in arguments:
        governors = (options[name] for name in ("-g", "--governor") if name in options)
        yield from ((f"{CPUFREQ}/scaling_governor", governor) for governor in governors)
        for names, file in ((("-d", "--min"), "scaling_min_freq"), (("-u", "--max"), "scaling_max_freq")):
            yield from ((f"{CPUFREQ}/{file}", None) for name in names if name in options)
    elif "set" in arguments:
        biases = (options[name] for name in ("-b", "--perf-bias") if name in options)
        yield from (("/sys/devices/system/cpu/cpu*/power/energy_perf_bias", bias) for bias in biases)


def _cpufreq_set(arguments: Sequence[str]) -> _Said:
    yield from _cpupower(["frequency-set", *arguments])


def _options(arguments: Sequence[str]) -> Dict[str, str]:
    found: Dict[str, str] = {}
    for word, following in zip(arguments, (*arguments[1:], "")):
        name, equals, value = word.partition("=")
        if equals and word.startswith("--"):
            found[name] = value
        elif word[:2] != "--" and word[:1] == "-" and len(word) > 2:
            found[word[:2]] = word[2:]
        elif word[:1] == "-":
            found[word] = following
    return found


def _blockdev(arguments: Sequence[str]) -> _Said:
    """blockdev(8): ``--setra`` and ``--setfra`` count sectors of 512 bytes."""
    sectors = ""
    words = iter(arguments)
    for word in words:
        if word in ("--setra", "--setfra"):
            sectors = next(words, "")
        elif word.startswith("/dev/") and sectors:
            value = str(int(sectors) // 2) if sectors.isdecimal() else None
            yield f"/sys/class/block/{word[len('/dev/') :]}/queue/read_ahead_kb", value


def _swapon(arguments: Sequence[str]) -> _Said:
    """swapon(8). Without a file it shows what there is, or with ``--all`` takes the lines of fstab, as a boot does."""
    if any(word[:1] == "/" for word in arguments):
        yield SWAP, " ".join(arguments)


_PROGRAMS: Dict[str, Callable[[Sequence[str]], _Said]] = {
    "sysctl": _sysctl,
    "cpupower": _cpupower,
    "cpufreq-set": _cpufreq_set,
    "blockdev": _blockdev,
    "swapon": _swapon,
}
