# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Machines whose GPUs are divided: simulated GPUs, with the simulator's nvidia-smi and a systemctl of some units."""

from __future__ import annotations

import subprocess
import sys
from ctypes import byref
from typing import Any, Callable, Iterable, List, Mapping, Optional, Sequence, Set, Tuple

from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.driver import Driver, pci_address
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout import apply
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.actions import (
    GpuTarget,
    Repartition,
    ResetGroup,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.model import (
    Compute,
    Instance,
    Layout,
)
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import GpuMachine, MakeMachine

H100 = "hgx-h100-80gb-8"
A100 = "hgx-a100-80gb-8"
LINKED_A100 = "a100-sxm4-40gb-4"
# The ids of profiles of both, and the compute slices of each.
ONE, TWO, THREE, FOUR, SEVEN, DOUBLE, MEDIA = 19, 14, 9, 5, 0, 15, 20
SLICES = {ONE: 1, TWO: 2, THREE: 3, FOUR: 4, SEVEN: 7, DOUBLE: 1, MEDIA: 1}
SIZES = {ONE: 1, TWO: 2, THREE: 4, FOUR: 4, SEVEN: 8, DOUBLE: 2, MEDIA: 1}


def whole(start: int, profile: int) -> Instance:
    """An instance with one compute instance of all its slices."""
    return Instance(start, profile, (Compute(0, SLICES[profile]),))


ALL_SMALL: Layout = tuple(whole(start, ONE) for start in range(7))
MIXED: Layout = (whole(0, ONE), whole(1, ONE), whole(2, TWO), whole(4, THREE))


class Systemctl:
    """``systemctl`` for some units: which of them run. ``stuck`` ones refuse to start."""

    def __init__(self, *active: str) -> None:
        self.active = set(active)
        self.stuck: Set[str] = set()
        self.done: List[Tuple[str, str]] = []

    def __call__(self, argv: Sequence[str]) -> Completed:
        verb, *words = argv[1:]
        if verb == "show":
            units = words[words.index("--") + 1 :]
            states = ((unit, "active" if unit in self.active else "inactive") for unit in units)
            return Completed(
                0, "\n".join(f"Id={unit}\nLoadState=loaded\nActiveState={state}\n" for unit, state in states), ""
            )
        if verb == "reset-failed":
            return Completed(0, "", "")
        (unit,) = words
        self.done.append((verb, unit))
        if unit in self.stuck and verb == "start":
            return Completed(1, "", f"Job for {unit} failed.")
        (self.active.add if verb == "start" else self.active.discard)(unit)
        return Completed(0, "", "")


def divided(
    make: MakeMachine,
    kind: str = H100,
    *arguments: str,
    layouts: Optional[Mapping[int, Layout]] = None,
    persistence: bool = False,
    units: Iterable[str] = (),
    files: Optional[Mapping[str, str]] = None,
) -> GpuMachine:
    """A machine whose GPUs have MIG mode on where they have a layout here (by index), and no call behind them."""
    machine = make(kind, *arguments, files={"/run/systemd/system/.keep": "", **(files or {})})
    machine.host.commands.programs.update({"nvidia-smi": nvidia_smi(machine), "systemctl": Systemctl(*units)})
    for index, layout in (layouts or {}).items():
        divide(machine, index, layout)
    if persistence:
        machine.sim("set", "all", "persistence=1")
    machine.clear_logs()
    return machine


def divide(machine: GpuMachine, index: int, layout: Layout) -> None:
    """Let a GPU have MIG mode and these instances, in the order in which they stand."""
    machine.host.nvml.close()
    machine.sim("set", index, "mig=1", "mig_pending=1")
    machine.host.nvml.ask(create, index, layout)
    machine.host.nvml.close()


def create(driver: Driver, index: int, layout: Layout) -> None:
    """A question: make these instances."""
    nvml, gpu = driver.nvml, driver.gpus()[index].handle
    for one in layout:
        place = byref(nvml.c_nvmlGpuInstancePlacement_t(one.start, SIZES[one.profile]))
        instance = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, one.profile, place)
        for part in one.compute:
            # The ids of compute profiles follow the slices.
            number = (1, 2, 3, 4, 7).index(part.slices)
            inside = byref(nvml.c_nvmlComputeInstancePlacement_t(part.start, part.slices))
            nvml.nvmlGpuInstanceCreateComputeInstanceWithPlacement(instance, number, inside)


def nvidia_smi(machine: GpuMachine) -> Callable[[Sequence[str]], Completed]:
    """The simulator's nvidia-smi as a program of the machine."""

    def run(argv: Sequence[str]) -> Completed:
        command = [sys.executable, str(machine.simulated.built / "nvidia_smi.py"), *argv[1:]]
        environment = machine.simulated.environment()
        done = subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=60)
        return Completed(done.returncode, done.stdout, done.stderr)

    return run


# --- what the machine says --------------------------------------------------------------------------------------------


def layout_of(machine: GpuMachine, index: int = 0) -> Layout:
    """The instances of a GPU, by their start."""
    return layout_in(machine.gpu(index))


def layout_in(gpu: Mapping[str, Any]) -> Layout:
    """The same of a GPU as ``describe`` has it."""
    return tuple(
        sorted(
            Instance(
                instance["placement"]["start"],
                instance["profile_id"],
                tuple(sorted(Compute(**_placed(part["placement"])) for part in instance["compute_instances"])),
            )
            for instance in gpu["instances"]
        )
    )


def _placed(placement: Mapping[str, int]) -> Mapping[str, int]:
    return {"start": placement["start"], "slices": placement["size"]}


def numbers_of(machine: GpuMachine, index: int = 0) -> Mapping[Tuple[int, int], int]:
    """The driver's numbers of the instances of a GPU, by start and profile."""
    instances = machine.gpu(index)["instances"]
    return {(instance["placement"]["start"], instance["profile_id"]): instance["id"] for instance in instances}


def mode_of(machine: GpuMachine, index: int = 0) -> Tuple[bool, bool]:
    """MIG mode of a GPU, current and pending."""
    gpu = machine.gpu(index)
    return bool(gpu["mig"]), bool(gpu["mig_pending"])


# --- runs -------------------------------------------------------------------------------------------------------------


def work(machine: GpuMachine, index: int = 0, *, mig: bool = True, target: Optional[Layout] = None) -> GpuTarget:
    """What a GPU is to become."""
    gpu = machine.gpu(index)
    return GpuTarget(gpu["uuid"], f"gpu{index}", pci_address(gpu["pci_bus_id"]), mig, target)


def repartition(machine: GpuMachine, *groups: ResetGroup, stop_services: Sequence[str] = (), **connection: Any) -> None:
    """The step of one run, which has a connection to the driver of its own."""
    machine.connect(**connection)
    try:
        apply.repartition(Repartition(groups, tuple(stop_services)), machine.host)
    finally:
        machine.host.nvml.close()
