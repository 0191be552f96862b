# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The values that a shell script writes into files of the kernel, read without running it.

What is understood: redirections of echo and printf, tee, loops over globs, variables with plain values, cd, branches by
what the script is started with, and sysctl, cpupower, cpufreq-set, blockdev, swapon and hugeadm by their arguments.
The arguments of ``COMMANDS`` are for the concern whose devices these programs set. What another condition decides, or a
value that only exists when the script runs, is in doubt. A path that is merely read or mentioned is no write.
"""

from __future__ import annotations

import re
import shlex
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from .._core.regex import regex
from .._core.value import frozen
from .sysctl_d import normal

if TYPE_CHECKING:
    from .._core.protocols import Files

SWAP = "swap"
"""Stands for a target where a script brings swap."""
RELOAD = "sysctl file"
"""Stands for a target where a script has sysctl(8) read files: the value is the file, empty for ``--system``."""
THP, HUGEPAGES = "/sys/kernel/mm/transparent_hugepage", "/sys/kernel/mm/hugepages"
_OF_HUGEADM = {
    "--thp-khugepaged-pages": f"{THP}/khugepaged/pages_to_scan",
    "--thp-khugepaged-scan-sleep": f"{THP}/khugepaged/scan_sleep_millisecs",
    "--thp-khugepaged-alloc-sleep": f"{THP}/khugepaged/alloc_sleep_millisecs",
    "--set-shm-group": "/proc/sys/vm/hugetlb_shm_group",
    "--set-recommended-min_free_kbytes": "/proc/sys/vm/min_free_kbytes",
    "--set-recommended-shmmax": "/proc/sys/kernel/shmmax",
}
CPUFREQ = "/sys/devices/system/cpu/cpu*/cpufreq"
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
    rf"/sys[/$]|/proc/|sysctl|cpupower|cpufreq-set|blockdev|swapon|zramctl|hugeadm|(?<![\w.-])(?:{'|'.join(COMMANDS)})\s"
)
# Their programs are read by program_writes.py.
OTHER_INTERPRETERS = ("python", "perl")
SHELLS = ("sh", "bash", "dash", "ksh", "zsh", "busybox")
_TREES = ("/sys/", "/proc/sys/", "/proc/irq/")
_SEPARATORS = (";", "&&", "||", "|", "&", "(", ")", ";;", "|&")
_OPENING = {"if": "condition", "case": "condition", "while": "condition", "until": "condition", "for": "loop"}
_CLOSING = ("fi", "esac", "done", "}")
# Kinds of blocks, beside "condition" and "loop": "always" is taken, and "done" comes behind what is.
_NOT_TAKEN = frozenset(("never", "done"))
# test(1): what says that a file of the kernel is there, which it is where its setting is managed.
_IS_THERE = ("-e", "-f", "-w", "-r", "-d")
_VARIABLE = regex(r"\$(?:\{(\w+)\}|(\w+))")
# What only the running script knows.
_UNKNOWN = regex(r"\$\([^)]*\)|`[^`]*`|" + _VARIABLE.pattern)
# The output of other programs, and arithmetic, in a line: a variable without a value stands for it.
_SUBSTITUTED = regex(r"\$\([^()]*\)|\$\(\([^()]*\)\)")
# Where errors go, of which nothing is in a file of the kernel. The number stands right before the sign.
_ERRORS, _ERRORS_ALONG = regex(r"(?<=\s)2>(?!&)"), regex(r"(?<=\s)2>&[0-9-]")
_ASSIGNED = regex(r"(\w+)=(.*)", re.DOTALL)
_DECLARING = ("export", "readonly", "local", "declare", "typeset")
_WRAPPERS = ("sudo", "exec", "command", "nice", "ionice", "timeout", "nohup", "builtin", "eval")


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
    return tuple(_Script(variables or {}, calls or {}).read(text)) if BEARING.search(text) else ()


def read_command(words: Sequence[str], number: int = 1) -> Tuple[ShellWrite, ...]:
    """The writes of one program by its arguments."""
    return tuple(_Script({}, {}).of_program(_unwrapped(words), number, in_doubt=False))


def given_script(words: Sequence[str]) -> Optional[str]:
    """The script that is an argument of a shell (``sh -c``)."""
    if words[0].rpartition("/")[2] in SHELLS:
        for word, following in zip(words[1:], words[2:]):
            if word.startswith("-") and not word.startswith("--") and word.endswith("c"):
                return following
    return None


def script_file(words: Sequence[str]) -> str:
    """The file that is run, also where a shell or another interpreter is named before it."""
    rest = [word for word in words if word != "/usr/bin/env"]
    if rest and _interprets(rest[0]):
        return next((word for word in rest[1:] if not word.startswith("-")), "")
    return rest[0] if rest else ""


def _interprets(program: str) -> bool:
    name = program.rpartition("/")[2]
    return name in SHELLS or re.fullmatch(rf"(?:{'|'.join(OTHER_INTERPRETERS)})[0-9.]*", name) is not None


def arguments_behind(words: Sequence[str], script: str) -> Dict[str, str]:
    """The arguments of a script by number. Behind one that is an argument itself, they begin with its name ($0)."""
    first = 0 if given_script(words) == script else 1
    return {str(number): one for number, one in enumerate(words[words.index(script) + 1 :], first) if number}


def interpreter_of(files: Files, path: str) -> str:
    """The name of the program that runs a script by its first line; empty for another file."""
    try:
        start = files.read_part(path, 0, 64)
    except OSError:
        return ""
    first = start.split(b"\n", 1)[0].decode("ascii", "replace")
    words = first[2:].replace("/usr/bin/env", "").split() if first.startswith("#!") else []
    return words[0].rpartition("/")[2] if words else ""


def is_script(files: Files, path: str) -> bool:
    """Whether a file is a script of a shell by its first line."""
    return interpreter_of(files, path) in SHELLS


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
        self._variables: Dict[str, Tuple[str, ...]] = {name: (value,) for name, value in variables.items()}
        # Those that the script has not set itself.
        self._given = dict(variables)
        self._calls = calls
        self._blocks: List[str] = []
        self._cases: List[_Case] = []
        self._folder = ""
        # The one whose body begins next, and how deep those are whose body this is.
        self._function: Optional[str] = None
        self._functions: List[int] = []

    def read(self, text: str) -> Iterator[ShellWrite]:
        for number, words in _lines(text):
            yield from self._of_line(words, number)

    def _of_line(self, words: Sequence[str], number: int) -> Iterator[ShellWrite]:
        if "()" in words:
            self._function = words[words.index("()") - 1]
        rest = list(words)
        while rest:
            if self._awaits_pattern() and rest[0] != "esac":
                end = rest.index(")") if ")" in rest else len(rest)
                self._blocks[-1] = self._cases[-1].kind_of([word for word in rest[:end] if word not in ("(", "|")])
            elif rest[0] == "case" and "in" in rest:
                end = rest.index("in")
                self._blocks.append("condition")
                self._cases.append(_Case(len(self._blocks), self._given_text(rest[1])))
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
        tested: Optional[bool] = None
        for separator, command in _commands(words):
            if separator != "|":
                said = None
            command = _unwrapped(self._enter(command))
            if not _NOT_TAKEN.isdisjoint(self._blocks) or (separator == "&&" and tested is False):
                continue
            in_doubt = "condition" in self._blocks or separator == "||" or (separator == "&&" and not tested)
            tested = self._answer(command)
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
                self._close()
            elif word in ("else", "elif") and self._blocks:
                self._blocks[-1] = self._otherwise(self._blocks[-1], command[1:] if word == "elif" else None)
            elif word == "{":
                self._begin_body()
            elif word == "function":
                self._function = command[1] if len(command) > 1 else ""
                command = command[1:]
            elif word not in ("then", "do", "!", "time"):
                break
            command = command[1:]
        return self._assign(command)

    def _close(self) -> None:
        if not self._blocks:
            return
        if self._is_in_case():
            self._cases.pop()
        self._blocks.pop()
        if self._functions and self._functions[-1] > len(self._blocks):
            self._functions.pop()

    def _begin_body(self) -> None:
        if self._function is None:
            self._blocks.append("loop")
            return
        # The body of a function runs when it is called, if it is.
        is_called = self._calls.get(self._function)
        self._blocks.append("condition" if is_called is None else "always" if is_called else "never")
        self._functions.append(len(self._blocks))
        self._function = None

    def _otherwise(self, kind: str, condition: Optional[Sequence[str]]) -> str:
        """The kind of the block behind one of this kind; ``condition`` is that of ``elif``."""
        if kind in ("always", "done"):
            return "done"
        if kind != "never":
            return "condition"
        answer = True if condition is None else self._answer(condition)
        return {True: "always", False: "never", None: "condition"}[answer]

    def _answer(self, command: Sequence[str]) -> Optional[bool]:
        """What test(1) says, as far as that is known from here."""
        if self._says_that_it_is_there(command):
            return True
        words = [word for word in command if word not in ("[", "[[", "test", "]", "]]")]
        if len(words) == len(command) or len(words) != 3 or words[1] not in ("=", "==", "!="):
            return None
        left, right = self._given_text(words[0]), self._given_text(words[2])
        return None if left is None or right is None else (left == right) is (words[1] != "!=")

    def _given_text(self, text: str) -> Optional[str]:
        """A word that only has variables which the script was given; None for another."""
        names = [match[1] or match[2] for match in _VARIABLE.finditer(text)]
        if any(name not in self._given or (name.isdecimal() and self._functions) for name in names):
            return None
        found = self._expand(text)[0]
        return None if "$" in found or "`" in found else found

    def _open(self, word: str, rest: List[str]) -> List[str]:
        kind = _OPENING[word]
        if word == "if" and self._says_that_it_is_there(rest):
            kind = "loop"
        elif word == "if":
            kind = {True: "always", False: "never", None: kind}[self._answer(rest)]
        self._blocks.append(kind)
        if word == "for" and len(rest) > 1 and rest[1] == "in":
            self._variables[rest[0]] = tuple(path for item in rest[2:] for path in self._expand(item))
        return [] if word in ("for", "case") else rest

    def _assign(self, command: List[str]) -> List[str]:
        is_declared = bool(command) and command[0] in _DECLARING
        command = command[1:] if is_declared else command
        while command:
            assigned = _ASSIGNED.fullmatch(command[0])
            if assigned is None and not is_declared:
                break
            if assigned is None:
                # An option, or a name without a value.
                command = command[1:]
                continue
            self._variables[assigned[1]] = self._expand(assigned[2])
            self._given.pop(assigned[1], None)
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
        if program == "shift":
            self._given = {name: value for name, value in self._given.items() if not name.isdecimal()}
            self._variables = {name: values for name, values in self._variables.items() if not name.isdecimal()}
        if program == "cd" and arguments:
            self._folder = self._expand(arguments[0])[0]
        if program in COMMANDS:
            yield from self._of_command(program, arguments, number, in_doubt=in_doubt)
            return
        reader = _PROGRAMS.get(program)
        for target, value in reader(arguments) if reader else ():
            if target == SWAP:
                made = self._expand(value or "")[0]
                yield ShellWrite(number, target, made, in_doubt or _UNKNOWN.search(made) is not None)
            elif target == RELOAD:
                yield ShellWrite(number, target, value, in_doubt)
            else:
                yield from self._writes(number, target, value, in_doubt=in_doubt)

    def _of_command(
        self, program: str, arguments: Sequence[str], number: int, *, in_doubt: bool
    ) -> Iterator[ShellWrite]:
        """The program once for each value of a loop's variable."""
        for line in self._expand("\0".join(arguments)):
            known = _UNKNOWN.sub("*", line)
            yield ShellWrite(number, program, None, in_doubt or known != line, tuple(known.split("\0")))

    def _writes(self, number: int, target: str, value: Optional[str], *, in_doubt: bool) -> Iterator[ShellWrite]:
        values = (None,) if value is None else self._expand(value)
        known = values[0] if len(values) == 1 else None
        if known is not None and ("$" in known or "`" in known):
            known = None
        for path in self._expand(target):
            if self._folder and not path.startswith("/"):
                path = f"{self._folder}/{path}"
            # The part of a path that only the running script knows may be anything.
            place = _UNKNOWN.sub("*", path)
            place = re.sub(r"/{2,}", "/", place)
            if place.startswith(_TREES):
                yield ShellWrite(number, place, known, in_doubt or place != re.sub(r"/{2,}", "/", path))

    def _expand(self, text: str) -> Tuple[str, ...]:
        """A word with its variables replaced: one for each value of the first that has several."""
        found: Tuple[str, ...] = (text,)
        for match in _VARIABLE.finditer(text):
            name = match[1] or match[2]
            # A function has arguments of its own.
            values = None if name.isdecimal() and self._functions else self._variables.get(name)
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
    while _SUBSTITUTED.search(line):
        line = _SUBSTITUTED.sub("${0}", line)
    line = _ERRORS.sub("&>", _ERRORS_ALONG.sub("", line))
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
            targets.append(next(words, ""))
        elif word in ("<", ">&", "&>", "<<<", "&>>"):
            if word == ">&" and len(rest) > 1 and rest[-1].isdecimal():
                rest.pop()
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
# With these swapon(8) changes nothing.
_SHOWN = frozenset(("-s", "--summary", "--show", "-h", "--help", "-V", "--version"))


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
    """swapon(8). Without a device or file it shows what there is, or with ``--all`` takes the lines of fstab, as a boot
    does.
    """
    words = iter(arguments)
    specs = []
    for word in words:
        if word in ("-L", "-U"):
            specs.append(next(words, ""))
        elif word in ("-p", "--priority", "-o", "--options"):
            next(words, "")
        elif word[:1] != "-":
            specs.append(word)
    if any(specs) and not _SHOWN.intersection(arguments):
        yield SWAP, " ".join(arguments)


def _hugeadm(arguments: Sequence[str]) -> _Said:
    """hugeadm(8) of libhugetlbfs: pool_adjust and value_adjust of its hugeadm.c (2.24). Its option -d only tries."""
    options = _options(arguments)
    if "-d" in options or "--dry-run" in options:
        return
    for word, following in zip(arguments, (*arguments[1:], "")):
        name, equals, value = word.partition("=")
        value = value if equals else following
        if name in ("--pool-pages-min", "--pool-pages-max"):
            size, _colon, count = value.partition(":")
            size_kb = _kilobytes(size)
            file = "nr_hugepages" if name.endswith("min") else "nr_overcommit_hugepages"
            folder = "/proc/sys/vm" if size == "DEFAULT" else f"{HUGEPAGES}/hugepages-{size_kb or '*'}kB"
            # That of the most is what is left of it beside the least, which is not known from here.
            yield f"{folder}/{file}", _pages(count, size_kb) if file == "nr_hugepages" else None
        elif name.startswith("--thp-") and name[6:] in ("always", "madvise", "never"):
            yield f"{THP}/enabled", name[6:]
        elif name in _OF_HUGEADM:
            yield _OF_HUGEADM[name], value if value.isdecimal() and "recommended" not in name else None


def _kilobytes(size: str) -> Optional[int]:
    match = re.fullmatch(r"([1-9][0-9]*)([KMGkmg]?)", size)
    return int(match[1]) * 1024 ** " kmg".index(match[2].lower() or " ") // 1024 if match else None


def _pages(count: str, size_kb: Optional[int]) -> Optional[str]:
    """The number of pages; None for a change of what there is, and for memory where the size of a page is not known."""
    if count.isdecimal() and not count.startswith("0"):
        return count
    memory_kb = _kilobytes(count)
    return "0" if count == "0" else str(memory_kb // size_kb) if memory_kb and size_kb else None


_PROGRAMS: Dict[str, Callable[[Sequence[str]], _Said]] = {
    "sysctl": _sysctl,
    "cpupower": _cpupower,
    "cpufreq-set": _cpufreq_set,
    "blockdev": _blockdev,
    "swapon": _swapon,
    "hugeadm": _hugeadm,
}
