# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a fleet costs its controller: our playbooks and one with an empty module, on hosts that replay recorded answers.

    scale.py                             1,000 hosts, the ways and the settings of docs/performance.md
    scale.py --hosts 200 --ways empty,audit --settings forks=25

All samples go to .cache/bench/scale/samples.json. The answers are those of machines of tests/nodes with everything as
declared: the look at them is in answers/, their facts are what tests/nodes expects of them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic
from typing import Dict, Iterator, List, Mapping, Sequence

SCALE = Path(__file__).resolve().parent
ROOT = SCALE.parents[2]
sys.path.insert(0, str(ROOT / "plugins" / "module_utils" / "_node"))

from compressed import compress  # noqa: E402

CACHE = ROOT / ".cache" / "bench" / "scale"
# The groups of the demonstration, and the machine of tests/nodes that their hosts are.
GROUPS = {"training": "hgx-2socket", "inference": "single-socket"}
GOAL = 0.8
SAMPLE_SECONDS = 1.0

EMPTY, AUDIT = "empty", "audit"
WAYS: Mapping[str, Sequence[str]] = {
    EMPTY: ("-p", str(SCALE.parent / "ways" / "floor.yml")),
    AUDIT: ("-p", "gpufleet.node.audit"),
    "site": ("-p", "gpufleet.node.site"),
    "report": ("-p", "gpufleet.node.audit", "--cmdline", f"-e gpufleet_report_dest={CACHE / 'report'}"),
}


@dataclass(frozen=True)
class Setting:
    """``forks`` of ansible-playbook, and of how many slices, as AWX makes them, this is the first."""

    forks: int = 25
    strategy: str = "linear"
    slices: int = 1

    @property
    def name(self) -> str:
        return ",".join(f"{key}={value}" for key, value in asdict(self).items() if value != getattr(Setting(), key))


@dataclass(frozen=True)
class Sample:
    """CPU and wall in seconds, of the controller with all its children; memory in MiB, what they had at once."""

    way: str
    setting: str
    hosts: int
    cpu: float
    wall: float
    memory: float

    @property
    def hosts_per_core_second(self) -> float:
        return self.hosts / self.cpu


def main() -> int:
    options = parser().parse_args()
    shutil.rmtree(CACHE, ignore_errors=True)
    for machine in GROUPS.values():
        record(machine)
    samples: List[Sample] = []
    for text in options.settings.split(" "):
        setting = setting_of(text)
        for way in options.ways.split(","):
            for number in range(setting.slices):
                hosts = list(range(options.hosts))[number :: setting.slices]
                samples.append(measure(way, setting, inventory(hosts)))
                print(line(samples[-1]), flush=True)
    (CACHE / "samples.json").write_text(json.dumps([asdict(sample) for sample in samples], indent=1), encoding="utf-8")
    for text in sentences(samples):
        print(text)
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    made.add_argument("--hosts", type=int, default=1000, help="how many (default: %(default)s)")
    made.add_argument("--ways", default=",".join(WAYS), help="(default: %(default)s)")
    made.add_argument(
        "--settings", default="forks=25", help="such as 'forks=5 forks=100 slices=4' (default: %(default)s)"
    )
    return made


def setting_of(text: str) -> Setting:
    """From ``forks=5,strategy=free``. Raises ``ValueError`` or ``TypeError`` for what is no setting."""
    values = dict(part.split("=", 1) for part in text.split(",") if part)
    return Setting(**{key: value if key == "strategy" else int(value) for key, value in values.items()})


def record(machine: str) -> None:
    """Put the answers of a machine where its hosts replay them."""
    folder = CACHE / "answers" / machine
    folder.mkdir(parents=True)
    shutil.copyfile(SCALE / "answers" / f"{machine}.json", folder / "node_state.json")
    facts = json.loads((ROOT / "tests" / "nodes" / "expected" / f"{machine}.json").read_text(encoding="utf-8"))
    answer = {"changed": False, "compressed": compress(facts)}
    (folder / "gpu_node_info.json").write_text(json.dumps(answer), encoding="utf-8")
    (folder / "slurm_drained_info.json").write_text('{"changed": false, "nodes": []}', encoding="utf-8")
    (folder / "empty.json").write_text('{"changed": false}', encoding="utf-8")


def inventory(hosts: Sequence[int]) -> Path:
    """An inventory with the demonstration's two groups, in which every host replays the answers of its group."""
    folder = CACHE / "inventory"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(ROOT / "inventories" / "demo" / "group_vars", folder / "group_vars")
    groups = {
        group: {
            "vars": {"replay_answers": str(CACHE / "answers" / machine)},
            "hosts": {f"gpu-{host:04}": {} for host in hosts if host % len(GROUPS) == number},
        }
        for number, (group, machine) in enumerate(GROUPS.items())
    }
    # One of them stands for the host of the scheduler, which all of them have together.
    nodes = {"children": groups, "vars": {"ansible_connection": "replay", "drain_slurm_host": f"gpu-{hosts[0]:04}"}}
    content = {"all": {"children": {"gpu_nodes": nodes}}}
    (folder / "hosts.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def measure(way: str, setting: Setting, hosts: Path) -> Sample:
    """Run a way by ansible-runner in a process of its own. Raises ``RuntimeError`` when it fails."""
    private = CACHE / "runner"
    shutil.rmtree(private, ignore_errors=True)
    (private / "project").mkdir(parents=True)
    programs = Path(sys.executable).parent
    environment = {
        **os.environ,
        "PATH": f"{programs}:{os.environ['PATH']}",
        "ANSIBLE_CONNECTION_PLUGINS": str(SCALE / "connection"),
        "ANSIBLE_LIBRARY": str(SCALE.parent / "library"),
        "ANSIBLE_FORKS": str(setting.forks),
        "ANSIBLE_STRATEGY": setting.strategy,
        "ANSIBLE_PIPELINING": "true",
    }
    command = [str(programs / "ansible-runner"), "run", str(private), "--inventory", str(hosts), *WAYS[way]]
    log = CACHE / f"{way}.log"
    started = monotonic()
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
        memory = Memory(process.pid)
        memory.start()
        _pid, status, usage = os.wait4(process.pid, 0)
    wall = monotonic() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    memory.stop()
    if process.returncode:
        raise RuntimeError(f"Cannot measure {way}: it ended with {process.returncode}. See {log}.")
    content = json.loads((hosts / "hosts.json").read_text(encoding="utf-8"))
    groups = content["all"]["children"]["gpu_nodes"]["children"]
    count = sum(len(group["hosts"]) for group in groups.values())
    return Sample(way, setting.name, count, usage.ru_utime + usage.ru_stime, wall, memory.most / 1024)


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


def line(sample: Sample) -> str:
    return (
        f"{sample.way:<8} {sample.setting:<24} {sample.hosts:5} hosts  CPU {sample.cpu:6.1f} s  "
        f"wall {sample.wall:6.1f} s  {sample.hosts_per_core_second:5.1f} hosts/s/core  {sample.memory:5.0f} MiB"
    )


def of_way(samples: Sequence[Sample], way: str, setting: str) -> float:
    """Hosts per second and core of all slices of a way together, 0 without any."""
    chosen = [sample for sample in samples if (sample.way, sample.setting) == (way, setting)]
    return sum(sample.hosts for sample in chosen) / sum(sample.cpu for sample in chosen) if chosen else 0.0


def sentences(samples: Sequence[Sample]) -> Iterator[str]:
    """How each way compares with the empty module under the same settings."""
    compared: Dict[str, List[str]] = {}
    for sample in samples:
        ways = compared.setdefault(sample.setting, [])
        if sample.way not in ways and sample.way != EMPTY:
            ways.append(sample.way)
    for setting, ways in compared.items():
        floor = of_way(samples, EMPTY, setting)
        for way in ways if floor else ():
            ratio = of_way(samples, way, setting) / floor
            goal = f", goal {GOAL}: {'met' if ratio >= GOAL else 'not met'}" if way in (AUDIT, "site") else ""
            yield f"{way} {setting}: {ratio:.2f} of the empty module's hosts per second and core{goal}"


if __name__ == "__main__":
    sys.exit(main())
