# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The step that only CPUs have: set each that is online, in the order in which the kernel takes it.

Threads come or go first. Turbo is before the frequencies, which it moves, and the governor before the preference, of
which the governor performance takes no other than its own. Of the two frequencies the one that makes room comes first.
"""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Dict, Mapping

from ..._core.errors import Refused
from ..._core.value import frozen
from ..._kinds import steps
from ..._linux import cpulist
from ..._linux.cpus import FOLDER, read_online
from .plan import SetCpus
from .spec import CPUS, EPP, FREQUENCIES, IDLE_STATE, MAX, MIN, ON, PREFERENCES, SMT, TURBO
from .state import (
    BOOST,
    FILES,
    NO_TURBO,
    PCT_FILES,
    SMT_CONTROL,
    read_cpu,
    read_idle,
    read_limits,
    read_smt,
    read_turbo,
    switch_of,
    value_of,
)

if TYPE_CHECKING:
    from ..._core.change import Step
    from ..._core.protocols import Files, Host

FIRMWARE = "the firmware has turbo off"


def perform(step: Step, host: Host) -> None:
    if isinstance(step.action, SetCpus):
        set_cpus(dict(step.action.texts), host.files)
    else:
        steps.perform(step, host)


def set_cpus(texts: Mapping[str, str], files: Files) -> None:
    """All settings in order. Raises ``Refused``, which names the CPUs that did not take the first that was refused."""
    for setting, text in texts.items():
        if setting == SMT:
            # Off for good is off too, and nothing can be written then.
            if switch_of(read_smt(files)).get(0) != text:
                _set_global(SMT, SMT_CONTROL, text, files)
        elif setting == TURBO:
            _set_turbo(text, files)
        elif setting in PCT_FILES:
            _set_global(setting, PCT_FILES[setting], text, files)
        elif setting in FREQUENCIES:
            # Both with the first of them.
            if setting == next(one for one in FREQUENCIES if one in texts):
                _set_frequencies(texts, files)
        elif setting.startswith(IDLE_STATE):
            _set_idle(setting, text, files)
        else:
            _set_each(setting, FILES[setting], text, files)


def _set_global(setting: str, path: str, value: str, files: Files) -> None:
    found = (files.read_optional(path) or "").strip()
    if found == value:
        return
    try:
        files.write_attribute(path, value)
    except OSError as error:
        raise _refused(setting, CPUS, path, error, found, value) from error


def _set_turbo(value: str, files: Files) -> None:
    found, path = read_turbo(files)
    if found in ("", value):
        return
    number = "1" if (value == ON) is (path == BOOST) else "0"
    try:
        files.write_attribute(path, number)
    except OSError as error:
        if path == NO_TURBO and error.errno == errno.EPERM:
            raise Refused(
                "enable turbo on {}", object=CPUS, cause=FIRMWARE, hint="enable it there, or leave turbo out"
            ) from error
        raise _refused(TURBO, CPUS, path, error, found, value) from error


@frozen
class CpuRefusal:
    """A value that one CPU did not take."""

    setting: str
    path: str
    error: OSError
    found: str
    wanted: str


Refusals = Dict[int, CpuRefusal]
"""The first refusal of each CPU."""


def _set_each(setting: str, file: str, text: str, files: Files) -> None:
    refusals: Refusals = {}
    for cpu in sorted(read_online(files)):
        value = value_of(text, cpu)
        if value is not None:
            _write(files, cpu, setting, file, value, refusals)
    _raise(refusals, files)


def _set_frequencies(texts: Mapping[str, str], files: Files) -> None:
    refusals: Refusals = {}
    turbo = read_turbo(files)[0]
    for cpu in sorted(read_online(files)):
        limits = read_limits(files, cpu, turbo=turbo)
        wanted = {setting: value_of(texts[setting], cpu, limits) for setting in FREQUENCIES if setting in texts}
        ceiling, high = read_cpu(files, cpu, FILES[MAX]), wanted.get(MAX)
        rises = ceiling is not None and high is not None and int(high) > int(ceiling)
        for setting in (MAX, MIN) if rises else (MIN, MAX):
            value = wanted.get(setting)
            if value is not None:
                _write(files, cpu, setting, FILES[setting], value, refusals)
    _raise(refusals, files)


def _set_idle(setting: str, text: str, files: Files) -> None:
    refusals: Refusals = {}
    for cpu, states in read_idle(files, read_online(files)).items():
        value = value_of(text, cpu)
        for state in states if value is not None else ():
            if state.setting == setting:
                disable = "0" if value == ON else "1"
                _write(files, cpu, setting, f"cpuidle/state{state.number}/disable", disable, refusals)
    _raise(refusals, files)


def _write(files: Files, cpu: int, setting: str, file: str, value: str, refusals: Refusals) -> None:
    """Give one CPU a value that it does not have. One that refuses does not keep the others from theirs."""
    found = read_cpu(files, cpu, file)
    if found is None or found == value:
        return
    path = f"{FOLDER}/cpu{cpu}/{file}"
    try:
        files.write_attribute(path, value)
    except OSError as error:
        refusals.setdefault(cpu, CpuRefusal(setting, path, error, found, value))
        return
    shown = read_cpu(files, cpu, file) if setting == EPP and value.isdecimal() else None
    if shown in PREFERENCES:
        # Which number that is can be seen only now, and not again: another number would read the same in another boot.
        raise Refused(
            f"set {setting}",
            object=CPUS,
            cause=f"the kernel shows {value} as {shown} on CPU {cpu}",
            hint=f"declare {setting}: {shown}",
        )


def _raise(refusals: Refusals, files: Files) -> None:
    # One that went offline meanwhile is set when it comes back.
    still = sorted(read_online(files) & refusals.keys()) if refusals else []
    if still:
        first = refusals[still[0]]
        cpus = f"CPUs {cpulist.render(still)}"
        raise _refused(first.setting, cpus, first.path, first.error, first.found, first.wanted) from first.error


def _refused(setting: str, object: str, path: str, error: OSError, found: str, wanted: str) -> Refused:
    said = error.strerror or os.strerror(error.errno or 0)
    cause = f"the kernel refused the value at {path}: {said}"
    return Refused(f"set {setting}", object=object, cause=cause, found=found, wanted=wanted)
