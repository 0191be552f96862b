# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The stand-in for the NVIDIA Container Toolkit."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.cdi.cdi import read_specification
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.container_runtime.model import Document
from ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_machine import Machine

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvml_simulator.nvml_simulator_fixtures",)

MACHINE = ("a30-4",)


def test_the_specification_names_gpus_and_mig_devices_but_no_gpu_that_is_divided(
    machine: Machine, tmp_path: Path
) -> None:
    machine.elsewhere("nvmlDeviceSetMigMode(gpu[1], 1)")
    machine.elsewhere("nvmlGpuInstanceCreateComputeInstance(nvmlDeviceCreateGpuInstance(gpu[1], 14), 0) and None")
    # Without a compute instance it is no device.
    machine.elsewhere("nvmlDeviceCreateGpuInstance(gpu[1], 14) and None")
    path = tmp_path / "cdi" / "nvidia.yaml"
    done = machine._main("container_toolkit", ["cdi", "generate", f"--output={path}"], {})
    assert done.returncode == 0, done.stderr
    read = read_specification(Document(str(path), path.read_text()))
    assert read.devices == tuple(f"nvidia.com/gpu={name}" for name in ("0", "1:0", "2", "3", "all"))
    assert read.of_gpus
