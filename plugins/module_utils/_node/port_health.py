# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wrong with a port of a network card, by the limits of the node or those of the fleet. Pure."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional

Facts = Mapping[str, Any]

# By how much a counter may grow in an hour; in less than an hour by as much. Sources:
# NVIDIA's NVSentinel (docs/configuration/nic-health-monitor.md) has symbol_error 120 an hour, which is the bit error
# rate of 1e-12 that the InfiniBand specification allows, link_error_recovery 5 a minute, port_rcv_errors and
# roce_slow_restart 10, local_ack_timeout_err 1 and port_xmit_discards 100 a second. rdma-core
# (infiniband-diags/etc/error_thresholds) has 10 for local_link_integrity_errors and excessive_buffer_overrun_errors.
# Ours are link_downed, carrier_changes and rx_crc_errors: a link goes down and comes back when a card is set up at
# boot, and of a wire that is well there is not a wrong checksum a second.
LIMITS: Mapping[str, int] = {
    "symbol_error": 120,
    "link_error_recovery": 300,
    "link_downed": 3,
    "local_link_integrity_errors": 10,
    "excessive_buffer_overrun_errors": 10,
    "port_rcv_errors": 36000,
    "port_xmit_discards": 360000,
    "local_ack_timeout_err": 3600,
    "roce_slow_restart": 36000,
    "carrier_changes": 10,
    "rx_crc_errors": 3600,
}
# A limit that is no limit.
UNLIMITED = -1
# Where counters of InfiniBand stop (PortCounters in its specification), though the kernel's are longer.
ENDS: Mapping[str, int] = {
    "symbol_error": 0xFFFF,
    "port_rcv_errors": 0xFFFF,
    "port_xmit_discards": 0xFFFF,
    "link_error_recovery": 0xFF,
    "link_downed": 0xFF,
    "local_link_integrity_errors": 0xF,
    "excessive_buffer_overrun_errors": 0xF,
}
HOUR = 3600.0
TROUBLED = ("link_error_recovery", "phy_test")
# A slower one of two may be meant to be; one of several equal ones is not.
FEW = 2


def problems_of(
    port: Facts,
    seconds: Optional[float],
    limits: Optional[Mapping[str, int]] = None,
    *,
    required: bool = False,
    rate_gbps: float = 0.0,
) -> List[str]:
    """In words. ``seconds`` is over which its counters have grown, None where that is not known.

    Without ``limits`` they are ``LIMITS``. ``required`` is a port that must be active whatever others are,
    ``rate_gbps`` what each active one must have.
    """
    problems = [*_of_state(port, required=required), *_of_rate(port, rate_gbps)]
    now, best = port.get("pci_gbps"), port.get("best_pci_gbps")
    if now and best and now < best:
        problems.append(f"its PCI Express link carries {now:g} Gb/s, but card and slot support {best:g}")
    return [*problems, *_of_errors(port, seconds, LIMITS if limits is None else limits)]


def _of_state(port: Facts, *, required: bool) -> List[str]:
    state, physical = port.get("state"), port.get("physical_state")
    shown = f" ({physical})" if physical and physical != "link_up" else ""
    if required and state != "active":
        return [f"it is {state or 'in an unknown state'}{shown}, but must be active"]
    if physical in TROUBLED:
        return [f"its link is in {physical.replace('_', ' ')}"]
    if state in ("init", "armed"):
        waits = ", waiting for a subnet manager" if port.get("kind") == "infiniband" else ""
        return [f"it is in the state {state}{waits}"]
    if state != "down" or (physical == "disabled" and port.get("kind") != "infiniband"):
        # Who switched it off, meant to.
        return []
    if port.get("was_active"):
        return [f"it has lost its link{shown}"]
    others = port.get("peers_active") or 0
    if others >= FEW and 2 * others > (port.get("peers") or 0) + 1:
        return [f"it has no link{shown}, but {others} other ports like it have one"]
    return []


def _of_rate(port: Facts, least: float) -> List[str]:
    rate, best = port.get("rate_gbps"), port.get("best_rate_gbps")
    if port.get("state") != "active" or not rate:
        return []
    if least and rate < least:
        return [f"its rate is {rate:g} Gb/s, but must be {least:g}"]
    if best and rate < best:
        return [f"its rate is {rate:g} Gb/s, but a port like it has {best:g}"]
    return []


def _of_errors(port: Facts, seconds: Optional[float], limits: Mapping[str, int]) -> List[str]:
    problems = []
    if port.get("counters_complete") is False:
        problems.append("its counters cannot be read in time: its firmware may hang")
    for error in port.get("errors") or ():
        name, limit = error["counter"], limits.get(error["counter"], UNLIMITED)
        total, growth = error["total"], error["growth"]
        # One that could not be read is not known to be wrong.
        if limit < 0 or total is None:
            continue
        if total == ENDS.get(name):
            problems.append(f"{name} has reached its maximum, {total}: clear it with perfquery -R")
        elif seconds is not None and growth is not None and growth > limit * max(seconds / HOUR, 1.0):
            hours = f"{seconds / HOUR:.1f} hours"
            problems.append(f"{name} has grown by {growth} in {hours}; the limit is {limit} an hour")
    return problems


def limits_with(changes: Mapping[str, int]) -> Dict[str, int]:
    """The limits with some of them changed."""
    return {**LIMITS, **changes}
