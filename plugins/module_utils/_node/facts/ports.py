# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ports of network cards: their link, what of it they could have, and how their error counters have grown."""

from __future__ import annotations

import errno
import time
from typing import TYPE_CHECKING, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ..._core.regex import regex
from ..._machine.numbers import MAX_SHOWN
from ..port_health import problems_of
from . import port_record
from .fields import Facts, Fields, read, read_as, why
from .pci import NIC, NOT_ON_BUS, PciDevice

if TYPE_CHECKING:
    from ..._core.protocols import Files

UPTIME = "/proc/uptime"
NET = "/sys/class/net"
# The numbers of enum ib_port_state and ib_port_phys_state in rdma/ib_verbs.h; sysfs writes "4: ACTIVE".
STATES = {"1": "down", "2": "init", "3": "armed", "4": "active", "5": "active"}
PHYSICAL_STATES = {
    "1": "sleep",
    "2": "polling",
    "3": "disabled",
    "4": "training",
    "5": "link_up",
    "6": "link_error_recovery",
    "7": "phy_test",
}
KINDS = {"InfiniBand": "infiniband", "Ethernet": "roce"}
ETHERNET = "ethernet"
IFF_UP = 1
# Documentation/ABI/stable/sysfs-class-infiniband.
PORT_COUNTERS = (
    *("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_rcv_remote_physical_errors"),
    *("port_xmit_discards", "port_xmit_constraint_errors", "port_rcv_constraint_errors"),
    *("local_link_integrity_errors", "excessive_buffer_overrun_errors"),
)
# Those of drivers/infiniband/hw/mlx5/counters.c that tell of lost or late packets. Other drivers have some of them.
HARDWARE_COUNTERS = (
    *("out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err", "implied_nak_seq_err"),
    *("roce_slow_restart", "roce_adp_retrans", "rx_icrc_encapsulated", "out_of_buffer"),
)
# Documentation/ABI/testing/sysfs-class-net-statistics.
STATISTICS = ("rx_crc_errors", "rx_errors", "tx_errors", "rx_missed_errors", "tx_carrier_errors")
# A card whose firmware has hung lets every read wait for it.
BUDGET_SECONDS = 10.0
# What a counter says that the driver does not count (get_perf_mad in drivers/infiniband/core/sysfs.c).
NOT_COUNTED = (errno.ENOSYS, errno.EOPNOTSUPP)
# The same in older kernels (show_pma_counter).
NO_PMA = "N/A (no PMA)"
COUNT = regex(r"[0-9]+")
# What of a link carries data, by the speed of a lane: 8b/10b, 128b/130b, and FLITs from PCI Express 6.
ENCODINGS = ((64.0, 236 / 256), (8.0, 128 / 130), (0.0, 8 / 10))
_RATE = regex(r"(\d+(?:\.\d+)?) Gb/sec")
_FUNCTION_OF_ANOTHER = regex(r"pf\d+(?:vf|sf)\d+|c\d+pf\d+.*")
# A counter, and where it is None, why it could not be read.
Count = Tuple[Optional[int], str]


def gather(files: Files, devices: Sequence[PciDevice], links: Mapping[str, Facts]) -> Facts:
    """Every port with what is wrong with it. Growth is counted from the record, and without one from the boot on."""
    fields = Fields()
    now, reason = read_as(files, UPTIME, lambda text: float(text.split()[0]))
    reference, note = port_record.load(files)
    fields.add("since", "boot" if reference is None else "record")
    seconds = None if now is None else now - (reference.seconds if reference else 0.0)
    fields.add("seconds", None if seconds is None else int(seconds), reason)
    fields.add("note", note)
    reader = _Reader(files)
    cards = [card for card in devices if card.kind == NIC and not files.link(f"{card.path}/physfn")]
    found = [(reader.alike(card), port) for card in cards for port in reader.ports(card, links.get(card.address))]
    for alike, port in found:
        peers = [other for kind, other in found if kind == alike and other is not port]
        _compare(port, peers)
        before = reference.counters.get(port["name"]) if reference else {}
        port["errors"] = [
            _error(name, count, None if before is None else before.get(name, 0))
            for name, count in port["errors"].items()
        ]
        port["problems"] = problems_of(port, seconds)
        port["healthy"] = not port["problems"]
    # In the order of the fields as they are documented.
    fields.add("ports", [{name: port[name] for name in (*_FIELDS, "unavailable")} for _alike, port in found])
    return fields.facts


_FIELDS = (
    *("name", "kind", "pci_address", "interfaces", "healthy", "problems", "state", "physical_state", "was_active"),
    *("rate_gbps", "best_rate_gbps", "peers", "peers_active", "pci_gbps", "best_pci_gbps"),
    *("errors", "counters_complete"),
)


def _error(name: str, count: Count, before: Optional[int]) -> Facts:
    """A counter with its growth; ``before`` is None where it could not be read then, or the port was not there."""
    total, reason = count
    fields = Fields(counter=name)
    fields.add("total", total, reason)
    if total is None or before is None:
        fields.add("growth", None, reason or "it could not be read when the counters were saved")
    else:
        # Less than before: the driver or the card began anew.
        fields.add("growth", total if total < before else total - before)
    return fields.facts


def _compare(port: Facts, peers: Sequence[Facts]) -> None:
    """What others of the same kind have shows what a port could have: sysfs does not say it."""
    rates = [other["rate_gbps"] for other in (port, *peers) if other["state"] == "active" and other["rate_gbps"]]
    port["best_rate_gbps"] = max(rates, default=None)
    if not rates:
        port["unavailable"]["best_rate_gbps"] = "no port of this kind is active"
    port["peers"] = len(peers)
    port["peers_active"] = sum(other["state"] == "active" for other in peers)


class _Reader:
    """Reads ports from sysfs, and no more counters once they have taken their time."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._end = time.monotonic() + BUDGET_SECONDS

    def alike(self, card: PciDevice) -> Tuple[Optional[str], ...]:
        """What ports have in common that should have the same link: the board, and their place on it."""
        board = [read(self._files, f"{card.path}/subsystem_{name}")[0] for name in ("vendor", "device")]
        return (card.vendor, card.device, *board, card.address.rpartition(".")[2])

    def ports(self, card: PciDevice, link: Optional[Facts]) -> Iterator[Facts]:
        rdma = self._files.names(f"{card.path}/infiniband")
        interfaces = [name for name in card.names if name not in rdma and not self._of_another(card, name)]
        for device in rdma:
            numbers = self._files.names(f"{card.path}/infiniband/{device}/ports")
            for number in numbers:
                path = f"{card.path}/infiniband/{device}/ports/{number}"
                own = self._own(path, interfaces, alone=len(numbers) == 1)
                interfaces = [name for name in interfaces if name not in own]
                yield self._rdma_port(card, f"{device}/{number}", path, own, link)
        for name in interfaces:
            yield self._interface(card, name, link)

    def _of_another(self, card: PciDevice, name: str) -> bool:
        """Whether an interface stands for a virtual function on the switch of the card."""
        if len(card.names) < 3:
            return False
        port, _reason = read(self._files, f"{NET}/{name}/phys_port_name")
        return bool(port and _FUNCTION_OF_ANOTHER.fullmatch(port))

    def _own(self, path: str, interfaces: Sequence[str], *, alone: bool) -> List[str]:
        """The interfaces of an RDMA port. In a bond it has that of the bond, and the cards keep their own."""
        entry, _reason = read(self._files, f"{path}/gid_attrs/ndevs/0")
        if entry:
            return [name for name in interfaces if name == entry]
        if alone:
            return list(interfaces)
        number = str(int(path.rpartition("/")[2]) - 1) if path[-1].isdecimal() else ""
        return [name for name in interfaces if read(self._files, f"{NET}/{name}/dev_port")[0] == number]

    def _rdma_port(self, card: PciDevice, name: str, path: str, own: Sequence[str], link: Optional[Facts]) -> Facts:
        layer, _reason = read(self._files, f"{path}/link_layer")
        fields = Fields(name=name, kind=KINDS.get(layer or "", "other"), pci_address=card.address, interfaces=[*own])
        state, reason = read_as(self._files, f"{path}/state", lambda text: STATES.get(text.partition(":")[0]))
        fields.add("state", state, reason)
        fields.add(
            "physical_state",
            *read_as(self._files, f"{path}/phys_state", lambda text: PHYSICAL_STATES.get(text.partition(":")[0])),
        )
        fields.add("rate_gbps", *(read_as(self._files, f"{path}/rate", _rate) if state == "active" else NO_LINK))
        errors = self._errors(f"{path}/counters", PORT_COUNTERS, fields)
        errors.update(self._errors(f"{path}/hw_counters", HARDWARE_COUNTERS, fields))
        for interface in own:
            errors.update(self._of_interface(interface, fields))
        downed = bool(errors.get("link_downed", NONE)[0])
        was_active = True if state not in (None, "down") or downed else self._was_active(own)
        fields.add("was_active", was_active, "its counters do not say it")
        return _finished(fields, errors, link)

    def _interface(self, card: PciDevice, name: str, link: Optional[Facts]) -> Facts:
        fields = Fields(name=name, kind=ETHERNET, pci_address=card.address, interfaces=[name])
        flags, _reason = read_as(self._files, f"{NET}/{name}/flags", lambda text: int(text, 16))
        # Reading it of an interface that is switched off is an error.
        carrier, reason = read_as(self._files, f"{NET}/{name}/carrier", int)
        if flags is not None and not flags & IFF_UP:
            state: Optional[str] = "disabled"
        elif carrier is None:
            operational, reason = read(self._files, f"{NET}/{name}/operstate")
            state = {"up": "active", "down": "down"}.get(operational or "")
        else:
            state = "active" if carrier else "down"
        fields.add("state", state, reason or "the kernel does not know it")
        fields.lack("only RDMA devices show it in /sys", "physical_state")
        active = state == "active"
        fields.add("rate_gbps", *(read_as(self._files, f"{NET}/{name}/speed", _speed) if active else NO_LINK))
        fields.add("was_active", active or self._was_active((name,)), "the kernel does not count it")
        return _finished(fields, self._of_interface(name, fields), link)

    def _was_active(self, interfaces: Sequence[str]) -> Optional[bool]:
        counts = [read_as(self._files, f"{NET}/{name}/carrier_up_count", int)[0] for name in interfaces]
        known = [count for count in counts if count is not None]
        return any(known) if known else None

    def _of_interface(self, name: str, fields: Fields) -> Dict[str, Count]:
        found = self._errors(f"{NET}/{name}/statistics", STATISTICS, fields)
        found.update(self._errors(f"{NET}/{name}", ("carrier_changes",), fields))
        return found

    def _errors(self, folder: str, wanted: Sequence[str], fields: Fields) -> Dict[str, Count]:
        """Those of the counters in a folder that are not 0, or not known."""
        found = {}
        there = self._files.names(folder)
        for name in wanted:
            if name not in there:
                continue
            if time.monotonic() > self._end:
                fields.add("counters_complete", False)
                break
            count = self._count(f"{folder}/{name}")
            if count != NONE:
                found[name] = count
        return found

    def _count(self, path: str) -> Count:
        """A counter; one that the driver does not count is 0.

        One that could not be read is no 0: it would seem to have grown by all that it has the next time.
        """
        reason = ""
        # The firmware may be busy.
        for _attempt in range(2):
            try:
                text = self._files.read(path).strip()
            except OSError as error:
                if error.errno in NOT_COUNTED:
                    return NONE
                reason = why(error, path)
                continue
            if COUNT.fullmatch(text):
                return int(text), ""
            if text == NO_PMA:
                return NONE
            reason = f"{path} reads {text[:MAX_SHOWN]!r}"
        return None, reason


NONE: Count = (0, "")
NO_LINK = (None, "it has no link")


def _finished(fields: Fields, errors: Mapping[str, Count], link: Optional[Facts]) -> Facts:
    now, best = _pci(link or {}, "", ""), _pci(link or {}, "max_", "slot_max_")
    fields.add("pci_gbps", now, "the link is not known" if link else NOT_ON_BUS)
    fields.add("best_pci_gbps", best, "the link is not known" if link else NOT_ON_BUS)
    fields.add("errors", errors)
    return {"counters_complete": True, **fields.facts}


def _pci(link: Facts, card: str, slot: str) -> Optional[float]:
    """What a link carries in Gb/s each way, where it is as the lesser of both ends has it."""
    speeds = [link.get(f"{end}speed_gts") for end in (card, slot)]
    widths = [link.get(f"{end}width") for end in (card, slot)]
    if not all(speeds) or not all(widths):
        return None
    speed, width = min(filter(None, speeds)), min(filter(None, widths))
    encoding = next(part for least, part in ENCODINGS if speed >= least)
    return round(float(speed) * int(width) * encoding, 1)


def _rate(text: str) -> Optional[float]:
    match = _RATE.match(text)
    return float(match[1]) if match else None


def _speed(text: str) -> Optional[float]:
    """Gb/s of the Mb/s that an interface says; it says -1 where it does not know."""
    number = int(text)
    return number / 1000 if 0 < number < 0xFFFFFFFF else None
