# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What can be declared of the fabric of a node, and what is wrong whatever the machine."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Mapping, Sequence, Tuple

from ..._core.errors import DeclarationError
from ..._core.regex import regex
from ..._core.value import field, frozen

NAME = "fabric_manager"
IF_NEEDED = "if_needed"
REQUIRED = "required"

CONFIG = "config"
IMEX_CONFIG = "imex_config"
IMEX_NODES = "imex_nodes"
GOAL = "use {}"

# No key has a number of more digits, and Python makes none of thousands.
NUMBER = regex(r"-?[0-9]{1,20}", re.ASCII)
FLAG = ("0", "1")
# What each key may have, None for any text: the Fabric Manager user guide, "Fabric Manager Config Options".
FABRIC_KEYS: Mapping[str, Any] = {
    "ABORT_CUDA_JOBS_ON_FM_EXIT": FLAG,
    "ACCESS_LINK_FAILURE_MODE": FLAG,
    "BIND_INTERFACE_IP": None,
    "DAEMONIZE": FLAG,
    "FABRIC_MODE": ("0", "1", "2"),
    "FABRIC_MODE_RESTART": FLAG,
    "FM_CMD_BIND_INTERFACE": None,
    "FM_CMD_PORT_NUMBER": (1, 65535),
    "FM_CMD_UNIX_SOCKET_PATH": None,
    "FM_SM_IPC_INTERFACE": None,
    "FM_STAY_RESIDENT_ON_FAILURES": FLAG,
    "LOG_APPEND_TO_LOG": FLAG,
    "LOG_FILE_MAX_SIZE": (1, 1 << 31),
    "LOG_FILE_NAME": None,
    "LOG_LEVEL": (0, 4),
    "LOG_USE_SYSLOG": FLAG,
    "NVSWITCH_FAILURE_MODE": FLAG,
    "STARTING_TCP_PORT": (1, 65535),
    "STATE_FILE_NAME": None,
    "TOPOLOGY_FILE_PATH": None,
    "TRUNK_LINK_FAILURE_MODE": FLAG,
    "UNIX_SOCKET_PATH": None,
}
# The IMEX guide, "Configuration Options".
IMEX_KEYS: Mapping[str, Any] = {
    "BIND_INTERFACE_IP": None,
    "DAEMONIZE": FLAG,
    "IMEX_CMD_BIND_INTERFACE_IP": None,
    "IMEX_CMD_ENABLED": FLAG,
    "IMEX_CMD_PORT": (1, 65535),
    "IMEX_CMD_UNIX_DOMAIN_PATH": None,
    "IMEX_CONN_WAIT_TIMEOUT": (0, 1 << 31),
    "IMEX_ENABLE_AUTH_ENCRYPTION": FLAG,
    "IMEX_NODE_DISCONNECTED_GRACE_TIME": (-1, 1 << 31),
    "IMEX_WAIT_FOR_QUORUM": ("NONE", "RECOVERY", "FULL"),
    "LOG_FILE_NAME": None,
    "LOG_LEVEL": (0, 4),
    "NETWORK_INTERFACE": None,
    "SERVER_PORT": (1, 65535),
}
# What the daemons have where the file says nothing.
FABRIC_DEFAULTS = {
    "ABORT_CUDA_JOBS_ON_FM_EXIT": "1",
    "ACCESS_LINK_FAILURE_MODE": "0",
    "BIND_INTERFACE_IP": "127.0.0.1",
    "DAEMONIZE": "1",
    "FABRIC_MODE": "0",
    "FABRIC_MODE_RESTART": "0",
    "FM_CMD_BIND_INTERFACE": "127.0.0.1",
    "FM_CMD_PORT_NUMBER": "6666",
    "FM_CMD_UNIX_SOCKET_PATH": "",
    "FM_STAY_RESIDENT_ON_FAILURES": "0",
    "LOG_APPEND_TO_LOG": "1",
    "LOG_FILE_MAX_SIZE": "1024",
    "LOG_FILE_NAME": "/var/log/fabricmanager.log",
    "LOG_LEVEL": "4",
    "LOG_USE_SYSLOG": "0",
    "NVSWITCH_FAILURE_MODE": "0",
    "STARTING_TCP_PORT": "16000",
    "STATE_FILE_NAME": "/var/tmp/fabricmanager.state",
    "TOPOLOGY_FILE_PATH": "/usr/share/nvidia/nvswitch",
    "TRUNK_LINK_FAILURE_MODE": "0",
    "UNIX_SOCKET_PATH": "",
}
IMEX_DEFAULTS = {
    "IMEX_CMD_ENABLED": "0",
    "IMEX_CMD_PORT": "50005",
    "IMEX_ENABLE_AUTH_ENCRYPTION": "0",
    "IMEX_NODE_DISCONNECTED_GRACE_TIME": "-1",
    "SERVER_PORT": "50000",
}
# Keys that somebody else fills in, with who it is.
FOREIGN = {
    "FM_SM_MGMT_PORT_GUID": "the start script of the Fabric Manager fills it in at each start",
    "IMEX_NODE_CONFIG_FILE": "it names the file that imex_nodes writes",
}


@frozen
class FabricDeclaration:
    """What is wanted of the daemons. For ``state: absent`` the values are those keys that are looked at.

    ``required`` refuses hardware that needs no daemon. ``nodes`` are the addresses of the IMEX domain in their order.
    """

    required: bool = False
    hold: bool = False
    config: Mapping[str, str] = field(default_factory=dict)
    imex_config: Mapping[str, str] = field(default_factory=dict)
    nodes: Tuple[str, ...] = ()
    channel: bool = False


def parse(params: Mapping[str, Any]) -> FabricDeclaration:
    """Raises ``DeclarationError`` on what no machine could have."""
    service = params["service"]
    if service not in (None, IF_NEEDED, REQUIRED):
        raise DeclarationError(
            GOAL,
            object="service",
            cause=f"it cannot be {service!r}",
            hint=f"set {IF_NEEDED}, which fits every node of a mixed fleet, or {REQUIRED}",
        )
    nodes = parse_nodes(params["imex_nodes"])
    declaration = FabricDeclaration(
        required=service == REQUIRED,
        hold=params["hold"],
        config=parse_values(CONFIG, params["config"], FABRIC_KEYS),
        imex_config=parse_values(IMEX_CONFIG, params["imex_config"], IMEX_KEYS),
        nodes=nodes,
        channel=params["imex_channel"],
    )
    filled = [name for name in (CONFIG, IMEX_CONFIG, IMEX_NODES) if params[name]]
    if filled and not params["permanent"]:
        raise DeclarationError(
            GOAL,
            object=filled[0],
            cause="it is written to a file, which counts at the next boot too",
            hint="leave it out, or set permanent: true",
        )
    if service is None and not (declaration.config or declaration.imex_config or nodes):
        raise DeclarationError(
            "read the declaration", cause="nothing is declared", hint=f"set service: {IF_NEEDED}, or a config"
        )
    return declaration


def parse_values(option: str, values: Mapping[Any, Any], known: Mapping[str, Any]) -> Mapping[str, str]:
    """The values of an option as the file has them. Raises ``DeclarationError``."""
    found: Dict[str, str] = {}
    for name, value in values.items():
        where = f"{option}.{name}"
        if name in FOREIGN:
            raise DeclarationError(GOAL, object=where, cause=FOREIGN[name], hint="leave it out")
        if name not in known:
            from ..._core.nearest import did_you_mean

            hint = did_you_mean(name, known, otherwise="see the keys in the file that the package ships")
            raise DeclarationError(GOAL, object=where, cause="there is no such key", hint=hint)
        text = _text(value)
        cause = _fault(text, known[name])
        if cause:
            raise DeclarationError(GOAL, object=where, cause=cause, found=str(text))
        found[str(name)] = str(text)
    return found


def _text(value: Any) -> Any:
    if isinstance(value, bool):
        return str(int(value))
    return str(value) if isinstance(value, (int, str)) else value


def _fault(text: Any, rule: Any) -> str:
    if not isinstance(text, str):
        return "it is not a string or a number"
    if not text.isprintable() or text != text.strip():
        return "a line of the file cannot hold a line break, a control character or blanks around the value"
    if rule is None:
        return ""
    if isinstance(rule[0], int):
        lowest, highest = rule
        if not NUMBER.fullmatch(text) or not lowest <= int(text) <= highest:
            return f"it must be a number from {lowest} to {highest}"
        return ""
    return "" if text in rule else f"it must be one of {', '.join(rule)}"


def parse_nodes(entries: Sequence[Any]) -> Tuple[str, ...]:
    """The addresses of the domain. Raises ``DeclarationError``, as the daemon takes no names into its key."""
    found: List[str] = []
    for entry in entries:
        address = normal_address(entry)
        if not address:
            raise DeclarationError(
                GOAL,
                object=IMEX_NODES,
                cause=f"{entry!r} is not an IP address",
                hint="give the management address of each compute node, in the same order on all of them",
            )
        if address in found:
            raise DeclarationError(GOAL, object=IMEX_NODES, cause=f"{address} is listed twice", hint="remove one")
        found.append(address)
    return tuple(found)


def normal_address(entry: Any) -> str:
    """An IP address in its one form, empty for what is none."""
    if not isinstance(entry, str):
        return ""
    parts = entry.split(".")
    if ":" not in entry:
        right = len(parts) == 4 and all(part.isdigit() and part.isascii() and int(part) < 256 for part in parts)
        return entry if right and all(part == str(int(part)) for part in parts) else ""
    # Seldom: a module for it costs a look more than all the rest of this file.
    import ipaddress

    try:
        return str(ipaddress.IPv6Address(entry))
    except ValueError:
        return ""
