# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What it costs to find that a node is right: the collection, the usual ways, and the floor, side by side on one node.

    bench.py                                  boots a virtual node, measures, prints the table
    bench.py --write-docs                     and writes it into docs/performance.md
    bench.py --inventory hosts.yml --host n1  measures on a node of yours, WHICH IT CONVERGES to tests/bench/node.yml

All samples and the machine go to .cache/bench/bench.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import zipfile
from datetime import date
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import bench_report as report  # noqa: E402
import needs  # noqa: E402
from bench_node import BenchError, Meter, Node, describe, find_node  # noqa: E402
from bench_report import GUEST, QEMU  # noqa: E402
from bench_ways import BENCH, FLOOR, GPUFLEET, WAYS, Runner, Way  # noqa: E402
from runner import Board, Job, StageFailed  # noqa: E402

CACHE = ROOT / ".cache" / "bench"
PAGE = ROOT / "docs" / "performance.md"
BED = [sys.executable, str(ROOT / "tests" / "vm" / "bed.py")]
BED_NAME, BED_NODE, GPUS = "bench", "gpu-b01", "hgx-h100-80gb-8"
CONTROLLER_PYTHONS = ("3.11", "3.12", "3.13")
MITOGEN = "mitogen>=0.3.50,<0.4"
# ansible.posix is on PyPI only inside this distribution; its release 12 belongs to ansible-core 2.19.
DISTRIBUTION = "ansible>=12,<13"
BUSY_SHARE = 0.1
IDLE_SECONDS = 10.0


def main() -> int:
    options = parser().parse_args()
    os.environ["ANSIBLE_CONFIG"] = str(BENCH / "ansible.cfg")
    try:
        if options.results:
            results = json.loads(Path(options.results).read_text(encoding="utf-8"))
        else:
            results = measure(options)
            output = CACHE / "bench.json"
            output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            say(f"all samples are in {os.path.relpath(output)}")
        print(f"\n{report.summary(results)}")
        if options.write_docs:
            report.write_docs(results, PAGE)
            say(f"wrote {os.path.relpath(PAGE)}")
    except (BenchError, StageFailed) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    made.add_argument("--rounds", type=int, default=5, help="how often each way is timed (default: %(default)s)")
    names = ", ".join(way.name for way in WAYS)
    always = ",".join(way.name for way in WAYS if way.always)
    made.add_argument("--ways", default=always, help=f"of {names} (default: %(default)s)")
    made.add_argument("--inventory", help="measure on a node of this inventory, and change it to tests/bench/node.yml")
    made.add_argument("--host", help="the node in the inventory, when it has several")
    made.add_argument(
        "--vars",
        action="append",
        metavar="FILE",
        help="what the node shall be, once or several times (default: node.yml beside bench.py)",
    )
    made.add_argument("--keep", action="store_true", help="leave the virtual node running, and use one that runs")
    made.add_argument("--write-docs", action="store_true", help="write the table into docs/performance.md")
    made.add_argument("--results", metavar="FILE", help="measure nothing, take the results of an earlier run")
    return made


def say(text: str) -> None:
    print(text, flush=True)


# --- the run --------------------------------------------------------------------------------------------------------


def measure(options: argparse.Namespace) -> Dict[str, Any]:
    chosen = choose(options.ways)
    # A copy, so that all ways are measured with the same sources whoever works in the checkout meanwhile.
    needs.copy_sources(CACHE / "collections" / "ansible_collections" / "gpufleet" / "node")
    job = Job(Board(CACHE), "setup", needs.environment(), ROOT)
    job.log.write_bytes(b"")
    programs, mitogen, not_run = environment(job)
    posix = ansible_posix(job, programs)
    with node_of(options, programs) as (node, accel, qemu):
        runner = Runner(
            node,
            programs=programs,
            mitogen=mitogen,
            variables=[*map(Path.resolve, map(Path, options.vars or [BENCH / "node.yml"])), CACHE / "boot_files.json"],
            cache=CACHE,
            environment=needs.environment(),
        )
        ways = [way for way in chosen if runner.can(way)]
        converge(runner, ways)
        say("counting")
        counts = [runner.count(way) for way in ways]
        meter = Meter(node, qemu=qemu)
        with Busy() as before:
            calibration = meter.calibrate()
        if before.share > BUSY_SHARE:
            say(f"warning: others use {before.share:.0%} of this machine's CPUs; the numbers will say little")
        samples = []
        started = time.monotonic()
        for number in range(options.rounds):
            for way in ways:
                sample = runner.sample(way, meter)
                samples.append({"round": number, **sample.as_dict()})
                say(
                    f"[{number + 1}/{options.rounds}] {way.name:<14} wall {sample.wall:6.2f}  "
                    f"node CPU {sample.node_cpu:6.2f}  controller CPU {sample.controller_cpu:5.2f}  "
                    f"sent {sample.bytes_sent / 1024:7.1f} KiB"
                )
        seconds = time.monotonic() - started
        with Busy() as after:
            time.sleep(IDLE_SECONDS)
        run = {
            "date": date.today().isoformat(),
            "rounds": options.rounds,
            "seconds": seconds,
            "busy_before": before.share,
            "busy_after": after.share,
            "node_cpu_of": GUEST if qemu is None else QEMU,
        }
        meter.close()
        middle = report.medians(samples)
        return {
            "run": run,
            "node": {**describe(node), "accel": accel},
            "controller": describe_controller(programs, mitogen=mitogen, posix=posix),
            "calibration": {"interface": meter.interface, **calibration},
            "counts": [count.as_dict() for count in counts],
            "samples": samples,
            "medians": middle,
            "ratio_to_gpufleet": report.ratios(middle, GPUFLEET),
            "ratio_to_floor": report.ratios(middle, FLOOR),
            "goals": [{"met": met, "text": text} for met, text in report.goals(middle, virtual=accel is not None)],
            "not_run": not_run,
        }


class Busy:
    """While it is open: how much of the CPUs here is used, which should be nothing. ``share`` is between 0 and 1."""

    share = 0.0

    def __enter__(self) -> Busy:
        self._begin = self._read()
        return self

    def __exit__(self, *_details: object) -> None:
        used, total = (end - begin for begin, end in zip(self._begin, self._read()))
        self.share = used / total

    @staticmethod
    def _read() -> Tuple[int, int]:
        with open("/proc/stat", encoding="ascii") as file:
            ticks = [int(word) for word in file.readline().split()[1:9]]
        # user nice system idle iowait irq softirq steal: another machine's use of a CPU is use by others as well.
        return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def choose(text: str) -> List[Way]:
    known = {way.name: way for way in WAYS}
    names = text.split(",")
    for name in names:
        if name not in known:
            raise BenchError(f"Cannot run the way {name}: there are {', '.join(known)}")
    return [way for way in WAYS if way.name in names]


def converge(runner: Runner, ways: Sequence[Way]) -> None:
    """Let every way bring the node to what it shall be. The runs that count prove that none has anything left to do.

    The collection comes first. The files that it leaves for the next boot are what the other ways deploy, so that all
    of them keep the same settings in the same places.
    """
    boot_files = CACHE / "boot_files.json"
    boot_files.write_text(json.dumps({"bench_boot_files": []}))
    collection = next(way for way in WAYS if way.name == GPUFLEET)
    say("converging with gpufleet.node.site")
    runner.converge(collection)
    boot_files.write_text(json.dumps({"bench_boot_files": fetch_boot_files(runner.node)}))
    plain = [way for way in ways if not way.mitogen and way.pipelining and way.name != FLOOR]
    for way in plain:
        say(f"converging with {way.name}")
        runner.converge(way)


def fetch_boot_files(node: Node) -> List[Dict[str, str]]:
    """The files that the operating system reads at the next boot, copied from the node."""
    folder = CACHE / "boot"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    found = []
    ours = "-type f -name '*gpufleet*' -printf '0%m %p\\n'"
    for line in sorted(node.text(f"find /etc -path /etc/gpufleet -prune -o {ours}").splitlines()):
        mode, path = line.split(" ", 1)
        copy = folder / path.strip("/").replace("/", "_")
        copy.write_bytes(node.ask(f"cat '{path}'"))
        found.append({"src": str(copy), "dest": path, "mode": mode})
    if not found:
        raise BenchError(f"Cannot find a boot file of the collection on {node.name}; see {CACHE / 'logs'}")
    return found


# --- what the run needs ---------------------------------------------------------------------------------------------


def environment(job: Job) -> Tuple[Path, Optional[Path], List[str]]:
    """The programs of a controller, the strategy plugins of mitogen, and what will not run without them."""
    interpreter = needs.python(job, *CONTROLLER_PYTHONS)
    core = [*needs.requirements("core-floor", "nvml"), "pip>=25"]
    try:
        folder = needs.venv(job, "bench", interpreter=interpreter, requirements=[*core, MITOGEN])
    except StageFailed as error:
        say(f"no mitogen: {error}")
        folder = needs.venv(job, "bench-plain", interpreter=interpreter, requirements=core)
    # What the first run would compile, so that it is no slower than the others.
    job.run([str(folder / "bin" / "python"), "-m", "compileall", "-q", str(folder / "lib")], accept=(0, 1))
    command = [str(folder / "bin" / "python"), "-c", "import ansible_mitogen; print(ansible_mitogen.__path__[0])"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return folder / "bin", None, ["the ways under mitogen: it could not be installed here"]
    return folder / "bin", Path(done.stdout.strip()) / "plugins" / "strategy", []


def ansible_posix(job: Job, programs: Path) -> str:
    """Bring ansible.posix into our own collections. Returns its version."""
    target = CACHE / "collections" / "ansible_collections" / "ansible" / "posix"
    if not (target / "MANIFEST.json").exists():
        download = CACHE / "download"
        shutil.rmtree(download, ignore_errors=True)
        say("fetching ansible.posix")
        job.run([str(programs / "pip"), "download", "--quiet", "--no-deps", "--dest", str(download), DISTRIBUTION])
        (wheel,) = download.glob("ansible-*.whl")
        prefix = "ansible_collections/ansible/posix/"
        with zipfile.ZipFile(wheel) as archive:
            names = [name for name in archive.namelist() if name.startswith(prefix)]
            # What says that all of it is there comes last.
            for name in sorted(names, key=lambda name: name.endswith("MANIFEST.json")):
                archive.extract(name, CACHE / "collections")
        shutil.rmtree(download)
    document = json.loads((target / "MANIFEST.json").read_text(encoding="utf-8"))
    return str(document["collection_info"]["version"])


@contextlib.contextmanager
def node_of(options: argparse.Namespace, programs: Path) -> Iterator[Tuple[Node, Optional[str], Optional[int]]]:
    """The node to measure on; of a virtual one of ours, how its CPU is made and the PID of its QEMU."""
    if options.inventory:
        yield find_node(str(Path(options.inventory).resolve()), options.host, programs=programs), None, None
        return
    folder = ROOT / ".cache" / "vm" / "run" / BED_NAME
    try:
        if not (options.keep and (folder / "bed.json").exists()):
            gpus = f"{BED_NODE}={GPUS}"
            bed("up", "--nodes", BED_NODE, "--gpus", gpus, "--memory", "2048", "--replace", *owner(options.keep))
        accel = json.loads((folder / "bed.json").read_text(encoding="utf-8"))["accel"]
        yield find_node(str(folder / "hosts.yml"), BED_NODE, programs=programs), accel, running_qemu(folder / BED_NODE)
    finally:
        if not options.keep:
            bed("down")


def running_qemu(folder: Path) -> int:
    """The PID of the virtual node's QEMU. Raises ``BenchError`` where a node that was kept is gone."""
    try:
        pid = int((folder / "qemu.pid").read_text(encoding="ascii"))
        os.kill(pid, 0)
    except (OSError, ValueError):
        down = f"python3 tests/vm/bed.py down --name {BED_NAME}"
        raise BenchError(
            f"Cannot measure: the virtual node that was kept is gone ({folder}): run `{down}`, then this again"
        ) from None
    return pid


def owner(keep: bool) -> List[str]:
    return [] if keep else ["--owner-pid", str(os.getpid())]


def bed(action: str, *arguments: str) -> None:
    if subprocess.run([*BED, action, "--name", BED_NAME, *arguments], check=False, stdout=sys.stderr).returncode != 0:
        raise BenchError(f"Cannot measure: `bed.py {action}` failed")


def describe_controller(programs: Path, *, mitogen: Optional[Path], posix: str) -> Dict[str, str]:
    cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    version = "import importlib.metadata as m, platform, sys; print(platform.python_version(), m.version(sys.argv[1]))"

    def installed(name: str) -> List[str]:
        command = [str(programs / "python"), "-c", version, name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    ssh = subprocess.run(["ssh", "-V"], capture_output=True, text=True, check=True).stderr
    python, core = installed("ansible-core")
    return {
        "cpu": cpu[1] if cpu else platform.machine(),
        "cpus": str(os.cpu_count()),
        "python": python,
        "ansible_core": core,
        "ansible_posix": posix,
        "mitogen": installed("mitogen")[1] if mitogen else "",
        "ssh": ssh.split(",")[0].strip(),
    }


if __name__ == "__main__":
    sys.exit(main())
