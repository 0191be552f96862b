# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of the kernel's command line, and what is wrong whatever the machine."""

from __future__ import annotations

import re
from typing import Any, Dict, Mapping, Tuple

from ..._core.errors import DeclarationError
from ..._core.setting import Scalar
from ..._core.value import field, frozen
from .grammar import CPU_LISTS, PRESENT, judged_by, normal, replaced_items, word_of

# What neither a shell, nor GRUB's own one, nor the kernel takes as anything but text, a semicolon in quotes.
_VALUE = r"[A-Za-z0-9_.,:;=/@%+-]+"
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
LIST_HINT = "write arguments: {iommu: pt, quiet: true, nosmt: false}"


@frozen
class KernelCmdlineDeclaration:
    """The arguments by their normal names: None for one that must not be there, ``PRESENT`` for one without a value.

    ``spelled`` are the names as they were written. ``names`` are all that a run is about.
    """

    arguments: Mapping[str, Scalar] = field(default_factory=dict)
    spelled: Mapping[str, str] = field(default_factory=dict)
    most_isolated: bool = False
    names: Tuple[str, ...] = ()

    def word(self, name: str) -> str:
        """The argument as it is written."""
        return word_of(self.spelled[name], self.arguments[name])

    @property
    def lists(self) -> Dict[str, str]:
        """The lists of CPUs."""
        found = {name: value for name, value in self.arguments.items() if name in CPU_LISTS}
        return {name: str(value) for name, value in found.items() if value not in (None, PRESENT)}


def parse(params: Mapping[str, Any]) -> KernelCmdlineDeclaration:
    """Raises ``DeclarationError`` on what no machine could have."""
    if not params["permanent"]:
        raise DeclarationError(
            "declare kernel arguments",
            cause="a running kernel takes none, and permanent: false leaves the next boot as it is",
            hint="set permanent: true",
        )
    arguments: Dict[str, Scalar] = {}
    spelled: Dict[str, str] = {}
    for key, value in (params["arguments"] or {}).items():
        if value is None:
            continue
        name = _name(str(key))
        if name in arguments:
            raise _wrong(str(key), "it is declared twice", hint="names with - and with _ are equal")
        arguments[name], spelled[name] = _value(name, value), str(key)
    declaration = KernelCmdlineDeclaration(arguments, spelled, params["most_isolated"], tuple(arguments))
    lists = declaration.lists
    if lists:
        from .cpus import check_syntax

        for name, text in lists.items():
            check_syntax(name, text)
    _refuse_contradictions(arguments)
    return declaration


def _name(key: str) -> str:
    from .names import KNOWN, REFUSED, REFUSED_PREFIXES

    if not re.fullmatch(_NAME, key):
        raise _wrong(key, "this is not the name of an argument", hint=LIST_HINT)
    name = normal(key)
    reason = next((why for other, why in REFUSED.items() if normal(other) == name), "")
    if not reason and name.startswith(REFUSED_PREFIXES):
        reason = REFUSED["root"]
    if reason:
        hint = "use the module hugepages" if name.startswith("hugepages") else "set it where the machine is installed"
        raise _wrong(key, reason, hint=hint)
    if "." not in name and name not in {normal(known) for known in KNOWN}:
        from ..._core.nearest import did_you_mean

        hint = did_you_mean(name, KNOWN, cutoff=0.85)
        if hint:
            raise _wrong(key, "the kernel would ignore the unknown name silently", hint=hint)
    return name


def _value(name: str, value: Any) -> Scalar:
    if isinstance(value, bool):
        from .names import WORDS_OF_YAML

        if value and name in CPU_LISTS - {"rcu_nocbs"}:
            raise _wrong(name, "it takes a list of CPUs", found="true", hint=f'write {name}: "2-31"')
        if name in WORDS_OF_YAML:
            raise _wrong(
                name,
                "its value is a word, and YAML reads on and off as true and false",
                found=str(value).lower(),
                hint=f'write "{"on" if value else "off"}" in quotes, or leave the argument out',
            )
        return PRESENT if value else None
    if isinstance(value, int):
        return str(value)
    if not isinstance(value, str):
        raise _wrong(name, "the value is not true, false, a string or a whole number", hint=LIST_HINT)
    if not value:
        raise _wrong(name, "the value is empty", hint=f"write {name}: true for an argument without a value")
    if not re.fullmatch(_VALUE, value):
        odd = next(character for character in value if not re.fullmatch(_VALUE, character))
        raise _wrong(name, f"a boot loader would not pass on the character {odd!r} as it is", wanted=value)
    return value


def _refuse_contradictions(arguments: Mapping[str, Scalar]) -> None:
    said: Dict[str, Tuple[str, str]] = {}
    for name, value in arguments.items():
        if value is None:
            continue
        void = replaced_items(name, str(value))
        if void:
            raise _wrong(
                name, f"a later item overrides {void[0]}, as both set the same kernel variable", found=str(value)
            )
        for variable, text in judged_by(name, value).items():
            other, before = said.setdefault(variable, (name, text))
            if before != text:
                raise DeclarationError(
                    "declare {}",
                    object=f"{other} and {name}",
                    cause=f"both set the kernel's {variable}, and the later one counts",
                    hint="declare one of them",
                )
    for one, values, other, others in (
        ("nohz", ("off",), "nohz_full", None),
        ("iommu", ("off",), "iommu.passthrough", ("1",)),
        ("intel_iommu", ("off",), "iommu", ("pt",)),
    ):
        there = arguments.get(other)
        if arguments.get(one) in values and there is not None and (others is None or there in others):
            raise DeclarationError(
                "declare {}",
                object=f"{one} and {other}",
                cause=f"{word_of(one, arguments[one])} and {word_of(other, there)} exclude each other",
                hint="declare one of them",
            )


def _wrong(name: str, cause: str, **more: Any) -> DeclarationError:
    return DeclarationError("declare {}", object=f"kernel argument {name}", cause=cause, **more)
