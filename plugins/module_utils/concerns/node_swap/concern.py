# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``node_swap``: swap as it is in use, as the next boot brings it, and as declared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Mapping, Tuple

from ..._core.change import Plan, Step
from ..._core.errors import CannotLook
from ..._core.registration import Registration
from ..._kinds import units
from ..._linux import fstab, mounts, swaps, systemd
from . import owners, plan, sources
from .options import OPTIONS
from .plan import UNIT_PATH, UNIT_SETTING, path_of
from .spec import NodeSwapDeclaration, parse
from .state import AT_BOOT, MARK, NAME, OFF, ON, SWAP, SWAP_FILE, UNIT, NodeSwapDesired, NodeSwapState, in_words

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Files, Host

ZSWAP = "/sys/module/zswap/parameters/enabled"
CONTAINER = "/run/systemd/container"


class NodeSwap:
    """``convergence.Concern`` for swap."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = False
    registration = Registration(owns=("unit *.swap", *(f"unit {name}" for name in sources.SERVICES)))

    def parse(self, params: Mapping[str, Any]) -> NodeSwapDeclaration:
        return parse(params)

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> NodeSwapDeclaration:
        return NodeSwapDeclaration(changed=baseline)

    def observe(self, host: Host, declaration: NodeSwapDeclaration, scope: Scope) -> NodeSwapState:
        files = host.files
        areas = swaps.read_areas(files)
        if areas and scope.immediate and files.exists(CONTAINER):
            raise CannotLook(
                "tell which swap is in use",
                object=swaps.PATH,
                cause="this is a container, and the kernel shows the swap of its host",
                hint="declare swap on the host, or set immediate: false",
            )
        text = files.read_optional(fstab.PATH) or ""
        lines = tuple(line for line in fstab.parse(text, MARK) if line.kind == "swap" and "noauto" not in line.options)
        runs = systemd.running(files)
        generated = sources.generated(files) if runs and declaration.enabled is False else ()
        status = files.status(SWAP_FILE)
        size = None if status is None else status.st_size
        root_kind, free = "", 0
        if declaration.enabled and size != declaration.size:
            root = mounts.at(mounts.read(files), "/")
            root_kind = root.fstype if root else ""
            free = files.free("/")
        before = declaration.changed.values if declaration.changed is not None else {}
        at_boot = [identity for identity, setting in before if setting == AT_BOOT]
        masks = [path for path in at_boot if path.startswith(f"{systemd.ETC}/")]
        on = [
            path_of(identity) for identity, setting in before if setting == SWAP and identity.startswith(("/", "UUID"))
        ]
        starts = [identity for identity, setting in before if setting == units.START]
        unit_files = systemd.unit_files(files)
        return NodeSwapState(
            areas=areas,
            identities={area.path: _identity(files, area.path) for area in areas},
            fstab_text=text,
            fstab=lines,
            units=sources.read_units(files, unit_files, UNIT) if declaration.enabled is False else (),
            unit_file=units.unit_file(host, UNIT, UNIT_PATH, UNIT_SETTING, files.read_optional(UNIT_PATH)),
            unit_status=unit_files.status(UNIT),
            file_size=size,
            generated=generated,
            reload_blocker=systemd.reload_blocker(host) if generated else "",
            systemd_runs=runs,
            obstacle=_obstacle(files, areas, declaration),
            root_kind=root_kind,
            free=free,
            zswap=(files.read_optional(ZSWAP) or "").strip(),
            conflicts=_owners(files, declaration),
            masks=tuple(path for path in masks if files.read_optional(path) == ""),
            gone=tuple(path for path in on if not files.exists(path)),
            statuses={unit: unit_files.status(unit) for unit in starts},
        )

    def resolve(self, declaration: NodeSwapDeclaration, state: NodeSwapState) -> NodeSwapDesired:
        return NodeSwapDesired(off=not declaration.enabled, size=declaration.size or None)

    def restore(self, baseline: Baseline, state: NodeSwapState) -> NodeSwapDesired:
        return plan.restore(baseline, state)

    def plan(self, state: NodeSwapState, desired: NodeSwapDesired, scope: Scope) -> Plan:
        return plan.plan(state, desired, scope)

    def perform(self, step: Step, host: Host) -> None:
        from . import apply

        apply.perform(step, host)

    def report(self, state: NodeSwapState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        at_boot = [spec for spec, value in state.specs.items() if value == ON]
        at_boot += [unit.unit for unit in state.units]
        if state.unit_status == systemd.ENABLED:
            at_boot.append(UNIT)
        areas = {
            area.path: {"state": in_words(area), "size_mib": area.size_kb // 1024, "used_mib": area.used_kb // 1024}
            for area in state.areas
        }
        effective = {SWAP: ON if areas else OFF, "areas": areas, "zswap": state.zswap or None}
        return effective, {SWAP: ON if at_boot else OFF, "sources": at_boot}


CONCERN = NodeSwap()


def _owners(files: Files, declaration: NodeSwapDeclaration) -> Tuple[Any, ...]:
    if declaration.enabled is None:
        return ()
    return owners.of_swap_on(files) if declaration.enabled else owners.of_swap_off(files)


def _obstacle(files: Files, areas: Tuple[swaps.Area, ...], declaration: NodeSwapDeclaration) -> str:
    """What is in the way of those that may go off: all, or for others than ``enabled: false`` that of ours."""
    going = tuple(area for area in areas if declaration.enabled is False or area.path == SWAP_FILE)
    going = tuple(area for area in going if not area.deleted)
    return swaps.obstacle(going, swaps.read_memory(files)) if going else ""


def _identity(files: Files, path: str) -> str:
    """What an area is known by across reboots: its UUID, as udev read it, or the path of a file or of zram."""
    if not path.startswith("/dev/") or path.startswith("/dev/zram"):
        return path
    number = (files.read_optional(f"/sys/class/block/{path.rpartition('/')[2]}/dev") or "").strip()
    record = files.read_optional(f"{sources.UDEV}/b{number}") or ""
    uuid = next((line[13:] for line in record.splitlines() if line.startswith("E:ID_FS_UUID=")), "")
    return f"UUID={uuid}" if uuid else path
