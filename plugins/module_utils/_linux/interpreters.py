# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The program or script that a command line comes to run, behind programs such as env(1) that only run another one.

Options with a value of their own: env, nice, timeout, nohup and stdbuf as in coreutils 9.1, ionice, taskset, chrt,
setsid and flock as in util-linux 2.38, and sudo(8) and numactl(8).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence, Tuple

from .._core.regex import regex

if TYPE_CHECKING:
    from .._core.protocols import Files

# Their programs are read by program_writes.py.
OTHER_INTERPRETERS = ("python", "perl")
SHELLS = ("sh", "bash", "dash", "ksh", "zsh", "busybox")
_INTERPRETER = regex(rf"(?:{'|'.join(SHELLS)}|(?:{'|'.join(OTHER_INTERPRETERS)})[0-9.]*)")
_ASSIGNMENT = regex(r"\w+=.*", re.DOTALL)
# The short options that have a value, the long ones whose value may be the next word, and how many words come between
# the options and the command.
_WRAPPERS: Mapping[str, Tuple[str, Tuple[str, ...], int]] = {
    "sudo": ("CDRTUghprtu", ("--chdir", "--chroot", "--command-timeout", "--group", "--host", "--prompt", "--user"), 0),
    "env": ("uC", ("--unset", "--chdir"), 0),
    "nice": ("n", ("--adjustment",), 0),
    "ionice": ("cn", ("--class", "--classdata"), 0),
    "timeout": ("ks", ("--kill-after", "--signal"), 1),
    "nohup": ("", (), 0),
    "stdbuf": ("ioe", ("--input", "--output", "--error"), 0),
    "taskset": ("", (), 1),
    "chrt": ("TPD", ("--sched-runtime", "--sched-period", "--sched-deadline"), 1),
    "setsid": ("", (), 0),
    "flock": ("wE", ("--timeout", "--wait", "--conflict-exit-code"), 1),
    "numactl": (
        "imNCcp",
        ("--interleave", "--membind", "--cpunodebind", "--physcpubind", "--cpubind", "--preferred"),
        0,
    ),
    "busybox": ("", (), 0),
    # Of the shell.
    "exec": ("a", (), 0),
    "command": ("", (), 0),
    "builtin": ("", (), 0),
}
# With these they run no command.
_RUNS_NONE: Mapping[str, Tuple[str, ...]] = {
    "command": ("-v", "-V"),
    "taskset": ("-p", "--pid"),
    "chrt": ("-p", "--pid"),
    "ionice": ("-p", "-P", "-u"),
    "sudo": ("-l", "--list", "-v", "--validate"),
}
# Options of interpreters that have a value, and those behind which no file comes.
_VALUED = ("-o", "+o", "-O", "+O", "--rcfile", "--init-file", "-W", "-X")
_NO_FILE = ("-c", "-m", "-e", "-E")


def unwrapped(command: Sequence[str]) -> List[str]:
    """A command without the programs that only run it; none where these run none."""
    rest = list(command)
    while rest:
        name = rest[0].rpartition("/")[2]
        if name not in _WRAPPERS:
            break
        rest = _behind(name, rest[1:])
    return rest


def _behind(name: str, rest: List[str]) -> List[str]:
    short, long, count = _WRAPPERS[name]
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in _RUNS_NONE.get(name, ()):
            return []
        if option == "--":
            break
        if name == "env" and option.startswith(("-S", "--split-string")):
            inline = option.partition("=")[2] if option.startswith("--") else option[2:]
            rest = [*(inline or (rest.pop(0) if rest else "")).split(), *rest]
        elif option in long or (len(option) > 1 and option[1] != "-" and _wants_value(option, short)):
            del rest[:1]
    while name in ("env", "sudo") and rest and _ASSIGNMENT.fullmatch(rest[0]):
        del rest[0]
    rest = rest[count:]
    # flock(1) has a shell run the one word behind this option.
    return ["sh", *rest] if name == "flock" and rest[:1] in (["-c"], ["--command"]) else rest


def _wants_value(option: str, short: str) -> bool:
    """Whether the value of a cluster of short options is the next word."""
    at = next((at for at, letter in enumerate(option[1:], 1) if letter in short), None)
    return at == len(option) - 1


def given_script(words: Sequence[str]) -> Optional[str]:
    """The script that is an argument of a shell (``sh -c``)."""
    rest = unwrapped(words)
    if not rest or rest[0].rpartition("/")[2] not in SHELLS:
        return None
    options, behind = _options(rest[1:])
    is_given = any(re.fullmatch(r"-[a-zA-Z]*c", option) for option in options)
    return behind[0] if is_given and behind else None


def script_file(words: Sequence[str]) -> str:
    """The file that is run, also where a shell or another interpreter is named before it."""
    rest = unwrapped(words)
    interpreter = interpreter_before(words)
    if not interpreter:
        return rest[0] if rest else ""
    options, behind = _options(rest[1:])
    if interpreter not in SHELLS and any(option[:2] in _NO_FILE for option in options):
        return ""
    return behind[0] if behind else ""


def _options(words: Sequence[str]) -> Tuple[List[str], List[str]]:
    """The options of an interpreter without the values of those that have one, and the words behind them."""
    options: List[str] = []
    rest = list(words)
    while rest and rest[0].startswith(("-", "+")):
        options.append(rest.pop(0))
        if options[-1] in _VALUED:
            del rest[:1]
    return options, rest


def interpreter_before(words: Sequence[str]) -> str:
    """The name of the interpreter that a command line names before its script; empty where it names none."""
    rest = unwrapped(words)
    name = rest[0].rpartition("/")[2] if rest else ""
    return name if _INTERPRETER.fullmatch(name) else ""


def arguments_behind(words: Sequence[str], script: str) -> Dict[str, str]:
    """The arguments of a script by number. Behind one that is an argument itself, they begin with its name ($0)."""
    first = 0 if given_script(words) == script else 1
    behind = words[words.index(script) + 1 :] if script in words else ()
    return {str(number): one for number, one in enumerate(behind, first) if number}


def interpreter_of(files: Files, path: str) -> str:
    """The name of the program that runs a script by its first line; empty for another file."""
    try:
        # The kernel reads as much of it (BINPRM_BUF_SIZE).
        start = files.read_part(path, 0, 256)
    except (OSError, ValueError):
        # No file has a NUL in its name.
        return ""
    first = start.split(b"\n", 1)[0].decode("ascii", "replace")
    words = unwrapped(first[2:].split()) if first.startswith("#!") else []
    return words[0].rpartition("/")[2] if words else ""


def is_script(files: Files, path: str) -> bool:
    """Whether a file is a script of a shell by its first line."""
    return interpreter_of(files, path) in SHELLS
