# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Services and scripts that send interrupts and queues to CPUs at boot. The scripts are those of mlnx-tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import Scope
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity import foreign
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity.model import Interrupt, IrqDevice
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.numa_irq_affinity.state import WantedAffinity
from ansible_collections.gpufleet.node.tests.nodes import nodetree
from ansible_collections.gpufleet.node.tests.nodes.recorded import RecordedHost
from ansible_collections.gpufleet.node.tests.unit.support import build

ADDRESS = "0000:17:00.0"
CPUS = frozenset(range(8))
DEVICE = IrqDevice(
    ADDRESS, "network", "mlx5_core", ("eth0",), 0, CPUS, (Interrupt("comp0", 40, CPUS), Interrupt("comp1", 41, CPUS))
)
QUEUE = "/sys/class/net/eth0/queues/rx-0/rps_cpus"
WANTS = (
    WantedAffinity("eth0", (ADDRESS, "interrupt comp0"), frozenset({1}), CPUS, DEVICE),
    WantedAffinity("eth0", (ADDRESS, "interrupt comp1"), frozenset({2}), CPUS, DEVICE),
    WantedAffinity("eth0", (ADDRESS, "rps rx-0"), frozenset({3}), frozenset(), path=QUEUE),
)
TREES = sorted((Path(nodetree.__file__).parent / "stock").glob("*.tree"))
Said = Tuple[str, Any, str]


AFFINITY = {"/usr/sbin/mlnx_affinity": "#!/bin/bash\n"}


def service(command: str) -> Dict[str, str]:
    unit = f"[Unit]\nAfter=multi-user.target\n[Service]\nType=oneshot\nExecStart={command}\n[Install]\n"
    link = "/etc/systemd/system/multi-user.target.wants/tune.service"
    return {"/etc/systemd/system/tune.service": unit, link: unit}


def said(root: Path, files: Dict[str, str]) -> List[Said]:
    links = {"/sys/class/infiniband/mlx5_0": f"/sys/devices/pci0000:15/{ADDRESS}/infiniband/mlx5_0"}
    host = build(root, {f"{links['/sys/class/infiniband/mlx5_0']}/node_type": "1\n", **files}, links)
    found = foreign.read(host.files, WANTS, Scope(True, True))
    return [(one.setting, one.value, one.wins) for one in found]


BOTH_UNKNOWN: List[Said] = [("interrupt comp0", None, "unknown"), ("interrupt comp1", None, "unknown")]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (
            "for f in /proc/irq/*/smp_affinity_list; do echo 0-1 > $f; done",
            [("interrupt comp0", "0-1", "them"), ("interrupt comp1", "0-1", "them")],
        ),
        ("echo f > /proc/irq/41/smp_affinity", [("interrupt comp1", "0-3", "unknown")]),
        (
            "for i in $(ls /proc/irq); do echo 4 > /proc/irq/$i/smp_affinity; done",
            [("interrupt comp0", "2", "unknown"), ("interrupt comp1", "2", "unknown")],
        ),
        ("echo $MASK > /proc/irq/41/smp_affinity", [("interrupt comp1", None, "unknown")]),
        ("for q in /sys/class/net/eth0/queues/rx-*; do echo f > $q/rps_cpus; done", [("rps rx-0", "0-3", "them")]),
        ("/usr/sbin/set_irq_affinity.sh eth0", BOTH_UNKNOWN),
        ("set_irq_affinity_bynode.sh 0 mlx5_0", BOTH_UNKNOWN),
        ("set_irq_affinity_cpulist.sh 0-3 $NIC", BOTH_UNKNOWN),
        ("mlnx_affinity start", BOTH_UNKNOWN),
        ("mlnx_affinity stop; set_irq_affinity.sh eth1; show_irq_affinity.sh eth0", []),
        ("echo f > /proc/irq/42/smp_affinity; echo f > /proc/irq/default_smp_affinity", []),
        ("cat /proc/irq/40/smp_affinity; echo 8 > /sys/class/net/eth1/queues/rx-0/rps_cpus", []),
    ],
)  # fmt: skip
def test_the_lines_that_are_about_a_declared_interrupt_or_queue(
    tmp_path: Path, script: str, expected: List[Said]
) -> None:
    files = {**service("/opt/tune"), **AFFINITY, "/opt/tune": f"#!/bin/bash\n{script}\n"}
    assert said(tmp_path, files) == expected


def test_a_unit_may_run_the_script_itself(tmp_path: Path) -> None:
    assert said(tmp_path, service("/usr/sbin/set_irq_affinity.sh eth0")) == BOTH_UNKNOWN


@pytest.mark.parametrize(
    ("script", "there", "expected"),
    [
        ("mlnx_affinity start", "/usr/sbin/mlnx_affinity", BOTH_UNKNOWN),
        ("mlnx_affinity start", "/usr/local/bin/mlnx_affinity", BOTH_UNKNOWN),
        ("mlnx_affinity start", "/opt/mellanox/mlnx_affinity", []),
        ("mlnx_affinity start", "/opt/other", []),
        ("/usr/sbin/mlnx_affinity start", "/opt/other", []),
        ("nice -n 5 /opt/mellanox/mlnx_affinity start", "/opt/mellanox/mlnx_affinity", BOTH_UNKNOWN),
        ("TOOLS=/opt/mellanox\n$TOOLS/mlnx_affinity start", "/opt/mellanox/mlnx_affinity", BOTH_UNKNOWN),
    ],
)
def test_a_script_that_is_not_there_moves_nothing(
    tmp_path: Path, script: str, there: str, expected: List[Said]
) -> None:
    files = {**service("/opt/tune"), there: "#!/bin/bash\n", "/opt/tune": f"#!/bin/bash\n{script}\n"}
    assert said(tmp_path, files) == expected


OPENIBD = """#!/bin/bash
CONFIG="/etc/infiniband/openib.conf"
. $CONFIG
if [ -x /usr/sbin/mlnx_affinity ] && [ "X${RUN_AFFINITY_TUNER}" == "Xyes" ]; then
    mlnx_affinity start
fi
"""


@pytest.mark.parametrize(
    ("configuration", "program", "expected"),
    [
        ("RUN_AFFINITY_TUNER=no\n", AFFINITY, []),
        ("# RUN_AFFINITY_TUNER=yes\n", AFFINITY, []),
        ("RUN_AFFINITY_TUNER=yes\n", {}, []),
        ("RUN_AFFINITY_TUNER=yes\n", {"/usr/local/bin/mlnx_affinity": ""}, []),
        ("RUN_AFFINITY_TUNER=no\nRUN_AFFINITY_TUNER=yes # for us\n", AFFINITY, BOTH_UNKNOWN),
    ],
)
@pytest.mark.parametrize("by_unit", [True, False], ids=["unit", "init"])
def test_the_service_of_mlnx_ofed_runs_it_where_its_configuration_says_so(
    tmp_path: Path, configuration: str, program: Dict[str, str], expected: List[Said], by_unit: bool
) -> None:
    unit = "[Unit]\nAfter=local-fs.target\n[Service]\nType=oneshot\nExecStart=/etc/init.d/openibd start bootid=%b\n"
    link = "/etc/systemd/system/sysinit.target.wants/openibd.service"
    by = {"/usr/lib/systemd/system/openibd.service": unit, link: unit} if by_unit else {"/etc/rc2.d/S05openibd": ""}
    files = {**by, "/etc/init.d/openibd": OPENIBD, "/etc/infiniband/openib.conf": configuration, **program}
    assert said(tmp_path, files) == expected


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: str(tree.stem))
def test_a_stock_system_sends_no_interrupt_to_cpus(tree: Path, tmp_path: Path) -> None:
    root = nodetree.expand(nodetree.parse(tree.read_text(encoding="utf-8")), tmp_path / "root")
    assert foreign.read(RecordedHost(str(root)).files, WANTS, Scope(True, True)) == ()
