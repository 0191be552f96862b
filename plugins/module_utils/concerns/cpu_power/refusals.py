# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the CPUs of a machine and the driver of their frequency would refuse, or quietly make another value of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Dict, List, Mapping, Optional

from ..._core.errors import DeclarationError
from ..._core.value import replace
from ..._linux import cpulist
from ..._linux.cpus import FOLDER
from ..._linux.kernel_modules import read_installed
from ..._machine.numbers import number_of
from .spec import CPUS, EPP, GOVERNOR, IDLE, IDLE_STATE, MAX, MIN, OFF, ON, PERFORMANCE, SMT, TURBO
from .state import FILES, FORCED_OFF, CpuPowerState, described, value_of

if TYPE_CHECKING:
    from ..._core.protocols import Files
    from ..._core.setting import Scalar
    from .state import Driver


def with_module(files: Files, driver: Driver, governor: str) -> Driver:
    """The driver with a governor that the kernel loads when it is asked for it, where it has such a module."""
    module = f"cpufreq_{governor}"
    if read_installed(files).dependencies(module) is None:
        return driver
    return replace(driver, governors=(*driver.governors, governor))


def refuse_impossible(state: CpuPowerState, texts: Mapping[str, str]) -> None:
    """Raise ``DeclarationError`` for the first of these that cannot be."""
    if texts.get(SMT) == ON and state.smt == FORCED_OFF:
        raise DeclarationError(
            "enable SMT on {}",
            object=CPUS,
            cause="the kernel command line has it off until the next boot (nosmt=force)",
            hint="remove nosmt=force and reboot, or declare smt: false",
        )
    _refuse_governor(state, texts)
    _refuse_preference(state, texts)
    _refuse_frequencies(state, texts)
    if any(setting.startswith(IDLE_STATE) for setting in texts):
        _refuse_polling(state, texts)


def _refuse_governor(state: CpuPowerState, texts: Mapping[str, str]) -> None:
    wanted = texts.get(GOVERNOR)
    if wanted is None or not state.driver.governors or wanted in state.driver.governors:
        return
    raise _impossible(
        GOVERNOR,
        cause=f"the driver {state.driver.name} has {', '.join(state.driver.governors)}",
        found=described(state.found[GOVERNOR]),
        wanted=wanted,
        hint="declare one of them",
    )


def _refuse_preference(state: CpuPowerState, texts: Mapping[str, str]) -> None:
    wanted = texts.get(EPP)
    if wanted is None:
        return
    found = described(state.found[EPP])
    if state.driver.preferences and not wanted.isdecimal() and wanted not in state.driver.preferences:
        raise _impossible(
            EPP,
            cause=f"the driver {state.driver.name} has {', '.join(state.driver.preferences)}",
            found=found,
            wanted=wanted,
            hint="declare one of them",
        )
    governors = {texts[GOVERNOR]} if GOVERNOR in texts else set(state.found.get(GOVERNOR, {}).values())
    if state.hands_over and PERFORMANCE in governors and wanted != PERFORMANCE:
        raise _impossible(
            EPP,
            cause=f"under the governor performance the driver {state.driver.name} takes no other than performance",
            found=found,
            wanted=wanted,
            hint="declare governor: powersave too, or leave the preference out",
        )


def _refuse_frequencies(state: CpuPowerState, texts: Mapping[str, str]) -> None:
    # What the CPUs can do with turbo is seen once it is on.
    comes = texts.get(TURBO) == ON and state.found.get(TURBO, {}).get(0) == OFF
    for setting in (MIN, MAX):
        wrong: Dict[str, List[int]] = {}
        for cpu, (low, high, base) in state.limits.items():
            value = value_of(texts[setting], cpu, (low, high, base)) if setting in texts else None
            top = base or high
            if value is None or (low <= int(value) and (comes or int(value) <= top)):
                continue
            off = " with turbo off" if base else ""
            wrong.setdefault(f"from {low} to {top} kHz{off}", []).append(cpu)
        for limits, cpus in wrong.items():
            raise _impossible(
                setting,
                cause=f"CPUs {cpulist.render(cpus)} run {limits}",
                found=described(state.found.get(setting, {})),
                wanted=texts[setting],
                hint="declare a frequency in this range, or lowest or highest",
            )
        if (
            setting in texts
            and texts[setting].isdecimal()
            and state.driver.steps
            and int(texts[setting]) not in state.driver.steps
        ):
            steps = ", ".join(map(str, sorted(state.driver.steps)))
            raise _impossible(
                setting,
                cause=f"the driver {state.driver.name} has {steps} kHz, and would take the nearest",
                found=described(state.found.get(setting, {})),
                wanted=texts[setting],
                hint="declare one of them",
            )
    for cpu in state.limits:
        lowest, highest = (_frequency(state, texts, setting, cpu) for setting in (MIN, MAX))
        if lowest is not None and highest is not None and lowest > highest:
            other = MAX if MIN in texts else MIN
            raise _impossible(
                MIN if MIN in texts else MAX,
                cause=f"{MIN} would be above {MAX}, {lowest} and {highest} kHz on CPU {cpu}",
                found=None,
                wanted=texts[MIN] if MIN in texts else texts[MAX],
                hint="correct one of them" if other in texts else f"declare {other} too",
            )


def _frequency(state: CpuPowerState, texts: Mapping[str, str], setting: str, cpu: int) -> Optional[int]:
    value = value_of(texts[setting], cpu, state.limits[cpu]) if setting in texts else None
    if value is None:
        value = state.found.get(setting, {}).get(cpu)
    return None if value is None else number_of(value, f"{FOLDER}/cpu{cpu}/{FILES[setting]}")


def _refuse_polling(state: CpuPowerState, texts: Mapping[str, str]) -> None:
    """A CPU that only polls is as hot as one that works, and keeps its neighbours from turbo."""
    latency = state.declaration.idle_latency
    for cpu, states in state.idle.items():
        left = [one for one in states if value_of(texts.get(one.setting, ON), cpu) != OFF]
        if not left and latency is not None:
            shallowest = min(states, key=lambda one: one.latency)
            raise _impossible(
                IDLE,
                cause=f"{shallowest.name}, the shallowest idle state, takes {shallowest.latency} us to leave, so that"
                " CPUs could only poll",
                found=None,
                wanted=latency,
                hint=f"declare at least {shallowest.latency}",
            )


def _impossible(setting: str, *, cause: str, found: Scalar, wanted: Scalar, hint: str) -> DeclarationError:
    return DeclarationError(f"set {setting}", object=CPUS, cause=cause, found=found, wanted=wanted, hint=hint)
