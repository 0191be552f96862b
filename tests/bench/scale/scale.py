# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a fleet costs its controller: our playbooks and one with an empty module, on hosts that replay recorded answers.

    scale.py                                       1,000 hosts, all ways in turn, three rounds
    scale.py --hosts 200 --ways empty,audit --settings forks=25 --rounds 1
    scale.py --hosts 100,300,1000,3000 --rounds 1  the memory of the controller by the number of hosts
    scale.py --connection ssh --hosts 50           a node of this machine over SSH, under 50 names

All samples go to .cache/bench/scale/samples.json. The answers are those of machines of tests/nodes with everything as
declared: the look at them is in answers/, their facts are what tests/nodes expects of them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import ContextManager, Iterator, Optional, Sequence, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from bench_node import BenchError
from scale_runs import (
    AUDIT,
    CACHE,
    EMPTY,
    GROUPS,
    SITE,
    WAYS,
    Setting,
    Way,
    measure,
    over_ssh,
    record,
    replaying,
    run,
)
from ssh_node import SshNode

REPLAY, SSH = "replay", "ssh"
# So many hosts a controller must bear, in so many times the memory of the empty module.
MEMORY_HOSTS, MEMORY_GOAL = 1000, 1.5


@dataclass(frozen=True)
class Sample:
    """One run. ``fleet`` are the hosts of all slices together; the rest is as in ``scale_runs.Cost``."""

    way: str
    setting: str
    fleet: int
    hosts: int
    cpu: float
    wall: float
    memory: float
    node_cpu: Optional[float] = None

    @property
    def hosts_per_core_second(self) -> float:
        return self.hosts / self.cpu


def main() -> int:
    options = parser().parse_args()
    shutil.rmtree(CACHE, ignore_errors=True)
    CACHE.mkdir(parents=True)
    for machine in GROUPS.values():
        record(machine)
    try:
        samples = list(measured(options))
    except BenchError as error:
        print(error, file=sys.stderr)
        return 1
    (CACHE / "samples.json").write_text(json.dumps([asdict(sample) for sample in samples], indent=1), encoding="utf-8")
    for text in sentences(samples):
        print(text)
    return 0


def measured(options: argparse.Namespace) -> Iterator[Sample]:
    """Run what the options say, and print a line a run. Raises ``BenchError``."""
    by_ssh = options.connection == SSH
    place: ContextManager[Optional[SshNode]] = SshNode(CACHE / "node") if by_ssh else contextlib.nullcontext()
    with place as node:
        if node is not None:
            converge(node)
        ways = options.ways.split(",")
        # What the first run would compile, so that it is no slower than the others.
        for way in ways:
            measure(way, Setting(), over_ssh([0], node) if node else replaying([0]), node)
        for fleet, text in product(options.hosts.split(","), options.settings.split(" ")):
            setting = setting_of(text)
            # In turn, so that whatever disturbs a round disturbs all of them.
            for way, number in product(ways * options.rounds, range(setting.slices)):
                hosts = list(range(int(fleet)))[number :: setting.slices]
                folder = over_ssh(hosts, node) if node else replaying(hosts)
                cost = measure(way, setting, folder, node)
                sample = Sample(way, name_of(setting), int(fleet), len(hosts), **asdict(cost))
                print(line(sample), flush=True)
                yield sample


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    made.add_argument("--hosts", default="1000", help="how many, such as 100,300,1000,3000 (default: %(default)s)")
    made.add_argument("--ways", default=",".join(WAYS), help="(default: %(default)s)")
    made.add_argument("--rounds", type=int, default=3, help="how often each way runs (default: %(default)s)")
    made.add_argument(
        "--settings", default="forks=25", help="such as 'forks=5 forks=100 slices=4' (default: %(default)s)"
    )
    made.add_argument(
        "--connection",
        choices=(REPLAY, SSH),
        default=REPLAY,
        help="replayed answers, or one real node on this machine, which takes root (default: %(default)s)",
    )
    return made


def setting_of(text: str) -> Setting:
    """From ``forks=5,strategy=free``. Raises ``ValueError`` or ``TypeError`` for what is no setting."""
    values = dict(part.split("=", 1) for part in text.split(",") if part)
    return Setting(**{key: value if key == "strategy" else int(value) for key, value in values.items()})


def name_of(setting: Setting) -> str:
    """What of it is not as usual."""
    return ",".join(f"{key}={value}" for key, value in asdict(setting).items() if value != getattr(Setting(), key))


def converge(node: SshNode) -> None:
    """Let the node become as declared, with the program on it. Raises ``BenchError`` where it does not."""
    hosts = over_ssh([0], node)
    run(WAYS[SITE], Setting(), hosts, node, log=CACHE / "converge.log")
    strict = Way(WAYS[AUDIT].arguments, variables=("audit_fail_on_drift=true",))
    run(strict, Setting(), hosts, node, log=CACHE / "converged.log")


# --- what the samples say ---------------------------------------------------------------------------------------------


def line(sample: Sample) -> str:
    node = "" if sample.node_cpu is None else f"  node CPU {sample.node_cpu:6.1f} s"
    return (
        f"{sample.way:<13} {sample.setting:<24} {sample.hosts:5} hosts  CPU {sample.cpu:6.1f} s  "
        f"wall {sample.wall:6.1f} s  {sample.hosts_per_core_second:5.1f} hosts/s/core  {sample.memory:5.0f} MiB{node}"
    )


class Of:
    """The samples of one way, setting and fleet: of all rounds and slices."""

    def __init__(self, samples: Sequence[Sample], way: str, group: Tuple[str, int]) -> None:
        self._chosen = [s for s in samples if (s.way, s.setting, s.fleet) == (way, *group)]

    def __bool__(self) -> bool:
        return bool(self._chosen)

    @property
    def hosts_per_core_second(self) -> float:
        return sum(sample.hosts for sample in self._chosen) / sum(sample.cpu for sample in self._chosen)

    @property
    def memory(self) -> float:
        return max(sample.memory for sample in self._chosen)

    @property
    def node_cpu(self) -> Optional[float]:
        """Of a host; None where no node is real."""
        counted = [sample.node_cpu for sample in self._chosen if sample.node_cpu is not None]
        return sum(counted) / sum(sample.hosts for sample in self._chosen) if counted else None


def sentences(samples: Sequence[Sample]) -> Iterator[str]:
    """How each way compares with the empty module under the same settings."""
    for group in dict.fromkeys((sample.setting, sample.fleet) for sample in samples):
        floor = Of(samples, EMPTY, group)
        for way in WAYS:
            ours = Of(samples, way, group)
            if not (ours and floor) or way == EMPTY:
                continue
            setting, fleet = group
            name = " ".join(filter(None, (way, setting, f"{fleet} hosts")))
            real = ours.node_cpu is not None
            goal, node_goal = WAYS[way].goal, WAYS[way].node_cpu_goal
            ratio = ours.hosts_per_core_second / floor.hosts_per_core_second
            # The goal is of a controller alone: ssh costs both the same.
            judged = _judged(ratio >= goal, f"at least {goal:g}") if goal and not real else ""
            yield f"{name}: {ratio:.2f} of the empty module's hosts per second and core{judged}"
            ratio = ours.memory / floor.memory
            counts = goal and fleet == MEMORY_HOSTS and not real
            judged = _judged(ratio <= MEMORY_GOAL, f"at most {MEMORY_GOAL:g}") if counts else ""
            yield f"{name}: {ratio:.2f} times the empty module's memory{judged}"
            if ours.node_cpu is not None and floor.node_cpu:
                ratio = ours.node_cpu / floor.node_cpu
                judged = _judged(ratio <= node_goal, f"at most {node_goal:g}") if node_goal else ""
                yield f"{name}: {ratio:.2f} times the empty module's CPU on the node{judged}"


def _judged(met: bool, goal: str) -> str:
    return f", goal {goal}: {'met' if met else 'not met'}"


if __name__ == "__main__":
    sys.exit(main())
