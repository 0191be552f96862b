# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GPUDirect Storage: what the node has for it, and what gdscheck says."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Mapping

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._linux.pci import chain
from ansible_collections.gpufleet.node.plugins.module_utils._linux.pci_config import redirects_of
from ansible_collections.gpufleet.node.plugins.module_utils._node.facts import collect
from ansible_collections.gpufleet.node.plugins.module_utils._node.facts.gds import gather
from ansible_collections.gpufleet.node.plugins.module_utils._node.facts.pci import NVME, PciDevice
from ansible_collections.gpufleet.node.tests.unit.node.facts_machine import quiet_host
from ansible_collections.gpufleet.node.tests.unit.support import build

TOOL = "/usr/local/cuda-12.8/gds/tools/gdscheck"
# In the parts that differ; the layout is that of release 1.13.
OUTPUT = """ GDS release version: 1.13.1.3
 nvidia_fs version:  2.24 libcufile version: 2.12
 Platform: x86_64
 ============
 ENVIRONMENT:
 ============
 =====================
 DRIVER CONFIGURATION:
 =====================
 NVMe P2PDMA        : Unsupported
 NVMe               : Supported
 Userspace RDMA     : Unsupported
 --Mellanox PeerDirect : Disabled
 =========
 GPU INFO:
 =========
 GPU index 0 NVIDIA H100 80GB HBM3 bar:1 bar size (MiB):131072 supports GDS, IOMMU State: Disabled
 ==============
 PLATFORM INFO:
 ==============
 IOMMU: disabled
 Platform verification succeeded
"""


def config(control: int, *, capability: int = 0x000D, size: int = 4096) -> bytes:
    """The configuration space of a bridge with AER, and ACS behind it."""
    space = bytearray(size)
    if size > 0x200:
        space[0x100:0x104] = (0x0001 | 1 << 16 | 0x140 << 20).to_bytes(4, "little")
        space[0x140:0x144] = (capability | 1 << 16).to_bytes(4, "little")
        space[0x146:0x148] = control.to_bytes(2, "little")
    return bytes(space)


@pytest.mark.parametrize(
    ("space", "redirects"),
    [
        (config(0b0001101), ["request_redirect", "completion_redirect"]),
        (config(0b1010001), ["upstream_forwarding"]),
        (config(0b0000011), []),
        (config(0xFFFF, capability=0x0019), []),
        # Root alone is shown more than the first of these.
        (config(0, size=64), None),
        (config(0, size=256), None),
        (b"\xff" * 4096, []),
    ],
)  # fmt: skip
def test_acs_is_read_from_the_configuration_space(space: bytes, redirects: Any) -> None:
    assert redirects_of(space) == redirects


def facts_of(root: Path, files: Mapping[str, str]) -> Any:
    build(root, {"/.keep": "", **files})
    return collect.gather(quiet_host(root), ("gds",))["gds"]


def test_bridges_that_redirect_are_named_once(tmp_path: Path) -> None:
    bridge = "/sys/devices/pci0000:15/0000:15:01.0"
    path = f"{bridge}/0000:16:00.0"
    host = build(tmp_path, {f"{path}/class": "0x010802\n"})
    (tmp_path / bridge[1:] / "config").write_bytes(config(0b1100))
    drives = [PciDevice(NVME, "0000:16:00.0", path, chain(path), "0x144d", "0xa80a", "nvme", ("nvme0",))] * 2
    facts = gather(host, drives)
    assert facts["redirecting_bridges"] == [
        {"pci_address": "0000:15:01.0", "redirects": ["request_redirect", "completion_redirect"]}
    ]


@pytest.mark.parametrize(
    ("files", "iommu"),
    [
        ({}, "off"),
        ({"/sys/class/iommu/dmar0/x": "", "/sys/kernel/iommu_groups/0/type": "identity\n"}, "passthrough"),
        (
            {
                "/sys/class/iommu/dmar0/x": "",
                "/sys/kernel/iommu_groups/0/type": "identity\n",
                "/sys/kernel/iommu_groups/1/type": "DMA-FQ\n",
            },
            "translated",
        ),
        ({"/sys/class/iommu/dmar0/x": ""}, None),
    ],
)
def test_the_iommu_is_as_its_groups_say(tmp_path: Path, files: Mapping[str, str], iommu: Any) -> None:
    assert facts_of(tmp_path, files)["iommu"] == iommu


def test_a_node_without_anything_of_it_says_what_it_lacks(tmp_path: Path) -> None:
    facts = facts_of(tmp_path, {"/proc/sys/kernel/osrelease": "5.14.0-503.el9.x86_64\n"})
    assert facts["nvidia_fs"] is None
    assert "the kernel 5.14.0-503.el9.x86_64 is older than 6.2" in facts["p2pdma_lacks"]
    assert facts["unavailable"]["gdscheck"] == "there is no gdscheck below /usr/local/cuda*/gds/tools"


def test_gdscheck_is_run_from_the_newest_cuda_and_parsed(tmp_path: Path) -> None:
    host = build(tmp_path, {TOOL: "", TOOL.replace("12.8", "12.6"): "", "/sys/module/nvidia_fs/version": "2.24.3\n"})
    host.commands.programs["gdscheck"] = lambda _argv: Completed(1, OUTPUT, "")
    found = gather(host, ())["gdscheck"]
    assert (found["program"], found["release"], found["platform"]) == (TOOL, "1.13.1.3", "succeeded")
    assert found["sections"]["environment"] == {"values": {}, "lines": []}
    assert found["sections"]["driver configuration"]["values"] == {
        "NVMe P2PDMA": "Unsupported",
        "NVMe": "Supported",
        "Userspace RDMA": "Unsupported",
        "Mellanox PeerDirect": "Disabled",
    }
    assert found["sections"]["gpu info"]["lines"][0].startswith("GPU index 0 NVIDIA H100")
    assert host.commands.calls == [(TOOL, "-p")]


def test_gdscheck_that_hangs_or_that_others_may_write_is_no_answer(tmp_path: Path) -> None:
    host = build(tmp_path, {TOOL: ""})
    host.commands.programs["gdscheck"] = lambda _argv: Completed(124, "", "")
    assert gather(host, ())["unavailable"]["gdscheck"] == f"{TOOL} did not end within 30 seconds"
    (tmp_path / TOOL[1:]).chmod(0o777)
    assert "root would run it" in gather(host, ())["unavailable"]["gdscheck"]
