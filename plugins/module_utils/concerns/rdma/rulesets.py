# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What firewalld and ufw have of the rules for job ports, and what reading both has in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Tuple

from ..._core.errors import CannotLook
from ..._core.value import frozen

if TYPE_CHECKING:
    from ..._core.protocols import Host

FIREWALLD, UFW = "firewalld", "ufw"
ZONE = f"{FIREWALLD} zone "
SECONDS = 30.0
# How long iptables waits for another iptables that holds its lock.
LOCK_SECONDS = "5"


@frozen
class Ruleset:
    """The rules of one zone of firewalld, or of ufw.

    ``effective`` and ``boot`` are the settings of those rules that it has. ``running`` is whether the firewall runs,
    ``active`` whether connections pass this ruleset, and ``lacks_ipv6`` why it can have no rule for IPv6.
    """

    name: str
    effective: Tuple[str, ...]
    boot: Tuple[str, ...]
    running: bool = True
    active: bool = True
    lacks_ipv6: str = ""

    @property
    def firewall(self) -> str:
        return FIREWALLD if self.name.startswith(ZONE) else self.name


def is_ruleset(identity: str) -> bool:
    """Whether a record is about a firewall."""
    return identity == UFW or identity.startswith(ZONE)


def zone_of(name: str) -> str:
    """The zone of a ruleset of firewalld."""
    return name[len(ZONE) :]


def list_chain(program: str, chain: str, *of_table: str) -> Tuple[str, ...]:
    """The command that lists a chain of iptables or ip6tables. ``of_table`` says of which table, if not of filter."""
    return (program, "-w", LOCK_SECONDS, *of_table, "-S", chain)


def output_of(host: Host, argv: Tuple[str, ...]) -> str:
    """What a program prints. Raises ``CannotLook`` where it fails."""
    completed = host.commands.run(argv, timeout=SECONDS)
    if completed.status != 0:
        cause = (completed.errors or completed.output).strip() or f"exit status {completed.status}"
        raise CannotLook("read the firewall with {}", object=" ".join(argv), cause=cause)
    return completed.output
