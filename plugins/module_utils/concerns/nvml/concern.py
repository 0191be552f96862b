# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``nvml``: the Python binding of NVML, as it is and as declared. One file is both now and after a boot."""

from __future__ import annotations

import site
import sys
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Tuple

from ..._core.change import Plan, Step
from ..._core.contract import brings
from ..._core.exposure import BINDING_FOLDER, exposed
from ..._core.registration import Registration
from ..._core.setting import IN_SYNC, Setting
from . import recognise
from .options import OPTIONS
from .spec import CONTROLLER, FOLDER, NAME, PACKAGE, BindingDeclaration, parse
from .state import BindingDesired, BindingState, ours

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Files, Host

OBJECT = "nvidia-ml-py"


class NvmlBinding:
    """``convergence.Concern`` for the binding. ``sent`` is the path of the file that was sent along."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = False
    registration = Registration(
        serves=("nvidia_persistence", "fabric_manager", "gpu_slices", "mig_layout", "gpu_settings"),
        cures=("no_binding",),
    )

    def __init__(self, sent: Optional[str] = None) -> None:
        self._sent = sent

    def parse(self, params: Mapping[str, Any]) -> BindingDeclaration:
        return parse(params)

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> BindingDeclaration:
        return BindingDeclaration()

    def observe(self, host: Host, declaration: BindingDeclaration, scope: Scope) -> BindingState:
        files = host.files
        fault = exposed(files, BINDING_FOLDER)
        if declaration.source == FOLDER:
            found = recognise.guarded(files, recognise.search(files, [declaration.folder]))
            return BindingState(ours(files), found, folder_fault=fault)
        if declaration.source == PACKAGE:
            found = recognise.guarded(files, recognise.search(files, _search_path()))
            release = (files.read_optional("/etc/os-release") or "") if found is None else ""
            return BindingState(ours(files), found, release)
        return BindingState(ours(files), folder_fault=fault)

    def resolve(self, declaration: BindingDeclaration, state: BindingState) -> BindingDesired:
        if declaration.source == CONTROLLER:
            wanted = f"{declaration.version or 'unknown version'} (sha256 {declaration.sha256[:12]})"
            return BindingDesired(wanted, declaration.sha256)
        from . import plan

        plan.refuse_unfit(declaration, state)
        if declaration.source == PACKAGE:
            return BindingDesired(f"from the package {declaration.package}")
        text = plan.loader_text(declaration.folder)
        return BindingDesired(f"from {declaration.folder}", recognise.digest(text), text)

    def restore(self, baseline: Baseline, state: BindingState) -> BindingDesired:
        return BindingDesired()

    def plan(self, state: BindingState, desired: BindingDesired, scope: Scope) -> Plan:
        if not (scope.immediate or scope.permanent):
            return Plan()
        effective = _effective(state, desired)
        setting = Setting(OBJECT, "binding", desired.wanted, effective, effective, OBJECT, boot_matters=False)
        steps: Tuple[Step, ...] = ()
        if setting.status != IN_SYNC:
            from .plan import steps_of

            steps = steps_of(state, desired, setting, sent=self._sent)
        return Plan(settings=(setting,), steps=steps)

    def perform(self, step: Step, host: Host) -> None:
        from . import apply

        apply.perform(step, host)

    def report(self, state: BindingState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        found = state.ours or state.elsewhere
        if found is None:
            return {}, {}
        binding = {"path": found.path, "sha256": found.sha256 or None, "version": found.version or None}
        return binding, binding


CONCERN = NvmlBinding()


def lacks_file(files: Files, params: Mapping[str, Any]) -> bool:
    """Whether a run with these parameters would have to write the file of the controller."""
    if not brings(params) or params["source"] != CONTROLLER:
        return False
    found = ours(files)
    return found is None or found.sha256 != params["pynvml_sha256"] or bool(found.fault)


def _search_path() -> Tuple[str, ...]:
    # The command on the node runs isolated, so what lies in somebody's home is not there for it.
    return tuple(
        folder for folder in sys.path if folder.startswith("/") and folder not in (BINDING_FOLDER, site.USER_SITE)
    )


def _effective(state: BindingState, desired: BindingDesired) -> Optional[str]:
    if state.ours is None:
        return desired.wanted if state.elsewhere is not None and desired.sha256 is None else None
    if state.ours.sha256 == desired.sha256 and not state.ours.fault:
        return desired.wanted
    effective = f"sha256 {state.ours.sha256[:12]}"
    return f"{effective}: {state.ours.fault}" if state.ours.fault else effective
