# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``mig_layout`` on machines with simulated GPUs, on which the boot service is enabled."""

from __future__ import annotations

import contextlib
import json
from typing import Any, Dict, Iterable, Iterator, List, Mapping, Optional, Tuple

import pynvml as nvml
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._node.look import validated
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.concern import CONCERN
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.mig_layout.model import Layout
from ansible_collections.gpufleet.node.tests.unit.concerns.gpu_settings.gpu_settings_machine import (
    BOOT_SERVICE,
    ENABLED,
)
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout.mig_machine import H100, divided
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import GpuMachine, MakeMachine
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_machine import forked, gpu, load

DECLARED = "/etc/gpufleet/declared.d/mig_layout.json"
RECORD = "/var/lib/gpufleet/mig_layout.json"


def ready(
    make: MakeMachine,
    kind: str = H100,
    *arguments: str,
    layouts: Optional[Mapping[int, Layout]] = None,
    persistence: bool = True,
    boot_service: bool = True,
    units: Iterable[str] = (),
    files: Optional[Mapping[str, str]] = None,
) -> GpuMachine:
    """A machine on which a layout can be kept, unless it is told otherwise."""
    own = {**(BOOT_SERVICE if boot_service else {}), **(files or {})}
    machine = divided(make, kind, *arguments, layouts=layouts, persistence=persistence, units=units, files=own)
    if boot_service:
        for path, target in ENABLED.items():
            link = machine.root / path.lstrip("/")
            link.parent.mkdir(parents=True, exist_ok=True)
            if not link.is_symlink():
                link.symlink_to(target)
    return machine


def params(*gpus: Mapping[str, Any], **options: Any) -> Dict[str, Any]:
    return validated(CONCERN, {"gpus": list(gpus), **options})


def run(machine: GpuMachine, *gpus: Mapping[str, Any], check_mode: bool = False, **options: Any) -> Outcome:
    """One run of the module, with a connection to the driver of its own, as each has, which ends with it."""
    machine.connect()
    try:
        return converge(CONCERN, params(*gpus, **options), machine.host, check_mode=check_mode)
    finally:
        machine.host.nvml.close()


def changes_of(outcome: Outcome) -> List[Tuple[str, str, Any, Any, str]]:
    return [(c.object, c.setting, c.before, c.after, c.scope) for c in outcome.changes]


def declared(machine: GpuMachine) -> Optional[Dict[str, Any]]:
    """The declaration on the node, None where there is none."""
    text = machine.host.files.read_optional(DECLARED)
    return None if text is None else json.loads(text)["declaration"]


def boot(machine: GpuMachine, *gpus: Mapping[str, Any], **options: Any) -> Outcome:
    """A reboot, and what the boot service then does."""
    machine.reboot()
    return run(machine, *gpus, **{**options, "permanent": False})


def devices(machine: GpuMachine) -> List[List[str]]:
    """The MIG devices that another client of NVML lists: by GPU their profiles, sorted."""

    def work() -> str:
        load(machine.simulated)
        nvml.nvmlInit()
        return json.dumps([sorted(_devices(gpu(index))) for index in range(nvml.nvmlDeviceGetCount())])

    code, answer = forked(work)
    assert code == 0, answer
    found: List[List[str]] = json.loads(answer)
    return found


def _devices(handle: Any) -> Iterator[str]:
    try:
        count = nvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except nvml.NVMLError_NotSupported:
        return
    for index in range(count):
        with contextlib.suppress(nvml.NVMLError_NotFound):
            device = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            yield nvml.nvmlDeviceGetName(device).rpartition("MIG ")[2]
