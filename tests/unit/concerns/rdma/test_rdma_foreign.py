# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Services and scripts that set ports at boot, by the options of mlnx-tools (python/mlnx_qos, sbin/cma_roce_mode and
sbin/cma_roce_tos) and of dcb(8).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Scope
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.rdma import foreign
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.rdma.devices import Device, Port
from ansible_collections.gpufleet.node.tests.nodes import nodetree
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedHost
from ansible_collections.gpufleet.node.tests.unit.support import build

VALUES: Dict[str, Any] = {
    "pfc": "3",
    "dscp 26": 3,
    "dscp 48": 6,
    "ecn 3 np": "on",
    "roce_mode": "v2",
    "roce_tos": 106,
    "traffic_class": 106,
}
PORT = Port(
    Device("mlx5_0", "0000:17:00.0", "/sys/devices/x", "mlx5_core", ("eth0",)),
    "1",
    "ACTIVE",
    "400 Gb/sec",
    "Ethernet",
    VALUES,
    VALUES,
    netdev="eth0",
)
TREES = sorted((Path(nodetree.__file__).parent / "stock").glob("*.tree"))
CONFIGFS = "/sys/kernel/config/rdma_cm/mlx5_0/ports/1"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("mlnx_qos -i eth0 --pfc 0,0,0,0,1,0,0,0", [("pfc", "4", "them")]),
        ("mlnx_qos --interface=eth0 -f 0,0,0,1,0,1,0,0 -p 0,1,2,3,4,5,6,7", [("pfc", "3,5", "them")]),
        ("mlnx_qos -i eth0 --cable_len=5", [("pfc", "none", "them")]),
        (
            "mlnx_qos -i eth0 --dscp2prio set,26,4 --dscp2prio=del,48,6",
            [("dscp 26", "4", "them"), ("dscp 48", "none", "them")],
        ),
        ("mlnx_qos -i eth0 --dscp2prio flush", [("dscp 26", "none", "them"), ("dscp 48", "none", "them")]),
        ("mlnx_qos -i $NIC --pfc 0,0,0,0,1,0,0,0", [("pfc", "4", "unknown")]),
        ("mlnx_qos -i eth0 --pfc $PFC", [("pfc", None, "unknown")]),
        ("mlnx_qos -i eth1 --pfc 0,0,0,0,1,0,0,0; mlnx_qos -i eth0; mlnx_qos -i eth0 --trust dscp -r 1,8", []),
        ("dcb pfc set dev eth0 prio-pfc all:off 4:on", [("pfc", "4", "them")]),
        ("dcb pfc set dev eth0 prio-pfc 4:on", [("pfc", None, "unknown")]),
        ("dcb app replace dev eth0 dscp-prio 26:4", [("dscp 26", "4", "them")]),
        ("dcb app del dev eth0 dscp-prio 26:3", [("dscp 26", "none", "them")]),
        ("dcb pfc show dev eth0; dcb app add dev eth0 default-prio 0; dcb app add dev eth0 dscp-prio 12:1", []),
        ("cma_roce_mode -d mlx5_0 -p 1 -m 1", [("roce_mode", "v1", "them")]),
        ("cma_roce_mode -m 1", [("roce_mode", "v1", "them")]),
        ("cma_roce_tos -d mlx5_0 -t 96", [("roce_tos", "96", "them")]),
        ("cma_roce_mode -d mlx5_0 -p 1; cma_roce_tos -d mlx5_1 -t 96", []),
        (f"echo 'IB/RoCE v1' > {CONFIGFS}/default_roce_mode", [("roce_mode", "v1", "them")]),
        ("echo 96 > /sys/class/infiniband/mlx5_0/tc/1/traffic_class", [("traffic_class", "96", "them")]),
        ("echo 0 > /sys/class/net/eth0/ecn/roce_np/enable/3", [("ecn 3 np", "off", "them")]),
        ("echo 0 > /sys/class/net/eth0/ecn/roce_rp/enable/3", []),
    ],
)  # fmt: skip
def test_the_lines_that_are_about_a_declared_setting(
    tmp_path: Path, script: str, expected: List[Tuple[str, Any, str]]
) -> None:
    unit = "[Unit]\nAfter=multi-user.target\n[Service]\nType=oneshot\nExecStart=/opt/tune\n[Install]\n"
    files = {
        "/etc/systemd/system/tune.service": unit,
        "/etc/systemd/system/multi-user.target.wants/tune.service": unit,
        "/opt/tune": f"#!/bin/sh\n{script}\n",
    }
    found = foreign.read(build(tmp_path, files).files, [PORT], Scope(True, True))
    assert [(one.setting, one.value, one.wins) for one in found] == expected
    assert {one.object for one in found} <= {"mlx5_0:1"}


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: str(tree.stem))
def test_a_stock_system_sets_nothing_of_a_port(tree: Path, tmp_path: Path) -> None:
    root = nodetree.expand(nodetree.parse(tree.read_text(encoding="utf-8")), tmp_path / "root")
    assert foreign.read(RecordedHost(str(root)).files, [PORT], Scope(True, True)) == ()
