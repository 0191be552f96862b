# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Machines with GPUs whose settings last: persistence mode is on, and the boot service is enabled."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Tuple

from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Outcome
from ansible_collections.gpufleet.node.plugins.module_utils._core.convergence import converge
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._linux.program import ARCHIVE, EXEC_START, PROGRAM
from ansible_collections.gpufleet.node.plugins.module_utils._node.look import validated
from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.driver import Driver
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_settings.concern import CONCERN
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import GpuMachine, MakeMachine

H100 = "hgx-h100-80gb-8"
BOOT_UNIT = "/etc/systemd/system/gpufleet-boot.service"
BOOT_SERVICE = {
    BOOT_UNIT: f"[Service]\nExecStart={EXEC_START} boot\n[Install]\nWantedBy=multi-user.target\n",
    PROGRAM: "",
    ARCHIVE: "",
    "/var/lib/dpkg/status": "",
}
ENABLED = {"/etc/systemd/system/multi-user.target.wants/gpufleet-boot.service": BOOT_UNIT}
DECLARED = "/etc/gpufleet/declared.d/gpu_settings.json"


def ready(
    make: MakeMachine,
    kind: str = H100,
    *,
    persistence: bool = True,
    boot_service: bool = True,
    files: Optional[Mapping[str, str]] = None,
) -> GpuMachine:
    """A machine on which every setting can be kept, unless it is told otherwise."""
    machine = make(
        kind,
        files={**(BOOT_SERVICE if boot_service else {}), **(files or {})},
        links=ENABLED if boot_service else {},
    )
    if persistence:
        machine.host.nvml.ask(keep_initialised)
        machine.host.nvml.close()
    machine.host.commands.programs["nvidia-smi"] = lambda argv: Completed(*machine.simulated.smi(*argv[1:]))
    machine.clear_logs()
    return machine


def keep_initialised(driver: Driver) -> None:
    """A question that switches persistence mode on, by the driver's own flag."""
    for gpu in driver.gpus():
        gpu.change("switch persistence mode on", "nvmlDeviceSetPersistenceMode", 1)


def params(*gpus: Mapping[str, Any], **shared: Any) -> Dict[str, Any]:
    return validated(CONCERN, {"gpus": list(gpus), **shared})


def run(
    machine: GpuMachine,
    *gpus: Mapping[str, Any],
    check_mode: bool = False,
    connection: Optional[Mapping[str, Any]] = None,
    **shared: Any,
) -> Outcome:
    """One run of the module, with a connection to the driver of its own, as each has, which ends with it."""
    machine.connect(**(connection or {}))
    try:
        return converge(CONCERN, params(*gpus, **shared), machine.host, check_mode=check_mode)
    finally:
        machine.host.nvml.close()


def settings_of(machine: GpuMachine, index: int = 0) -> Dict[str, Any]:
    """What the machine itself says of one GPU."""
    keys = (
        "compute_mode",
        "power_limit",
        "locked_memory_min",
        "locked_memory_max",
        "locked_graphics_min",
        "locked_graphics_max",
        "ecc",
        "ecc_pending",
    )
    gpu = machine.gpu(index)
    return {key: gpu[key] for key in keys}


def changes_of(outcome: Outcome) -> List[Tuple[str, str, Any, Any, str]]:
    return [(c.object, c.setting, c.before, c.after, c.scope) for c in outcome.changes]
