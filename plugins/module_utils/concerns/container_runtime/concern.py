# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``container_runtime``: container engines as their daemons have them, as their files will bring them at
the next start, and as declared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Tuple

from ..._core.change import Change, Plan, Step, Unmanaged
from ..._core.registration import Registration
from ..._core.setting import DRIFTED, Scalar, Setting
from .entries import CDI, TOOLKIT
from .model import ENGINES, NAME, NEEDS, RESTART, RUNTIME, Configuration, WantedEngine, by_text, shown
from .options import OPTIONS
from .spec import CURRENT, ContainerRuntimeDeclaration, changed_in, parse, refuse_running_only
from .state import (
    NOT_INSTALLED,
    SPECIFICATION,
    ContainerRuntimeState,
    Engine,
    containers_ended_by,
    inspect_entry,
    not_taken_up,
    required_action_of,
    runtime_of,
)

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.change import Blocker
    from ..._core.contract import Scope
    from ..._core.protocols import Host

UNTOLD = "no driver is loaded, or a specification cannot be read, so it is not known whether it is current"


class ContainerRuntime:
    """``convergence.Concern`` for container engines."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = False
    # The CDI specification names the GPUs and instances that are there now, and containers start on what is declared.
    registration = Registration(
        after=("kernel_modules", "nvidia_persistence", "mig_layout", "gpu_settings", "numa_irq_affinity"),
        tells=NEEDS,
    )

    def parse(self, params: Mapping[str, Any]) -> ContainerRuntimeDeclaration:
        return parse(params)

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> ContainerRuntimeDeclaration:
        refuse_running_only(params)
        return ContainerRuntimeDeclaration(changed=changed_in(baseline))

    def observe(self, host: Host, declaration: ContainerRuntimeDeclaration, scope: Scope) -> ContainerRuntimeState:
        if scope.restoring:
            from .plan import observe_changed

            return observe_changed(host, declaration.changed)
        engines: List[Engine] = []
        lacking: List[Unmanaged] = []
        for entry in declaration.entries:
            seen = inspect_entry(host, entry)
            if seen is None:
                lacking.extend(Unmanaged(entry.engine, name, NOT_INSTALLED) for name in _named(entry))
            else:
                engines.append(seen)
        conflicts = tuple(one for seen in engines if seen.leftover for one in seen.leftover.conflicts)
        if not declaration.refresh:
            return ContainerRuntimeState(tuple(engines), tuple(lacking), conflicts=conflicts)
        specification, refresh = _refresh(host, engines[-1].configuration)
        if not specification or not refresh:
            lacking.append(Unmanaged(CDI, SPECIFICATION, NOT_INSTALLED if specification else UNTOLD))
            specification = ""
        return ContainerRuntimeState(tuple(engines), tuple(lacking), specification, refresh, conflicts=conflicts)

    def resolve(self, declaration: ContainerRuntimeDeclaration, state: ContainerRuntimeState) -> None:
        """What is wanted is in the state already, engine by engine."""

    def restore(self, baseline: Baseline, state: ContainerRuntimeState) -> None:
        """Likewise."""

    def plan(self, state: ContainerRuntimeState, desired: None, scope: Scope) -> Plan:
        settings = tuple(
            row for seen in state.engines for row in rows_of(seen, immediate=scope.immediate, permanent=scope.permanent)
        )
        if state.specification:
            settings += (_specification(state, scope),)
        steps: Tuple[Step, ...] = ()
        blocker: Optional[Blocker] = None
        if scope.restoring or any(setting.status == DRIFTED for setting in settings):
            from .plan import find_blocker, plan_steps

            settings, steps = plan_steps(state, settings, scope)
            blocker = None if steps else find_blocker(state)
        return Plan(settings, steps, state.lacking, state.conflicts, blocker)

    def perform(self, step: Step, host: Host) -> Optional[Tuple[Change, ...]]:
        from . import apply

        return apply.perform(step, host)

    def report(self, state: ContainerRuntimeState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        effective: Dict[str, Any] = {"engines": {}}
        boot: Dict[str, Any] = {"engines": {}}
        for seen in state.engines:
            files = [document.path for document in seen.configuration.documents if document.text is not None]
            at_boot = {"files": files, "settings": by_text(seen.configuration.settings)}
            if seen.engine in ENGINES:
                effective["engines"][seen.engine] = _report(seen)
                boot["engines"][seen.engine] = at_boot
            else:
                effective[seen.engine] = boot[seen.engine] = at_boot
        return effective, boot


CONCERN = ContainerRuntime()


def _named(entry: WantedEngine) -> Tuple[str, ...]:
    """What an entry is about, where nobody can be asked what that means."""
    return tuple(entry.options) if entry.engine == TOOLKIT else (str(runtime_of(entry)),)


def rows_of(seen: Engine, *, immediate: bool, permanent: bool) -> Tuple[Setting, ...]:
    """The settings three ways."""
    behind, required_action = not_taken_up(seen), required_action_of(seen)
    pending = f"{seen.engine} needs a {required_action.action}: {required_action.why}" if required_action.action else ""
    rows = []
    for name, wanted in seen.wanted.items():
        boot = seen.configuration.settings.get(name)
        effective = behind.get(name, wanted)
        if seen.missing and name.kind == RUNTIME:
            boot, effective = _gone(boot, seen), _gone(effective, seen)
        rows.append(
            Setting(
                object=seen.engine,
                setting=str(name),
                wanted=shown(wanted),
                effective=shown(effective),
                boot=shown(boot),
                identity=seen.engine,
                effective_matters=immediate,
                boot_matters=permanent,
                pending=pending if name in behind else "",
                needs=f"{required_action.action}_{seen.engine}",
            )
        )
    return tuple(rows)


def _refresh(host: Host, configuration: Configuration) -> Tuple[str, Tuple[str, ...]]:
    """What is wrong with the CDI specification, empty where nobody can tell, and the command that makes it anew."""
    from .cdi import cdi

    return cdi.state_of(host.files, configuration.parsed), cdi.refresh_command(host, configuration.parsed)


def _specification(state: ContainerRuntimeState, scope: Scope) -> Setting:
    return Setting(
        object=CDI,
        setting=SPECIFICATION,
        wanted=CURRENT,
        effective=state.specification,
        boot=None,
        identity=CDI,
        effective_matters=scope.immediate,
        boot_matters=False,
    )


def _gone(value: Scalar, seen: Engine) -> Scalar:
    return None if value is None else f"{value}, {seen.missing}"


def _report(seen: Engine) -> Dict[str, Any]:
    installation, running, required_action = seen.configuration.installation, seen.running, required_action_of(seen)
    settings = seen.configuration.settings if running is None else running.settings
    return {
        "flavour": installation.flavour or None,
        "version": (running.version if running else "") or ".".join(str(part) for part in installation.version) or None,
        "running": running is not None,
        "containers": running.containers if running else None,
        "settings": by_text(settings),
        "takes": required_action.action or None,
        "why": required_action.why or None,
        "stops_containers": containers_ended_by(seen) if required_action.action == RESTART else 0,
    }
