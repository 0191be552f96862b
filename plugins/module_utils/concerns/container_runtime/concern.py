# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``container_runtime``: container engines as their daemons have them, as their files will bring them at
the next start, and as declared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Tuple

from ..._core.change import Blocker, Change, Plan, Step
from ..._core.registration import Registration
from ..._core.setting import DRIFTED, Setting
from .entries import CDI
from .model import ENGINES, NAME, NEEDS, RESTART, RUNTIME, by_text, shown
from .options import OPTIONS
from .resolve import (
    SPECIFICATION,
    ContainerRuntimeDesired,
    EngineDesired,
    containers_ended_by,
    not_taken_up,
    required_action_of,
    resolve,
)
from .spec import CURRENT, ContainerRuntimeDeclaration, changed_in, parse, refuse_running_only
from .state import ContainerRuntimeState, Engine, observe

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Host


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
            from .restore import observe_changed

            return observe_changed(host, declaration)
        return observe(host, declaration)

    def resolve(
        self, declaration: ContainerRuntimeDeclaration, state: ContainerRuntimeState
    ) -> ContainerRuntimeDesired:
        return resolve(declaration, state)

    def restore(self, baseline: Baseline, state: ContainerRuntimeState) -> ContainerRuntimeDesired:
        from .restore import restore

        return restore(changed_in(baseline), state)

    def plan(self, state: ContainerRuntimeState, desired: ContainerRuntimeDesired, scope: Scope) -> Plan:
        settings = tuple(row for seen in state.engines for row in rows_of(seen, desired.engines[seen.engine], scope))
        if desired.refresh:
            settings += (_specification(state, scope),)
        if state.damaged is not None:
            raise state.damaged.with_drift(settings)
        steps: Tuple[Step, ...] = ()
        blocker: Optional[Blocker] = None
        if scope.restoring or any(setting.status == DRIFTED for setting in settings):
            from .plan import find_blocker, plan_steps

            settings, steps = plan_steps(state, desired, settings, scope)
            blocker = None if steps else find_blocker(desired)
        for seen in state.engines if scope.permanent else ():
            if seen.configuration.refused is not None:
                settings += (_next_start(seen),)
                blocker = blocker or (None if steps else Blocker(seen.configuration.refused))
        conflicts = tuple(one for seen in state.engines if seen.leftover for one in seen.leftover.conflicts)
        read = tuple(
            document.path
            for seen in state.engines
            for document in seen.configuration.documents
            if document.text is not None
        )
        return Plan(settings, steps, desired.unmanaged, conflicts, blocker, read)

    def perform(self, step: Step, host: Host) -> Optional[Tuple[Change, ...]]:
        from . import apply

        return apply.perform(step, host)

    def report(self, state: ContainerRuntimeState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        effective: Dict[str, Any] = {"engines": {}}
        boot: Dict[str, Any] = {"engines": {}}
        desired = self._desired(state)
        for seen in state.engines:
            files = [document.path for document in seen.configuration.documents if document.text is not None]
            at_boot = {"files": files, "settings": by_text(seen.configuration.settings)}
            if seen.engine in ENGINES:
                effective["engines"][seen.engine] = _report(seen, desired.engines[seen.engine])
                boot["engines"][seen.engine] = at_boot
            else:
                effective[seen.engine] = boot[seen.engine] = at_boot
        return effective, boot

    def _desired(self, state: ContainerRuntimeState) -> ContainerRuntimeDesired:
        """What was wanted: a report says what a daemon needs for that."""
        if state.declaration.changed:
            from .restore import restore

            return restore(state.declaration.changed, state)
        return resolve(state.declaration, state)


CONCERN = ContainerRuntime()


def rows_of(seen: Engine, want: EngineDesired, scope: Scope) -> Tuple[Setting, ...]:
    """The settings three ways."""
    behind, required_action = not_taken_up(seen, want), required_action_of(seen, want)
    pending = f"{seen.engine} needs a {required_action.action}: {required_action.why}" if required_action.action else ""
    rows = []
    for name, wanted in want.wanted.items():
        boot = seen.configuration.settings.get(name)
        effective = behind.get(name, wanted)
        if want.missing and name.kind == RUNTIME:
            boot, effective = (None if value is None else f"{value}, {want.missing}" for value in (boot, effective))
        rows.append(
            Setting(
                object=seen.engine,
                setting=str(name),
                wanted=shown(wanted),
                effective=shown(effective),
                boot=shown(boot),
                identity=seen.engine,
                effective_matters=scope.immediate,
                boot_matters=scope.permanent,
                pending=pending if name in behind else "",
                needs=f"{required_action.action}_{seen.engine}",
            )
        )
    return tuple(rows)


def _next_start(seen: Engine) -> Setting:
    """The row of a daemon that does not start again with its files."""
    return Setting(seen.engine, "next start", "possible", None, "refused", seen.engine, effective_matters=False)


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


def _report(seen: Engine, want: EngineDesired) -> Dict[str, Any]:
    installation, running = seen.configuration.installation, seen.running
    required_action = required_action_of(seen, want)
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
