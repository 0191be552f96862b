# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kill runs beside a real daemon, at every one of their side effects: ``kill.py ENTRY ENTRY``.

Each ENTRY is one of ``engines`` as JSON, the first one as the machine is. For every n, a run of ``container_runtime``
from the first to the second is killed at its n-th write, move, removal or program. The engine's own program must accept
the files that are there then, and another run must end as if nothing had happened. Then ``container_engine_restart`` is
killed in the same way, where the program that it was about to wait for goes on without it. It prints how many were.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import traceback
from functools import partial
from itertools import count
from typing import Any, Callable, Dict, Sequence

sys.path.insert(0, "/opt/collections")

from ansible_collections.gpufleet.node.node.standard_host import StandardHost
from ansible_collections.gpufleet.node.plugins.module_utils._core.arguments import validated
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.procedure import run_through
from ansible_collections.gpufleet.node.plugins.module_utils._core.shared_options import SHARED_OPTIONS
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime import last_good
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.state import marker_of
from ansible_collections.gpufleet.node.plugins.module_utils.procedures.engine_restart.procedure import PROCEDURE

Entry = Dict[str, Any]
DOCKER_FILE = "/etc/docker/daemon.json"
MOST = 100


def bring(entry: Entry, host: StandardHost) -> None:
    """A run of ``container_runtime``. What the daemon has of it does not matter here."""
    params = validated({**SHARED_OPTIONS, **CONCERN.options}, {"engines": [entry]})
    outcome = converge(CONCERN, params, host, check_mode=False)
    if outcome.error is not None:
        raise outcome.error


def take_up(entry: Entry, host: StandardHost) -> None:
    """A run of ``container_engine_restart``."""
    params = {"engine": entry["engine"], "action": "restart", "health_timeout": 30, "when_containers_run": "fail"}
    result = run_through(PROCEDURE, params, host, check_mode=False)
    if result.get("failed"):
        raise RuntimeError(result["msg"])


def killed(work: Callable[[StandardHost], None], at: int = 0) -> bool:
    """Run it in a process of its own, and say whether that was killed at its ``at``-th side effect."""
    child = os.fork()
    if not child:
        try:
            work(dying_host(at))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return True
    if status:
        raise SystemExit(f"the run that was to be killed at {at} failed")
    return False


def dying_host(at: int) -> StandardHost:
    host = StandardHost()
    effects = count(1)

    def dying(effect: Callable[..., Any], *given: Any, **named: Any) -> Any:
        if next(effects) == at:
            if effect == run:
                # It goes on without the one who waits for it.
                subprocess.Popen(given[0], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return effect(*given, **named)

    run = host.commands.run
    host.commands.run = partial(dying, run)  # type: ignore[method-assign]
    for name in ("replace", "move", "remove"):
        setattr(host.files, name, partial(dying, getattr(host.files, name)))
    return host


def judge(engine: str) -> None:
    """Raises where the engine's own program would not start with the files that are there."""
    if engine == "containerd":
        subprocess.run(["containerd", "config", "dump"], check=True, capture_output=True)
    else:
        subprocess.run(["dockerd", "--validate", "--config-file", DOCKER_FILE], check=True, capture_output=True)


def require_in_sync(entry: Entry) -> None:
    """Raises where a run would still change something, or the daemon does not have it, or a note of ours is left."""
    host, engine = StandardHost(), entry["engine"]
    params = validated({**SHARED_OPTIONS, **CONCERN.options}, {"engines": [entry]})
    outcome = converge(CONCERN, params, host, check_mode=True)
    state = subprocess.run(
        ["systemctl", "is-active", engine], check=False, capture_output=True, encoding="utf-8"
    ).stdout.strip()
    left = [path for path in (last_good.path_of(engine), marker_of(engine)) if os.path.exists(path)]
    if (outcome.status, state, left) != ("in_sync", "active", []):
        raise SystemExit(f"{engine} is {state}, what is declared {outcome.status}, and there is {left}")


def main(entries: Sequence[Entry]) -> None:
    first, second = entries
    engine = first["engine"]
    for at in range(1, MOST):
        was_killed = killed(partial(bring, second), at)
        judge(engine)
        if not was_killed:
            break
        killed(partial(bring, second))
        judge(engine)
        killed(partial(bring, first))
    print(f"{at - 1} runs of container_runtime")
    for at in range(1, MOST):
        was_killed = killed(partial(take_up, second), at)
        judge(engine)
        killed(partial(take_up, second))
        require_in_sync(second)
        first, second = second, first
        killed(partial(bring, second))
        if not was_killed:
            break
    print(f"{at - 1} runs of container_engine_restart")
    killed(partial(bring, entries[0]))
    killed(partial(take_up, entries[0]))
    require_in_sync(entries[0])


if __name__ == "__main__":
    main([json.loads(word) for word in sys.argv[1:]])
