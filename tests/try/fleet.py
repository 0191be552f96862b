# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The collection on a fleet of recorded machines: no root, no virtual machine, nothing outside of one folder.

Each node is a tree of ``tests/nodes`` that modules take for the machine, and has a simulated driver of its own where
there is a C compiler. The playbooks are the real ones, and what they write goes into the trees.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Dict, List, NamedTuple, Optional, Tuple

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "vm"), str(ROOT / "tests" / "nodes")]

import nodetree  # noqa: E402
import recorded_bed  # noqa: E402
from demo_tools import CACHE, TOLD, chapter, elapsed, expect, play, row_of  # noqa: E402

SIMULATOR = ROOT / "tests" / "nvml_simulator"
INVENTORY = ROOT / "inventories" / "try"
HEADER = Path("/usr/include/stdio.h")
BOOT_SERVICE = "gpufleet-boot.service"
WANTS = "/etc/systemd/system/multi-user.target.wants"
READ_AHEAD = "sys/block/nvme1n1/queue/read_ahead_kb"
# All in one batch: nobody works on these nodes.
AT_ONCE = ("-e", '{"gpufleet_batches": ["100%"]}')


class Kind(NamedTuple):
    """A recorded machine, and what the simulator has for its GPUs."""

    tree: str
    gpus: str


# By the first word of a name in the inventory.
KINDS = {
    "hgx": Kind("hgx-2socket", "hgx-h100-80gb-8"),
    "l40s": Kind("single-socket", str(nodetree.FOLDER / "machines" / "single-socket.json")),
}


class Fleet:
    """The nodes in a folder, each with its tree, its driver and its interpreter."""

    def __init__(self, folder: Path, names: List[str], *, library: Optional[Path]) -> None:
        self.folder = folder
        self.names = names
        self.library = library
        with ThreadPoolExecutor() as pool:
            hosts = dict(zip(names, pool.map(self._make, names)))
        groups: Dict[str, object] = {"with_gpus": {"hosts": {name: {} for name in names if library}}}
        (folder / "hosts.yml").write_text(json.dumps({"all": {"hosts": hosts, "children": groups}}), encoding="utf-8")

    def _make(self, name: str) -> Dict[str, str]:
        """What Ansible has to know of a node to reach it."""
        place = self.folder / name
        kind = KINDS[name.partition("-")[0]]
        tree = dict(nodetree.load(kind.tree))
        # No daemon runs in a tree, and no systemctl that would enable a service.
        for path in [path for path in tree if "nvidia-persistenced" in path]:
            del tree[path]
        tree[f"{WANTS}/{BOOT_SERVICE}"] = nodetree.Entry(nodetree.LINK, f"/etc/systemd/system/{BOOT_SERVICE}")
        nodetree.expand(tree, place / "tree")
        if self.library:
            self.simulator(name, "create", kind.gpus)
        interpreter = recorded_bed.interpreter(
            place / "interpreter",
            root=place / "tree",
            library=str(self.library or ""),
            variables=self._driver(name),
        )
        # Ansible's own place for files would be in the home folder of whoever tries this.
        own = {"ansible_remote_tmp": str(place / "tmp"), "ansible_python_interpreter": str(interpreter)}
        return {"ansible_connection": "local", **own}

    def simulator(self, node: str, *words: str) -> None:
        """What only the driver of a node does."""
        assert self.library is not None
        environment = {**os.environ, **self._driver(node)}
        subprocess.run([str(self.library.parent / "nvml-sim"), *words], env=environment, check=True)

    def _driver(self, node: str) -> Dict[str, str]:
        """Where the driver of a node has its GPUs, and whom it takes for the caller: a node is looked at as root."""
        return {"NVML_SIM_STATE": str(self.folder / node / "gpus"), "NVML_SIM_EUID": "0"}

    def playbook(self, name: str, *arguments: str) -> Tuple[int, str]:
        inventories = ["-i", str(INVENTORY), "-i", str(self.folder / "hosts.yml"), "--limit", ",".join(self.names)]
        environment = {"ANSIBLE_COLLECTIONS_PATH": str(CACHE / "collections"), "ANSIBLE_HOME": str(CACHE / "ansible")}
        print(f"$ ansible-playbook -i inventories/try ... gpufleet.node.{name} {' '.join(arguments)}", flush=True)
        words = [*inventories, f"gpufleet.node.{name}", *arguments]
        return play(words, environment=environment, log=self.folder / "playbooks.log")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", default="hgx-01,hgx-02,hgx-03,hgx-04,l40s-01,l40s-02", help="(default: %(default)s)")
    parser.add_argument("--folder", type=Path, default=CACHE / "try", help="where all of it is (default: %(default)s)")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    story(folder, arguments.nodes.split(","))
    print(f"\nWhere the time went:\n{TOLD.profile()}")
    print(f"\nEverything held, in {elapsed():.0f} seconds. The nodes are in {folder}")
    print(f"The page of the audit: {folder / 'report' / 'gpufleet-report.html'}")
    return 0


def story(folder: Path, names: List[str]) -> None:
    chapter(f"{len(names)} recorded nodes: {', '.join(names)}")
    library = simulated_driver(folder)
    fleet = Fleet(folder, names, library=library)
    print(f"   {'with eight H100 or an L40S each, simulated' if library else 'without GPUs'}")

    chapter("site --check: what would change, and nothing does")
    before = files(folder, names)
    status, _text = fleet.playbook("site", "--check", *AT_ONCE)
    expect(status == 0 and files(folder, names) == before, "nothing changed")

    chapter("site: the first run")
    status, _text = fleet.playbook("site", *AT_ONCE)
    expect(status == 0, "converged")

    node = names[-1] if len(names) == 1 else names[2]
    chapter(f"Somebody changes {'two values' if library else 'a value'} on {node}: audit names it, and writes the page")
    (folder / node / "tree" / READ_AHEAD).write_text("128\n", encoding="ascii")
    if library:
        fleet.simulator(node, "set", "0", "power_limit=250000")
    destination = f"gpufleet_report_dest={folder / 'report'}"
    status, text = fleet.playbook("audit", "-e", "audit_fail_on_drift=true", "-e", destination)
    expect(status != 0, "the audit fails")
    wanted = [(node, "nvme1n1", "read_ahead_kb", "4096", "128")]
    wanted += [(node, "gpu0", "power_limit_watts", "600" if "hgx" in node else "300", "250")] if library else []
    for words in wanted:
        row = row_of(text, *words)
        expect(row != "", f"it says: {row}")
    report = json.loads((folder / "report" / "gpufleet-report.json").read_text(encoding="utf-8"))
    drifted = [one["setting"] for one in report["findings"] if one["nodes"] == [node]]
    expect(sorted(drifted) == sorted(words[2] for words in wanted), f"and the report: {', '.join(drifted)}")

    chapter("site heals it")
    status, _text = fleet.playbook("site")
    read = (folder / node / "tree" / READ_AHEAD).read_text(encoding="ascii").strip()
    expect(status == 0 and read == "4096", f"{node} has what is declared")


def simulated_driver(folder: Path) -> Optional[Path]:
    """The library of the simulated driver, or None where nothing can compile it."""
    if shutil.which(os.environ.get("CC", "cc")) is None or not HEADER.exists():
        print("   There is no C compiler (gcc, libc6-dev) to build the simulated GPUs: continuing without GPUs.")
        return None
    subprocess.run([sys.executable, str(SIMULATOR / "build.py"), str(folder / "simulator")], check=True)
    return folder / "simulator" / "libnvidia-ml.so.1"


def files(folder: Path, names: List[str]) -> Dict[str, Tuple[int, int]]:
    """Size and time of everything on the disks and in the kernels of all nodes. Some tunables can only be written."""
    found = {str(path): path.lstat() for name in names for path in (folder / name / "tree").rglob("*")}
    return {path: (status.st_size, status.st_mtime_ns) for path, status in found.items()}


if __name__ == "__main__":
    sys.exit(main())
