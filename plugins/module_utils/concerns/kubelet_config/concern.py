# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``kubelet_config``: how a kubelet allocates CPUs and memory, what it reserves, and when it evicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Tuple

from ..._core.change import Unmanaged
from ..._core.errors import DeclarationError
from ..._core.registration import Registration
from ..._core.setting import IN_SYNC
from . import places
from .checkpoints import value
from .ignored import ignored
from .observation import observe
from .options import OPTIONS
from .plan import plan, rows_of
from .schema import FIELDS, shown
from .spec import NAME, KubeletDeclaration, parse, patience
from .state import KUBELET, KubeletDesired, KubeletState

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.change import Plan, Step
    from ..._core.contract import Scope
    from ..._core.protocols import Host


class KubeletConfig:
    """``convergence.Concern`` for a kubelet."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = False
    # It counts CPUs, memory, huge pages and swap once, when it starts.
    registration = Registration(
        after=("cpu_isolation", "cpu_power", "hugepages", "kernel_cmdline", "kernel_modules", "node_swap"),
        deadline=20.0,
        owns=("unit kubelet.service",),
    )

    def parse(self, params: Mapping[str, Any]) -> KubeletDeclaration:
        return parse(params)

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> KubeletDeclaration:
        identity = params["client_certificate"] or "", params["client_key"] or ""
        return KubeletDeclaration({}, identity, **patience(params))

    def observe(self, host: Host, declaration: KubeletDeclaration, scope: Scope) -> KubeletState:
        return observe(host, declaration, scope)

    def resolve(self, declaration: KubeletDeclaration, state: KubeletState) -> KubeletDesired:
        place, values = state.place, declaration.values
        if not place.there:
            reason = "no kubelet is installed"
            if state.unit:
                reason = f"{place.path} is not there, as on a node that has not joined a cluster"
            if values and not declaration.optional:
                raise DeclarationError("configure the kubelet", cause=reason, hint="set optional: true for such nodes")
            return KubeletDesired(
                unmanaged=(Unmanaged(KUBELET, "configuration", reason, excused=True),) if values else ()
            )
        ours = places.complete(place, values)
        unasked = (
            (Unmanaged(KUBELET, "/configz", state.computed, excused=not declaration.identity[0]),)
            if values and state.computed
            else ()
        )
        # A later file of others that says something else is refused by the plan: what is wanted is ours.
        wanted = {**place.values(ours), **{key: _merged(state, key, one) for key, one in ours.items()}}
        desired = KubeletDesired(ours=ours, values=wanted, unmanaged=(*unasked, *ignored(values, wanted)))
        if values:
            self._check(declaration, state, desired)
        return desired

    def _check(self, declaration: KubeletDeclaration, state: KubeletState, desired: KubeletDesired) -> None:
        """Refuse what this kubelet would not start with, where something is to change."""
        from ..._core.contract import Scope

        rows, _misfits = rows_of(state, desired, Scope())
        if any(row.status != IN_SYNC for row in rows):
            from .check import check

            check(state, declaration.values, desired.values)

    def restore(self, baseline: Baseline, state: KubeletState) -> KubeletDesired:
        """Without our part the others say again what they said."""
        return KubeletDesired(values=state.place.others() if state.place.there else {})

    def plan(self, state: KubeletState, desired: KubeletDesired, scope: Scope) -> Plan:
        return plan(state, desired, scope)

    def perform(self, step: Step, host: Host) -> None:
        from . import apply

        apply.perform(step, host)

    def report(self, state: KubeletState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        if not state.place.there:
            return {"service": state.service, "fields": None}, {"file": None, "fields": None}
        found = state.found
        keys = sorted({*found, *(state.values or {})})
        now = None if state.values is None else {key: shown(key, value(state.values, key)) for key in keys}
        return (
            {"service": state.service, "asked": not state.computed and state.values is not None, "fields": now},
            {"file": state.place.path, "fields": {key: shown(key, found[key]) for key in FIELDS if key in found}},
        )


CONCERN = KubeletConfig()


def _merged(state: KubeletState, key: str, ours: Any) -> Any:
    """A map of ours with what others have in theirs."""
    return {**state.place.others().get(key, {}), **ours} if isinstance(ours, dict) else ours
