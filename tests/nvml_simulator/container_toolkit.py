# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stands in for the NVIDIA Container Toolkit where GPUs are simulated: ``nvidia-ctk`` and ``nvidia-container-runtime``.

    container_toolkit.py cdi generate --output=PATH        the CDI specification of the GPUs and MIG devices
    container_toolkit.py inject ... create --bundle DIR    the devices put into a container, as its environment asks

As in the real one (from 1.18 on) the runtime makes the edits of a specification itself, from what the driver has now.
The driver's library, its state and the machine's /proc stand for what the real one brings of the driver.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, List, Sequence

KIND = "nvidia.com/gpu"
ASKED = "NVIDIA_VISIBLE_DEVICES"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
STATE = "/var/lib/nvml_simulator"
PROC = "/run/nvml_simulator/proc"
# The device file that every instance has; there is no driver that would number them.
INSTANCE = "/dev/null"
Edits = Dict[str, Any]


def specification() -> Dict[str, Any]:
    """Devices by their names: ``0`` is a GPU, ``6:1`` a MIG device of GPU 6, ``all`` all of them."""
    # Not before it is asked: most containers that a runtime starts want no GPU of it.
    import nvml_sim

    devices: Dict[str, List[Dict[str, str]]] = {}
    for gpu in nvml_sim.Simulator().describe()["gpus"]:
        node = {"path": f"/dev/nvidia{gpu['minor_number']}"}
        if not gpu["mig"]:
            devices[str(gpu["index"])] = [node]
        for instance in gpu["instances"]:
            for compute in instance["compute_instances"]:
                own = {"path": f"/dev/nvidia-caps/{compute['uuid']}", "hostPath": INSTANCE}
                devices[f"{gpu['index']}:{compute['mig_index']}"] = [node, own]
    every = {node["path"]: node for nodes in devices.values() for node in nodes}
    return {
        "cdiVersion": "0.5.0",
        "kind": KIND,
        "containerEdits": {
            "env": [f"{ASKED}=void", f"NVML_SIM_PROC={PROC}"],
            "deviceNodes": [{"path": "/dev/nvidiactl"}, {"path": "/dev/nvidia-uvm"}],
            "mounts": [_mount(os.path.realpath(LIBRARY), LIBRARY), _mount(STATE, STATE, "rw"), _mount("/proc", PROC)],
        },
        "devices": [
            {"name": name, "containerEdits": {"deviceNodes": nodes}}
            for name, nodes in sorted({**devices, "all": list(every.values())}.items())
        ],
    }


def inject(bundle: Path) -> None:
    """Give a container the devices that its environment asks for."""
    path = bundle / "config.json"
    container = json.loads(path.read_text())
    environment = container["process"].setdefault("env", [])
    asked = next((pair.partition("=")[2] for pair in reversed(environment) if pair.startswith(f"{ASKED}=")), "void")
    if asked in ("", "void", "none"):
        return
    made = specification()
    by_name = {device["name"]: device["containerEdits"] for device in made["devices"]}
    for edits in (made["containerEdits"], *(by_name[name] for name in asked.split(","))):
        _apply(container, edits)
    path.write_text(json.dumps(container))


def _apply(container: Dict[str, Any], edits: Edits) -> None:
    container["process"]["env"] += edits.get("env", [])
    for mount in edits.get("mounts", []):
        words = {"destination": mount["containerPath"], "source": mount["hostPath"], "type": "bind"}
        container["mounts"].append({**words, "options": mount["options"]})
    devices = container["linux"].setdefault("devices", [])
    rules = container["linux"].setdefault("resources", {}).setdefault("devices", [])
    for node in edits.get("deviceNodes", []):
        if any(device["path"] == node["path"] for device in devices):
            continue
        number = os.stat(node.get("hostPath", node["path"])).st_rdev
        device = {"type": "c", "major": os.major(number), "minor": os.minor(number)}
        devices.append({"path": node["path"], "fileMode": 0o666, "uid": 0, "gid": 0, **device})
        rules.append({"allow": True, "access": "rw", **device})


def _mount(source: str, target: str, mode: str = "ro") -> Dict[str, Any]:
    return {"hostPath": source, "containerPath": target, "options": [mode, "nosuid", "nodev", "bind"]}


def main(words: Sequence[str]) -> int:
    if words[:1] == ["inject"]:
        inject(Path(words[words.index("--bundle") + 1]))
        return 0
    if words[:2] != ["cdi", "generate"] or not words[-1].startswith("--output="):
        print("This stand-in knows `nvidia-ctk cdi generate --output=PATH` alone", file=sys.stderr)
        return 1
    path = Path(words[-1].partition("=")[2])
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    part.write_text(json.dumps(specification(), indent=1) + "\n")
    part.replace(path)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
