# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ports on which jobs of other nodes connect to this one, and the rules of a firewall that let them in.

NCCL has no option for its ports: bootstrap and sockets take those that the kernel hands out, which are the range of
``net.ipv4.ip_local_port_range``, for IPv6 too. MPI and the PMIx of Slurm do the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Mapping, NoReturn, Optional, Sequence, Tuple

from ..._core.errors import CannotLook, DeclarationError
from ..._core.regex import regex
from ..._core.setting import Scalar
from ..._core.value import frozen

if TYPE_CHECKING:
    from ..._core.protocols import Files

OPTION = "job_ports"
RANGE = "/proc/sys/net/ipv4/ip_local_port_range"
ACCEPT = "accept"
LARGEST_PORT = 65535
_PORTS = regex(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_SETTING = regex(r"tcp ([0-9]{1,5}(?:-[0-9]{1,5})?) from ([0-9a-f.:]+/[0-9]{1,3})")


@frozen
class JobPorts:
    """What is declared: networks in which the other nodes are, and ports beside those that the kernel hands out."""

    networks: Tuple[str, ...]
    ports: Tuple[str, ...]


@frozen
class Rule:
    """TCP connections that are let in: from a network, to a port such as ``29500`` or ports such as ``32768-60999``."""

    network: str
    ports: str

    @property
    def setting(self) -> str:
        return f"tcp {self.ports} from {self.network}"

    @property
    def is_ipv6(self) -> bool:
        return ":" in self.network

    @property
    def bounds(self) -> Tuple[int, int]:
        return bounds_of(self.ports)


def parse(given: Mapping[str, Any]) -> Optional[JobPorts]:
    """None where nothing is declared. Raises ``DeclarationError`` on what no firewall could have, or nobody should."""
    if not any(given.values()):
        return None
    if not given["networks"]:
        _refuse(f"{OPTION}.networks", "no network is declared", "set those in which the other nodes are")
    networks = [_network(f"{OPTION}.networks[{at}]", text) for at, text in enumerate(given["networks"])]
    ports = [_declared_ports(f"{OPTION}.ports[{at}]", str(text)) for at, text in enumerate(given["ports"])]
    for name, found in (("networks", networks), ("ports", ports)):
        for at, text in enumerate(found):
            if text in found[:at]:
                _refuse(f"{OPTION}.{name}[{at}]", f"{text} is declared twice", "leave one of them out")
    return JobPorts(tuple(networks), tuple(ports))


def _network(where: str, text: str) -> str:
    import ipaddress

    try:
        network = ipaddress.ip_network(text, strict=False)
    except ValueError:
        _refuse(where, "it is not a network", "set one such as 10.20.0.0/16 or fd00:20::/64", text)
    if network.prefixlen == 0:
        _refuse(where, "everybody could connect", "set the networks in which the other nodes are", text)
    if "/" in text and ipaddress.ip_interface(text).ip != network.network_address:
        _refuse(where, "it is an address in a network", f"set {network}, or the address alone", text)
    return str(network)


def _declared_ports(where: str, text: str) -> str:
    found = _PORTS.fullmatch(text)
    if found is None:
        _refuse(where, "it is not a port", "set one such as 29500, or several such as 29500-29599", text)
    low, high = bounds_of(text)
    if not 1 <= low <= high <= LARGEST_PORT:
        _refuse(where, f"ports are from 1 to {LARGEST_PORT}, the lower one first", "correct it", text)
    return str(low) if low == high else f"{low}-{high}"


def _refuse(object: str, cause: str, hint: str, wanted: Scalar = None) -> NoReturn:
    raise DeclarationError("declare {}", object=object, cause=cause, wanted=wanted, hint=hint)


def bounds_of(ports: str) -> Tuple[int, int]:
    low, _dash, high = ports.partition("-")
    return int(low), int(high or low)


def rule_of(setting: str) -> Rule:
    """The rule of a setting in a record. Raises ``ValueError`` for what is none."""
    found = _SETTING.fullmatch(setting)
    if found is None:
        raise ValueError(f"{setting!r} is not a rule for ports of jobs")
    return Rule(found[2], found[1])


def rules_of(declared: JobPorts, handed_out: str) -> List[Rule]:
    """One for each network and each range of ports; a port that the kernel hands out needs no rule of its own."""
    low, high = bounds_of(handed_out)
    others = [ports for ports in declared.ports if not is_within(bounds_of(ports), low, high)]
    return [Rule(network, ports) for network in declared.networks for ports in (handed_out, *others)]


def is_within(inner: Sequence[int], low: int, high: int) -> bool:
    return low <= inner[0] and inner[1] <= high


def handed_out(files: Files) -> str:
    """The ports that the kernel gives to who asks for any. Raises ``CannotLook`` where it does not say."""
    words = (files.read_optional(RANGE) or "").split()
    if len(words) != 2 or not all(word.isdecimal() for word in words):
        raise CannotLook("read {}", object=RANGE, cause="it does not hold the first and the last port")
    return f"{words[0]}-{words[1]}"
