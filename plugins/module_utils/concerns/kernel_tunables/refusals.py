# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Why a key cannot have a value on this machine: what is asked only where a value differs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator, Optional, Sequence

from ..._core.nearest import did_you_mean
from ..._linux import kernel_modules
from .keys import (
    AVAILABLE_CONGESTION,
    CONGESTION,
    GONE,
    OPTIONAL,
    QDISC,
    RT_PERIOD,
    RT_RUNTIME,
    dotted,
    interface_of,
    module_of,
)
from .spec import wrong
from .state import PROC

if TYPE_CHECKING:
    from typing import Mapping

    from ..._core.errors import DeclarationError
    from ..._core.protocols import Files
    from .spec import KernelTunablesDeclaration
    from .state import KernelTunablesState

UNKNOWN = "this kernel does not have the key"
# Queueing disciplines that are always built in.
QDISCS = ("bfifo", "mq", "noqueue", "pfifo", "pfifo_fast")


def find_refusals(
    files: Files, declaration: KernelTunablesDeclaration, state: KernelTunablesState
) -> Mapping[str, DeclarationError]:
    refusals = {}
    for key, value in declaration.values.items():
        if value != state.found[key]:
            refusal = _absent(files, key) if state.found[key] is None else _present(files, key, value, declaration)
            if refusal is not None:
                refusals[key] = refusal
    return refusals


def _present(files: Files, key: str, value: str, declaration: KernelTunablesDeclaration) -> Optional[DeclarationError]:
    if not files.mode(f"{PROC}/{key}") & 0o222:
        return wrong(key, "the kernel lets nobody write it", wanted=value, hint="leave the key out")
    if key == CONGESTION:
        known = (files.read_optional(f"{PROC}/{AVAILABLE_CONGESTION}") or "").split()
        return _no_module(files, key, value, "tcp", known) if known else None
    if key == QDISC:
        return _no_module(files, key, value, "sch", QDISCS)
    if key == RT_RUNTIME and RT_PERIOD not in declaration.values:
        period = files.read_optional(f"{PROC}/{RT_PERIOD}")
        if period and int(value) > int(period):
            return wrong(
                key,
                f"it exceeds {dotted(RT_PERIOD)}, which is {period.strip()}",
                wanted=value,
                hint="set at most the period, or -1 for no limit",
            )
    return None


def _no_module(files: Files, key: str, value: str, prefix: str, known: Sequence[str]) -> Optional[DeclarationError]:
    """What the kernel loads by itself when it is named has to be there for it."""
    installed = kernel_modules.read_installed(files)
    module = f"{prefix}_{value}"
    # Without a list of modules there is nothing to be said against one.
    if value in known or not installed.depends or installed.has_built_in(module):
        return None
    if installed.dependencies(module) is not None:
        return None
    return wrong(key, f"this kernel has no module {module}", wanted=value, hint=did_you_mean(value, known))


def _absent(files: Files, key: str) -> Optional[DeclarationError]:
    path = f"{PROC}/{key}"
    if key in GONE:
        return wrong(key, GONE[key], hint="leave the key out")
    if files.is_folder(path):
        return wrong(key, "it is a folder of keys", hint="declare a key in it")
    if files.exists(path):
        return wrong(key, "it is a command and keeps no value", hint="leave the key out")
    module, interface = module_of(key), interface_of(key)
    if module and not files.exists(f"/sys/module/{module}"):
        return None
    if interface and not files.exists(f"{PROC}/{key.rpartition('/')[0]}"):
        return None
    if key in OPTIONAL:
        return None
    parts = key.split("/")
    if parts[0] == "net" and len(parts) > 5 and parts[2] in ("conf", "neigh"):
        spelt = "/".join((*parts[:3], ".".join(parts[3:-1]), parts[-1]))
        return wrong(key, UNKNOWN, hint=f"for an interface with a dot in its name, declare {spelt}")
    names = [dotted(name) for name in _names(files, "")]
    return wrong(key, UNKNOWN, hint=did_you_mean(dotted(key), names))


def _names(files: Files, folder: str) -> Iterator[str]:
    """All keys of this kernel."""
    for name in files.names(f"{PROC}/{folder}"):
        key = f"{folder}/{name}" if folder else name
        if files.is_folder(f"{PROC}/{key}"):
            yield from _names(files, key)
        else:
            yield key
