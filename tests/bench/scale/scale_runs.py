# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One run of a playbook on a fleet by ansible-runner, and what it costs: the controller, and a node that is real."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Iterator, Mapping, Optional, Sequence, Tuple

SCALE = Path(__file__).resolve().parent
ROOT = SCALE.parents[2]
sys.path.insert(0, str(SCALE.parent))
sys.path.insert(0, str(ROOT / "plugins" / "module_utils" / "_node"))

from bench_looks import MODULE, PROGRAM, looks_in, noting  # noqa: E402
from bench_node import BenchError  # noqa: E402
from bench_ways import Orphans, close_connections  # noqa: E402
from compressed import compress  # noqa: E402
from ssh_node import SshNode  # noqa: E402

CACHE = ROOT / ".cache" / "bench" / "scale"
# The groups of the demonstration, and the machine of tests/nodes that their hosts are.
GROUPS = {"training": "hgx-2socket", "inference": "single-socket"}
SAMPLE_SECONDS = 1.0


@dataclass(frozen=True)
class Way:
    """What ansible-runner is told, and who looks.

    ``goal`` is of the empty module's hosts a second and core, ``node_cpu_goal`` in multiples of its CPU on a real node.
    """

    arguments: Tuple[str, ...]
    looked_by: str = ""
    variables: Tuple[str, ...] = ()
    goal: Optional[float] = None
    node_cpu_goal: Optional[float] = None

    def by_module(self) -> Way:
        """The same with the module, which has no goal of its own."""
        return Way(self.arguments, MODULE, (*self.variables, "gpufleet_look_by=module"))


EMPTY, AUDIT, SITE, REPORT = "empty", "audit", "site", "report"
_BY_PROGRAM: Mapping[str, Way] = {
    AUDIT: Way(("-p", "gpufleet.node.audit"), PROGRAM, goal=1.0, node_cpu_goal=0.8),
    SITE: Way(("-p", "gpufleet.node.site"), PROGRAM, goal=0.95, node_cpu_goal=0.8),
    REPORT: Way(("-p", "gpufleet.node.audit"), PROGRAM, (f"gpufleet_report_dest={CACHE / 'report'}",), goal=0.8),
}
WAYS: Mapping[str, Way] = {
    EMPTY: Way(("-p", str(SCALE.parent / "ways" / "floor.yml"))),
    **{
        found: way
        for name, by_program in _BY_PROGRAM.items()
        for found, way in ((name, by_program), (f"{name}_module", by_program.by_module()))
    },
}


@dataclass(frozen=True)
class Setting:
    """``forks`` of ansible-playbook, and of how many slices, as AWX makes them, this is the first."""

    forks: int = 25
    strategy: str = "linear"
    slices: int = 1


@dataclass(frozen=True)
class Cost:
    """CPU and wall in seconds, of the controller with all its children; memory in MiB, what they had at once.

    ``node_cpu`` are the CPU seconds of a node that is real.
    """

    cpu: float
    wall: float
    memory: float
    node_cpu: Optional[float] = None


# --- hosts ------------------------------------------------------------------------------------------------------------


def record(machine: str) -> None:
    """Put the answers of a machine where its hosts replay them: the look's for both ways."""
    folder = CACHE / "answers" / machine
    folder.mkdir(parents=True)
    shutil.copyfile(SCALE / "answers" / f"{machine}.json", folder / "node_state.json")
    facts = json.loads((ROOT / "tests" / "nodes" / "expected" / f"{machine}.json").read_text(encoding="utf-8"))
    answer = {"changed": False, "compressed": compress(facts)}
    (folder / "gpu_node_info.json").write_text(json.dumps(answer), encoding="utf-8")
    (folder / "slurm_drained_info.json").write_text('{"changed": false, "nodes": []}', encoding="utf-8")
    (folder / "empty.json").write_text('{"changed": false}', encoding="utf-8")


def replaying(hosts: Sequence[int]) -> Path:
    """An inventory with the demonstration's two groups, in which every host replays the answers of its group."""
    groups = {
        group: {
            "vars": {"replay_answers": str(CACHE / "answers" / machine)},
            "hosts": {name_of(host): {} for host in hosts if host % len(GROUPS) == number},
        }
        for number, (group, machine) in enumerate(GROUPS.items())
    }
    # One of them stands for the host of the scheduler, which all of them have together.
    variables = {"ansible_connection": "replay", "drain_slurm_host": name_of(hosts[0])}
    folder = _inventory({"children": groups, "vars": variables})
    shutil.copytree(ROOT / "inventories" / "demo" / "group_vars", folder / "group_vars")
    return folder


def over_ssh(hosts: Sequence[int], node: SshNode) -> Path:
    """An inventory in which every host is the same node, with a connection of its own."""
    return _inventory({"hosts": {name_of(host): {} for host in hosts}, "vars": node.variables})


def _inventory(nodes: Mapping[str, object]) -> Path:
    folder = CACHE / "inventory"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    content = {"all": {"children": {"gpu_nodes": nodes}}}
    (folder / "hosts.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def name_of(host: int) -> str:
    return f"gpu-{host:04}"


# --- a run ------------------------------------------------------------------------------------------------------------


def measure(name: str, setting: Setting, hosts: Path, node: Optional[SshNode]) -> Cost:
    """Run a way in a process of its own. Raises ``BenchError`` when another looked than the way is about."""
    way = WAYS[name]
    looks = CACHE / "looks.json"
    cost = run(way, setting, hosts, node, log=CACHE / f"{name}.log", environment=noting(looks))
    looks_in(looks, way=name, looked_by=way.looked_by)
    return cost


def run(
    way: Way,
    setting: Setting,
    hosts: Path,
    node: Optional[SshNode],
    *,
    log: Path,
    environment: Optional[Mapping[str, str]] = None,
) -> Cost:
    """Run a playbook by ansible-runner. Raises ``BenchError`` when it fails."""
    private = CACHE / "runner"
    shutil.rmtree(private, ignore_errors=True)
    (private / "project").mkdir(parents=True)
    programs = Path(sys.executable).parent
    command = [str(programs / "ansible-runner"), "run", str(private), "--inventory", str(hosts), *way.arguments]
    if way.variables:
        command += ["--cmdline", " ".join(f"-e {variable}" for variable in way.variables)]
    with tempfile.TemporaryDirectory(prefix="gpufleet-") as sockets, Orphans() as orphans, log.open("wb") as output:
        variables = {
            **os.environ,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "ANSIBLE_CONNECTION_PLUGINS": str(SCALE / "connection"),
            "ANSIBLE_LIBRARY": str(SCALE.parent / "library"),
            "ANSIBLE_FORKS": str(setting.forks),
            "ANSIBLE_STRATEGY": setting.strategy,
            "ANSIBLE_PIPELINING": "true",
            "ANSIBLE_SSH_CONTROL_PATH_DIR": sockets,
            **(environment or {}),
        }
        node_before = node.cpu() if node else 0.0
        started = monotonic()
        process = subprocess.Popen(
            command, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        memory = Memory(process.pid)
        memory.start()
        _pid, status, usage = os.wait4(process.pid, 0)
        wall = monotonic() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        memory.stop()
        # The connections that ssh keeps open have worked for this run as well, on both sides.
        close_connections(Path(sockets))
        cpu = usage.ru_utime + usage.ru_stime + orphans.wait()
        node_cpu = node.cpu() - node_before if node else None
    if process.returncode:
        raise BenchError(f"Cannot measure: ansible-runner ended with {process.returncode}. See {log}.")
    return Cost(cpu, wall, memory.most / 1024, node_cpu)


class Memory(threading.Thread):
    """Looks once a second at what a process and all below it have; ``most`` in KiB, pages that they share once."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self.most = 0
        self._pid = pid
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            self.most = max(self.most, sum(share(pid) for pid in family(self._pid)))

    def stop(self) -> None:
        self._ended.set()
        self.join()


def family(pid: int) -> Iterator[int]:
    """A process and all below it that are there."""
    yield pid
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = path.read_text().split()
        except OSError:
            continue
        for child in children:
            yield from family(int(child))


def share(pid: int) -> int:
    """The memory of a process in KiB, of shared pages its share; 0 when it has ended."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    return next((int(found.split()[1]) for found in text.splitlines() if found.startswith("Pss:")), 0)
