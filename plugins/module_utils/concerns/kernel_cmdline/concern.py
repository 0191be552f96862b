# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``kernel_cmdline``: arguments of the kernel, through the boot loader that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Tuple

from ..._core.change import Plan, Step, Unmanaged
from ..._core.registration import Registration
from ..._kinds.boot_arguments import COMMAND_LINE
from .options import OPTIONS
from .plan import KernelCmdlineDesired, inherited, make_plan, reported
from .spec import KernelCmdlineDeclaration, parse
from .state import NAME, KernelCmdlineState, read_state

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Host


class KernelCmdline:
    """``convergence.Concern`` for arguments of the kernel."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = False
    # What has to have an IOMMU is waited for until this has brought it.
    registration = Registration(cures=("no_iommu",))

    def parse(self, params: Mapping[str, Any]) -> KernelCmdlineDeclaration:
        return parse(params)

    def knobs(self, declaration: KernelCmdlineDeclaration) -> Tuple[str, ...]:
        """Every argument that is declared; one that gives a sysctl its value sets that one too."""
        names = tuple(declaration.arguments)
        sysctls = (f"sysctl {name[len('sysctl.') :]}" for name in names if name.startswith("sysctl."))
        return (*(f"kernel argument {name}" for name in names), *sysctls)

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> KernelCmdlineDeclaration:
        return KernelCmdlineDeclaration(names=tuple(name for _identity, name in baseline.values))

    def observe(self, host: Host, declaration: KernelCmdlineDeclaration, scope: Scope) -> KernelCmdlineState:
        return read_state(host, declaration)

    def resolve(self, declaration: KernelCmdlineDeclaration, state: KernelCmdlineState) -> KernelCmdlineDesired:
        if state.topology is not None:
            from .cpus import check_lists

            threads = declaration.arguments.get("nosmt") is None
            lists = declaration.lists
            check_lists(lists, state.topology, threads=threads, most_isolated=declaration.most_isolated)
        arguments = dict(declaration.arguments)
        unmanaged: Tuple[Unmanaged, ...] = ()
        if arguments.get("nohz_full") is not None and state.verdicts["nohz_full"] is None:
            unmanaged = (Unmanaged(COMMAND_LINE, "nohz_full", "this kernel was built without CONFIG_NO_HZ_FULL"),)
            del arguments["nohz_full"]
        words = {name: declaration.word(name) for name, value in arguments.items() if value is not None}
        return KernelCmdlineDesired(arguments, words, unmanaged)

    def restore(self, baseline: Baseline, state: KernelCmdlineState) -> KernelCmdlineDesired:
        for (identity, name), values in baseline.values.items():
            for value in (values.effective, values.boot):
                if identity == COMMAND_LINE and isinstance(value, int):
                    raise ValueError(f"{name} has {value!r}, which is not the value of an argument")
        return KernelCmdlineDesired()

    def plan(self, state: KernelCmdlineState, desired: KernelCmdlineDesired, scope: Scope) -> Plan:
        return make_plan(state, desired, scope)

    def perform(self, step: Step, host: Host) -> None:
        from ..._kinds import steps

        steps.perform(step, host)

    def report(self, state: KernelCmdlineState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        effective: Dict[str, Any] = {"arguments": reported(state.running, state.names), **state.verdicts}
        if "isolcpus" in effective:
            effective["isolated"] = effective.pop("isolcpus")
        boot: Dict[str, Any] = {
            "arguments": reported(state.loader.command_line, state.names),
            "ours": list(state.loader.ours),
            "boot_loader": state.loader.name,
        }
        if state.kdump is not None:
            boot["crash_kernel"] = {
                "path": state.kdump.path,
                "command_line": state.kdump.own or None,
                "appended": state.kdump.appended or None,
                "inherited": list(inherited(state)),
            }
        return effective, boot


CONCERN = KernelCmdline()
