# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The ports to which jobs of other nodes connect on this one, and the firewall rules that allow it.

NCCL has no option for its ports: bootstrap and sockets listen on ephemeral ports, those of
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
# What no packet has as its source: none at all, itself, several machines, and IPv4 as programs write it in IPv6.
NOBODY = (
    "0.0.0.0/8",
    "127.0.0.0/8",
    "224.0.0.0/4",
    "255.255.255.255/32",
    "::/128",
    "::1/128",
    "::ffff:0:0/96",
    "ff00::/8",
)
_PORTS = regex(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_SETTING = regex(r"tcp ([0-9]{1,5}(?:-[0-9]{1,5})?) from ([0-9a-f.:]+/[0-9]{1,3})")


@frozen
class JobPorts:
    """What is declared: the networks of the other nodes, and ports beside the ephemeral ones."""

    networks: Tuple[str, ...]
    ports: Tuple[str, ...]


@frozen
class Rule:
    """TCP connections that are allowed: from a network, to a port (``29500``) or a range (``32768-60999``)."""

    network: str
    ports: str

    @property
    def setting(self) -> str:
        return f"tcp {self.ports} from {self.network}"

    @property
    def is_ipv6(self) -> bool:
        return ":" in self.network

    @property
    def colon_ports(self) -> str:
        """As iptables and ufw write a range."""
        return self.ports.replace("-", ":")

    @property
    def bounds(self) -> Tuple[int, int]:
        return bounds_of(self.ports)


def parse(given: Mapping[str, Any]) -> Optional[JobPorts]:
    """None where nothing is declared. Raises ``DeclarationError`` on what no firewall takes, or nobody should."""
    if not any(given.values()):
        return None
    if not given["networks"]:
        _refuse(f"{OPTION}.networks", "no network is declared", "set the networks of the other nodes")
    networks = [_network(f"{OPTION}.networks[{at}]", text) for at, text in enumerate(given["networks"])]
    ports = [_declared_ports(f"{OPTION}.ports[{at}]", str(text)) for at, text in enumerate(given["ports"])]
    _refuse_any_machine(networks)
    for name, found in (("networks", networks), ("ports", ports)):
        for at, text in enumerate(found):
            if text in found[:at]:
                _refuse(f"{OPTION}.{name}[{at}]", f"{text} is declared twice", "leave one of them out")
    return JobPorts(tuple(networks), tuple(ports))


def _network(where: str, text: str) -> str:
    import ipaddress

    try:
        network = ipaddress.ip_network(text, strict=False)
        if "%" in text:
            raise ValueError("a scope is no part of a network")
    except ValueError:
        _refuse(where, "it is not a network", "set for example 10.20.0.0/16 or fd00:20::/64", text)
    if network.prefixlen == 0:
        _refuse(where, "any machine could connect", "set the networks of the other nodes", text)
    if "/" in text and ipaddress.ip_interface(text).ip != network.network_address:
        _refuse(where, "it has host bits set", f"set {network}, or the address alone", text)
    if any(_is_within(network, ipaddress.ip_network(nobody)) for nobody in NOBODY):
        _refuse(where, "no other node connects from there", "set the networks of the other nodes", text)
    return str(network)


def _refuse_any_machine(networks: Sequence[str]) -> None:
    """Both halves of all addresses are all of them."""
    import ipaddress

    for is_ipv6, network in ((False, ipaddress.IPv4Network), (True, ipaddress.IPv6Network)):
        own: List[Any] = [network(text) for text in networks if (":" in text) == is_ipv6]
        if any(one.prefixlen == 0 for one in ipaddress.collapse_addresses(own)):
            cause = "together they are all addresses, so that any machine could connect"
            _refuse(f"{OPTION}.networks", cause, "set the networks of the other nodes")


def _is_within(network: Any, nobody: Any) -> bool:
    return bool(network.version == nobody.version and network.subnet_of(nobody))


def _declared_ports(where: str, text: str) -> str:
    found = _PORTS.fullmatch(text)
    if found is None:
        _refuse(where, "it is neither a port nor a range of ports", "set for example 29500 or 29500-29599", text)
    low, high = bounds_of(text)
    if not 1 <= low <= high <= LARGEST_PORT:
        cause = f"ports are from 1 to {LARGEST_PORT}, and a range begins with the lower one"
        _refuse(where, cause, "set for example 29500 or 29500-29599", text)
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
        raise ValueError(f"{setting!r} is not a rule of {OPTION}")
    return Rule(found[2], found[1])


def rules_of(declared: JobPorts, ephemeral: str) -> List[Rule]:
    """One for each network and each range of ports; an ephemeral port needs no rule of its own."""
    others = [ports for ports in declared.ports if not _is_ephemeral(ports, ephemeral)]
    return [Rule(network, ports) for network in declared.networks for ports in (ephemeral, *others)]


def _is_ephemeral(ports: str, ephemeral: str) -> bool:
    (low, high), (first, last) = bounds_of(ports), bounds_of(ephemeral)
    return first <= low and high <= last


def ephemeral_ports(files: Files) -> str:
    """The range that the kernel has for ephemeral ports. Raises ``CannotLook`` where it does not show one."""
    words = (files.read_optional(RANGE) or "").split()
    if len(words) != 2 or not all(word.isdecimal() for word in words):
        raise CannotLook("read {}", object=RANGE, cause="it does not contain the first and the last port")
    return f"{words[0]}-{words[1]}"
