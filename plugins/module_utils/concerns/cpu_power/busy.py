# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who would lose CPUs that it was given: jobs of Slurm, pods with CPUs of their own, virtual machines, and whoever has
a GPU open. A container without such CPUs runs on those that are left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Tuple

from ..._kinds import workload

if TYPE_CHECKING:
    from ..._core.protocols import Files


def find(files: Files) -> Tuple[str, ...]:
    """Their names, the jobs first."""
    names = (
        *(f"the job {job.number} of Slurm" for job in workload.jobs(files)),
        *(f"the pod {uid}" for uid in workload.pods(files)),
        *(f"the virtual machine {name}" for name in workload.virtual_machines(files)),
        *(holder.name for holder in workload.on_gpus(files)),
    )
    return tuple(dict.fromkeys(names))
