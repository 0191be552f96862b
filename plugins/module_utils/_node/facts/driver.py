# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The NVIDIA driver: its versions, what it runs, its daemons, and whether jobs can be checkpointed with it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, List, Mapping, Optional

from .fields import Facts, Fields, read
from .services import find_program, package_version, service

if TYPE_CHECKING:
    from ..._core.protocols import Files

VERSION = "/proc/driver/nvidia/version"
MODULE = "/sys/module/nvidia/version"
MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_peermem", "nvidia_fs", "gdrdrv", "nouveau")
SERVICES = {
    "persistenced": ("nvidia-persistenced",),
    "fabricmanager": ("nvidia-fabricmanager",),
    "imex": ("nvidia-imex",),
    "dcgm": ("nvidia-dcgm", "dcgm"),
    "dcgm_exporter": ("dcgm-exporter", "nvidia-dcgm-exporter"),
}
# The first driver branch that runs a major version of CUDA, all of whose minor versions it runs then.
CUDA_BRANCHES = ((580, 13), (525, 12), (450, 11), (410, 10))
# https://github.com/NVIDIA/cuda-checkpoint: 550 can only toggle a process; 555 has the steps (--action) that the plugin
# of CRIU takes, and 570 can freeze a program that uses NVML, such as PyTorch, and a tree of processes.
CHECKPOINT_BRANCH, ACTION_BRANCH, NVML_BRANCH = 550, 555, 570
# The first release of CRIU with the plugin for CUDA.
CRIU_MAJOR = 4
CRIU_PLUGINS = ("/usr/lib/criu/cuda_plugin.so", "/usr/local/lib/criu/cuda_plugin.so", "/usr/lib64/criu/cuda_plugin.so")
# CRIU loads the plugin, and that gives up where the driver shows no GPU here.
DRIVER_GPUS = "/proc/driver/nvidia/gpus"
LIBRARY_FOLDERS = (
    *("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/nvidia/lib64"),
    *("/lib/x86_64-linux-gnu", "/lib64"),
)
LIBCUDA = "libcuda.so.1"
ASKED = ("version", "nvml_version", "cuda_version", "confidential_computing")


def gather(files: Files, answer: Facts, gpus: List[Facts], trouble: str) -> Facts:
    """``answer`` is what the driver says of itself, ``gpus`` of each GPU."""
    fields = Fields()
    fields.take(answer, ASKED, trouble)
    text, reason = read(files, VERSION)
    module, why = read(files, MODULE)
    if module is None and text:
        match = re.search(r"Module\b.*?  (\d+(?:\.\d+)+)", text)
        module = match[1] if match else None
    fields.add("kernel_module_version", module, why)
    fields.add("kernel_module_open", None if text is None else "Open Kernel Module" in text, reason)
    branch = re.match(r"\d+", answer.get("version") or module or "")
    number = int(branch[0]) if branch else None
    fields.add("branch", number, why)
    fits = next((major for first, major in CUDA_BRANCHES if number and number >= first), None)
    fields.add("cuda_fit", fits, "no driver version is known" if number is None else "the driver is older than R410")
    fields.add("modules", [name for name in MODULES if files.exists(f"/sys/module/{name}")])
    fields.add("services", {name: service(files, *units) for name, units in SERVICES.items()})
    fields.add("checkpoint", _checkpoint(files, gpus, number, trouble))
    return fields.facts


def _checkpoint(files: Files, gpus: List[Facts], branch: Optional[int], trouble: str) -> Facts:
    """What cuda-checkpoint and CRIU need to freeze a job and bring it back, and what of it is lacking."""
    fields = Fields(driver=branch is not None and branch >= ACTION_BRANCH)
    fields.add("toggle", branch is not None and branch >= CHECKPOINT_BRANCH)
    fields.add("nvml_programs", branch is not None and branch >= NVML_BRANCH)
    persistence = None if not gpus else all(gpu.get("persistence") for gpu in gpus)
    fields.add("persistence", persistence, trouble or "there is no GPU")
    plugin = next((path for path in CRIU_PLUGINS if files.exists(path)), None)
    tools: Mapping[str, Optional[str]] = {
        "cuda_checkpoint": find_program(files, "cuda-checkpoint"),
        "criu": find_program(files, "criu"),
        "criu_cuda_plugin": plugin,
        "libcuda": next((path for path in _libraries(LIBCUDA) if files.exists(path)), None),
    }
    for name, path in tools.items():
        fields.add(name, path, "it is not installed")
    version = package_version(files, "criu") if tools["criu"] else None
    fields.add("criu_version", version, "no dpkg package owns it" if tools["criu"] else "it is not installed")
    lacking = [
        *([] if fields.facts["driver"] else [f"a driver from R{ACTION_BRANCH}"]),
        *([] if persistence else ["persistence mode"]),
        *(LACKING[name] for name, path in tools.items() if path is None),
    ]
    if version and _major(version) < CRIU_MAJOR:
        lacking.append(f"CRIU {CRIU_MAJOR}.0 or newer")
    if not files.names(DRIVER_GPUS):
        lacking.append(f"a GPU in {DRIVER_GPUS}")
    return {"ready": not lacking, "lacking": lacking, **fields.facts}


LACKING: Mapping[str, str] = {
    "cuda_checkpoint": "cuda-checkpoint",
    "criu": "CRIU",
    "criu_cuda_plugin": "the plugin of CRIU for CUDA",
    "libcuda": LIBCUDA,
}


def _libraries(name: str) -> List[str]:
    return [f"{folder}/{name}" for folder in LIBRARY_FOLDERS]


def _major(version: str) -> int:
    """The first number of a version of dpkg, which may have an epoch before it."""
    match = re.match(r"(?:\d+:)?(\d+)", version)
    return int(match[1]) if match else 0
