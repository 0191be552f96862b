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


def is_name(text: object) -> bool:
    """Whether it can be the name of a module."""
    return isinstance(text, str) and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]*", text) is not None


def _names(option: str, texts: Sequence[str]) -> Tuple[str, ...]:
    for index, text in enumerate(texts):
        if not is_name(text):
            raise DeclarationError(
                "use {}", object=f"{option}[{index}]", cause=f"{text!r} is not the name of a kernel module"
            )
    return tuple(dict.fromkeys(normal(text) for text in texts))
