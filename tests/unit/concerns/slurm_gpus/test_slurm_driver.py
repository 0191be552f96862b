# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What Slurm has to know of GPUs, asked of a driver through the unmodified nvidia-ml-py."""

from __future__ import annotations

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.slurm_gpus.driver import GresInstance, read
from ansible_collections.gpufleet.node.tests.unit.concerns.mig_layout import mig_layout_machine
from ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine import MakeMachine

pytest_plugins = ("ansible_collections.gpufleet.node.tests.unit.nvidia.gpu_machine",)
# Only GPUs whose NVLinks lead from one to the other have links that Slurm counts.
A100 = "a100-sxm4-40gb-4"


@pytest.mark.once
def test_the_driver_tells_minors_instances_by_their_profiles_and_links(gpu_machine: MakeMachine) -> None:
    machine = mig_layout_machine.ready(gpu_machine, A100)
    layout = [{"profile": "3g.20gb", "compute_instances": ["1c", "2c"]}, "1g.5gb+me", "1g.5gb"]
    mig_layout_machine.run(machine, {"match": {"index": 1}, "instances": layout})
    machine.connect()
    found = machine.host.nvml.ask(read)
    assert [gpu.identity.pci_address for gpu in found] == sorted(gpu.identity.pci_address for gpu in found)
    assert [(gpu.minor, gpu.mig) for gpu in sorted(found, key=lambda gpu: gpu.identity.index)] == [
        *((machine.gpu(index)["minor_number"], index == 1) for index in range(4))
    ]
    divided = next(gpu for gpu in found if gpu.mig)
    assert sorted(one.profile for one in divided.instances) == ["1c.3g.20gb", "1g.5gb", "1g.5gb", "2c.3g.20gb"]
    assert all(isinstance(one, GresInstance) for one in divided.instances)
    assert divided.links == {}
    whole = next(gpu for gpu in found if not gpu.mig)
    assert whole.links == {gpu.identity.pci_address: 4 for gpu in found if gpu is not whole}


@pytest.mark.once
def test_a_lost_gpu_is_told_as_such(gpu_machine: MakeMachine) -> None:
    machine = mig_layout_machine.ready(gpu_machine, A100)
    machine.sim("lose", 2)
    machine.connect()
    assert [bool(gpu.identity.lost) for gpu in machine.host.nvml.ask(read)].count(True) == 1
