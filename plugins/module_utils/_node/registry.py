# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
# Made by `make docs` from plugins/module_utils/concerns: change it there.

"""Every concern there is, in the order in which they run, and each without an import of what is in it."""

from __future__ import annotations

from typing import Tuple

from .._core.contract import AnyConcern
from .._core.registration import Registration
from .order import RegisteredConcern


def _hugepages() -> AnyConcern:
    from ..concerns.hugepages.concern import CONCERN

    return CONCERN


def _kernel_cmdline() -> AnyConcern:
    from ..concerns.kernel_cmdline.concern import CONCERN

    return CONCERN


def _kernel_modules() -> AnyConcern:
    from ..concerns.kernel_modules.concern import CONCERN

    return CONCERN


def _gds() -> AnyConcern:
    from ..concerns.gds.concern import CONCERN

    return CONCERN


def _kernel_tunables() -> AnyConcern:
    from ..concerns.kernel_tunables.concern import CONCERN

    return CONCERN


def _node_swap() -> AnyConcern:
    from ..concerns.node_swap.concern import CONCERN

    return CONCERN


def _node_tools() -> AnyConcern:
    from ..concerns.node_tools.concern import CONCERN

    return CONCERN


def _cpu_power() -> AnyConcern:
    from ..concerns.cpu_power.concern import CONCERN

    return CONCERN


def _nic_settings() -> AnyConcern:
    from ..concerns.nic_settings.concern import CONCERN

    return CONCERN


def _nvml() -> AnyConcern:
    from ..concerns.nvml.concern import CONCERN

    return CONCERN


def _nvidia_persistence() -> AnyConcern:
    from ..concerns.nvidia_persistence.concern import CONCERN

    return CONCERN


def _fabric_manager() -> AnyConcern:
    from ..concerns.fabric_manager.concern import CONCERN

    return CONCERN


def _gpu_slices() -> AnyConcern:
    from ..concerns.gpu_slices.concern import CONCERN

    return CONCERN


def _mig_layout() -> AnyConcern:
    from ..concerns.mig_layout.concern import CONCERN

    return CONCERN


def _gpu_virtualization() -> AnyConcern:
    from ..concerns.gpu_virtualization.concern import CONCERN

    return CONCERN


def _gpu_settings() -> AnyConcern:
    from ..concerns.gpu_settings.concern import CONCERN

    return CONCERN


def _mps() -> AnyConcern:
    from ..concerns.mps.concern import CONCERN

    return CONCERN


def _quiet_services() -> AnyConcern:
    from ..concerns.quiet_services.concern import CONCERN

    return CONCERN


def _cpu_isolation() -> AnyConcern:
    from ..concerns.cpu_isolation.concern import CONCERN

    return CONCERN


def _dcgm() -> AnyConcern:
    from ..concerns.dcgm.concern import CONCERN

    return CONCERN


def _kubelet_config() -> AnyConcern:
    from ..concerns.kubelet_config.concern import CONCERN

    return CONCERN


def _numa_irq_affinity() -> AnyConcern:
    from ..concerns.numa_irq_affinity.concern import CONCERN

    return CONCERN


def _container_runtime() -> AnyConcern:
    from ..concerns.container_runtime.concern import CONCERN

    return CONCERN


def _job_environment() -> AnyConcern:
    from ..concerns.job_environment.concern import CONCERN

    return CONCERN


def _rdma() -> AnyConcern:
    from ..concerns.rdma.concern import CONCERN

    return CONCERN


def _nvme_of() -> AnyConcern:
    from ..concerns.nvme_of.concern import CONCERN

    return CONCERN


def _filesystems() -> AnyConcern:
    from ..concerns.filesystems.concern import CONCERN

    return CONCERN


def _nvme_scheduler() -> AnyConcern:
    from ..concerns.nvme_scheduler.concern import CONCERN

    return CONCERN


def _resource_limits() -> AnyConcern:
    from ..concerns.resource_limits.concern import CONCERN

    return CONCERN


def _slurm_topology() -> AnyConcern:
    from ..concerns.slurm_topology.concern import CONCERN

    return CONCERN


def _slurm_gpus() -> AnyConcern:
    from ..concerns.slurm_gpus.concern import CONCERN

    return CONCERN


REGISTRY: Tuple[RegisteredConcern, ...] = (
    RegisteredConcern(
        "hugepages",
        _hugepages,
        Registration(
            owns=(
                "sysctl vm.nr_hugepages*",
                "sysctl vm.nr_overcommit_hugepages",
                "kernel argument hugepages",
                "kernel argument hugepagesz",
                "kernel argument default_hugepagesz",
                "kernel argument transparent_hugepage*",
            ),
        ),
    ),
    RegisteredConcern(
        "kernel_cmdline",
        _kernel_cmdline,
        Registration(
            cures=("no_iommu",),
        ),
        names_knobs=True,
    ),
    RegisteredConcern(
        "kernel_modules",
        _kernel_modules,
        Registration(
            after=("hugepages",),
            cures=("no_driver", "no_ib_umad", "no_channel"),
            owns=("kernel argument module_blacklist", "kernel argument modprobe.blacklist"),
        ),
        names_knobs=True,
    ),
    RegisteredConcern(
        "gds",
        _gds,
        Registration(
            after=("kernel_modules",),
        ),
    ),
    RegisteredConcern(
        "kernel_tunables",
        _kernel_tunables,
        Registration(
            after=("kernel_modules", "hugepages"),
            cures=("nr_open_too_low",),
        ),
        names_knobs=True,
    ),
    RegisteredConcern(
        "node_swap",
        _node_swap,
        Registration(
            owns=("unit *.swap", "unit zramswap.service", "unit zram-config.service", "unit dphys-swapfile.service"),
        ),
    ),
    RegisteredConcern(
        "node_tools",
        _node_tools,
        Registration(
            serves=(
                "container_runtime",
                "cpu_isolation",
                "cpu_power",
                "dcgm",
                "fabric_manager",
                "filesystems",
                "gds",
                "gpu_settings",
                "gpu_slices",
                "gpu_virtualization",
                "hugepages",
                "job_environment",
                "kernel_cmdline",
                "kernel_modules",
                "kernel_tunables",
                "kubelet_config",
                "mig_layout",
                "mps",
                "nic_settings",
                "node_swap",
                "numa_irq_affinity",
                "nvidia_persistence",
                "nvme_of",
                "nvme_scheduler",
                "nvml",
                "quiet_services",
                "rdma",
                "resource_limits",
                "slurm_gpus",
                "slurm_topology",
            ),
            cures=("no_boot_service", "exposed"),
        ),
    ),
    RegisteredConcern(
        "cpu_power",
        _cpu_power,
        Registration(
            after=("node_tools", "kernel_modules"),
            disturbs=("numa_irq_affinity",),
        ),
        names_knobs=True,
    ),
    RegisteredConcern(
        "nic_settings",
        _nic_settings,
        Registration(
            after=("node_tools", "kernel_modules"),
            disturbs=("numa_irq_affinity",),
            tells=("confirmation",),
            deadline=60.0,
        ),
    ),
    RegisteredConcern(
        "nvml",
        _nvml,
        Registration(
            serves=("nvidia_persistence", "fabric_manager", "gpu_slices", "mig_layout", "gpu_settings"),
            cures=("no_binding",),
        ),
    ),
    RegisteredConcern(
        "nvidia_persistence",
        _nvidia_persistence,
        Registration(
            after=("node_tools", "kernel_modules", "nvml"),
            disturbs=("gpu_settings", "numa_irq_affinity"),
            cures=("no_persistence",),
            deadline=75.0,
        ),
    ),
    RegisteredConcern(
        "fabric_manager",
        _fabric_manager,
        Registration(
            after=("kernel_modules", "nvml", "nvidia_persistence"),
            tells=("restart_fabric_manager", "restart_imex"),
            deadline=75.0,
            owns=("unit nvidia-fabricmanager.service", "unit nvidia-imex.service"),
        ),
    ),
    RegisteredConcern(
        "gpu_slices",
        _gpu_slices,
        Registration(
            after=("node_tools", "kernel_modules", "nvml", "nvidia_persistence"),
            deadline=75.0,
            owns=("unit gpu-*.slice",),
        ),
        names_knobs=True,
    ),
    RegisteredConcern(
        "mig_layout",
        _mig_layout,
        Registration(
            after=("node_tools", "kernel_modules", "nvml", "nvidia_persistence", "fabric_manager"),
            disturbs=("gpu_settings", "mps", "numa_irq_affinity", "container_runtime", "dcgm", "slurm_gpus"),
            tells=("cdi", "device_plugin", "gpu_feature_discovery", "dra_driver", "dcgm", "dcgm_exporter", "slurm"),
            deadline=75.0,
            interrupted="/var/lib/gpufleet/mig_layout.transaction",
        ),
    ),
    RegisteredConcern(
        "gpu_virtualization",
        _gpu_virtualization,
        Registration(
            after=(
                "node_tools",
                "kernel_modules",
                "kernel_cmdline",
                "nvml",
                "nvidia_persistence",
                "fabric_manager",
                "mig_layout",
            ),
            disturbs=("nvidia_persistence", "gpu_settings", "mps", "dcgm", "container_runtime", "numa_irq_affinity"),
            deadline=75.0,
            owns=("unit gpufleet-passthrough.service",),
        ),
    ),
    RegisteredConcern(
        "gpu_settings",
        _gpu_settings,
        Registration(
            after=("node_tools", "kernel_modules", "nvml", "nvidia_persistence", "mig_layout", "gpu_virtualization"),
            deadline=75.0,
        ),
    ),
    RegisteredConcern(
        "mps",
        _mps,
        Registration(
            after=("node_tools", "kernel_modules", "nvml", "nvidia_persistence", "mig_layout", "gpu_settings"),
            deadline=75.0,
            owns=("unit gpufleet-mps*.service",),
        ),
    ),
    RegisteredConcern(
        "quiet_services",
        _quiet_services,
        names_knobs=True,
    ),
    RegisteredConcern(
        "cpu_isolation",
        _cpu_isolation,
        Registration(
            after=("kernel_cmdline", "cpu_power", "quiet_services"),
        ),
        names_knobs=True,
    ),
    RegisteredConcern(
        "dcgm",
        _dcgm,
        Registration(
            after=("kernel_modules", "nvidia_persistence", "mig_layout", "gpu_settings", "quiet_services"),
            owns=(
                "unit nvidia-dcgm.service",
                "unit dcgm.service",
                "unit nvidia-dcgm-exporter.service",
                "unit dcgm-exporter.service",
                "unit gpufleet-dcgm-health.service",
            ),
        ),
    ),
    RegisteredConcern(
        "kubelet_config",
        _kubelet_config,
        Registration(
            after=("cpu_isolation", "cpu_power", "hugepages", "kernel_cmdline", "kernel_modules", "node_swap"),
            deadline=20.0,
            owns=("unit kubelet.service",),
        ),
    ),
    RegisteredConcern(
        "numa_irq_affinity",
        _numa_irq_affinity,
        Registration(
            after=("node_tools", "kernel_modules", "cpu_power", "cpu_isolation", "nvidia_persistence", "mig_layout"),
            owns=("kernel argument irqaffinity", "unit irqbalance.service"),
        ),
    ),
    RegisteredConcern(
        "container_runtime",
        _container_runtime,
        Registration(
            after=("kernel_modules", "nvidia_persistence", "mig_layout", "gpu_settings", "numa_irq_affinity"),
            tells=("restart_containerd", "restart_crio", "reload_docker", "restart_docker"),
        ),
    ),
    RegisteredConcern(
        "job_environment",
        _job_environment,
        Registration(
            after=("container_runtime",),
        ),
        names_knobs=True,
    ),
    RegisteredConcern(
        "rdma",
        _rdma,
        Registration(
            after=("node_tools", "kernel_modules", "kernel_tunables", "nic_settings"),
        ),
    ),
    RegisteredConcern(
        "nvme_of",
        _nvme_of,
        Registration(
            after=("kernel_modules", "nic_settings", "rdma"),
            disturbs=("nvme_scheduler", "filesystems"),
            cures=("no_disk",),
            deadline=30.0,
        ),
    ),
    RegisteredConcern(
        "filesystems",
        _filesystems,
        Registration(
            after=("node_tools", "kernel_modules", "nvme_of", "rdma"),
            owns=("unit gpufleet-lustre-*.service", "unit gpufleet-read-ahead-*.service"),
        ),
        names_knobs=True,
    ),
    RegisteredConcern(
        "nvme_scheduler",
        _nvme_scheduler,
        Registration(
            after=("hugepages", "nvme_of"),
        ),
    ),
    RegisteredConcern(
        "resource_limits",
        _resource_limits,
        Registration(
            after=("kernel_tunables",),
            cures=("nofile_too_high",),
        ),
        names_knobs=True,
    ),
    RegisteredConcern(
        "slurm_topology",
        _slurm_topology,
        Registration(
            deadline=75.0,
        ),
    ),
    RegisteredConcern(
        "slurm_gpus",
        _slurm_gpus,
        Registration(
            after=("kernel_modules", "nvml", "nvidia_persistence", "fabric_manager", "mig_layout", "slurm_topology"),
            tells=("restart_slurmctld",),
            deadline=75.0,
        ),
    ),
)
