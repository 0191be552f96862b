# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fleet of the chapters: two nodes that run jobs, after their first converge, kept as disks."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Dict, List, Sequence

from demo_nodes import INFERENCE, TRAINING, driver, expect_local, files_of_ours, persistent, plugged, show_gpus
from demo_tools import CACHE, ROOT, Bed, chapter, expect

NAME = "demo-fleet"
NODES = (TRAINING, INFERENCE)
# What a saved fleet is made of.
SOURCES = ("plugins", "roles", "playbooks", "profiles", "node", "inventories/demo", "tests/nvml_simulator", "tests/vm")
# And what only tells about it.
TELLERS = ("demo.py", "demo_chapters.py")
FOUND = "found.json"

# As an image of last year left it: the daemon runs, and keeps nothing.
OLD_DROP_IN = """[Service]
ExecStart=
ExecStart=/usr/bin/nvidia-persistenced --user nvpd --no-persistence-mode
"""
ENGINES = "/opt/nvml_simulator/containers/install.sh"
SLURM = Path(__file__).with_name("slurm") / "install.sh"

RUN = "docker run --rm --network none"
LIST = "tiny list-gpus"
# Which process a container is that was there before us, and since when.
JOB = "docker inspect --format '{{.State.Pid}} {{.State.StartedAt}}' job"
START_JOB = "docker rm --force job >/dev/null 2>&1; docker run --detach --network none --name job tiny"

# What an operator would compare before and after us: files, units, the kernel, the driver and the daemon.
RECORD = """find /etc /boot/grub/grub.cfg /usr/local /usr/lib/systemd /usr/lib/udev /var/lib/gpufleet /run/gpufleet \\
  ! -type d -printf '%p %y %m %u:%g %l\\n' 2>/dev/null | sort
find /etc /boot/grub/grub.cfg /usr/local /usr/lib/systemd /usr/lib/udev -type f -exec sha256sum {} + | sort -k2
systemctl list-unit-files --no-legend | awk '$2 != "transient" {print $1, $2}'
cat /proc/cmdline
grep . /sys/devices/system/node/node*/hugepages/*/nr_hugepages /sys/block/nvme*/queue/scheduler \\
  /sys/block/nvme*/queue/read_ahead_kb /sys/block/nvme*/queue/nr_requests /sys/kernel/mm/transparent_hugepage/enabled \\
  /sys/kernel/mm/transparent_hugepage/defrag /sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs
docker info --format 'runtimes {{range $name, $_ := .Runtimes}}{{$name}} {{end}}'
docker info --format 'default runtime {{.DefaultRuntime}}, live restore {{.LiveRestoreEnabled}}, CDI {{.CDISpecDirs}}'
"""
# What the driver has, without what only time changes.
OF_A_GPU = ("persistence", "power_limit", "compute_mode", "ecc", "ecc_pending", "mig", "mig_pending", "instances")

STATE_IN_SLURM = "sinfo --noheader --format=%T"
# No canary, so that the two nodes are converged side by side.
AT_ONCE = ("-e", '{"gpufleet_batches": ["100%"]}')


def begin(bed: Bed, lifetime: Sequence[str]) -> None:
    """Boot nodes of the fleet from the disks that it had after its first converge. It is made where it is not kept."""
    place = kept()
    if not place.exists():
        make(place.name, lifetime)
    chapter(f"{' and '.join(bed.nodes)} boot as the first converge left them")
    bed.call("load", place.name, "--nodes", ",".join(bed.nodes), "--replace", *lifetime)
    # On a busy machine the controller gives up before the network is there.
    bed.on_all(
        f"systemctl start slurmctld; timeout 300 sh -c 'until {STATE_IN_SLURM} | grep -qx idle; do sleep 1; done'"
    )


def found_first() -> Dict[str, List[str]]:
    """The records of all nodes from before the first run."""
    records: Dict[str, List[str]] = json.loads((kept() / FOUND).read_text())
    return records


def kept() -> Path:
    """Where the fleet of these sources is, or would be."""
    digest = hashlib.sha256()
    for folder in SOURCES:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.name not in TELLERS:
                digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return CACHE / "vm" / "saved" / NAME / f"fleet-{digest.hexdigest()[:16]}"


def make(label: str, lifetime: Sequence[str]) -> None:
    """Two nodes as somebody set them up who did not think of us, and their first converge."""
    bed = Bed(NAME, NODES)
    chapter("Two bare nodes: eight H100 and eight A100, Docker, containerd, Slurm, and a job in a container")
    bed.call("up", "--worker", *plugged(*NODES), "--replace", *lifetime)
    bed.on(INFERENCE, "mkdir /etc/systemd/system/nvidia-persistenced.service.d")
    bed.on(INFERENCE, "cat > /etc/systemd/system/nvidia-persistenced.service.d/fleet.conf", text=OLD_DROP_IN)
    bed.on(INFERENCE, "systemctl daemon-reload && systemctl enable --quiet --now nvidia-persistenced irqbalance")
    bed.on(INFERENCE, "nvml-sim set 3 ecc=0 ecc_pending=0")
    for node in NODES:
        held = [persistent(gpu) for gpu in driver(bed, node)["gpus"]]
        expect(held == [False] * 8, f"{node}: the driver has eight GPUs, persistence mode off on all")
    bed.on_all(f"sh {ENGINES} && {START_JOB}")
    with ThreadPoolExecutor(len(NODES)) as pool:
        list(pool.map(lambda node: bed.on(node, "sh -s", text=SLURM.read_text()), NODES))
    found = {node: recorded(bed, node) for node in NODES}
    said = bed.on(TRAINING, f"{RUN} {LIST} 2>&1 || true")
    expect("cannot open shared object file" in said, f"containers run, and see no GPU: {said.strip()}")
    jobs = bed.on_all(JOB)

    chapter("site --check, and the first run: two models, two kinds of declaration")
    predicted = bed.playbook("site", "--check", *AT_ONCE)
    expect(predicted.status == 0, "the check succeeds on bare nodes")
    expect(files_of_ours(bed, TRAINING) == "", "no file of ours is on the node")
    first = bed.playbook("site", *AT_ONCE)
    expect(first.status == 0 and first.total("changed") > 0, f"converged, with {first.total('changed')} changed tasks")
    expect(bed.on_all(JOB) == jobs, "both containers of before run on")
    show_gpus(bed)
    for node in NODES:
        expect_local(bed, node)

    chapter("The nodes are shut down, and their disks kept for all chapters")
    bed.call("save", label)
    (kept() / FOUND).write_text(json.dumps(found))


def recorded(bed: Bed, node: str) -> List[str]:
    """A line for everything that must be the same once we are gone."""
    gpus = [
        f"GPU {rank} {key} {gpu.get(key)}" for rank, gpu in enumerate(driver(bed, node)["gpus"]) for key in OF_A_GPU
    ]
    return [*bed.on(node, RECORD).splitlines(), *gpus]
