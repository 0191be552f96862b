# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The parameters of kernel modules: who gives them a value, what a module has, and what it takes.

modprobe hands a module all ``options`` lines with its name in the order in which they are read, and after them what the
kernel command line says of it (``nvme.poll_queues=4``); of a parameter that is there twice the last counts (libkmod,
``parse_args`` of the kernel). What is built in takes the command line alone.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, Iterator, List, Mapping, Optional, Tuple, Union

from .._core.regex import regex
from .._core.value import frozen
from .kernel_modules import normal
from .modprobe import COMMAND_LINE, MODPROBE, logical_lines

if TYPE_CHECKING:
    from .._core.protocols import Commands, Files

OPTIONS = "options"
# Quotes keep blanks together, wherever they stand in an argument (``next_arg`` of the kernel).
ARGUMENT = regex(r'(?:[^\s"]|"[^"]*(?:"|$))+')
# As C and the kernel's kstrtol read a number without a base.
NUMBER = regex(r"[+-]?(?:0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*)")
SWITCH = {**dict.fromkeys(("y", "yes", "on"), 1), **dict.fromkeys(("n", "no", "off"), 0)}
NVIDIA_PARAMETERS = "/proc/driver/nvidia/params"
NVIDIA_PREFIX = "NVreg_"
# nv-reg.h of NVIDIA's open kernel modules: the one parameter that the driver lists by another name.
NVIDIA_NAMES = {"RestrictProfilingToAdminUsers": "RmProfilingAdminOnly"}
# A type as modinfo writes it: alone where the parameter has no description, else in brackets behind it.
TYPE = regex(r"(?:.*\()?((?:array of )?(?:byte|hexint|u?short|u?int|u?long|ullong|charp|string|bool|bint|invbool))\)?")
SIGNED = {"short": 16, "int": 32, "long": 64}
UNSIGNED = {"byte": 8, "ushort": 16, "uint": 32, "hexint": 32, "ulong": 64, "ullong": 64}
SWITCHES = ("bool", "bint", "invbool")


@frozen
class OptionLine:
    """What one line (one argument) gives one parameter; ``value`` is empty where it has none.

    ``name`` is the argument as it stands there, before its value.
    """

    owner: str
    path: str
    number: Optional[int]
    module: str
    parameter: str
    value: str
    name: str

    @property
    def where(self) -> str:
        return self.path if self.number is None else f"{self.path} line {self.number}"


def parse_options(path: str, text: str) -> Iterator[OptionLine]:
    """A file of modprobe.d."""
    for number, line in logical_lines(text):
        words = line.split(None, 2)
        if len(words) > 2 and words[0] == OPTIONS:
            for name, value in _arguments(words[2]):
                yield OptionLine(MODPROBE, path, number, normal(words[1]), normal(name), value, name)


def parse_command_line(path: str, text: str) -> Iterator[OptionLine]:
    for name, value in _arguments(text):
        module, dot, parameter = name.partition(".")
        if dot:
            yield OptionLine(COMMAND_LINE, path, None, normal(module), normal(parameter), value, name)


def _arguments(text: str) -> Iterator[Tuple[str, str]]:
    for argument in ARGUMENT.findall(text):
        name, _equals, value = argument.partition("=")
        yield name.lstrip('"'), value.strip('"')


def render(module: str, parameters: Mapping[str, str]) -> str:
    """The line that gives a module these parameters."""
    quoted = (
        f'{name}="{value}"' if re.search(r"\s", value) else f"{name}={value}" for name, value in parameters.items()
    )
    return f"{OPTIONS} {module} {' '.join(quoted)}\n"


def is_same(one: str, other: str) -> bool:
    """Whether two texts are one value to the kernel: ``0660`` and ``432``, ``1`` and ``Y``, ``-1`` and 4294967295."""
    if one == other:
        return True
    left, right = one.split(","), other.split(",")
    return len(left) == len(right) and all(_canonical(a) == _canonical(b) for a, b in zip(left, right))


def _canonical(text: str) -> Union[str, int]:
    number = number_of(text)
    if number is None:
        return SWITCH.get(text.lower(), text)
    return number if number >= 0 else number % 2**32


def number_of(text: str) -> Optional[int]:
    """The number that the kernel reads, octal with a leading 0; None where it reads none."""
    if not NUMBER.fullmatch(text):
        return None
    digits = text.lstrip("+-")
    base = 16 if digits[:2] in ("0x", "0X") else 8 if digits[0] == "0" else 10
    return int(digits, base) * (-1 if text[0] == "-" else 1)


def read_nvidia(files: Files) -> Dict[str, str]:
    """What NVIDIA's driver has, by the names of its parameters: they are not in /sys. Empty where it is not loaded."""
    names = {listed: name for name, listed in NVIDIA_NAMES.items()}
    found = {}
    for line in (files.read_optional(NVIDIA_PARAMETERS) or "").splitlines():
        listed, _colon, value = line.partition(": ")
        found[NVIDIA_PREFIX + names.get(listed, listed)] = value.strip().strip('"')
    return found


def read_parameter(files: Files, module: str, parameter: str) -> Optional[str]:
    """What a loaded module shows of a parameter; None where it does not show it."""
    path = f"/sys/module/{module}/parameters/{parameter}"
    try:
        text = files.read_optional(path)
    except PermissionError:
        # One that can only be written is not shown to root either.
        if files.mode(path) & 0o444:
            raise
        return None
    return None if text is None else text.rstrip("\n")


def read_types(commands: Commands, module: str) -> Optional[Dict[str, str]]:
    """The parameters of a module with their types, as modinfo(8) says; empty for a type that it does not know.

    None where modinfo is not there, or does not know the module.
    """
    if not commands.find("modinfo"):
        return None
    completed = commands.run(("modinfo", module), timeout=20.0)
    if completed.status:
        return None
    found: Dict[str, str] = {}
    for line in completed.output.splitlines():
        if line.startswith("parm:"):
            name, _colon, described = line[len("parm:") :].strip().partition(":")
            kind = TYPE.fullmatch(described)
            found[normal(name)] = kind[1] if kind else ""
    return found


def why_refused(value: str, kind: str) -> str:
    """Why a parameter of this type does not take a value: the module would not be loaded. Empty where it does."""
    items = value.split(",") if kind.startswith("array of ") else [value]
    kind = kind.rpartition(" ")[2]
    refused: List[str] = []
    if kind in SWITCHES:
        refused = [item for item in items if number_of(item) not in (0, 1) and item.lower() not in SWITCH]
        return f"{refused[0]!r} is neither 1 nor 0" if refused else ""
    if kind not in SIGNED and kind not in UNSIGNED:
        return ""
    bits = SIGNED.get(kind) or UNSIGNED[kind]
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if kind in SIGNED else (0, 2**bits - 1)
    for item in items:
        number = number_of(item)
        if number is None:
            return f"{item!r} is not a number"
        if not low <= number <= high:
            return f"{item} is not between {low} and {high}"
    return ""
