# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of connections to NVMe subsystems over a network, and what is wrong whatever the machine.

The names are those of the options that the kernel takes at /dev/nvme-fabrics (drivers/nvme/host/fabrics.c).
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NoReturn, Optional, Sequence, Tuple

from ..._core import match
from ..._core.errors import DeclarationError
from ..._core.match import MatchEntry
from ..._core.regex import regex
from ..._core.setting import Scalar
from ..._core.value import field, frozen

NAME = "nvme_of"
TCP, RDMA, LOOP = "tcp", "rdma", "loop"
POLICY = "io_policy"


@frozen
class FabricsOption:
    """A number of a connection: what the kernel calls it when it connects, the file that shows it, and its range.

    ``added`` is what the file shows beyond the number. What is not ``written`` stays until the next connection.
    """

    name: str
    file: str
    low: int
    high: int
    added: int = 0
    written: bool = False


# A queue more than for I/O is for administration, and the size is shown less one (NVM Express, CAP.MQES).
NUMBERS: Mapping[str, FabricsOption] = {
    "io_queues": FabricsOption("nr_io_queues", "queue_count", 1, 65535, added=1),
    "queue_size": FabricsOption("queue_size", "sqsize", 16, 1024, added=-1),
    "keep_alive_seconds": FabricsOption("keep_alive_tmo", "kato", 1, 3600),
    "reconnect_seconds": FabricsOption("reconnect_delay", "reconnect_delay", 1, 3600, written=True),
    # -1 is for ever.
    "loss_seconds": FabricsOption("ctrl_loss_tmo", "ctrl_loss_tmo", -1, 86400, written=True),
    "fail_seconds": FabricsOption("fast_io_fail_tmo", "fast_io_fail_tmo", 0, 86400, written=True),
}
DELAY, LOSS = "reconnect_seconds", "loss_seconds"
# NVMF_DEF_RECONNECT_DELAY of the kernel.
USUAL_DELAY = 10
# NVM Express Base Specification, NVMe Qualified Names: at most 223 bytes. What the kernel splits at is not in one.
_NQN = regex(r"nqn\.[0-9]{4}-[0-9]{2}\.[A-Za-z0-9._-]+(?::[A-Za-z0-9._:-]+)?")
LONGEST_NQN = 223
# IFNAMSIZ of the kernel, and neither what it splits a line at nor what a shell reads.
_INTERFACE = regex(r"[A-Za-z0-9._:-]{1,15}")
# The files with the secrets of this host and of the target, by what the kernel calls these.
HOST_KEY, TARGET_KEY = "dhchap_key_file", "dhchap_ctrl_key_file"
SECRETS: Mapping[str, str] = {"dhchap_secret": HOST_KEY, "dhchap_ctrl_secret": TARGET_KEY}
# A path that a shell and systemd leave as it is.
_PATH = regex(r"/[A-Za-z0-9._/-]+")
# What an entry of a discovery log can be chosen by.
MATCH_KEYS = ("nqn", "address")
DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"


Key = Tuple[str, str, str, str, str, str]
"""The name of the subsystem, the transport, address and port, and the address and the interface of this host.

All behind the transport are empty for loop, and the last two where it is left to the kernel from where it connects.
"""
PLACE = slice(0, 4)
"""What of a key is the target's."""
FROM, ON = "host_address", "host_interface"


Secrets = Tuple[Tuple[str, str], ...]
"""What the kernel calls a secret, and the file that holds it: that of this host, and where it has one, the target's."""


@frozen
class Connection:
    """A controller to be connected to: a path to a subsystem. For loop it has no address and no port."""

    key: Key
    numbers: Mapping[str, int] = field(default_factory=dict)
    secrets: Secrets = ()

    @property
    def nqn(self) -> str:
        return self.key[0]

    @property
    def transport(self) -> str:
        return self.key[1]

    @property
    def authentication(self) -> Optional[str]:
        """Who proves who they are, None where nothing is said of it."""
        return (None, "of this host", "of both sides")[len(self.secrets)]


@frozen
class Discovery:
    """A discovery controller to be connected to. What it tells of is connected where it matches, with these values."""

    key: Key
    match: MatchEntry
    numbers: Mapping[str, int]
    policy: Optional[str]
    secrets: Secrets = ()


@frozen
class NvmeOfDeclaration:
    """What is declared. ``policies`` are by the name of the subsystem.

    For ``state: absent``, ``before`` are the values from before us, by connection, subsystem or file, and by setting.
    """

    connections: Tuple[Connection, ...] = ()
    policies: Mapping[str, str] = field(default_factory=dict)
    discovery: Tuple[Discovery, ...] = ()
    before: Mapping[Tuple[str, str], Scalar] = field(default_factory=dict)

    @property
    def at_boot(self) -> Tuple[Connection, ...]:
        """What is connected without being told of: discovery controllers come first, for it takes a moment to ask."""
        return (*(Connection(one.key, secrets=one.secrets) for one in self.discovery), *self.connections)


# What begins the identities of connections and subsystems in records.
MARK = "nvme_of"


def shown_loss(seconds: int, delay: Optional[int]) -> int:
    """What the kernel shows for ``loss_seconds``: it counts attempts, ``delay`` seconds apart, and rounds up."""
    delay = delay or USUAL_DELAY
    return seconds if seconds < 0 else -(-seconds // delay) * delay


def name_of(key: Key) -> str:
    """A connection as messages call it."""
    nqn, transport, address, port, host_address, interface = key
    target = "discovery controller" if nqn == DISCOVERY else nqn
    place = f" {f'[{address}]' if ':' in address else address}:{port}" if address else ""
    way = (f" from {host_address}" if host_address else "") + (f" on {interface}" if interface else "")
    return f"{target} over {transport}{place}{way}"


def identity_of(key: Key) -> str:
    way = [f"{name}={value}" for name, value in zip((FROM, ON), key[4:]) if value]
    return " ".join((MARK, *(word for word in key[PLACE] if word), *way))


def key_of(identity: str) -> Key:
    """The connection of an identity. Raises ``ValueError`` for what is none."""
    mark, *words = identity.split(" ")
    place = [word for word in words if "=" not in word]
    way = dict(word.split("=", 1) for word in words if "=" in word)
    if mark != MARK or len(place) not in (2, 4) or not way.keys() <= {FROM, ON}:
        raise ValueError(f"{identity!r} is not a connection")
    nqn, transport, address, port = (*place, "", "")[:4]
    return nqn, transport, address, port, way.get(FROM, ""), way.get(ON, "")


def is_nqn(text: str) -> bool:
    return bool(_NQN.fullmatch(text)) and len(text) <= LONGEST_NQN


def one_form(address: str) -> str:
    """An IP address as all write it who mean the same, empty for what is none."""
    import socket

    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            return socket.inet_ntop(family, socket.inet_pton(family, address))
        except (OSError, ValueError):
            continue
    return ""


def parse(params: Mapping[str, Any]) -> NvmeOfDeclaration:
    """Raises ``DeclarationError`` on what no machine could have."""
    if not params["subsystems"] and not params["discovery"]:
        raise DeclarationError(
            "read the declaration",
            cause="no subsystem and no discovery controller is declared",
            hint="set subsystems or discovery, or state: absent",
        )
    connections: List[Connection] = []
    policies: Dict[str, str] = {}
    for number, item in enumerate(params["subsystems"]):
        where = f"subsystems[{number}]"
        nqn = item["nqn"]
        if nqn == DISCOVERY:
            _refuse(f"{where}.nqn", "it tells of subsystems, and has no disk", "declare it under discovery", nqn)
        if not is_nqn(nqn):
            _refuse(
                f"{where}.nqn", "it is not the name of a subsystem", "set for example nqn.2024-01.com.example:data", nqn
            )
        if nqn in policies or any(nqn == other.nqn for other in connections):
            _refuse(f"{where}.nqn", f"{nqn} is declared twice", "declare all its paths in one entry")
        connections += _connections(where, item, _numbers(where, item))
        if item[POLICY] is not None:
            policies[nqn] = item[POLICY]
    return NvmeOfDeclaration(tuple(connections), policies, _discovery(params["discovery"]))


def _connections(where: str, item: Mapping[str, Any], numbers: Mapping[str, int]) -> List[Connection]:
    nqn, transport, paths = item["nqn"], item["transport"], item["paths"]
    secrets = _secrets(where, item)
    if transport == LOOP:
        if paths:
            _refuse(f"{where}.paths", "loop is on this machine, and has no address", "leave paths out")
        return [Connection((nqn, transport, "", "", "", ""), numbers, secrets)]
    if not paths:
        _refuse(f"{where}.paths", "no path is declared", "set the addresses of the target")
    found: List[Connection] = []
    for at, path in enumerate(paths):
        key = _key(f"{where}.paths[{at}]", nqn, transport, path)
        _refuse_twice(f"{where}.paths[{at}]", key, [other.key for other in found])
        found.append(Connection(key, numbers, secrets))
    return found


def _discovery(items: Sequence[Mapping[str, Any]]) -> Tuple[Discovery, ...]:
    entries = match.parse("discovery", items, MATCH_KEYS)
    found: List[Discovery] = []
    for item, entry in zip(items, entries):
        key = _key(entry.where, DISCOVERY, item["transport"], item)
        _refuse_twice(entry.where, key, [other.key for other in found])
        secrets = _secrets(entry.where, item)
        found.append(Discovery(key, entry, _numbers(entry.where, item), item[POLICY], secrets))
    return tuple(found)


def _key(where: str, nqn: str, transport: str, path: Mapping[str, Any]) -> Key:
    address = _address(f"{where}.address", path["address"])
    port = path["port"]
    if not 1 <= port <= 65535:
        _refuse(f"{where}.port", "it is not a port", "set for example 4420", port)
    host_address = _address(f"{where}.{FROM}", path[FROM]) if path[FROM] is not None else ""
    if host_address and (":" in host_address) != (":" in address):
        _refuse(f"{where}.{FROM}", f"one of it and {address} is IPv6, and the other is not", "declare two of a kind")
    interface = path[ON] or ""
    if interface and transport != TCP:
        _refuse(f"{where}.{ON}", f"the kernel takes none for {transport}", f"set {FROM}")
    if path[ON] is not None and not _INTERFACE.fullmatch(interface):
        _refuse(f"{where}.{ON}", "it is not the name of an interface", "set for example ens1f0", interface)
    return nqn, transport, address, str(port), host_address, interface


def _address(where: str, written: str) -> str:
    address = one_form(written)
    if not address:
        hint = "a name could lead elsewhere at every boot, so write the address"
        _refuse(where, "it is not an IP address", hint, written)
    return address


def _refuse_twice(where: str, key: Key, others: Sequence[Key]) -> None:
    if key in others:
        _refuse(where, f"{key[2]}:{key[3]} is declared twice", "leave one of them out")


def _numbers(where: str, item: Mapping[str, Any]) -> Dict[str, int]:
    return {name: _number(f"{where}.{name}", name, item[name]) for name in NUMBERS if item[name] is not None}


def _secrets(where: str, item: Mapping[str, Any]) -> Secrets:
    found = [(option, name, item[name]) for option, name in SECRETS.items() if item[name] is not None]
    for _option, name, path in found:
        if not _PATH.fullmatch(path):
            _refuse(f"{where}.{name}", "it is not a plain absolute path", "set for example /etc/nvme/host.key", path)
    if [name for _option, name, _path in found] == [TARGET_KEY]:
        cause = "the target proves who it is only to a host that does so too"
        _refuse(f"{where}.{TARGET_KEY}", cause, f"set {HOST_KEY} as well")
    return tuple((option, path) for option, _name, path in found)


def _number(where: str, name: str, value: int) -> int:
    known = NUMBERS[name]
    if not known.low <= value <= known.high:
        _refuse(where, f"it must be from {known.low} to {known.high}", "set a number in that range", value)
    return value


def _refuse(object: str, cause: str, hint: str, wanted: Scalar = None) -> NoReturn:
    raise DeclarationError("declare {}", object=object, cause=cause, wanted=wanted, hint=hint)
