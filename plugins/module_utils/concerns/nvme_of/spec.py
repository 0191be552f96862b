# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of connections to NVMe subsystems over a network, and what is wrong whatever the machine.

The names are those of the options that the kernel takes at /dev/nvme-fabrics (drivers/nvme/host/fabrics.c).
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NoReturn, Optional, Tuple

from ..._core.errors import DeclarationError
from ..._core.regex import regex
from ..._core.setting import Scalar
from ..._core.value import field, frozen

NAME = "nvme_of"
TCP, RDMA, LOOP = "tcp", "rdma", "loop"
PORT = 4420
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
DISCOVERY = "nqn.2014-08.org.nvmexpress.discovery"


Key = Tuple[str, str, str, str]
"""The name of the subsystem, the transport, and the address and the port, which are empty for loop."""


@frozen
class Connection:
    """A controller to be connected to: a path to a subsystem. ``address`` and ``port`` are empty for loop."""

    nqn: str
    transport: str
    address: str
    port: str
    numbers: Mapping[str, int]

    @property
    def key(self) -> Key:
        return self.nqn, self.transport, self.address, self.port


@frozen
class NvmeOfDeclaration:
    """What is declared. ``policies`` are by the name of the subsystem.

    For ``state: absent``, ``before`` are the values from before us, by connection, subsystem or file, and by setting.
    """

    connections: Tuple[Connection, ...] = ()
    policies: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[Tuple[str, str], Scalar] = field(default_factory=dict)


# What begins the identities of connections and subsystems in records.
MARK = "nvme_of"


def shown_loss(seconds: int, delay: Optional[int]) -> int:
    """What the kernel shows for ``loss_seconds``: it counts attempts, ``delay`` seconds apart, and rounds up."""
    delay = delay or USUAL_DELAY
    return seconds if seconds < 0 else -(-seconds // delay) * delay


def name_of(key: Key) -> str:
    """A connection as messages call it."""
    nqn, transport, address, port = key
    place = f" {f'[{address}]' if ':' in address else address}:{port}" if address else ""
    return f"{nqn} over {transport}{place}"


def identity_of(key: Key) -> str:
    return " ".join((MARK, *key)).rstrip()


def key_of(identity: str) -> Key:
    """The connection of an identity. Raises ``ValueError`` for what is none."""
    words = identity.split(" ")
    if words[0] != MARK or len(words) not in (3, 5):
        raise ValueError(f"{identity!r} is not a connection")
    nqn, transport, address, port = (*words[1:], "", "")[:4]
    return nqn, transport, address, port


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
    if not params["subsystems"]:
        raise DeclarationError(
            "read the declaration", cause="no subsystem is declared", hint="set subsystems, or state: absent"
        )
    connections: List[Connection] = []
    policies: Dict[str, str] = {}
    for number, item in enumerate(params["subsystems"]):
        where = f"subsystems[{number}]"
        nqn = item["nqn"]
        if nqn == DISCOVERY:
            _refuse(f"{where}.nqn", "it tells of subsystems, and has no disk", "declare those that it tells of", nqn)
        if not is_nqn(nqn):
            _refuse(
                f"{where}.nqn", "it is not the name of a subsystem", "set for example nqn.2024-01.com.example:data", nqn
            )
        if nqn in policies or any(nqn == other.nqn for other in connections):
            _refuse(f"{where}.nqn", f"{nqn} is declared twice", "declare all its paths in one entry")
        numbers = {name: _number(f"{where}.{name}", name, item[name]) for name in NUMBERS if item[name] is not None}
        connections += _connections(where, item, numbers)
        if item[POLICY] is not None:
            policies[nqn] = item[POLICY]
    return NvmeOfDeclaration(tuple(connections), policies)


def _connections(where: str, item: Mapping[str, Any], numbers: Mapping[str, int]) -> List[Connection]:
    nqn, transport, paths = item["nqn"], item["transport"], item["paths"]
    if transport == LOOP:
        if paths:
            _refuse(f"{where}.paths", "loop is on this machine, and has no address", "leave paths out")
        return [Connection(nqn, transport, "", "", numbers)]
    if not paths:
        _refuse(f"{where}.paths", "no path is declared", "set the addresses of the target")
    found: List[Connection] = []
    for at, path in enumerate(paths):
        port = path["port"]
        address = one_form(path["address"])
        if not address:
            _refuse(
                f"{where}.paths[{at}].address",
                "it is not an IP address",
                "a name could lead elsewhere at every boot, so write the address",
                path["address"],
            )
        if not 1 <= port <= 65535:
            _refuse(f"{where}.paths[{at}].port", "it is not a port", "set for example 4420", port)
        connection = Connection(nqn, transport, address, str(port), numbers)
        if any(connection.key == other.key for other in found):
            _refuse(f"{where}.paths[{at}]", f"{address}:{port} is declared twice", "leave one of them out")
        found.append(connection)
    return found


def _number(where: str, name: str, value: int) -> int:
    known = NUMBERS[name]
    if not known.low <= value <= known.high:
        _refuse(where, f"it must be from {known.low} to {known.high}", "set a number in that range", value)
    return value


def _refuse(object: str, cause: str, hint: str, wanted: Scalar = None) -> NoReturn:
    raise DeclarationError("declare {}", object=object, cause=cause, wanted=wanted, hint=hint)
