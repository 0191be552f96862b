# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The role ``drain`` on many nodes at once: each test is one of them, with a cluster of its own.

What a playbook costs is its start and its modules, which import the client of Kubernetes, so all tests share two runs.
"""

from __future__ import annotations

from typing import Any, Dict

import pytest
from api_server import Cluster, serve
from controller import Bed, drain, kubeconfig, play

# In the order in which the run has them. In the last one the run is in check mode.
PLAYS = {"drain": "main", "again": "main", "resume": "resume", "once_more": "resume"}
CHECK = "check"
# tcpmux, which nobody listens for.
NOBODYS_PORT = 1


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "node(*plays, prepare, **variables): the plays that the node of the test is in, what is done to its cluster "
        "before, and the variables of its host",
    )


@pytest.fixture(scope="session")
def beds(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Bed]:
    """By the names of the tests, once all has been played."""
    folder = tmp_path_factory.mktemp("controller")
    found: Dict[str, Bed] = {}
    # A play ends the run where each of its hosts fails, so there is one that does not.
    groups: Dict[str, Dict[str, Any]] = {name: {"nobody": {"drain_backend": "none"}} for name in (*PLAYS, CHECK)}
    servers = []
    for item in request.session.items:
        mark = item.get_closest_marker("node")
        if mark is None:
            continue
        bed = found[item.nodeid] = Bed(f"h100-{len(found):03}", Cluster(f"h100-{len(found):03}"))
        given = dict(mark.kwargs)
        given.pop("prepare", lambda cluster: None)(bed.cluster)
        servers.append(serve(bed.cluster))
        port = NOBODYS_PORT if bed.cluster.away else servers[-1].server_address[1]
        way = kubeconfig(folder / f"{bed.name}.json", port)
        for name in mark.args:
            groups[name][bed.name] = {"drain_kubernetes_kubeconfig": way, **given}
    outcomes = [
        *play(folder / "run", [drain(name, entry) for name, entry in PLAYS.items()], groups),
        *play(folder / "check", [drain(CHECK, "main")], groups, "--check", "--diff"),
    ]
    for server in servers:
        server.shutdown()
        server.server_close()
    for bed in found.values():
        bed.plays = {outcome.play: outcome for outcome in outcomes if outcome.host == bed.name}
    return found


@pytest.fixture
def bed(request: pytest.FixtureRequest, beds: Dict[str, Bed]) -> Bed:
    return beds[request.node.nodeid]
