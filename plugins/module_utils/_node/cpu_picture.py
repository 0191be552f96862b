# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose the CPUs of a node are, and where its interrupts go, as one picture by NUMA node for people on the node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, FrozenSet, List, Mapping, Sequence

from .._linux import cpulist
from .._linux.cpus import FOLDER, online_by_node, read_cpus
from .cpu_owners import GPU, ISOLATED, KINDS, OTHER, SYSTEM, read_owners
from .table import NOTHING, columns

if TYPE_CHECKING:
    from .._core.protocols import Files

HEADS = {SYSTEM: "SYSTEM", ISOLATED: "ISOLATED", GPU: "GPU SLICES", OTHER: "OTHER SLICES"}
# Interrupts that nobody but the kernel can move, whatever their device.
BY_KERNEL = "kernel"

Row = Mapping[str, Any]


def picture(files: Files) -> List[Dict[str, Any]]:
    """By NUMA node its CPUs, the owners of some of them, and the interrupts; none where nobody divides the CPUs.

    What the interrupts of GPUs, network cards and NVMe drives may be delivered to is by their kind.
    """
    owners = read_owners(files)
    if not owners:
        return []
    interrupts = _interrupts(files)
    rows = []
    for name, own in _nodes(files).items():
        there = [(owner, cpulist.render(owner.cpus & own)) for owner in owners]
        rows.append(
            {
                "node": name,
                "cpus": cpulist.render(own),
                "owners": [{"kind": owner.kind, "name": owner.name, "cpus": cpus} for owner, cpus in there if cpus],
                "interrupts": {kind: cpulist.render(cpus & own) for kind, cpus in interrupts.items() if cpus & own},
            }
        )
    return rows


def picture_table(rows: Sequence[Row]) -> List[str]:
    """The picture as lines of text in columns, without those that nobody is in."""
    kinds = [kind for kind in KINDS if any(owner["kind"] == kind for row in rows for owner in row["owners"])]
    cells = [("CPUS OF", "ALL", *(HEADS[kind] for kind in kinds), "INTERRUPTS")]
    for row in rows:
        of_kinds = (_owners_of(kind, row["owners"]) for kind in kinds)
        interrupts = "; ".join(f"{kind} {cpus}" for kind, cpus in row["interrupts"].items())
        cells.append((row["node"], row["cpus"], *of_kinds, interrupts or NOTHING))
    return columns(cells)


def _owners_of(kind: str, owners: Sequence[Row]) -> str:
    """The owners of a kind, those that have the same CPUs together."""
    names: Dict[str, List[str]] = {}
    for owner in owners:
        if owner["kind"] == kind:
            name = str(owner["name"])
            names.setdefault(owner["cpus"], []).append(name[: -len(".slice")] if name.endswith(".slice") else name)
    return "; ".join(f"{cpus} ({', '.join(those)})" for cpus, those in names.items()) or NOTHING


def _interrupts(files: Files) -> Dict[str, FrozenSet[int]]:
    """The CPUs that interrupts may be delivered to, by the kind of their device; those of the kernel are of no kind."""
    from .facts import interrupts
    from .facts.pci import read_devices

    found: Dict[str, FrozenSet[int]] = {}
    for device in interrupts.gather(files, read_devices(files))["devices"]:
        for interrupt in device["irqs"]:
            kind = BY_KERNEL if interrupt["managed"] else str(device["kind"])
            found[kind] = found.get(kind, frozenset()) | cpulist.parse(interrupt["cpus"] or "")
    return {kind: found[kind] for kind in sorted(found, key=lambda kind: (kind == BY_KERNEL, kind)) if found[kind]}


def _nodes(files: Files) -> Mapping[str, FrozenSet[int]]:
    """The NUMA nodes with their online CPUs; a machine without is one."""
    return online_by_node(files) or {"the machine": read_cpus(files, f"{FOLDER}/online")}
