# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``gpufleet health``: whether the GPUs and the ports of this node are fit for jobs, for schedulers that ask often.

It is no look: it keeps the error counters of the ports, so that the next one can say how they have grown.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any, Dict, List, Mapping, Sequence

from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Host
from ansible_collections.gpufleet.node.plugins.module_utils._core.wording import counted, printable
from ansible_collections.gpufleet.node.plugins.module_utils._node.deadline import deadline
from ansible_collections.gpufleet.node.plugins.module_utils._node.facts import port_record
from ansible_collections.gpufleet.node.plugins.module_utils._node.facts.collect import gather
from ansible_collections.gpufleet.node.plugins.module_utils._node.verdict import sick_gpus, sick_ports, unknown_parts

# As node-problem-detector takes them. Usage and defects exit with 64, which it takes for unknown too.
HEALTHY_EXIT, SICK_EXIT, UNKNOWN_EXIT = 0, 1, 2
PARTS = ("gpus", "health", "network")
# Less than the boot service has left when its own time is over.
BEGIN_SECONDS = 20.0
# What node-problem-detector shows of a line by default (max_output_length), in bytes.
LONGEST_LINE = 80


def health(
    host: Host,
    *,
    gpus: int = 0,
    ports: Sequence[str] = (),
    ignored: Sequence[str] = (),
    rate_gbps: float = 0.0,
    line: bool = False,
    as_json: bool = False,
) -> int:
    """Print what is wrong, and return the exit status. What is known to be sick counts more than what is not known."""
    facts = gather(host, PARTS)
    sick = [
        *sick_gpus(facts, gpus),
        *sick_ports(facts, required=ports, ignored=ignored, rate_gbps=rate_gbps),
    ]
    unknown = list(unknown_parts(facts))
    if as_json:
        print(json.dumps({"sick": sick, "unknown": unknown, "node": facts}, indent=1, sort_keys=True))
    elif line:
        print(printable(one_line(sick, unknown, facts)))
    else:
        lines = [*sick, *(f"not known: {text}" for text in unknown)] or [_well(facts)]
        print("\n".join(map(printable, lines)))
    keep_counters(host, facts)
    return SICK_EXIT if sick else UNKNOWN_EXIT if unknown else HEALTHY_EXIT


def keep_counters(host: Host, facts: Mapping[str, Any]) -> None:
    """For the next time. Where they cannot be kept, as by another user than root, growth is counted from the boot."""
    if host.may_change and facts.get("network"):
        with contextlib.suppress(OSError):
            port_record.keep(host.files, facts["network"])


def begin_counting(host: Host) -> None:
    """Keep the counters as they are when a boot is over. What links count while they come up is no growth.

    Container engines wait for the boot service, and need none of this: whatever goes wrong here, or hangs, the next
    ``gpufleet health`` counts from the boot on.
    """
    with contextlib.suppress(Exception), deadline(BEGIN_SECONDS):
        keep_counters(host, gather(host, ("network",)))


def one_line(sick: Sequence[str], unknown: Sequence[str], facts: Dict[str, Any]) -> str:
    """The first problem and how many more there are, within what others show of a line."""
    found: List[str] = [*sick] or [f"not known: {text}" for text in unknown]
    if not found:
        return _cut(_well(facts), LONGEST_LINE)
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return _cut(" ".join(found[0].split()), LONGEST_LINE - len(more)) + more


def _well(facts: Mapping[str, Any]) -> str:
    ports = (facts.get("network") or {}).get("ports") or ()
    return f"{counted(facts.get('nvml_gpus') or 0, 'GPU')} and {counted(len(ports), 'port')} are healthy"


def _cut(text: str, size: int) -> str:
    """So many bytes of a text at most, and no part of a character."""
    data = text.encode(errors="replace")
    return text if len(data) <= size else data[: size - 3].decode(errors="ignore") + "..."
