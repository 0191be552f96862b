# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where firewalls keep their rules."""

from __future__ import annotations

from typing import Tuple

from ..._core.value import frozen

FIREWALLD, UFW = "firewalld", "ufw"
ZONE = f"{FIREWALLD} zone "


@frozen
class Place:
    """Where a firewall keeps rules: a zone of firewalld, or ufw. ``effective`` and ``boot`` are the settings of those
    that it has; ``runs`` is whether anything of it is in effect, ``counts`` whether connections come through it, and
    ``lacks_ipv6`` why it can have no rule of IPv6.
    """

    name: str
    effective: Tuple[str, ...]
    boot: Tuple[str, ...]
    runs: bool = True
    counts: bool = True
    lacks_ipv6: str = ""
