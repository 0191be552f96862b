# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``gpufleet status``: what is declared, in effect and of the next boot on this node, as the audit compares it."""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ansible_collections.gpufleet.node.node.declarations import UPDATE, complete_params, load, require
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Host
from ansible_collections.gpufleet.node.plugins.module_utils._core.setting import INVALID, REBOOT
from ansible_collections.gpufleet.node.plugins.module_utils._core.version import VERSION
from ansible_collections.gpufleet.node.plugins.module_utils._core.wording import printable
from ansible_collections.gpufleet.node.plugins.module_utils._linux.systemd import DAEMON_REEXEC, DAEMON_RELOAD
from ansible_collections.gpufleet.node.plugins.module_utils._node.assessment import assess_node, failed
from ansible_collections.gpufleet.node.plugins.module_utils._node.cpu_picture import picture, picture_table
from ansible_collections.gpufleet.node.plugins.module_utils._node.order import RegisteredConcern
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.plugins.module_utils._node.table import (
    UNMANAGED,
    counts_of,
    describe_counts,
    device_table,
    devices_of,
    losers_of,
    rows_of,
    spelled,
    table,
)

# What was left undone for a reason should not be done by hand.
WHY_NOT_NOW = dict.fromkeys((DAEMON_RELOAD, DAEMON_REEXEC), ", which now would take their GPUs from running containers")
# The concerns after which there is a picture of whose the CPUs are.
DIVIDES_CPUS = frozenset(("cpu_isolation", "gpu_slices", "kernel_cmdline", "numa_irq_affinity"))
IN_SYNC_EXIT, DRIFTED_EXIT, PENDING_EXIT, UNKNOWN_EXIT, INVALID_EXIT = 0, 1, 2, 3, 4


def status(
    host: Host,
    *,
    concern: Optional[str] = None,
    as_json: bool = False,
    registry: Sequence[RegisteredConcern] = REGISTRY,
) -> int:
    """Print it and return the exit status, by the worst thing found. Raises ``DeclarationError`` for a wrong name."""
    answer = assess(host, concern=concern, registry=registry)
    if as_json:
        print(json.dumps(answer, indent=1, sort_keys=True))
    else:
        print("\n".join(map(printable, describe(answer))))
    if answer["invalid"]:
        return INVALID_EXIT
    if answer["unknown"] or answer["unknown_at_boot"]:
        return UNKNOWN_EXIT
    if answer["drifted"]:
        return DRIFTED_EXIT
    return PENDING_EXIT if answer["pending"] else IN_SYNC_EXIT


def assess(host: Host, *, concern: Optional[str], registry: Sequence[RegisteredConcern]) -> Dict[str, Any]:
    """The answer of the look at this node; ``node``, ``collection_version``, ``other_releases`` and ``cpus`` are added.

    The last one is whose the CPUs are (``cpu_picture.picture``), where something that is declared divides them.
    """
    declarations = load(host.files, registry)
    require(declarations, () if concern is None else (concern,), goal="look")
    answer = assess_node(
        {name: entry.options for name, entry in declarations.usable.items() if concern in (None, name)},
        host,
        validate=complete_params,
        full=False,
        devices=True,
        excluded=(*declarations.names, *(entry.name for entry in registry if concern not in (None, entry.name))),
        registry=registry,
    )
    for name, error in declarations.broken.items():
        if concern in (None, name):
            answer["concerns"][name] = failed(error)
            answer[INVALID].append(name)
    with contextlib.suppress(GpuFleetError, OSError):
        # What cannot be read is told by the concern that needs it.
        answer["cpus"] = picture(host.files) if DIVIDES_CPUS.intersection(answer["concerns"]) else []
    answer.update(node=os.uname().nodename, collection_version=VERSION, other_releases=declarations.other_releases())
    return answer


def describe(answer: Mapping[str, Any]) -> List[str]:
    """The answer as lines for a person."""
    node = answer["node"]
    concerns: Mapping[str, Mapping[str, Any]] = answer["concerns"]
    rows = rows_of(node, answer)
    lines = table(rows) if rows else []
    devices = devices_of(node, answer)
    lines += device_table(devices) if devices else []
    lines += picture_table(answer["cpus"]) if answer.get("cpus") else []
    lines += [f"on {node} {text}" for text in losers_of(answer)]
    lines += [f"{name}: {result['summary']}" for name, result in concerns.items() if result.get("summary")]
    for name, result in concerns.items():
        lines += [f"{node} needs a reboot: {reason}" for reason in result["reboot_reasons"]]
        lines += [f"{name} needs {need}{WHY_NOT_NOW.get(need, '')}" for need in result["needs"] if need != REBOOT]
    for release, names in answer["other_releases"].items():
        lines.append(
            f"{', '.join(names)} {'was' if len(names) == 1 else 'were'} declared by release {release}, and this is "
            f"{VERSION}. {UPDATE[0].upper()}{UPDATE[1:]}."
        )
    if not concerns:
        lines.append("Nothing is declared on this node.")
    else:
        counts = [
            f"{len(answer[word])} {spelled(word)}"
            for word in ("in_sync", "drifted", "pending", "unknown", "unknown_at_boot", "invalid")
            if answer[word] or word != "unknown_at_boot"
        ]
        settings = counts_of(answer, rows)
        # Without this a node that lacks what is declared reads as one that has it.
        beside = f" Settings: {describe_counts(settings)}." if settings[UNMANAGED] else ""
        lines.append(f"Concerns: {', '.join(count for count in counts if count[0] != '0')}.{beside}")
    return lines
