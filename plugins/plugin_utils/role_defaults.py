# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/modules: change it there.

"""What the variables of a concern are without a profile, by the name of its role."""

from __future__ import annotations

from typing import Any, Mapping

ROLE_DEFAULTS: Mapping[str, Any] = {
    "container_runtime": {
        "container_runtime_state": "present",
        "container_runtime_engines": [],
        "container_runtime_toolkit": {},
        "container_runtime_cdi": {},
        "container_runtime_immediate": True,
        "container_runtime_permanent": True,
        "container_runtime_strict": False,
    },
    "gpu_settings": {
        "gpu_settings_state": "present",
        "gpu_settings_gpus": [],
        "gpu_settings_immediate": True,
        "gpu_settings_permanent": True,
        "gpu_settings_strict": False,
    },
    "hugepages": {
        "hugepages_state": "present",
        "hugepages_pools": [],
        "hugepages_transparent": {},
        "hugepages_on_shortage": "fail",
        "hugepages_drop_caches": False,
        "hugepages_immediate": True,
        "hugepages_permanent": True,
        "hugepages_strict": False,
    },
    "kernel_cmdline": {
        "kernel_cmdline_state": "present",
        "kernel_cmdline_arguments": {},
        "kernel_cmdline_most_isolated": False,
        "kernel_cmdline_immediate": True,
        "kernel_cmdline_permanent": True,
        "kernel_cmdline_strict": False,
    },
    "kernel_modules": {
        "kernel_modules_state": "present",
        "kernel_modules_load": [],
        "kernel_modules_block": [],
        "kernel_modules_immediate": True,
        "kernel_modules_permanent": True,
        "kernel_modules_strict": False,
    },
    "mig_layout": {
        "mig_layout_state": "present",
        "mig_layout_gpus": [],
        "mig_layout_when_busy": "fail",
        "mig_layout_busy_timeout": 600,
        "mig_layout_stop_services": [],
        "mig_layout_immediate": True,
        "mig_layout_permanent": True,
        "mig_layout_strict": False,
    },
    "node_tools": {
        "node_tools_state": "present",
        "node_tools_boot_failure": "continue",
        "node_tools_boot_before": [
            "nvidia-cdi-refresh.service",
            "nvidia-dcgm.service",
            "dcgm-exporter.service",
            "docker.service",
            "containerd.service",
            "crio.service",
            "podman.service",
            "kubelet.service",
            "k3s.service",
            "k3s-agent.service",
            "rke2-server.service",
            "rke2-agent.service",
            "slurmd.service",
        ],
        "node_tools_boot_timeout": 300,
        "node_tools_immediate": True,
        "node_tools_permanent": True,
        "node_tools_strict": False,
    },
    "numa_irq_affinity": {
        "numa_irq_affinity_state": "present",
        "numa_irq_affinity_interrupts": [],
        "numa_irq_affinity_reserved_cpus": "",
        "numa_irq_affinity_irqbalance": "cooperate",
        "numa_irq_affinity_immediate": True,
        "numa_irq_affinity_permanent": True,
        "numa_irq_affinity_strict": False,
    },
    "nvidia_persistence": {
        "nvidia_persistence_state": "present",
        "nvidia_persistence_enabled": None,
        "nvidia_persistence_gpus": [],
        "nvidia_persistence_force": False,
        "nvidia_persistence_immediate": True,
        "nvidia_persistence_permanent": True,
        "nvidia_persistence_strict": False,
    },
    "nvme_scheduler": {
        "nvme_scheduler_state": "present",
        "nvme_scheduler_queues": [],
        "nvme_scheduler_immediate": True,
        "nvme_scheduler_permanent": True,
        "nvme_scheduler_strict": False,
    },
    "nvml": {
        "nvml_state": "present",
        "nvml_source": "controller",
        "nvml_package": "python3-pynvml",
        "nvml_folder": "",
        "nvml_immediate": True,
        "nvml_permanent": True,
    },
    "resource_limits": {
        "resource_limits_state": "present",
        "resource_limits_sessions": {},
        "resource_limits_immediate": True,
        "resource_limits_permanent": True,
        "resource_limits_strict": False,
    },
}
