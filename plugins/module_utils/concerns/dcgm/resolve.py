# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wanted of DCGM on this machine, by what is installed on it."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Dict, List, Mapping, Optional, Tuple

from ..._core.change import Unmanaged
from ..._core.errors import DeclarationError, OwnedByAnother
from ..._kinds.own_files import header_of
from ..._kinds.units import RUNNING, SERVICE, STOPPED
from ..._linux import systemd
from . import command_line
from .metrics import COUNTED, LABEL, Metric, of_alerts, render
from .observation import DCGMI, HEALTH
from .spec import NAME, DcgmDeclaration
from .state import METRIC, SETTLED_SECONDS, DcgmDesired, DcgmState, Service, worded

NO_ENGINE = "this machine has no host engine of DCGM"
NO_EXPORTER = "this machine has no dcgm-exporter"
NO_VALUE = "the exporter shows no value for it: the GPUs of this machine or their driver do not support it"
INSTALL = "install datacenter-gpu-manager-4-core (datacenter-gpu-manager for generation 3), or set optional: true"
INSTALL_EXPORTER = "install datacenter-gpu-manager-exporter, or set optional: true"


def resolve(declaration: DcgmDeclaration, state: DcgmState) -> DcgmDesired:
    unmanaged: List[Unmanaged] = []
    starts: Dict[str, str] = {}
    services: Dict[str, str] = {}
    engine, exporter = declaration.engine, declaration.exporter
    lacking: Dict[str, str] = {}
    if engine is not None and not state.engine.there:
        if engine and declaration.packages:
            lacking[state.engine.name] = NO_ENGINE
        elif engine:
            unmanaged.append(_lacking(state.engine.name, NO_ENGINE, INSTALL, declaration))
        engine = None
    if exporter is not None and not (state.exporter.shipped or state.exporter.program):
        if exporter and declaration.packages:
            lacking[state.exporter.service.name] = NO_EXPORTER
        elif exporter:
            unmanaged.append(_lacking(state.exporter.service.name, NO_EXPORTER, INSTALL_EXPORTER, declaration))
        exporter = None
    if engine is not None:
        _decide(state.engine, engine, starts, services)
        if engine and state.twin is not None and state.twin.status == systemd.ENABLED:
            # Each of them stops the other when it starts.
            starts[state.twin.name] = state.twin.off
    health = None
    if engine and declaration.watches:
        health = command_line.health_text(state.engine.name, DCGMI, declaration.watches)
        starts[HEALTH] = systemd.ENABLED
    elif state.health.text is not None:
        starts[HEALTH] = systemd.DISABLED
    if exporter is not None:
        _decide(state.exporter.service, exporter, starts, services)
    metrics = _metrics(declaration, state) if exporter and declaration.writes else {}
    unit, drop_in = _files(declaration, state, writes=bool(metrics), engine=bool(engine)) if exporter else (None, None)
    if exporter is None and not state.exporter.shipped and state.exporter.unit.text is not None:
        starts[state.exporter.service.name] = systemd.DISABLED
    unmanaged += _without_value(metrics, state)
    return DcgmDesired(
        starts=starts,
        services=services,
        metrics=metrics,
        counters=render(header_of(NAME), metrics.values()) if metrics else None,
        unit=unit,
        drop_in=drop_in,
        health=health,
        watches=worded(declaration.watches) if health is not None else None,
        lacking=lacking,
        packages=state.packages,
        unmanaged=tuple(unmanaged),
    )


def _lacking(unit: str, reason: str, hint: str, declaration: DcgmDeclaration) -> Unmanaged:
    if not declaration.optional:
        raise DeclarationError("run {}", object=unit, cause=reason, hint=hint)
    return Unmanaged(unit, SERVICE, reason, excused=True)


def _decide(service: Service, wanted: bool, starts: Dict[str, str], services: Dict[str, str]) -> None:
    if wanted and service.status == systemd.MASKED:
        raise OwnedByAnother(
            "run {}",
            object=service.name,
            cause="it is masked",
            hint=f"run systemctl unmask {service.name}, or leave it out of the declaration",
        )
    # What is masked does not start either.
    off = systemd.MASKED if service.status == systemd.MASKED else service.off
    starts[service.name] = systemd.ENABLED if wanted else off
    services[service.name] = RUNNING if wanted else STOPPED


def _metrics(declaration: DcgmDeclaration, state: DcgmState) -> Mapping[str, Metric]:
    """What the exporter is to show: of the file that is there, of the alerts, and what is declared; the last counts."""
    generation, minor = state.release
    found: Dict[str, Metric] = dict(state.theirs) if declaration.shipped else {}
    if declaration.for_alerts:
        alerts = of_alerts(generation or 4)
        # The types of the file that is there stay.
        found = {**alerts, **found}
    found = {name: one for name, one in found.items() if not any(fnmatchcase(name, p) for p in declaration.exclude)}
    for metric in declaration.metrics:
        _refuse_other_generations(metric, generation, minor)
        found[metric.name] = metric
    if not found:
        raise DeclarationError(
            "export metrics",
            object=state.exporter.service.name,
            cause="no metric is left",
            hint="list some in metrics, or exclude fewer in exclude_metrics",
        )
    return found


def _refuse_other_generations(metric: Metric, generation: int, minor: int) -> None:
    if not generation:
        return
    from . import names

    def there(name: str) -> bool:
        having = names.generations(name)
        return generation == 4 and minor >= 6 if having == "4.6" else str(generation) in having

    having = names.generations(metric.name)
    if not there(metric.name):
        from ..._core.nearest import did_you_mean

        release = f"{generation}.{minor}"
        known = filter(there, names.all_names())
        words = {"3": "only generation 3 has it", "4": "only generation 4 has it", "4.6": "it is new in release 4.6"}
        raise DeclarationError(
            "export {}",
            object=metric.name,
            cause=f"DCGM {release} on this machine does not have this field ({words[having]})",
            hint=did_you_mean(metric.name, known, otherwise="leave it out of metrics"),
        )


def _files(
    declaration: DcgmDeclaration, state: DcgmState, *, writes: bool, engine: bool
) -> Tuple[Optional[str], Optional[str]]:
    """Our unit of the exporter, and our drop-in of a unit of others: at most one of the two."""
    exporter = state.exporter
    # Two host engines would hold the GPUs.
    with_engine = engine or (declaration.engine is None and state.engine.status == systemd.ENABLED)
    remote = state.engine_address if with_engine and not exporter.remote else ""
    if exporter.shipped and not writes and not remote:
        return None, None
    if exporter.shipped and not command_line.is_exporter(exporter.line):
        raise OwnedByAnother(
            "choose the metrics of {}",
            object=exporter.service.name,
            cause="it does not start dcgm-exporter itself, so its options cannot be set in a drop-in",
            found=exporter.line,
            hint="set alert_metrics: false and no other metrics, or install the unit of NVIDIA's package",
        )
    if writes and exporter.clashes:
        raise OwnedByAnother(
            "choose the metrics of {}",
            object=exporter.service.name,
            cause="a variable in its command line has --collectors, and the exporter ends where it gets -f too",
            found=exporter.line,
            hint="take it out of the variable, or set alert_metrics: false and no other metrics",
        )
    line = command_line.with_ours(exporter.line, remote, writes=writes)
    name = state.engine.name if with_engine else ""
    if exporter.shipped:
        return None, command_line.drop_in_text(line, name)
    return command_line.unit_text(line, name), None


def _without_value(metrics: Mapping[str, Metric], state: DcgmState) -> List[Unmanaged]:
    """The metrics of which an exporter that has read its file and had the time for it shows nothing."""
    exporter = state.exporter
    if not exporter.read or exporter.served is None or exporter.age < SETTLED_SECONDS:
        return []
    missing = [one for name, one in sorted(metrics.items()) if name not in exporter.served]
    return [
        Unmanaged(one.name, METRIC, NO_VALUE, excused=not one.declared)
        for one in missing
        if one.type != LABEL and not one.name.startswith(COUNTED)
    ]
