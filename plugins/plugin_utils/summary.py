# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the looks at a fleet come to: the one count that the table of the audit and the report show."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from ..module_utils._core.setting import DRIFTED, IN_SYNC, INVALID, PENDING, UNKNOWN
from ..module_utils._node.table import COUNTED, counts_of, devices_of, note_row, rows_of
from .answers import Look, answered, look_in, why_unreadable
from .clusters import ROLE
from .playbooks import GATE

UNREACHABLE = "unreachable"
# Why nothing is done to a host that was looked at, in what the action ``assess_node`` returns.
REFUSED = "refused"
# Groups that the playbooks make while they run, and Ansible's own for hosts without any.
NO_GROUPS = {
    *("ungrouped", "gpufleet_delegates", "gpufleet_managed", "gpufleet_left_drained", "gpufleet_previewed"),
    *("gpufleet_refused", "gpufleet_held", "gpufleet_failed"),
    *("gpufleet_to_reboot", "gpufleet_to_repartition", "gpufleet_to_remove", "gpufleet_to_converge"),
}
# From best to worst: a node is called by the worst thing found on it. Where a declaration is invalid, nothing is done.
SEVERITY = (IN_SYNC, PENDING, DRIFTED, UNKNOWN, INVALID, UNREACHABLE)

Row = Dict[str, Any]
# In the place of a concern, of a node whose answer could not be read.
ANSWER = "answer"


@dataclass(frozen=True)
class Summary:
    """``looks`` are the answers as ``answers.py`` reads them; ``rows`` and ``devices`` those of ``_node/table.py``, by
    node; ``counts`` the settings of each status, where ``unknown`` also counts concerns and answers that could not be
    read, ``invalid`` concerns, and ``unmanaged`` what cannot be set, which has no row; ``nodes`` the names by worst
    status; ``reboot_reasons`` those that have any.
    """

    looks: Dict[str, Look] = field(default_factory=dict)
    rows: Dict[str, List[Row]] = field(default_factory=dict)
    devices: Dict[str, List[Row]] = field(default_factory=dict)
    counts: Dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))
    nodes: Dict[str, List[str]] = field(default_factory=lambda: {status: [] for status in SEVERITY})
    reboot_reasons: Dict[str, List[str]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(len(names) for names in self.nodes.values())


def registered(hostvars: Any, hosts: Iterable[str], name: str) -> Dict[str, Optional[Look]]:
    """What a task registered on each of the hosts; None where it did not run there. ``hostvars`` are Ansible's.

    The values are taken as they are: an answer of a host is no template, and to go through those of a thousand hosts as
    if each text of them might be one takes a minute.
    """
    found = {host: hostvars.raw_get(host).get(name) for host in hosts}
    return {host: result if isinstance(result, dict) else None for host, result in found.items()}


def accepted(hostvars: Any, hosts: Iterable[str], name: str) -> Dict[str, Look]:
    """The looks at the hosts that something may be done to, empty where there was none."""
    looks = {host: look or {} for host, look in registered(hostvars, hosts, name).items()}
    return {host: look for host, look in looks.items() if REFUSED not in look}


def stopped(hostvars: Any, hosts: Iterable[str]) -> Tuple[List[str], List[str]]:
    """The hosts of batches that were not started, and those that failed before; both empty where no gate stopped."""
    for host in hosts:
        gate = hostvars.raw_get(host).get(GATE)
        if isinstance(gate, dict) and gate.get("stop"):
            return list(gate["not_begun"]), list(gate["failed_hosts"])
    return [], []


def groups_of(variables: Mapping[str, Any], hosts: Iterable[str]) -> Dict[str, List[str]]:
    """The groups of the hosts in the inventory, by the variables of an action."""
    groups = {name: variables["hostvars"].raw_get(name).get("group_names", ()) for name in hosts}
    return {name: [group for group in found if group not in NO_GROUPS] for name, found in groups.items()}


def now() -> str:
    """This moment in UTC, as ISO 8601 has it."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def summarise(looks: Mapping[str, Look], clusters: Optional[Mapping[str, Look]] = None) -> Summary:
    """``looks`` are the registered results of ``node_state`` by host, empty where there is none.

    ``clusters`` are the entries of the filter ``plugin_findings``, by host too.
    """
    found = clusters or {}
    summary = Summary(looks={node: read_look(result, found.get(node)) for node, result in looks.items()})
    shared = _shared(summary.looks)
    for node, look in summary.looks.items():
        if not answered(look):
            summary.nodes[UNREACHABLE].append(node)
            continue
        rows = summary.rows[node] = [*rows_of(node, look), *shared.get(node, ())]
        why = why_unreadable(look)
        if why:
            rows.append(note_row(node, ANSWER, status=UNKNOWN, note=why))
        summary.devices[node] = devices_of(node, look)
        summary.nodes[status_of(look, rows)].append(node)
        for status, count in counts_of(look, rows).items():
            summary.counts[status] += count
        reasons = reboot_reasons(look)
        if reasons:
            summary.reboot_reasons[node] = reasons
    return summary


def read_look(result: Look, cluster: Optional[Look]) -> Look:
    """What the registered look at a node says, and beside its concerns what was found of it in its cluster."""
    look = look_in(result)
    if cluster is None or not answered(look):
        return look
    return {**look, "concerns": {**look["concerns"], ROLE: cluster}}


def _shared(looks: Mapping[str, Look]) -> Dict[str, List[Row]]:
    """The rows about what only one node may have and several do, as those do that are made from one image.

    A look at one node cannot find it, and no run changes it.
    """
    nodes: Dict[Tuple[str, str, str], List[str]] = {}
    for node, look in looks.items():
        for concern, result in look.get("concerns", {}).items():
            for what, value in result.get("unique", {}).items():
                nodes.setdefault((concern, what, value), []).append(node)
    rows: Dict[str, List[Row]] = {}
    for (concern, what, value), names in nodes.items():
        if len(names) > 1:
            note = f"{value} must be unique in the fleet, and {len(names)} nodes have it"
            for node in names:
                rows.setdefault(node, []).append(note_row(node, concern, what, status=DRIFTED, note=note))
    return rows


def went_away(look: Optional[Look], *, in_play: bool) -> bool:
    """Whether a host is out of reach since it was looked at: it is out of the play, and not for a look that failed."""
    return not in_play and look is not None and answered(look) and not look.get("failed")


def status_of(look: Look, rows: Sequence[Row]) -> str:
    """The worst status of a node that answered."""
    found = [row["status"] for row in rows] + [entry["status"] for entry in look["concerns"].values()]
    return max((status for status in found if status in SEVERITY), key=SEVERITY.index, default=IN_SYNC)


def reboot_reasons(look: Look) -> List[str]:
    return [reason for entry in look["concerns"].values() for reason in entry["reboot_reasons"]]
