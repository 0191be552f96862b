# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of the kernel's modules, and what is wrong whatever the machine."""

from __future__ import annotations

import re
from typing import Any, Mapping, Optional, Sequence, Tuple

from ..._core.errors import DeclarationError
from ..._core.value import field, frozen
from ..._linux.kernel_modules import normal

NAME = "kernel_modules"
# MODULE_NAME_LEN of include/linux/moduleparam.h on 64 bits, without the NUL.
MAX_NAME = 55
SHOWN = 60


@frozen
class KernelModulesDeclaration:
    """Names as the kernel writes them, each once, in the order of the declaration.

    ``names`` are those of the modules that are looked at, ``parameters`` the values by module and parameter.
    """

    names: Tuple[str, ...]
    load: Tuple[str, ...] = ()
    block: Tuple[str, ...] = ()
    parameters: Mapping[Tuple[str, str], Optional[str]] = field(default_factory=dict)


def parse(params: Mapping[str, Any]) -> KernelModulesDeclaration:
    """All but the parameters. Raises ``DeclarationError`` on what is no name of a module, or is in both lists."""
    load, block = _names("load", params["load"]), _names("block", params["block"])
    blocked = frozenset(block)
    for name in load:
        if name in blocked:
            raise DeclarationError(
                "load {}", object=name, cause="it is in load and in block", hint="leave it in one of the two"
            )
    return KernelModulesDeclaration((*load, *block), load, block)


def refuse_misnamed(text: object, where: str) -> None:
    """Raises ``DeclarationError`` on what cannot be the name of a module."""
    if not isinstance(text, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", text):
        raise DeclarationError("use {}", object=where, cause=f"{_short(text)} is not the name of a kernel module")
    if len(text) > MAX_NAME:
        cause = f"{_short(text)} has {len(text)} characters, but the name of a kernel module has at most {MAX_NAME}"
        raise DeclarationError("use {}", object=where, cause=cause)


def _short(text: object) -> str:
    shown = repr(text)
    return shown if len(shown) <= SHOWN else f"{shown[:SHOWN]}..."


def _names(option: str, texts: Sequence[str]) -> Tuple[str, ...]:
    for index, text in enumerate(texts):
        refuse_misnamed(text, f"{option}[{index}]")
    return tuple(dict.fromkeys(normal(text) for text in texts))
