# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What keeps a node from jobs by its facts alone: sick GPUs and ports. Pure, for the node and the controller."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional

from .port_health import problems_of

Facts = Mapping[str, Any]

DRIVER = "nvidia"
# Why the kernel's log says nothing, where that is as it should be.
NOT_ROOT = "the kernel log is for root only"


def sick_gpus(node: Facts, gpus: int = 0) -> List[str]:
    """A sentence for each problem of each GPU. One that cannot be asked is not called sick."""
    healths = (node.get("health") or {}).get("gpus") or ()
    found = [f"GPU {gpu['pci_address']}: {problem}" for gpu in healths for problem in gpu["problems"]]
    if node.get("nvml_gpus") is not None:
        # Concerns go by what the driver lists, and would be in sync without this one.
        found += [
            f"GPU {gpu['pci_address']}: it is on the bus, but unknown to the driver"
            for gpu in node.get("gpus") or ()
            if gpu["index"] is None and gpu["kernel_driver"] == DRIVER and not gpu.get("lost")
        ]
    miscounted = other_number(node, int(gpus))
    return [*found, miscounted] if miscounted else found


def other_number(node: Facts, wanted: int) -> Optional[str]:
    """What is wrong with the number of GPUs that the driver knows; None where it is ``wanted``, or where that is 0."""
    known = node.get("nvml_gpus")
    if not wanted or known == wanted:
        return None
    return f"there should be {wanted} GPUs, but the driver " + (
        "does not respond" if known is None else f"knows {known}"
    )


def sick_ports(
    node: Facts,
    *,
    limits: Optional[Mapping[str, int]] = None,
    required: Iterable[str] = (),
    ignored: Iterable[str] = (),
    rate_gbps: float = 0.0,
) -> List[str]:
    """A sentence for each problem of each port.

    ``required`` and ``ignored`` are shell globs of names, RDMA devices, interfaces or PCI addresses. A port that is
    both is ignored. ``rate_gbps`` is what each required one must have, or each active one where none is required.
    """
    network = node.get("network") or {}
    ports, globs = network.get("ports") or (), list(required)
    passed_over = [port for port in ports if matches(port, ignored)]
    found: List[str] = []
    for port in ports:
        if port in passed_over:
            continue
        needed = matches(port, globs)
        least = rate_gbps if needed or not globs else 0.0
        problems = problems_of(port, network.get("seconds"), limits, required=needed, rate_gbps=least)
        found += [f"{called(port)}: {problem}" for problem in problems]
    if node.get("network") is not None:
        found += [
            f"port {glob}: there is no such port" for glob in globs if not any(matches(port, [glob]) for port in ports)
        ]
    return found


def called(port: Facts) -> str:
    """A port as people know it."""
    interfaces = [name for name in port.get("interfaces") or () if name != port["name"]]
    return f"port {port['name']}" + (f" ({', '.join(interfaces)})" if interfaces else "")


def matches(port: Facts, globs: Iterable[str]) -> bool:
    names = {port["name"], port["name"].partition("/")[0], port.get("pci_address") or "", *(port["interfaces"] or ())}
    return any(fnmatchcase(name, glob) for name in names for glob in globs)


def unknown_parts(node: Facts) -> Iterator[str]:
    """Why it cannot be said whether the node is well: a driver that does not respond, and what could not be read.

    Who is not root does not read the log of the kernel, and gets an answer without it.
    """
    reasons: Dict[str, str] = node.get("unavailable") or {}
    driven = any(gpu.get("kernel_driver") == DRIVER for gpu in node.get("gpus") or ())
    for part in ("gpus", "health", "network"):
        if part in node and node[part] is None:
            yield f"{part}: {reasons.get(part, 'not known')}"
    log = (node.get("health") or {}).get("unavailable", {}).get("xids", NOT_ROOT)
    if driven and log != NOT_ROOT:
        yield f"the errors of GPUs in the kernel log: {log}"
    if driven and node.get("nvml_gpus") is None:
        yield reasons.get("nvml_gpus") or "the NVIDIA driver does not respond"
