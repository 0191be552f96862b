# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``fabric_manager``: the Fabric Manager or IMEX, where the hardware needs it, in the driver's version."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Tuple

from ..._core.change import Plan, Step, Unmanaged
from ..._core.declared import WANTED
from ..._core.errors import DeclarationError
from ..._core.registration import DRIVER_DEADLINE, Registration
from ..._core.setting import IN_SYNC
from ..._core.value import replace
from ..._kinds import versionlock
from ..._kinds.units import RUNNING, STOPPED
from ..._linux import systemd
from ..._nvidia import readings
from . import daemons, hardware, holds, imex, notes
from .daemons import CONFIG, FABRIC_MANAGER, IMEX, Daemon
from .driver import read
from .key_values import contradictions, values_of
from .options import OPTIONS
from .rows import HOLD, NODES, rows_of
from .spec import FABRIC_DEFAULTS, IMEX_DEFAULTS, NAME, FabricDeclaration, parse
from .state import FabricDesired, FabricState, WantedDaemon

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Host
    from .notes import Notes

# Where the driver container of the GPU Operator has the root of its file system.
OPERATOR = "/run/nvidia/driver"


class FabricManager:
    """``convergence.Concern`` for the Fabric Manager and IMEX."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = False
    registration = Registration(
        after=("kernel_modules", "nvml", "nvidia_persistence"),
        tells=(FABRIC_MANAGER.needs, IMEX.needs),
        deadline=DRIVER_DEADLINE,
        owns=(f"unit {FABRIC_MANAGER.unit}", f"unit {IMEX.unit}"),
    )

    def parse(self, params: Mapping[str, Any]) -> FabricDeclaration:
        return parse(params)

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> FabricDeclaration:
        return FabricDeclaration(hold=any(setting == HOLD for _name, setting in baseline.values))

    def observe(self, host: Host, declaration: FabricDeclaration, scope: Scope) -> FabricState:
        files = host.files
        known = notes.read(files)
        restoring = scope.restoring
        machine = hardware.Hardware() if restoring else hardware.read(host, known.bridges)
        if machine.needs_fabric_manager:
            host.nvml.begin()
        unit_files = systemd.unit_files(files)
        wants_imex = machine.needs_imex and bool(declaration.nodes or declaration.imex_config)
        found: List[Daemon] = []
        for program, needed in ((FABRIC_MANAGER, machine.needs_fabric_manager), (IMEX, wants_imex)):
            status = unit_files.status(program.unit)
            daemon = daemons.observe(host, program, status, known, needed=needed or restoring, asked=needed)
            if program is IMEX and daemon.files:
                nodes = imex.nodes_file(files, daemon, known)
                daemon = replace(daemon, files={**daemon.files, NODES: nodes})
            found.append(daemon)
        state = FabricState(machine, known, known, tuple(found), daemons.driver_versions(files))
        if machine.needs_fabric_manager or wants_imex:
            state = replace(state, operator=OPERATOR if files.is_folder(f"{OPERATOR}/usr/bin") else "")
        if machine.ports and machine.needs_fabric_manager and found[0].process is None and not found[0].outside:
            state = replace(state, lacking=hardware.lacking(host))
        if declaration.hold and (restoring or machine.needs_fabric_manager or wants_imex):
            programs = [FABRIC_MANAGER] if restoring or machine.needs_fabric_manager else []
            programs += [IMEX] if restoring or wants_imex else []
            versions = {state.driver.loaded, state.driver.installed, *(one.version for one in found)} - {""}
            state = replace(state, holds=holds.observe(host, programs, tuple(versions), known, restoring=restoring))
        if machine.needs_fabric_manager and scope.immediate:
            gpus, _unserved, _missing = readings.ask(host, read, entries=(), restoring=False)
            state = replace(state, gpus=gpus)
        if wants_imex:
            state = replace(
                state,
                addresses=tuple(sorted(imex.own_addresses(files))),
                domain=imex.read_domain(host, found[1]) if scope.immediate else imex.Domain(),
                channel=imex.read_channel(files) if declaration.channel else (None, None),
            )
        if _starts_or_stops(state, (machine.needs_fabric_manager, wants_imex), restoring):
            state = replace(state, clients=daemons.clients(files))
        return replace(state, known=_known(host, state))

    def resolve(self, declaration: FabricDeclaration, state: FabricState) -> FabricDesired:
        machine = state.hardware
        fabric, imex_daemon = state.daemons
        managed = machine.needs_imex and bool(declaration.nodes or declaration.imex_config)
        if declaration.required and not (machine.needs_fabric_manager or machine.needs_imex):
            raise DeclarationError(
                "run the Fabric Manager",
                cause=f"this machine has {machine.words}, and the daemon exits at once without one",
                hint="set service: if_needed, which leaves it out on such a node",
            )
        if managed and declaration.nodes and not set(declaration.nodes).intersection(state.addresses):
            raise DeclarationError(
                "use {}",
                object="imex_nodes",
                cause="none of these addresses belongs to this node",
                found=", ".join(state.addresses),
                hint="add the management address of this node, at the same place on all nodes of the domain",
            )
        unmanaged: List[Unmanaged] = []
        if not (machine.needs_fabric_manager or machine.needs_imex):
            unmanaged.append(Unmanaged("NVSwitch", "Fabric Manager", f"this machine has {machine.words}", excused=True))
        elif machine.needs_imex and not managed:
            unmanaged.append(Unmanaged(IMEX.unit, NODES, "imex_nodes is not declared", excused=True))
        if managed and state.domain.unknown and imex_daemon.process is not None:
            unmanaged.append(Unmanaged("IMEX domain", "state", state.domain.unknown, excused=True))
        if declaration.hold and (machine.needs_fabric_manager or managed) and not state.holds.manager:
            reason = "neither apt-mark nor the versionlock plugin of dnf is installed"
            unmanaged.append(Unmanaged("packages", HOLD, reason, hint="install one, or set hold: false"))
        kept = state.holds.packages
        if declaration.hold and state.holds.manager == holds.DNF5:
            for name in sorted(name for name, package in kept.items() if not package.held):
                reason = f"{versionlock.TOML} of dnf 5 does not lock it, and is not written by this module"
                hint = f"run dnf versionlock add {name}, or set hold: false"
                unmanaged.append(Unmanaged(name, HOLD, reason, hint=hint))
            kept = {name: package for name, package in kept.items() if package.held}
        return FabricDesired(
            daemons=(
                _wanted(fabric, machine.needs_fabric_manager, declaration.config, FABRIC_DEFAULTS),
                replace(
                    _wanted(imex_daemon, managed, declaration.imex_config, IMEX_DEFAULTS, leave=machine.needs_imex),
                    nodes=", ".join(declaration.nodes) or None,
                    has_nodes=managed and bool(declaration.nodes),
                ),
            ),
            held=dict.fromkeys(kept, True) if declaration.hold else {},
            nodes=declaration.nodes,
            channel=managed and declaration.channel,
            unmanaged=tuple(unmanaged),
        )

    def restore(self, baseline: Baseline, state: FabricState) -> FabricDesired:
        from .plan import restore

        return restore(baseline, state)

    def plan(self, state: FabricState, desired: FabricDesired, scope: Scope) -> Plan:
        if not scope.restoring and any(wanted.needed and _is_disputed(state, wanted) for wanted in desired.daemons):
            from .plan import refuse_impossible

            refuse_impossible(state, desired, scope)
        settings = rows_of(state, desired, scope)
        steps: Tuple[Step, ...] = ()
        if any(setting.status != IN_SYNC for setting in settings):
            from .plan import steps_of

            steps = steps_of(state, desired, settings)
        elif scope.carries and scope.declared != WANTED and state.known != state.notes:
            from .plan import noted

            steps = noted(state, state.known.started, ())
        return Plan(tuple(settings), steps, desired.unmanaged)

    def perform(self, step: Step, host: Host) -> None:
        from ..._kinds import steps

        steps.perform(step, host)

    def report(self, state: FabricState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        now: Dict[str, Any] = {"hardware": state.hardware.words, "driver": state.driver.loaded or None, "daemons": {}}
        boot: Dict[str, Any] = {"driver": state.driver.at_boot or None, "daemons": {}}
        for daemon in state.daemons:
            if not daemon.installed:
                continue
            config = daemon.files.get(CONFIG)
            now["daemons"][daemon.program.name] = {
                "service": RUNNING if daemon.process is not None else STOPPED,
                "version": daemon.version or None,
                "config": values_of(config.read) if config is not None and config.read is not None else None,
            }
            boot["daemons"][daemon.program.name] = {
                "start": daemon.status,
                "config": values_of(config.text) if config is not None and config.text is not None else None,
            }
        now["fabric"] = {
            gpu.name: {"state": gpu.reading.state_name, "health": list(gpu.reading.faults)}
            for gpu in state.gpus
            if gpu.reading is not None
        }
        now["imex_domain"] = state.domain.words
        boot["held"] = sorted(one.name for one in state.holds.packages.values() if one.held)
        return now, boot


CONCERN = FabricManager()


def _wanted(
    daemon: Daemon, needed: bool, values: Mapping[str, str], defaults: Mapping[str, str], leave: bool = False
) -> WantedDaemon:
    """A daemon that the hardware needs, or one that it does not need, which then is out of the way; or is left."""
    if needed:
        return WantedDaemon(daemon, True, systemd.ENABLED, RUNNING, dict(values), defaults)
    if leave:
        return WantedDaemon(daemon)
    return WantedDaemon(
        daemon,
        start=systemd.DISABLED if daemon.status == systemd.ENABLED else None,
        service=STOPPED if daemon.process is not None else None,
    )


def _is_disputed(state: FabricState, wanted: WantedDaemon) -> bool:
    """Whether something may be in the way of a daemon that the hardware needs."""
    daemon, driver = wanted.daemon, state.driver
    config = daemon.files.get(CONFIG)
    text = config.text if config is not None else None
    unclear = bool(wanted.values) and (text is None or bool(contradictions(text)))
    other = daemon.outside or daemon.status == systemd.MASKED or daemon.version not in (driver.loaded, driver.at_boot)
    lacking = bool(state.lacking) and daemon.program is FABRIC_MANAGER
    return bool(state.operator or other or lacking or not daemon.version or driver.loaded != driver.at_boot or unclear)


def _starts_or_stops(state: FabricState, needed: Tuple[bool, bool], restoring: bool) -> bool:
    return any(
        daemon.installed and (restoring or wanted is not (daemon.process is not None))
        for daemon, wanted in zip(state.daemons, needed)
    )


def _known(host: Host, state: FabricState) -> Notes:
    """What the next look need not ask for again."""
    files, before = host.files, state.notes
    versions = {one.path: (files.version(one.path), one.version) for one in state.daemons if one.path and one.version}
    running = {one.unit: one.process.identity for one in state.daemons if one.process is not None}
    return replace(
        before,
        versions={**before.versions, **versions},
        packages={**before.packages, **state.holds.owners},
        bridges={name: name in state.hardware.ports for name in state.hardware.asked} or before.bridges,
        started={unit: one for unit, one in before.started.items() if running.get(unit) == one.process},
    )
