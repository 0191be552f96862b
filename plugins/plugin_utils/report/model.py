# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report as a value: what the looks at all nodes and their facts come to. Pure; the writers only write it down."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ...module_utils._core.setting import DRIFTED, IN_SYNC, UNKNOWN
from ...module_utils._core.version import VERSION
from ...module_utils._node.registry import REGISTRY
from ...module_utils._node.table import note_row
from ...module_utils._text.host_ranges import natural
from ..answers import Look, answered, why_unreadable
from ..summary import ANSWER, UNREACHABLE, Row, Summary, reboot_reasons, status_of, summarise
from .cpu_divisions import CpuDivision, divisions_of
from .facts import AnswerFacts, DeviceFacts, GpuFacts, NodeFacts, PortFacts, Texts, facts_in
from .findings import Finding, findings_of
from .installed import NOT_INSTALLED, STATUSES, split_never_converged
from .skew import VersionGroup, groups_of

# It grows with a field that is taken away or means something else, and not with one that is added.
SCHEMA = 1
ORDER = [entry.name for entry in REGISTRY]
NO_ANSWER = "it did not respond"
FACTS = "facts"
# What nodes of the same hardware have alike, and is much.
ALIKE = ("versions", "numa", "devices", "ports", "near", "cpu_owners")


@dataclass(frozen=True)
class Host:
    """What is known of a host: the registered results of ``node_state`` and ``gpu_node_info``, its groups, and what was
    found of it in its cluster.
    """

    look: Look = field(default_factory=dict)
    info: Optional[Mapping[str, Any]] = None
    groups: Sequence[str] = ()
    cluster: Optional[Look] = None


@dataclass(frozen=True)
class Concern:
    """A concern of a node. ``settings`` are the rows of the table, those in sync only of a full look.

    ``message`` is why it could not be looked at, ``needs`` what it waits for.
    """

    name: str
    status: str
    settings_in_sync: int
    settings: Tuple[Row, ...]
    needs: Tuple[str, ...]
    unmanaged: Tuple[Row, ...]
    unmanaged_total: int
    message: Optional[str]


@dataclass(frozen=True)
class ReportNode:
    """A node. ``message`` is why it has no answer, ``facts_missing`` why it has no facts, and ``unreadable`` which of
    both (``answer``, ``facts``) it gave, malformed.
    """

    name: str
    groups: Tuple[str, ...]
    status: str
    message: Optional[str]
    reboot_reasons: Tuple[str, ...]
    concerns: Tuple[Concern, ...]
    interrupts: Tuple[Row, ...]
    facts: Optional[NodeFacts]
    facts_missing: Optional[str]
    unreadable: Texts

    @property
    def sick(self) -> Tuple[GpuFacts, ...]:
        return tuple(gpu for gpu in self.facts.gpus if gpu.healthy is False) if self.facts else ()

    @property
    def sick_ports(self) -> Tuple[PortFacts, ...]:
        return tuple(port for port in self.facts.ports if port.healthy is False) if self.facts else ()

    @property
    def degraded(self) -> Tuple[DeviceFacts, ...]:
        """The devices whose link is slower or narrower than it could be."""
        return (
            tuple(device for device in self.facts.devices if device.link and device.link.degraded) if self.facts else ()
        )


@dataclass(frozen=True)
class Report:
    """``generated`` is a moment in UTC as ISO 8601 has it; ``concerns`` are those that any node declares, in order."""

    title: str
    generated: str
    concerns: Tuple[str, ...]
    nodes: Tuple[ReportNode, ...]
    findings: Tuple[Finding, ...]
    skew: Tuple[VersionGroup, ...]
    cpu_divisions: Tuple[CpuDivision, ...]
    totals: Summary

    @property
    def summary(self) -> Dict[str, Any]:
        """The whole in a few numbers and names, for ``set_stats`` and its readers."""
        return {
            "title": self.title,
            "generated": self.generated,
            "nodes_total": self.totals.total,
            "nodes": self.totals.nodes,
            "settings": self.totals.counts,
            "needs_reboot": [node.name for node in self.nodes if node.reboot_reasons],
            "sick_gpus": [
                {"node": node.name, "index": gpu.index, "pci_address": gpu.pci_address, "problems": list(gpu.problems)}
                for node in self.nodes
                for gpu in node.sick
            ],
            "sick_ports": [
                {"node": node.name, "name": port.name, "pci_address": port.pci_address, "problems": list(port.problems)}
                for node in self.nodes
                for port in node.sick_ports
            ],
            "degraded_links": [
                {
                    "node": node.name,
                    "kind": device.kind,
                    "pci_address": device.pci_address,
                    "causes": list(device.link.causes),
                }
                for node in self.nodes
                for device in node.degraded
                if device.link
            ],
            "skew": [
                {
                    "group": group.name,
                    "component": part.component,
                    "of": part.of,
                    "versions": {version.version: len(version.nodes) for version in part.versions},
                }
                for group in self.skew
                for part in group.components
                if part.skewed
            ],
        }


def build(hosts: Mapping[str, Host], *, title: str, generated: str) -> Report:
    """The report on these hosts, in the natural order of their names, which is the order of nodes everywhere in it."""
    hosts = {name: hosts[name] for name in sorted(hosts, key=natural)}
    clusters = {name: host.cluster for name, host in hosts.items() if host.cluster is not None}
    found = split_never_converged(summarise({name: host.look for name, host in hosts.items()}, clusters))
    pool: Dict[Any, Any] = {}
    facts = {name: _with_shared_parts(facts_in(host.info), pool) for name, host in hosts.items()}
    nodes = tuple(
        _node(name, host.groups, found.looks[name], found.rows.get(name, []), facts[name])
        for name, host in hosts.items()
    )
    rows = {
        name: [
            *found.rows.get(name, ()),
            *([note_row(name, FACTS, status=UNKNOWN, note=of_node.missing or "")] if of_node.unreadable else []),
        ]
        for name, of_node in facts.items()
    }
    known = {node.name: node.facts for node in nodes if node.facts}
    declared = {concern.name for node in nodes for concern in node.concerns}
    concerns = tuple(sorted(declared, key=place_of_concern))
    return Report(
        title=title,
        generated=generated,
        concerns=concerns,
        nodes=nodes,
        findings=findings_of(rows, concerns),
        skew=groups_of(known),
        cpu_divisions=divisions_of(known),
        totals=found,
    )


def _with_shared_parts(found: AnswerFacts, pool: Dict[Any, Any]) -> AnswerFacts:
    """The same facts, in which what is equal to that of another node is that of the other node."""
    if not found.known:
        return found
    parts = {name: pool.setdefault(part, part) for name in ALIKE if (part := getattr(found.known, name))}
    return replace(found, known=replace(found.known, **parts))


def place_of_concern(name: str) -> Tuple[int, str]:
    """The order of concerns everywhere in the report: that in which they run, then those unknown to this release."""
    return (ORDER.index(name) if name in ORDER else len(ORDER), name)


def document(report: Report) -> Dict[str, Any]:
    """The report as gpufleet-report.json has it: a value of the model is an object with its fields there."""
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "summary": report.summary,
        "concerns": report.concerns,
        "nodes": report.nodes,
        "findings": report.findings,
        "skew": report.skew,
        "cpu_divisions": report.cpu_divisions,
    }


def _node(name: str, groups: Sequence[str], look: Look, rows: List[Row], facts: AnswerFacts) -> ReportNode:
    known: Dict[str, Any] = {
        "name": name,
        "groups": tuple(groups),
        "facts": facts.known,
        "facts_missing": facts.missing,
        "unreadable": (*([ANSWER] if why_unreadable(look) else []), *([FACTS] if facts.unreadable else [])),
    }
    if not answered(look):
        message = look.get("msg") or NO_ANSWER
        return ReportNode(status=UNREACHABLE, message=message, reboot_reasons=(), concerns=(), interrupts=(), **known)
    concerns = _concerns(look, rows)
    return ReportNode(
        status=max((concern.status for concern in concerns), key=STATUSES.index, default=status_of(look, rows)),
        message=why_unreadable(look),
        reboot_reasons=tuple(reboot_reasons(look)),
        concerns=concerns,
        interrupts=tuple(device for entry in look["concerns"].values() for device in entry.get("devices", ())),
        **known,
    )


def _concerns(look: Look, rows: Sequence[Row]) -> Tuple[Concern, ...]:
    """Those that are declared, and those that the inventory no longer declares."""
    absent = {row["concern"] for row in rows if row["status"] == NOT_INSTALLED}
    by_concern: Dict[str, List[Row]] = {}
    for row in rows:
        by_concern.setdefault(row["concern"], []).append(
            {key: row[key] for key in row if key not in ("node", "concern")}
        )
    declared = [
        Concern(
            name=name,
            status=NOT_INSTALLED if entry["status"] == DRIFTED and name in absent else entry["status"],
            settings_in_sync=entry["settings_in_sync"],
            settings=(*by_concern.get(name, ()), *(row for row in entry["settings"] if row["status"] == IN_SYNC)),
            needs=entry["needs"],
            unmanaged=entry["unmanaged"],
            unmanaged_total=entry["unmanaged_total"],
            message=entry.get("msg"),
        )
        for name, entry in look["concerns"].items()
    ]
    orphaned = [
        Concern(name, _worst(by_concern.get(name, ())), 0, tuple(by_concern.get(name, ())), (), (), 0, None)
        for name in look["orphaned"]
    ]
    return tuple(sorted((*declared, *orphaned), key=lambda concern: place_of_concern(concern.name)))


def _worst(rows: Sequence[Row]) -> str:
    return max((row["status"] for row in rows if row["status"] in STATUSES), key=STATUSES.index, default=IN_SYNC)
