# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The GPUs of a node: the NVML simulator where the driver would be, around it what a distribution brings."""

from __future__ import annotations

import hashlib
import io
import json
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Sequence

from bed_host import CACHE, BedError, locked

ROOT = Path(__file__).resolve().parents[2]
SIMULATOR = ROOT / "tests" / "nvml_simulator"
CONTAINERS = ROOT / "tests" / "vm" / "containers"
# What a node needs to run containers with its GPUs, and does not use before somebody runs the script among it.
FOR_CONTAINERS = (CONTAINERS / "install.sh", ROOT / "molecule" / "shared" / "engines" / "cri.py")
BUILT, LIST_GPUS, LOCK = CACHE / "nvml_simulator", CACHE / "list-gpus", CACHE / "nvml_simulator.lock"
# Where the service bed-gpus of the image looks for it.
ARCHIVE = "/opt/gpus.tar"


def machines() -> list[str]:
    """The names of the machines that the simulator knows."""
    return sorted(path.stem for path in (SIMULATOR / "machines").glob("*.json"))


def pack(machine: str, *, node: str, cpus: Sequence[str]) -> bytes:
    """The driver and the GPUs of a machine, as the tar archive that its node unpacks at its first boot.

    node: its name, from which the GPUs get their UUIDs.
    cpus: those of each NUMA node of the node, in the kernel's list format, which take the place of the machine's own.
    Errors: BedError when the simulator knows no such machine, or cannot be built.
    """
    if machine not in machines():
        raise BedError(f"Cannot plug in the GPUs of {machine}: the simulator has {', '.join(machines())}")
    description = json.loads((SIMULATOR / "machines" / f"{machine}.json").read_text())
    # A machine may have more NUMA nodes, and in any numbering: neighbours come together.
    numbers = sorted(description["nodes"], key=int)
    description["nodes"] = {number: cpus[rank * len(cpus) // len(numbers)] for rank, number in enumerate(numbers)}
    devices = ["nvidiactl", "nvidia-uvm", *(f"nvidia{index}" for index in range(len(description["gpus"])))]
    files = {f"{node}.json": json.dumps(description), "devices": "".join(f"{device}\n" for device in devices)}
    buffer = io.BytesIO()
    with locked(LOCK, what="The simulator"):
        _build_anew()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            archive.add(BUILT, arcname="nvml_simulator", filter=_of_root)
            for path in (*FOR_CONTAINERS, LIST_GPUS):
                archive.add(path, arcname=f"nvml_simulator/containers/{path.name}", filter=_of_root)
            for name, text in files.items():
                own = tarfile.TarInfo(f"nvml_simulator/node/{name}")
                own.size = len(text.encode())
                archive.addfile(own, io.BytesIO(text.encode()))
    return buffer.getvalue()


def build() -> None:
    """Compile what ``pack`` packs, unless it is there. Errors: BedError with what the compiler said."""
    with locked(LOCK, what="The simulator"):
        _build_anew()


def _build_anew() -> None:
    digest = hashlib.sha256()
    for path in sorted(path for folder in (SIMULATOR, CONTAINERS) for path in folder.rglob("*") if path.is_file()):
        if "__pycache__" not in path.parts:
            digest.update(f"{path}\0".encode() + path.read_bytes())
    stamp = CACHE / "nvml_simulator.digest"
    if stamp.exists() and stamp.read_text() == digest.hexdigest() and BUILT.exists() and LIST_GPUS.exists():
        return
    stamp.unlink(missing_ok=True)
    _call(sys.executable, str(SIMULATOR / "build.py"), str(BUILT))
    library = str(BUILT / "libnvidia-ml.so.1")
    _call("cc", "-std=c11", "-O1", "-o", str(LIST_GPUS), str(CONTAINERS / "list_gpus.c"), library)
    stamp.write_text(digest.hexdigest())


def _call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BedError(f"Cannot build the simulator: {done.stderr.strip() or done.stdout.strip()}")


def _of_root(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if "__pycache__" in member.name:
        return None
    member.uid = member.gid = 0
    member.uname = member.gname = "root"
    return member
