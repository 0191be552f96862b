# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Peers of a machine, which are in its network namespace ``far``."""

from __future__ import annotations

from typing import Any, Set

# fast0 has a network of the cluster, old0 another one.
OF_CLUSTER, OF_OTHERS = "10.1.0.1", "10.2.0.1"
PORTS = (5000, 7000, 25000, 29500, 40000)
# All at once: what a firewall drops takes all of the time that there is.
CONNECT = """
import socket, sys
from concurrent.futures import ThreadPoolExecutor

def answers(port):
    try:
        socket.create_connection((sys.argv[1], port), 2).close()
    except OSError:
        return False
    return True

ports = [int(port) for port in sys.argv[2:]]
with ThreadPoolExecutor(len(ports)) as pool:
    print(*(port for port, is_open in zip(ports, pool.map(answers, ports)) if is_open))
"""


def reached(host: Any, address: str) -> Set[int]:
    """The ports of this address, of those on which somebody listens, to which a peer can connect."""
    ports = " ".join(map(str, PORTS))
    said = host.run_expect([0], f"ip netns exec far python3 -c %s {address} {ports}", CONNECT)
    return {int(port) for port in said.stdout.split()}
