# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The report as metrics for the textfile collector of node_exporter, in the text format of Prometheus."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Dict, Iterator, List, Mapping, Tuple, Union

from ..summary import UNREACHABLE
from .installed import STATUSES

if TYPE_CHECKING:
    from .model import Report

Number = Union[int, float]
Sample = Tuple[Mapping[str, str], Number]


class Metric:
    """A gauge with its samples."""

    def __init__(self, name: str, help_text: str, samples: List[Sample]) -> None:
        self.name = name
        self.help_text = help_text
        self.samples = samples


def render(report: Report) -> str:
    return "".join(line for metric in metrics(report) for line in _lines(metric))


def metrics(report: Report) -> List[Metric]:
    """Every metric has its samples on a healthy fleet too, so that a rule can tell zero from no report."""
    known = [node for node in report.nodes if node.facts]
    return [
        Metric(
            "gpufleet_report_timestamp_seconds",
            "When the fleet was looked at, as seconds since 1970.",
            [({}, _seconds(report.generated))],
        ),
        Metric(
            "gpufleet_nodes",
            "Nodes by the worst status found on them.",
            [({"status": status}, len(report.totals.nodes[status])) for status in STATUSES],
        ),
        Metric(
            "gpufleet_settings",
            "Settings by status; unknown and invalid include concerns that could not be read, unmanaged cannot be set.",
            [({"status": status}, count) for status, count in report.totals.counts.items()],
        ),
        Metric(
            "gpufleet_node_status",
            "Whether this is the worst status found on the node.",
            [
                ({"node": node.name, "status": status}, int(node.status == status))
                for node in report.nodes
                for status in STATUSES
            ],
        ),
        Metric(
            "gpufleet_node_look_timestamp_seconds",
            "When the node was last looked at, in seconds since 1970; no sample for a node that did not respond.",
            [({"node": node.name}, _seconds(report.generated)) for node in report.nodes if node.status != UNREACHABLE],
        ),
        Metric(
            "gpufleet_node_reboot_required",
            "Whether something on the node waits for a reboot.",
            [({"node": node.name}, int(bool(node.reboot_reasons))) for node in report.nodes],
        ),
        Metric(
            "gpufleet_concern_status",
            "The status that the concern has on the node; the others have no sample.",
            [
                ({"node": node.name, "concern": concern.name, "status": concern.status}, 1)
                for node in report.nodes
                for concern in node.concerns
            ],
        ),
        Metric(
            "gpufleet_node_unreadable_answers",
            "How many of the answers of the node, the look and its facts, could not be read.",
            [({"node": node.name}, len(node.unreadable)) for node in report.nodes],
        ),
        Metric(
            "gpufleet_node_gpus",
            "GPUs of the node.",
            [({"node": node.name}, len(node.facts.gpus)) for node in known if node.facts],
        ),
        Metric(
            "gpufleet_node_sick_gpus",
            "GPUs of the node with a problem.",
            [({"node": node.name}, len(node.sick)) for node in known],
        ),
        Metric(
            "gpufleet_node_sick_ports",
            "Sick ports of network cards of the node.",
            [({"node": node.name}, len(node.sick_ports)) for node in known],
        ),
        Metric(
            "gpufleet_node_degraded_links",
            "GPUs, network cards and NVMe drives of the node with a slow or narrow link.",
            [({"node": node.name}, len(node.degraded)) for node in known],
        ),
        Metric(
            "gpufleet_component_versions",
            "Different versions among the nodes with the same GPUs; 1 is as it should be.",
            [
                ({"group": group.name, "component": part.component, "of": part.of}, len(part.versions))
                for group in report.skew
                for part in group.components
            ],
        ),
    ]


def _seconds(generated: str) -> Number:
    return int(datetime.fromisoformat(generated.replace("Z", "+00:00")).timestamp())


def _lines(metric: Metric) -> Iterator[str]:
    if metric.samples:
        yield f"# HELP {metric.name} {metric.help_text}\n# TYPE {metric.name} gauge\n"
    for labels, value in metric.samples:
        # An empty label is the same as none.
        shown: Dict[str, str] = {name: text for name, text in labels.items() if text}
        inside = ",".join(f'{name}="{_label(text)}"' for name, text in shown.items())
        yield f"{metric.name}{{{inside}}} {value}\n" if inside else f"{metric.name} {value}\n"


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
