# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose the CPUs of a node are, as facts and as the lines of ``gpufleet status``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict, Mapping

import pytest
from ansible_collections.gpufleet.node.node.status import assess, describe, status
from ansible_collections.gpufleet.node.plugins.module_utils._kinds.own_files import header_of
from ansible_collections.gpufleet.node.plugins.module_utils._node.cpu_owners import owner_facts
from ansible_collections.gpufleet.node.plugins.module_utils._node.cpu_picture import picture, picture_table
from ansible_collections.gpufleet.node.plugins.module_utils._node.facts.collect import gather
from ansible_collections.gpufleet.node.plugins.module_utils._node.registry import REGISTRY
from ansible_collections.gpufleet.node.tests.nodes import nodetree
from ansible_collections.gpufleet.node.tests.nodes.nodetree import FILE, Entry
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost

CPU, GROUP, ETC = "/sys/devices/system/cpu", "/sys/fs/cgroup", "/etc/systemd/system"
SYSTEM, JOBS = "0-1,56-57,112-113,168-169", "2-55,58-111,114-167,170-223"
DIVIDED: Mapping[str, str] = {
    f"{CPU}/isolated": f"{JOBS}\n",
    f"{CPU}/nohz_full": f"{JOBS}\n",
    f"{GROUP}/cpuset.cpus.effective": "0-223\n",
    f"{GROUP}/system.slice/cpuset.cpus.effective": f"{SYSTEM}\n",
    f"{GROUP}/user.slice/cpuset.cpus.effective": "0-223\n",
    f"{GROUP}/batch.slice/cpuset.cpus.effective": "100-111\n",
    f"{GROUP}/gpu.slice/cpuset.cpus.effective": "0-223\n",
    f"{GROUP}/gpu.slice/gpu-0.slice/cpuset.cpus.effective": "2-55\n",
    # Nothing runs in this one.
    f"{ETC}/gpu-1.slice": f"{header_of('gpu_slices')}[Slice]\nAllowedCPUs=2-55\n",
}


def host_of(tree: str, root: Path, files: Mapping[str, str]) -> FakeHost:
    entries = {**nodetree.load(tree), **{path: Entry(FILE, text) for path, text in files.items()}}
    return FakeHost(nodetree.expand(entries, root / "root"))


def test_the_owners_of_cpus_are_facts(tmp_path: Path) -> None:
    host = host_of("hgx-2socket", tmp_path, DIVIDED)
    expected = [
        {"kind": "system", "name": "system.slice", "cpus": SYSTEM},
        {"kind": "isolated", "name": "isolcpus", "cpus": JOBS},
        {"kind": "isolated", "name": "nohz_full", "cpus": JOBS},
        {"kind": "gpu", "name": "gpu-0.slice", "cpus": "2-55"},
        {"kind": "gpu", "name": "gpu-1.slice", "cpus": "2-55"},
        {"kind": "slice", "name": "batch.slice", "cpus": "100-111"},
    ]
    assert owner_facts(host.files) == expected
    assert gather(host, ("topology",))["topology"]["cpu_owners"] == expected


def test_what_cannot_be_read_is_null_with_the_reason_and_the_rest_is_there(tmp_path: Path) -> None:
    host = host_of("hgx-2socket", tmp_path, {f"{CPU}/isolated": "some\n"})
    found = gather(host, ("topology",))["topology"]
    assert found["cpu_owners"] is None
    assert "'some' is not a list of CPUs" in found["unavailable"]["cpu_owners"]
    assert len(found["nodes"]) == 2


@pytest.mark.parametrize("tree", sorted(path.stem for path in nodetree.FOLDER.glob("*.tree")))
def test_a_machine_as_it_comes_has_no_owners_and_no_picture(tmp_path: Path, tree: str) -> None:
    host = host_of(tree, tmp_path, {})
    assert (owner_facts(host.files), picture(host.files)) == ([], [])


@pytest.mark.parametrize("tree", ["eight-nodes", "vm-without-numa", "grace", "single-socket"])
def test_every_cpu_is_in_one_row(tmp_path: Path, tree: str) -> None:
    host = host_of(tree, tmp_path, {f"{CPU}/nohz_full": "1\n"})
    rows = picture(host.files)
    online = host.files.read(f"{CPU}/online").strip()
    assert rows[0]["owners"] == [{"kind": "isolated", "name": "nohz_full", "cpus": "1"}]
    assert all(row["owners"] == [] for row in rows[1:])
    assert tree != "vm-without-numa" or [(row["node"], row["cpus"]) for row in rows] == [("the machine", online)]


def test_the_picture_is_by_numa_node_and_those_with_the_same_cpus_stand_together(tmp_path: Path) -> None:
    host = host_of("hgx-2socket", tmp_path, DIVIDED)
    rows = picture(host.files)
    for row in rows:
        row["interrupts"] = {"nic": "0-1", "kernel": "0-111"}
    assert [re.split("  +", line) for line in picture_table(rows)] == [
        ["CPUS OF", "ALL", "SYSTEM", "ISOLATED", "GPU SLICES", "OTHER SLICES", "INTERRUPTS"],
        [
            *("node0", "0-55,112-167", "0-1,112-113 (system)", "2-55,114-167 (isolcpus, nohz_full)"),
            *("2-55 (gpu-0, gpu-1)", "-", "nic 0-1; kernel 0-111"),
        ],
        [
            *("node1", "56-111,168-223", "56-57,168-169 (system)", "58-111,170-223 (isolcpus, nohz_full)"),
            *("-", "100-111 (batch)", "nic 0-1; kernel 0-111"),
        ],
    ]


def test_interrupts_are_there_by_the_kind_of_their_device(tmp_path: Path) -> None:
    host = host_of("hgx-2socket", tmp_path, {f"{CPU}/nohz_full": "1\n"})
    kinds = [list(row["interrupts"]) for row in picture(host.files)]
    assert all(set(of_node) <= {"gpu", "nic", "nvme", "kernel"} for of_node in kinds)
    assert any("nic" in of_node for of_node in kinds)


DECLARED: Dict[str, Any] = {"cpu_isolation": {"housekeeping_cpus": SYSTEM}, "hugepages": {}}


@pytest.mark.parametrize(("concern", "shown"), [("cpu_isolation", True), ("hugepages", False), (None, True)])
def test_the_status_of_a_node_has_the_picture_where_something_declared_divides_cpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], concern: Any, shown: bool
) -> None:
    text = (
        '{{"schema": 1, "collection_version": "0.1.0", "concern": "{0}", "apply_at_boot": false, "declaration": {1}}}'
    )
    declared = {
        f"/etc/gpufleet/declared.d/{name}.json": text.format(name, str(options).replace("'", '"'))
        for name, options in DECLARED.items()
    }
    host = host_of("hgx-2socket", tmp_path, {**DIVIDED, **declared})
    answer = assess(host, concern=concern, registry=REGISTRY)
    assert bool(answer["cpus"]) is shown
    assert any(line.startswith("CPUS OF") for line in describe(answer)) is shown
    status(host, concern=concern, as_json=True)
    assert ('"cpus"' in capsys.readouterr().out) is True
