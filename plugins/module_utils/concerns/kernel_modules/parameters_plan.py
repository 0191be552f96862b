# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Parameters of modules: what cannot be, and the step to what is declared."""

from __future__ import annotations

import os
from typing import Container, Dict, Iterable, List, Mapping, NoReturn, Optional, Tuple

from ..._core.change import Change, Step, Unmanaged
from ..._core.errors import DeclarationError, OwnedByAnother, refuse_all
from ..._core.nearest import did_you_mean
from ..._core.setting import BOOT, NOW, REBOOT, Setting
from ..._linux.modprobe import COMMAND_LINE
from ..._linux.module_options import OptionLine, is_same, number_of, parse_options, why_refused
from .state import (
    NVIDIA,
    OPTIONS_FILE,
    POSSIBLE_CPUS,
    KernelModulesDesired,
    KernelModulesState,
    Key,
    setting_of,
    why_lacking,
)

NOT_INSTALLED = "install it, leave it out, or set strict: false"
# drivers/nvme/host/pci.c: values beyond, or in another base than ten, keep the module from being loaded.
QUEUE_COUNTS = ("poll_queues", "write_queues")
QUEUE_DEPTH = "io_queue_depth"
QUEUE_DEPTHS = (2, 4095)


def lacking_module(module: str, parameter: str, state: KernelModulesState) -> Unmanaged:
    """What this kernel does not have. Raises ``DeclarationError`` where the name looks misspelt."""
    near = "" if module in NVIDIA else did_you_mean(module, state.installed.names, cutoff=0.8)
    reason = why_lacking(module, state)
    if near:
        raise DeclarationError("set parameters of {}", object=module, cause=reason, hint=near)
    return Unmanaged(module, setting_of(parameter), reason, hint=NOT_INSTALLED)


def refuse_built_in(module: str, parameter: str, wanted: str, state: KernelModulesState) -> NoReturn:
    raise _wrong(
        module,
        parameter,
        f"it is built into this kernel ({state.installed.release}), and takes parameters from the kernel command line "
        "alone",
        hint=f"set {module}.{parameter}={wanted} on the kernel command line, and leave it out here",
    )


def refuse_impossible(modules: Mapping[str, Mapping[str, str]], state: KernelModulesState) -> None:
    """Raise ``DeclarationError`` for a parameter that a module does not have, and for a value that it does not take.

    The kernel ignores the first. With the second it does not load the module, be it that of the root file system.
    """
    known = state.parameters.types if state.parameters is not None else {}
    cpus = state.parameters.possible_cpus if state.parameters is not None else 0
    for module, parameters in modules.items():
        types = known.get(module)
        for parameter, value in parameters.items():
            if types is not None and parameter not in types:
                hint = did_you_mean(parameter, types, otherwise=f"see modinfo {module}")
                raise _wrong(module, parameter, "the module has no such parameter", hint=hint)
            cause = why_refused(value, types[parameter]) if types is not None else ""
            cause = cause or (_why_nvme_refuses(parameter, value, cpus) if module == "nvme" else "")
            if cause:
                raise _wrong(module, parameter, f"{cause}, and the module would not be loaded", wanted=value)


def _why_nvme_refuses(parameter: str, value: str, cpus: int) -> str:
    if parameter not in (*QUEUE_COUNTS, QUEUE_DEPTH):
        return ""
    low, high = QUEUE_DEPTHS if parameter == QUEUE_DEPTH else (0, cpus)
    number = number_of(value)
    if number is None or (value != str(number) and parameter in QUEUE_COUNTS):
        return f"{value!r} is not a decimal number"
    if low <= number <= high:
        return ""
    of_cpus = f", the CPUs in {POSSIBLE_CPUS}" if parameter in QUEUE_COUNTS else ""
    return f"{number} is not between {low} and {high}{of_cpus}"


def plan_options(
    state: KernelModulesState,
    desired: KernelModulesDesired,
    rows: Iterable[Setting],
    pending: Container[Tuple[str, str]],
) -> Tuple[Step, ...]:
    """The step that gives our file its text, with what it changes at boot; ``pending`` are settings of objects."""
    row = next((row for row in rows if row.identity == OPTIONS_FILE), None)
    if row is None or row.boot == row.wanted:
        return ()
    before, after = state.winners(), _winners_after(state, desired)
    changes = [Change(OPTIONS_FILE, row.setting, row.boot, row.wanted, BOOT)]
    for key in sorted({*desired.parameters, *_of_ours(state, desired)}):
        old, new = (line[key].value if key in line else None for line in (before, after))
        if old != new and (old is None or new is None or not is_same(old, new)):
            takes_effect = REBOOT if (key[0], setting_of(key[1])) in pending else NOW
            changes.append(Change(key[0], setting_of(key[1]), old, new, BOOT, takes_effect))
    return (state.options_file.step(desired.options_text, changes),)


def refuse_owned(state: KernelModulesState, desired: KernelModulesDesired) -> None:
    """Raise ``OwnedByAnother`` where the next load would take another value than the declared one."""
    after = _winners_after(state, desired)
    refusals = []
    for key, wanted in desired.parameters.items():
        line = after.get(key)
        if line is None or wanted is None or is_same(wanted, line.value):
            continue
        if line.owner == COMMAND_LINE:
            cause = f"{line.where} says {line.name}={line.value}, and the kernel command line has the last word"
        else:
            cause = f"{line.where} comes after {OPTIONS_FILE}"
        refusal = OwnedByAnother(
            f"set {key[1]}",
            object=key[0],
            cause=cause,
            found=line.value,
            wanted=wanted,
            hint="remove it there, declare the same value, or leave the parameter out",
        )
        refusals.append(refusal)
    refuse_all(refusals)


def concerns_initramfs(state: KernelModulesState, desired: KernelModulesDesired) -> bool:
    """Whether a module that an initramfs may hold, with a copy of our file, gets other parameters."""
    modules = {module for module, _parameter in _of_ours(state, desired)}
    return bool(state.rebuild) and any(
        state.installed.dependencies(name) is not None
        for module in modules
        for name in (module, *state.real_names(module))
    )


def _of_ours(state: KernelModulesState, desired: KernelModulesDesired) -> Dict[Key, Optional[str]]:
    """The parameters that our file gives another value, or no longer one, or now one."""
    old, new = (
        {(line.module, line.parameter): line.value for line in lines}
        for lines in (
            parse_options(OPTIONS_FILE, state.options_file.text or ""),
            parse_options(OPTIONS_FILE, desired.options_text or ""),
        )
    )
    names = state.declared_names
    return {
        (names.get(key[0], key[0]), key[1]): new.get(key)
        for key in (*old, *new)
        if key not in old or key not in new or old[key] != new[key]
    }


def _winners_after(state: KernelModulesState, desired: KernelModulesDesired) -> Mapping[Key, OptionLine]:
    lines: List[OptionLine] = []
    if state.parameters is not None:
        lines = [line for line in state.parameters.lines if line.path != OPTIONS_FILE]
    lines += parse_options(OPTIONS_FILE, desired.options_text or "")
    return state.winners(sorted(lines, key=lambda line: os.path.basename(line.path)))


def _wrong(
    module: str, parameter: str, cause: str, *, hint: str = "", wanted: Optional[str] = None
) -> DeclarationError:
    return DeclarationError(f"set {parameter}", object=module, cause=cause, wanted=wanted, hint=hint)
