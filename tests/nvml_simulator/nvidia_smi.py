# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A nvidia-smi for simulated GPUs: it lists GPUs, answers a few queries, and resets GPUs and sets their time slice,
which NVML cannot.

Texts and exit codes are those of the real program as far as they are known; what it does not know, it refuses. It is no
client of the driver while it runs.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any, Callable, Dict, List, NoReturn, Optional, Sequence

import nvml_sim

# Exit codes, as the manual numbers them, and what the program ends with when GPUs could not be reset.
INVALID_ARGUMENT = 2
NO_PERMISSION = 4
NOT_FOUND = 6
DRIVER_NOT_LOADED = 9
VERSION_MISMATCH = 18
NOT_RESET = 255

# NVML's results that a reset can meet, in NVML's own words.
RESULTS = {
    nvml_sim.ERRORS.index(name): text
    for name, text in (
        ("NOT_SUPPORTED", "Not Supported"),
        ("NO_PERMISSION", "Insufficient Permissions"),
        ("TIMEOUT", "Timeout"),
        ("GPU_IS_LOST", "GPU is lost"),
        ("RESET_REQUIRED", "GPU requires reset"),
        ("IN_USE", "In use by another client"),
    )
}
IN_USE = nvml_sim.ERRORS.index("IN_USE")
NOT_SUPPORTED = nvml_sim.ERRORS.index("NOT_SUPPORTED")
HOLDERS = (
    "currently being used by one or more other processes (e.g., Fabric Manager, CUDA application, graphics application "
    "such as an X server, or a monitoring application such as another instance of nvidia-smi). Please first kill all "
    "processes using {these} and all compute applications running in the system."
)
Gpu = Dict[str, Any]


class Refused(Exception):
    """What the program says, and the code that it ends with."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


def _switch(value: Optional[int]) -> str:
    return {None: "[N/A]", 0: "Disabled", 1: "Enabled"}[value]


FIELDS: Dict[str, Callable[[Gpu, Gpu], str]] = {
    "driver_version": lambda gpu, system: str(system["driver_version"]),
    "count": lambda gpu, system: str(system["gpu_count"]),
    "index": lambda gpu, system: str(gpu["index"]),
    "gpu_name": lambda gpu, system: str(gpu["name"]),
    "name": lambda gpu, system: str(gpu["name"]),
    "gpu_uuid": lambda gpu, system: str(gpu["uuid"]),
    "uuid": lambda gpu, system: str(gpu["uuid"]),
    "gpu_bus_id": lambda gpu, system: str(gpu["pci_bus_id"]),
    "pci.bus_id": lambda gpu, system: str(gpu["pci_bus_id"]),
    "persistence_mode": lambda gpu, system: _switch(int(bool(gpu["persistence"] or gpu["daemon_pid"]))),
    "mig.mode.current": lambda gpu, system: _switch(gpu["mig"]),
    "mig.mode.pending": lambda gpu, system: _switch(gpu["mig_pending"]),
}


def wanted_gpus(simulator: nvml_sim.Simulator, gpus: List[Gpu], names: Optional[str]) -> List[Gpu]:
    """The GPUs that ``--id`` names, in the order of the machine; all without one."""
    if names is None:
        return gpus
    try:
        indices = {simulator.gpu(name.strip()) for name in names.split(",")}
    except nvml_sim.SimulatorError:
        raise Refused("No devices were found", NOT_FOUND) from None
    return [gpu for gpu in gpus if gpu["index"] in indices]


def list_gpus(gpus: List[Gpu]) -> str:
    lines = []
    for gpu in gpus:
        lines.append(f"GPU {gpu['index']}: {gpu['name']} (UUID: {gpu['uuid']})")
        devices = [compute for instance in gpu["instances"] for compute in instance["compute_instances"]]
        for device in sorted(devices, key=lambda one: int(one["mig_index"])):
            name = f"MIG {device['profile']:<11} Device {device['mig_index']:>2}"
            lines.append(f"  {name}: (UUID: {device['uuid']})")
    return "\n".join(lines)


def query(gpus: List[Gpu], system: Gpu, *, fields: str, form: str) -> str:
    """The fields of each GPU, as ``--query-gpu`` and ``--format`` ask for them."""
    names = [name.strip() for name in fields.split(",")]
    for name in names:
        if name not in FIELDS:
            raise Refused(f'Field "{name}" is not a valid field to query.\n', INVALID_ARGUMENT)
    options = [option.strip() for option in form.split(",")]
    if options[0] != "csv" or not set(options[1:]) <= {"noheader", "nounits"}:
        raise Refused(
            f'Format option "{form}" is not known to this stand-in: csv[,noheader][,nounits]', INVALID_ARGUMENT
        )
    lines = [] if "noheader" in options else [", ".join(names)]
    lines += [", ".join(FIELDS[name](gpu, system) for name in names) for gpu in gpus]
    return "\n".join(lines)


def reset(simulator: nvml_sim.Simulator, gpus: List[Gpu]) -> str:
    """Reset these GPUs, all of them or none."""
    addresses = {int(gpu["index"]): str(gpu["pci_bus_id"]) for gpu in simulator.describe()["gpus"]}
    results = simulator.user_reset([int(gpu["index"]) for gpu in gpus])
    failed = {gpu: result for gpu, (result, missing) in results.items() if result}
    if not failed:
        return "\n".join([*(f"GPU {addresses[gpu]} was successfully reset." for gpu in results), "All done."])
    lines = ["", "The following GPUs could not be reset:"]
    lines += [f"  GPU {addresses[gpu]}: {RESULTS.get(result, 'Unknown Error')}" for gpu, result in failed.items()]
    used = sum(result == IN_USE for result in failed.values())
    if used:
        one = used == 1
        these = HOLDERS.format(these="this device" if one else "these devices")
        lines += ["", f"{used} {'device is' if one else 'devices are'} {these}"]
    peers = {peer for gpu in failed if failed[gpu] == NOT_SUPPORTED for peer in results[gpu][1]}
    if peers:
        others = ", ".join(addresses[peer] for peer in sorted(peers))
        lines += ["", f"GPUs with NVLink connections must be reset in the same command. Add: {others}"]
    no_permission = nvml_sim.ERRORS.index("NO_PERMISSION") in failed.values()
    raise Refused("\n".join([*lines, ""]), NO_PERMISSION if no_permission else NOT_RESET)


TIME_SLICES = ("Default", "Short", "Medium", "Long")


def compute_policy(simulator: nvml_sim.Simulator, arguments: Sequence[str], state: Gpu) -> str:
    """List the time slices of GPUs, or set them. The form of the list is remembered, not recorded."""
    parser = Parser(prog="nvidia-smi compute-policy", allow_abbrev=False)
    parser.add_argument("-i", "--id", metavar="ID[,ID...]")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("-l", "--list", action="store_true", help="list compute policies")
    what.add_argument("--set-timeslice", type=int, choices=range(len(TIME_SLICES)))
    options = parser.parse_args(arguments)
    gpus = wanted_gpus(simulator, state["gpus"], options.id)
    if options.list:
        rule = f"+{'-' * 37}+"
        rows = [f"|{gpu['index']:>4}     Timeslice{TIME_SLICES[gpu['time_slice']]:>17}  |" for gpu in gpus]
        head = f"| {'GPU compute policies:':<35} |\n| {'GPU     Name               Value':<35} |"
        return "\n".join([rule, head, f"|{'=' * 37}|", *rows, rule])
    if int(os.environ.get("NVML_SIM_EUID", os.geteuid())):
        raise Refused("Unable to set timeslice: Insufficient Permissions", NO_PERMISSION)
    for gpu in gpus:
        simulator.set(str(gpu["index"]), [f"time_slice={options.set_timeslice}"])
    return "\n".join(f"Set timeslice config of GPU {gpu['pci_bus_id']} to {options.set_timeslice}." for gpu in gpus)


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refused(
            f"Invalid combination of input arguments. Please run '{self.prog} -h' for help.\n({message})",
            INVALID_ARGUMENT,
        )


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="nvidia-smi", description="A few of nvidia-smi's ways, for simulated GPUs.", allow_abbrev=False
    )
    parser.add_argument("-i", "--id", metavar="ID[,ID...]", help="index, UUID or PCI bus id (default: all GPUs)")
    parser.add_argument("--format", metavar="FORMAT", help="csv[,noheader][,nounits]")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("-L", "--list-gpus", action="store_true", help="list GPUs and MIG devices with their UUIDs")
    what.add_argument("--query-gpu", metavar="FIELD[,FIELD...]", help=", ".join(FIELDS))
    what.add_argument("-r", "--gpu-reset", action="store_true", help="reset GPUs")
    options = parser.parse_args(arguments)
    if (options.query_gpu is None) != (options.format is None):
        parser.error("--query-gpu and --format belong together")
    return options


def answer(arguments: Sequence[str]) -> str:
    """What the program prints when all is well. Raises :class:`Refused`."""
    policy = list(arguments[:1]) == ["compute-policy"]
    options = None if policy else options_of(arguments)
    simulator = nvml_sim.Simulator()
    try:
        state = simulator.describe()
    except nvml_sim.SimulatorError:
        state = {"system": {"driver_loaded": 0}}
    if not state["system"]["driver_loaded"]:
        raise Refused(
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
            "NVIDIA driver is installed and running.\n",
            DRIVER_NOT_LOADED,
        )
    if state["system"]["version_mismatch"]:
        raise Refused("Failed to initialize NVML: Driver/library version mismatch", VERSION_MISMATCH)
    if options is None:
        return compute_policy(simulator, arguments[1:], state)
    gpus = wanted_gpus(simulator, state["gpus"], options.id)
    if options.list_gpus:
        return list_gpus(gpus)
    if options.gpu_reset:
        return reset(simulator, gpus)
    return query(gpus, state["system"], fields=options.query_gpu, form=options.format)


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """The exit code; as the real program it says everything on stdout."""
    try:
        print(answer(sys.argv[1:] if arguments is None else arguments))
    except Refused as refusal:
        print(refusal)
        return refusal.code
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
