# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``cpu_power``: the frequency, the idle states and the threads of CPUs, in effect and as declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Sequence, Set, Tuple

from ..._core.change import Conflict, Plan, Step, Unmanaged
from ..._core.declared import of_file
from ..._core.registration import Registration
from ..._core.setting import IN_SYNC, Setting
from ..._core.value import replace
from ..._linux import boot_service, boot_writers
from ..._linux.boot_service import BootCarrier
from ..._linux.cpus import read_online
from . import later
from .options import OPTIONS
from .spec import (
    CPUS,
    EPB,
    EPP,
    FREQUENCIES,
    GOVERNOR,
    IDLE,
    IDLE_STATE,
    MAX,
    NAME,
    OFF,
    ON,
    PERFORMANCE,
    POLICY_BOOST,
    SETTINGS,
    SKIP,
    SMT,
    TURBO,
    CpuPowerDeclaration,
    parse,
)
from .state import (
    ACTIVE,
    BOOSTS,
    FILES,
    MAX_PCT,
    MIN_PCT,
    NO_LIMIT,
    NO_SMT,
    PCT_FILES,
    CpuPowerDesired,
    CpuPowerState,
    Driver,
    Limits,
    Values,
    described,
    is_for_all,
    read_disabled,
    read_driver,
    read_idle,
    read_limits,
    read_smt,
    read_turbo,
    read_values,
    switch_of,
    value_of,
    wanted_idle,
    without_turbo,
)

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Files, Host
    from ..._kinds.tunables import BootAssignment

IDENTITY = "cpus"
NO_DRIVER = "no driver scales the frequency of these CPUs, as in most virtual machines, where the host does"
NO_IDLE = "no driver has idle states of these CPUs, as in most virtual machines, where the host has them"
NO_BIAS = "these CPUs have none, or this kernel does not show it"
NO_THREADS = "the cores of this machine have one thread each, or its firmware has the others off"
NOT_SWITCHED = "this kernel does not switch the threads of cores"
IDLE_NODE = "idle_node"
NO_SMT_ARGUMENT = "nosmt"
# The files by which the usual owners are there; what they set is read only where one of them is.
OWNERS = (
    "auto-cpufreq.service",
    "cpupower.service",
    "intel_lpmd.service",
    "ondemand.service",
    "power-profiles-daemon.service",
    "thermald.service",
    "tlp.service",
)
PLACES = ("/usr/lib/systemd/system", "/lib/systemd/system", "/etc/systemd/system")
OWNER_FILES = ("/etc/tuned/active_profile", "/etc/init.d/cpufrequtils")


class CpuPower:
    """``convergence.Concern`` for the power management of CPUs."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = True
    # Interrupts go to CPUs that are online, so the threads of cores come first.
    registration = Registration(after=("node_tools", "kernel_modules"), disturbs=("numa_irq_affinity",))

    def parse(self, params: Mapping[str, Any]) -> CpuPowerDeclaration:
        return parse(params)

    def knobs(self, declaration: CpuPowerDeclaration) -> Sequence[str]:
        """What of others is about the same: the argument by which a boot has second threads off."""
        return [f"kernel argument {NO_SMT_ARGUMENT}"] if SMT in declaration.values else []

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> CpuPowerDeclaration:
        values = {
            setting: str(value.effective)
            for (identity, setting), value in baseline.values.items()
            if identity == IDENTITY and value.effective is not None
        }
        return CpuPowerDeclaration(values, None, params["when_busy"], params["busy_timeout"])

    def observe(self, host: Host, declaration: CpuPowerDeclaration, scope: Scope) -> CpuPowerState:
        files, values = host.files, declaration.values
        online = sorted(read_online(files))
        asked = _asked(declaration)
        turbo = read_turbo(files)[0] if asked.intersection((TURBO, *FREQUENCIES)) else ""
        smt = read_smt(files) if SMT in asked else ""
        found: Dict[str, Values] = {
            SMT: switch_of(smt),
            TURBO: {0: turbo} if turbo and TURBO in asked else {},
            **{setting: read_values(files, setting, online) for setting in FILES if setting in asked},
        }
        if POLICY_BOOST in asked:
            boosts = found[POLICY_BOOST]
            lacking = without_turbo(files, boosts)
            found[POLICY_BOOST] = {cpu: value for cpu, value in boosts.items() if cpu not in lacking}
        idle = {}
        if declaration.idle_latency is not None or any(setting.startswith(IDLE_STATE) for setting in values):
            idle = read_idle(files, set(online))
            found.update(read_disabled(files, idle, None if declaration.idle_latency is not None else set(values)))
        for setting in asked.intersection(PCT_FILES):
            percent = files.read_optional(PCT_FILES[setting])
            found[setting] = {} if percent is None else {0: percent.strip()}
        limits: Dict[int, Limits] = {}
        for cpu in online if asked.intersection(FREQUENCIES) else ():
            of_cpu = read_limits(files, cpu, turbo=values.get(TURBO, turbo))
            if of_cpu is not None:
                limits[cpu] = of_cpu
        driver = read_driver(files, online[0], asked) if online else Driver()
        governor = values.get(GOVERNOR, "")
        unknown = governor and driver.governors and governor not in driver.governors
        if unknown and driver.name not in ACTIVE and not scope.restoring:
            from .refusals import with_module

            driver = with_module(files, driver, governor)
        goes = scope.immediate and values.get(SMT) == OFF and found[SMT].get(0, OFF) != OFF
        comes = scope.immediate and values.get(SMT, OFF) != OFF and found[SMT].get(0) == OFF
        return CpuPowerState(
            driver=driver,
            smt=smt,
            found={setting: of_cpus for setting, of_cpus in found.items() if of_cpus},
            limits=limits,
            idle=idle,
            carrier=boot_service.carrier(files, scope) if scope.permanent else BootCarrier(),
            later=later.observe(host) if scope.permanent else None,
            owners=() if scope.restoring else _owners(files),
            jobs=_jobs(files) if goes else (),
            declaration=declaration,
            kept_off=comes and not scope.permanent and (of_file(files, NAME) or {}).get(SMT) is False,
        )

    def resolve(self, declaration: CpuPowerDeclaration, state: CpuPowerState) -> CpuPowerDesired:
        texts: Dict[str, str] = {}
        unmanaged: List[Unmanaged] = []
        for setting in SETTINGS:
            wanted = declaration.values.get(setting)
            if wanted is not None and setting in state.found:
                texts[setting] = wanted
            elif wanted is not None and not (setting == SMT and wanted == OFF and state.smt in NO_SMT):
                unmanaged.append(Unmanaged(CPUS, setting, _lacking(setting, state)))
            elif setting == EPP and _implies_preference(texts, state):
                texts[EPP] = PERFORMANCE
        # What would keep a declared value from its effect.
        if texts.get(TURBO) == ON and POLICY_BOOST in state.found:
            texts[POLICY_BOOST] = BOOSTS
        if MAX in texts and MAX_PCT in state.found:
            texts[MAX_PCT] = NO_LIMIT
        if declaration.idle_latency is not None:
            if not state.idle:
                unmanaged.append(Unmanaged(CPUS, IDLE, NO_IDLE))
            texts.update(_idle_texts(declaration.idle_latency, state))
        if any(row.effective != row.wanted for row in _rows(state, texts)):
            from .refusals import refuse_impossible

            refuse_impossible(state, texts)
        comes_back = any(setting not in (SMT, TURBO) for setting in texts)
        return CpuPowerDesired(texts, tuple(unmanaged), later.unit_text() if comes_back else None)

    def restore(self, baseline: Baseline, state: CpuPowerState) -> CpuPowerDesired:
        from . import plan

        return plan.restore(state)

    def plan(self, state: CpuPowerState, desired: CpuPowerDesired, scope: Scope) -> Plan:
        rows = [
            replace(
                row,
                boot=row.wanted if state.carrier.applies else None,
                effective_matters=scope.immediate,
                boot_matters=scope.carries,
                pending=_pending(row, state),
                needs=IDLE_NODE,
            )
            for row in _rows(state, desired.texts)
        ]
        beside: Tuple[Setting, ...] = ()
        if state.later is not None:
            beside = later.settings(state.later, unit=desired.unit, immediate=scope.immediate)
        conflicts: Tuple[Conflict, ...] = ()
        if state.owners:
            from . import owners

            conflicts = owners.conflicts(state, desired.texts, permanent=scope.permanent)
        squeezed = () if scope.restoring else _squeezed(state, desired.texts)
        if all(row.status == IN_SYNC for row in (*rows, *beside)):
            return Plan((*rows, *squeezed, *beside), (), desired.unmanaged, conflicts)
        from .plan import complete

        planned = complete(state, desired, rows, squeezed, beside)
        return replace(planned, unmanaged=desired.unmanaged, conflicts=conflicts)

    def perform(self, step: Step, host: Host) -> None:
        from . import apply

        apply.perform(step, host)

    def report(self, state: CpuPowerState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        effective = {setting: described(values) for setting, values in state.found.items()}
        wanted = dict(state.declaration.values)
        if state.declaration.idle_latency is not None:
            wanted.update(_idle_texts(state.declaration.idle_latency, state))
        boot = {setting: wanted.get(setting) if state.carrier.applies else None for setting in effective}
        return {"driver": state.driver.name or None, "cpus": effective}, {"cpus": boot}


CONCERN = CpuPower()


def _asked(declaration: CpuPowerDeclaration) -> Set[str]:
    """The settings to look at: what a declared one is judged by, or changes, too."""
    values = declaration.values
    asked = set(values)
    if values.get(GOVERNOR) == PERFORMANCE:
        asked.add(EPP)
    if EPP in values:
        asked.add(GOVERNOR)
    if asked.intersection(FREQUENCIES) or values.get(TURBO) == OFF:
        asked.update(FREQUENCIES)
    if values.get(TURBO) == OFF:
        asked.add(MIN_PCT)
    if TURBO in values:
        asked.add(POLICY_BOOST)
    if MAX in values:
        asked.add(MAX_PCT)
    return asked


def _implies_preference(texts: Mapping[str, str], state: CpuPowerState) -> bool:
    """Whether the governor brings a preference with it: of those who hand it to the hardware, performance does."""
    return texts.get(GOVERNOR) == PERFORMANCE and state.hands_over and EPP in state.found


def _idle_texts(latency: int, state: CpuPowerState) -> Dict[str, str]:
    kinds = {id(states): states for states in state.idle.values()}
    if len(kinds) == 1:
        [states] = kinds.values()
        return {setting: value for setting, value in wanted_idle(states, latency).items() if setting in state.found}
    wanted: Dict[str, Dict[int, str]] = {}
    for cpu, states in state.idle.items():
        for setting, value in wanted_idle(states, latency).items():
            if cpu in state.found.get(setting, {}):
                wanted.setdefault(setting, {})[cpu] = value
    return {setting: described(values) or "" for setting, values in wanted.items()}


def _rows(state: CpuPowerState, texts: Mapping[str, str]) -> List[Setting]:
    """What is declared, as far as the CPUs that are online have it."""
    rows = []
    for setting, text in texts.items():
        found = state.found[setting]
        if is_for_all(text):
            rows.append(Setting(CPUS, setting, text, described(found), None, IDENTITY))
            continue
        values = {cpu: value_of(text, cpu, state.limits.get(cpu)) for cpu in found}
        wanted = {cpu: value for cpu, value in values.items() if value is not None}
        effective = described({cpu: found[cpu] for cpu in wanted})
        rows.append(Setting(CPUS, setting, described(wanted), effective, None, IDENTITY))
    return rows


def _pending(row: Setting, state: CpuPowerState) -> str:
    """Why threads go later: because a job is in their way."""
    waits = row.setting == SMT and bool(state.jobs) and state.declaration.when_busy == SKIP
    return f"{state.jobs[0]} is in the way" if waits else ""


def _squeezed(state: CpuPowerState, texts: Mapping[str, str]) -> Tuple[Setting, ...]:
    """What turbo takes along when it goes off, and nobody declared: it comes back with it."""
    if texts.get(TURBO) != OFF:
        return ()
    rows = []
    for setting in (*FREQUENCIES, MIN_PCT, POLICY_BOOST):
        if setting in state.found and setting not in texts:
            found = described(state.found[setting])
            row = Setting(CPUS, setting, found, found, None, IDENTITY, effective_matters=False, boot_matters=False)
            rows.append(row)
    return tuple(rows)


def _lacking(setting: str, state: CpuPowerState) -> str:
    if setting == SMT:
        return NO_THREADS if state.smt else NOT_SWITCHED
    if setting == EPB:
        return NO_BIAS
    return f"the driver {state.driver.name} has none" if state.driver.name else NO_DRIVER


def _owners(files: Files) -> Tuple[BootAssignment, ...]:
    usual = (f"{place}/{unit}" for place in PLACES for unit in OWNERS)
    is_there = any(map(files.exists, (*OWNER_FILES, *usual)))
    if not is_there and not any("/cpu" in one.target for one in boot_writers.read(files)):
        return ()
    from .owners import find, of_writers

    return (*(find(files) if is_there else ()), *of_writers(files))


def _jobs(files: Files) -> Tuple[str, ...]:
    from .busy import find

    return find(files)
