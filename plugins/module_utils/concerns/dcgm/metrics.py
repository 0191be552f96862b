# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The file of counters of dcgm-exporter, what the exporter says on /metrics, and the metrics that our alerts need.

A line of the file is the name of a field, a type of Prometheus and a help text; a line with ``#`` at its begin is a
comment. The exporter reads it once, with Go's encoding/csv, and ends where a line is not as it wants it
(``ExtractCounters`` of its counter_config.go). A metric has the name that the file has, even where the field has
another one today.
"""

from __future__ import annotations

import re
from typing import Dict, Iterable, Mapping, Tuple

from ..._core.regex import regex
from ..._core.value import frozen

TYPES = ("counter", "gauge", "label")
# Its values become labels of the other metrics.
LABEL = "label"
# The exporter counts these itself, and shows none as long as there is none.
COUNTED = "DCGM_EXP_"
TYPE_LINE = regex(r"^# TYPE (\S+) (\S+)", re.MULTILINE)


@frozen
class Metric:
    """One line of the file. ``declared``: the inventory names it itself."""

    name: str
    type: str
    help: str
    declared: bool = False

    def line(self) -> str:
        """As Go's encoding/csv reads it, for which a quote counts only where a field begins with it."""
        text = self.help
        if "," in text or '"' in text:
            doubled = text.replace('"', '""')
            return f'{self.name},{self.type},"{doubled}"\n'
        return f"{self.name}, {self.type}, {text}\n"


def parse(text: str) -> Dict[str, Metric]:
    """What a file has, by name; what is no line of three fields is left out, though the exporter ends at it."""
    found: Dict[str, Metric] = {}
    for fields in _records(text):
        if len(fields) == 3:
            name, kind, help_text = (one.strip(" ") for one in fields)
            found[name] = Metric(name, kind, help_text)
    return found


def render(header: str, metrics: Iterable[Metric]) -> str:
    return header + "".join(metric.line() for metric in sorted(metrics, key=lambda metric: metric.name))


def served(text: str) -> Mapping[str, str]:
    """The metrics of an answer on /metrics by name, each with its type."""
    return dict(TYPE_LINE.findall(text))


def _records(text: str) -> Iterable[Tuple[str, ...]]:
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    if '"' not in text:
        return [tuple(line.split(",")) for line in lines]
    import csv

    return [tuple(record) for record in csv.reader(lines)]


# What the rules in roles/dcgm/files/prometheus need, by generation of DCGM. Most of them are off in the file that the
# exporter ships. tests/unit/concerns/dcgm compares the rules with this list.
_ALL = (
    ("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", "counter", "Memory rows remapped because of correctable errors."),
    ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "counter", "Uncorrectable memory errors since the driver was loaded."),
    ("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "gauge", "Power limit in effect (in W)."),
    ("DCGM_FI_DEV_FB_USED", "gauge", "Memory in use (in MiB)."),
    ("DCGM_FI_DEV_GPU_TEMP", "gauge", "Temperature of the GPU (in C)."),
    ("DCGM_FI_DEV_GPU_UTIL", "gauge", "Utilization of the GPU (in %)."),
    ("DCGM_FI_DEV_MEMORY_TEMP", "gauge", "Temperature of the memory (in C)."),
    ("DCGM_FI_DEV_MEM_MAX_OP_TEMP", "gauge", "Maximum operating temperature of the memory (in C)."),
    ("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL", "counter", "NVLink data CRC errors."),
    ("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "counter", "NVLink flow-control CRC errors."),
    ("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "counter", "NVLink recoveries."),
    ("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "counter", "NVLink replays."),
    ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "counter", "PCIe replays."),
    ("DCGM_FI_DEV_POWER_MGMT_LIMIT_DEF", "gauge", "Default power limit of the board (in W)."),
    ("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W)."),
    ("DCGM_FI_DEV_ROW_REMAP_FAILURE", "gauge", "Whether a memory row could not be remapped."),
    ("DCGM_FI_DEV_ROW_REMAP_PENDING", "gauge", "Whether a memory row waits for a reset to be remapped."),
    ("DCGM_FI_DEV_SLOWDOWN_TEMP", "gauge", "Temperature at which the GPU slows down (in C)."),
    ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "counter", "Memory rows remapped because of uncorrectable errors."),
    ("DCGM_FI_DEV_XID_ERRORS", "gauge", "The last Xid, kept until the next one."),
)
_OF_GENERATION = {
    3: (
        ("DCGM_EXP_XID_ERRORS_COUNT", "gauge", "Xids in the last five minutes, by number."),
        ("DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "gauge", "Reasons why the clocks are lowered, as NVML bits."),
    ),
    4: (
        ("DCGM_EXP_GPU_HEALTH_STATUS", "gauge", "Result of the health watches: 0 pass, 10 warning, 20 failure."),
        ("DCGM_EXP_XID_ERRORS_COUNT", "gauge", "Xids in the last five minutes, by number."),
        ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "gauge", "Reasons why the clocks are lowered, as NVML bits."),
        (
            "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS",
            "counter",
            "Failed NVLink recoveries, from Blackwell on.",
        ),
    ),
}


def of_alerts(generation: int) -> Dict[str, Metric]:
    """What the alerts need, by name, as this generation calls it."""
    lines = (*_ALL, *_OF_GENERATION[generation])
    return {name: Metric(name, kind, help_text) for name, kind, help_text in lines}
