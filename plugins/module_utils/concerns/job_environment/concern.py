# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``job_environment``: variables for all jobs, where each kind of job gets them from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple

from ..._core.change import Conflict, Plan, Step, Unmanaged
from ..._core.errors import DeclarationError
from ..._core.registration import Registration
from ..._core.setting import Setting
from ..._core.value import field, frozen
from ..._kinds.own_files import Key
from ..._kinds.service_values import DEFAULT, ServicesState
from . import places
from .options import OPTIONS
from .places import Place
from .services import SERVICES_VALUES
from .spec import CONTAINERS, NAME, NCCL, SESSIONS, SLURM, JobDeclaration, all_values, parse

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Files, Host

# What a container mounts is there before the device that mounts it.
ORDER = (NCCL, SESSIONS, SLURM, CONTAINERS)
INTERFACES = "/sys/class/net"
RDMA = "/sys/class/infiniband"
# A link to the file with the release in its name.
LIBRARIES = tuple(
    f"/usr/{folder}/libnccl.so.2" for folder in ("lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64", "local/lib")
)


@frozen
class JobState:
    """What was seen. ``late`` is what daemons that run have in the place of what all services are to have.

    ``interfaces`` and ``devices`` are the network interfaces and RDMA devices, where their names are declared, ``nccl``
    is the library that the machine itself has.
    """

    places: Mapping[str, Place]
    services: ServicesState
    late: Mapping[Key, str] = field(default_factory=dict)
    conflicts: Tuple[Conflict, ...] = ()
    interfaces: Tuple[str, ...] = ()
    devices: Tuple[str, ...] = ()
    nccl: str = ""


@frozen
class JobDesired:
    """What is wanted by place, and of services; nothing of ours is to be in a place that is not there."""

    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    services: Mapping[Key, Optional[str]] = field(default_factory=dict)
    unmanaged: Tuple[Unmanaged, ...] = ()


class JobEnvironment:
    """``convergence.Concern`` for the environment of jobs."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = False
    registration = Registration(after=("container_runtime",))

    def parse(self, params: Mapping[str, Any]) -> JobDeclaration:
        declaration = parse(params)
        from . import names

        names.check(all_values(declaration))
        return declaration

    def knobs(self, declaration: JobDeclaration) -> Tuple[str, ...]:
        return tuple(f"variable {name} of {unit}" for unit, name in declaration.services if unit != DEFAULT)

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> JobDeclaration:
        # All that is ours is found by our lines and files.
        return JobDeclaration()

    def observe(self, host: Host, declaration: JobDeclaration, scope: Scope) -> JobState:
        files, values = host.files, declaration.values
        seen = {name: places.read(files, name, wanted=name in values) for name in ORDER}
        services = SERVICES_VALUES.observe(host, declaration.services)
        late: Mapping[Key, str] = {}
        conflicts: Tuple[Conflict, ...] = ()
        if services.others:
            late, conflicts = SERVICES_VALUES.launchers(files, services, declaration.services)
        if values:
            conflicts += _owners(files, declaration, seen)
        nccl = values.get(NCCL, {})
        return JobState(
            seen,
            services,
            late,
            conflicts,
            files.names(INTERFACES) if "NCCL_SOCKET_IFNAME" in nccl or "NCCL_OOB_NET_IFNAME" in nccl else (),
            files.names(RDMA) if "NCCL_IB_HCA" in nccl else (),
            next((path for path in map(files.resolve, LIBRARIES) if ".so.2." in path), "") if nccl else "",
        )

    def resolve(self, declaration: JobDeclaration, state: JobState) -> JobDesired:
        from . import names

        lacking = state.services.lacking
        for unit in lacking:
            if any(unit == one for one, _name in declaration.services) and unit not in declaration.optional:
                raise DeclarationError(
                    "set variables of {}",
                    object=unit,
                    cause="this machine has no such unit",
                    hint="leave it out, or set optional: true for it",
                )
        nccl = declaration.values.get(NCCL, {})
        names.refuse_interfaces(nccl, state.interfaces)
        unmanaged = [*names.remarks(all_values(declaration)), *names.lacking_devices(nccl, state.devices)]
        unmanaged += names.too_new(nccl, state.nccl)
        for name, place in state.places.items():
            if name in declaration.values and place.lacking:
                setting = "TaskProlog" if name == SLURM else places.FILE
                hint = "do that, leave the place out, or set strict: false"
                unmanaged.append(Unmanaged(name, setting, place.lacking, hint=hint))
        services = {key: value for key, value in declaration.services.items() if key[0] not in lacking}
        return JobDesired(declaration.values, services, tuple(unmanaged))

    def restore(self, baseline: Baseline, state: JobState) -> JobDesired:
        """Without our lines and files the others say again what they said."""
        return JobDesired()

    def plan(self, state: JobState, desired: JobDesired, scope: Scope) -> Plan:
        if not (scope.immediate or scope.permanent):
            return Plan()
        rows: List[Setting] = []
        steps: List[Step] = []
        conflicts = [] if scope.restoring else list(state.conflicts)
        mount = NCCL in desired.values
        for name in ORDER if CONTAINERS in desired.values else ORDER[::-1]:
            found, needed, others = places.plan(
                state.places[name], desired.values.get(name), mount=mount, restoring=scope.restoring
            )
            rows += found
            steps += needed
            conflicts += others
        of_services, needed, others = SERVICES_VALUES.plan(state.services, desired.services, scope)
        rows += [*of_services, *SERVICES_VALUES.launcher_rows(state.late, desired.services, scope)]
        return Plan(tuple(rows), (*steps, *needed), desired.unmanaged, (*conflicts, *others))

    def perform(self, step: Step, host: Host) -> None:
        from ..._kinds import steps

        steps.perform(step, host)

    def report(self, state: JobState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        found: Dict[str, Any] = {}
        for name in ORDER:
            place = state.places[name]
            ours = {} if place.lacking else place.ours
            found[name] = {key: line.value for key, line in place.winners.items() if key in ours}
        now: Dict[str, Dict[str, Optional[str]]] = {}
        later: Dict[str, Dict[str, Optional[str]]] = {}
        for unit, name in state.services.keys:
            target = state.services.targets[unit]
            now.setdefault(unit, {})[name] = target.effective.get(name)
            later.setdefault(unit, {})[name] = target.value(name)[0] or None
        for (unit, name), value in state.late.items():
            now.setdefault(unit, {})[name] = value or None
        return {**found, "services": now}, {**found, "services": later}


CONCERN = JobEnvironment()


def _owners(files: Files, declaration: JobDeclaration, seen: Mapping[str, Place]) -> Tuple[Conflict, ...]:
    from . import owners

    values = declaration.values
    found = list(owners.of_sessions(files, values[SESSIONS])) if SESSIONS in values else []
    if NCCL in values:
        environment = tuple(seen[SESSIONS].winners.values())
        ours = {name: value or "" for (_unit, name), value in declaration.services.items()}
        ours.update({name: value for place, of in values.items() if place != NCCL for name, value in of.items()})
        found += owners.of_nccl(files, values[NCCL], environment, ours)
    return tuple(found)
