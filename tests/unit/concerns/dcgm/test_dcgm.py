# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The host engine and the exporter, with a stand-in for both (dcgm_machine)."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.setting import DRIFTED, IN_SYNC
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.dcgm import metrics, names
from dcgm_machine import (
    ALL,
    COUNTERS,
    DROP_IN,
    ENGINE,
    ETC,
    EXPORTER,
    HEALTH,
    HEALTH_FILE,
    LIB,
    SHIPPED,
    TWIN,
    absent,
    counters_of,
    dcgm_of,
    machine,
    names_in,
    run,
)
from support import snapshot

GENERATIONS = (3, 4)


@pytest.mark.parametrize("generation", GENERATIONS)
def test_both_run_and_start_at_boot_with_what_alerts_need(tmp_path: Path, generation: int) -> None:
    host = machine(tmp_path, generation)
    dcgm = dcgm_of(host)
    outcome = run(host)
    assert dcgm.active == {ENGINE, EXPORTER, HEALTH}
    assert dcgm.starts.count(ENGINE) == dcgm.starts.count(EXPORTER) == 1
    for unit, target in ((ENGINE, "multi-user.target"), (EXPORTER, "multi-user.target"), (HEALTH, ENGINE)):
        assert host.files.exists(f"{ETC}/{target}.wants/{unit}")
    assert set(metrics.of_alerts(generation)) <= set(names_in(host))
    assert set(metrics.parse(counters_of(generation))) <= set(names_in(host))
    assert dcgm.watches == {"PCIe", "Memory", "InfoROM", "Thermal", "Power", "NVLINK"}
    assert outcome.effective["release"] == {3: "3.3", 4: "4.5"}[generation]
    # What the package brought is as it was.
    assert host.files.read(SHIPPED) == counters_of(generation)
    assert run(host).status == IN_SYNC
    assert run(host).changes == ()


def test_the_exporter_uses_the_host_engine_and_not_one_of_its_own(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host)
    assert f"\nExecStart=\nExecStart=/usr/bin/dcgm-exporter -f {COUNTERS} -r localhost:5555\n" in host.files.read(DROP_IN)


@pytest.mark.parametrize(
    ("line", "ours"),
    [
        (
            "/usr/bin/dcgm-exporter --collectors=/etc/a.csv -a :9500",
            f"/usr/bin/dcgm-exporter -a :9500 -f {COUNTERS} -r localhost:5555",
        ),
        (
            '/usr/bin/dcgm-exporter -f "/etc/my counters.csv" -r gpu-host:5555',
            f"/usr/bin/dcgm-exporter -r gpu-host:5555 -f {COUNTERS}",
        ),
        (
            "/usr/bin/dcgm-exporter --remote-hostengine-info=a:1 -collectors x",
            f"/usr/bin/dcgm-exporter --remote-hostengine-info=a:1 -f {COUNTERS}",
        ),
    ],
)
def test_the_options_of_another_unit_stay(tmp_path: Path, line: str, ours: str) -> None:
    unit = f"[Service]\nExecStart={line}\n[Install]\nWantedBy=multi-user.target\n"
    host = machine(tmp_path, extra={f"{LIB}/{EXPORTER}": unit, "/etc/my counters.csv": "", "/etc/a.csv": ""})
    run(host, check=True)
    outcome = run(host, {"host_engine": True, "exporter": True}, check=True)
    assert outcome.status == DRIFTED
    dcgm_of(host).run(ENGINE)
    run_without_answer(host)
    assert f"ExecStart={ours}\n" in host.files.read(DROP_IN)


def run_without_answer(host: object) -> None:
    """One whose exporter may listen where the stand-in does not answer."""
    run(host, {"host_engine": True, "exporter": True})  # type: ignore[arg-type]
