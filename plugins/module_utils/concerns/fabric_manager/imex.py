# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""IMEX: the nodes of its domain, whether this one is among them, what nvidia-imex-ctl says, and channel 0."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, FrozenSet, List, Mapping, Optional, Sequence, Tuple

from ..._core.value import frozen
from ..._core.wording import first_of
from .daemons import CONFIG, IMEX, config_file
from .key_values import values_of
from .spec import IMEX_DEFAULTS, normal_address

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host
    from .daemons import ConfigFile, Daemon
    from .notes import Notes

NODES_FILE = "/etc/nvidia-imex/nodes_config.cfg"
NODES_KEY = "IMEX_NODE_CONFIG_FILE"
ENABLED_KEY = "IMEX_CMD_ENABLED"
TOOL = "nvidia-imex-ctl"
# It waits for peers that do not answer.
TOOL_SECONDS = 10.0
ROUTES = "/proc/net/fib_trie"
ADDRESSES6 = "/proc/net/if_inet6"
CHANNEL = "/dev/nvidia-caps-imex-channels/channel0"
PARAMETER = "NVreg_CreateImexChannel0"
PRESENT = "present"
UP = "UP"


@frozen
class Domain:
    """What the tool says: ``status`` UP, DEGRADED or DOWN, and in words the nodes that are not ready.

    ``unknown`` says why it says nothing.
    """

    status: Optional[str] = None
    lagging: Tuple[str, ...] = ()
    unknown: str = ""

    @property
    def words(self) -> Optional[str]:
        if self.status is None or not self.lagging or self.status == UP:
            return self.status
        return f"{self.status} ({first_of(self.lagging, 3)})"


def nodes_file(files: Files, daemon: Daemon, notes: Notes) -> ConfigFile:
    config = daemon.files.get(CONFIG)
    path = values_of((config and config.text) or "").get(NODES_KEY) or NODES_FILE
    return config_file(files, IMEX, daemon.process, path, notes)


def nodes_of(text: Optional[str]) -> Tuple[str, ...]:
    lines = (line.partition("#")[0].strip() for line in (text or "").splitlines())
    return tuple(line for line in lines if line)


def render(nodes: Sequence[str]) -> str:
    return "".join(f"{node}\n" for node in nodes)


def describe(text: Optional[str], wanted: Sequence[str] = ()) -> Optional[str]:
    """The file for a person and for the record, from which ``text_of`` makes the very text again.

    One that means what is ``wanted`` is that, whatever comments it has.
    """
    if text is None:
        return None
    nodes = nodes_of(text)
    if wanted and nodes == tuple(wanted):
        return ", ".join(wanted)
    plain = ", ".join(nodes)
    # What somebody wrote may look like several nodes where it is one line, or like a text of ours.
    is_plain = bool(nodes) and not plain.startswith('"') and render(plain.split(", ")) == text
    return plain if is_plain else json.dumps(text)


def text_of(described: Optional[str]) -> Optional[str]:
    """Raises ``ValueError`` on what is no description of a file."""
    if described is None:
        return None
    if described.startswith('"'):
        text = json.loads(described)
        if not isinstance(text, str):
            raise ValueError(f"{described!r} is not the text of a file")
        return text
    return render(described.split(", "))


def own_addresses(files: Files) -> FrozenSet[str]:
    """The addresses of this machine, as the kernel's tables have them."""
    found: List[str] = []
    address = ""
    for line in (files.read_optional(ROUTES) or "").splitlines():
        word = line.strip()
        if word.startswith("|-- "):
            address = word[4:]
        elif word.startswith("/32 host LOCAL"):
            found.append(address)
    for line in (files.read_optional(ADDRESSES6) or "").splitlines():
        digits = line.partition(" ")[0]
        found.append(normal_address(":".join(digits[at : at + 4] for at in range(0, 32, 4))))
    return frozenset(found)


def read_domain(host: Host, daemon: Daemon) -> Domain:
    if daemon.process is None:
        return Domain(unknown=f"{daemon.unit} is not running")
    config = daemon.files.get(CONFIG)
    values = values_of((config and config.read) or "")
    if values.get(ENABLED_KEY, IMEX_DEFAULTS[ENABLED_KEY]) != "1":
        return Domain(unknown=f"the daemon answers no questions: set {ENABLED_KEY}: 1 in imex_config")
    path = host.commands.find(TOOL)
    if path is None:
        return Domain(unknown=f"{TOOL} is not installed")
    try:
        completed = host.commands.run([path, "-N", "-j"], timeout=TOOL_SECONDS)
    except OSError as error:
        return Domain(unknown=f"{TOOL} did not run: {error.strerror or error}")
    if completed.timed_out:
        return Domain(unknown=f"{TOOL} did not respond within {TOOL_SECONDS:g} s; another node may not be responding")
    try:
        return domain_of(json.loads(completed.output))
    except (ValueError, KeyError, TypeError, AttributeError):
        said = (completed.errors or completed.output).strip().splitlines()
        return Domain(unknown=f"{TOOL} exited with {completed.status}: {said[-1] if said else 'no output'}")


def domain_of(document: Any) -> Domain:
    nodes: Mapping[str, Any] = document.get("nodes") or {}
    lagging = [
        f"{node.get('host') or number} is {node.get('status')}"
        for number, node in sorted(nodes.items(), key=lambda entry: (len(entry[0]), entry[0]))
        if node.get("status") != "READY"
    ]
    return Domain(str(document["status"]), tuple(lagging))


def read_channel(files: Files) -> Tuple[Optional[str], Optional[str]]:
    """Whether channel 0 is there, and whether the next boot makes it: by the parameters of the driver in modprobe.d.

    What an initramfs holds of them is the matter of kernel_modules, which builds it again.
    """
    from ..._linux import modprobe, module_options

    value = ""
    for path, text in modprobe.read_modprobe(files).items():
        for line in module_options.parse_options(path, text):
            if line.module == "nvidia" and line.parameter == PARAMETER:
                value = line.value
    return (PRESENT if files.exists(CHANNEL) else None), (PRESENT if value == "1" else None)
