# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The host engine and the exporter, with a stand-in for both (dcgm_machine)."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import GpuFleetError, Refused
from ansible_collections.gpufleet.node.plugins.module_utils._core.setting import DRIFTED, IN_SYNC
from ansible_collections.gpufleet.node.plugins.module_utils._linux import systemd
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.dcgm import apply, metrics, names
from ansible_collections.gpufleet.node.tests.unit.concerns.dcgm.dcgm_machine import (
    ALL,
    COUNTERS,
    DROP_IN,
    ENGINE,
    ETC,
    EXPORTER,
    EXPORTER_UNIT,
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
from ansible_collections.gpufleet.node.tests.unit.support import build, snapshot

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
    assert f"\nExecStart=\nExecStart=/usr/bin/dcgm-exporter -f {COUNTERS} -r localhost:5555\n" in host.files.read(
        DROP_IN
    )


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
def test_the_options_of_another_unit_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, ours: str
) -> None:
    unit = f"[Service]\nExecStart={line}\n[Install]\nWantedBy=multi-user.target\n"
    host = machine(tmp_path, extra={f"{LIB}/{EXPORTER}": unit, "/etc/my counters.csv": "", "/etc/a.csv": ""})
    outcome = run(host, check=True)
    assert [change.object for change in outcome.changes if change.setting == "drop-in"] == [DROP_IN]
    # It may listen where the stand-in does not answer.
    monkeypatch.setattr(apply, "SECONDS", 0.0)
    run(host)
    assert f"ExecStart={ours}\n" in host.files.read(DROP_IN)


def test_a_drop_in_of_others_is_built_upon_and_named(tmp_path: Path) -> None:
    line = "/usr/bin/dcgm-exporter -c 10000"
    host = machine(tmp_path, extra={f"{ETC}/{EXPORTER}.d/50-theirs.conf": f"[Service]\nExecStart=\nExecStart={line}\n"})
    outcome = run(host)
    assert f"\nExecStart={line} -f {COUNTERS} -r localhost:5555\n" in host.files.read(DROP_IN)
    (conflict,) = outcome.remaining.conflicts
    assert (conflict.path, conflict.value, conflict.wins) == (f"{ETC}/{EXPORTER}.d/50-theirs.conf", line, "us")


def test_an_exporter_that_read_another_file_is_restarted_alone(tmp_path: Path) -> None:
    host = machine(tmp_path)
    dcgm = dcgm_of(host)
    dcgm.run(ENGINE, EXPORTER)
    run(host)
    assert [unit for unit in dcgm.starts if unit in (ENGINE, EXPORTER)] == [EXPORTER]
    assert "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL" in dcgm.served


def test_an_exporter_that_was_started_before_its_file_was_written_has_drifted(tmp_path: Path) -> None:
    host = machine(tmp_path)
    dcgm = dcgm_of(host)
    run(host)
    dcgm.grow_old(EXPORTER, 3600.0)
    os.utime(f"{tmp_path}{COUNTERS}", (time.time() - 60, time.time() - 60))
    outcome = run(host, check=True)
    assert outcome.status == DRIFTED
    assert (COUNTERS, "an older version") in [(change.object, change.before) for change in outcome.changes]
    assert {change.scope for change in outcome.changes} == {"effective"}
    dcgm.starts.clear()
    run(host)
    assert dcgm.starts == [EXPORTER]
    assert run(host).status == IN_SYNC


def test_what_the_exporter_shows_counts_more_than_the_clocks(tmp_path: Path) -> None:
    """A file that was replaced behind its back, with an old time."""
    host = machine(tmp_path)
    dcgm = dcgm_of(host)
    run(host)
    dcgm.served["DCGM_FI_DEV_PSTATE"] = "gauge"
    assert run(host, check=True).status == DRIFTED
    del dcgm.served["DCGM_FI_DEV_PSTATE"]
    dcgm.served["DCGM_FI_DEV_GPU_TEMP"] = "counter"
    changes = run(host, check=True).changes
    assert [(change.object, change.before, change.after) for change in changes] == [
        ("DCGM_FI_DEV_GPU_TEMP", "counter", "gauge")
    ]
    run(host)
    assert dcgm.served["DCGM_FI_DEV_GPU_TEMP"] == "gauge"


def test_an_exporter_that_asks_for_a_password_is_known_by_its_start_alone(tmp_path: Path) -> None:
    host = machine(tmp_path)
    dcgm = dcgm_of(host)
    run(host)
    dcgm.asks = True
    outcome = run(host)
    assert (outcome.status, outcome.effective["metrics"]) == (IN_SYNC, None)
    dcgm.grow_old(EXPORTER, 3600.0)
    assert run(host, check=True).status == DRIFTED


def test_what_the_gpus_do_not_have_is_unmanaged_once_the_exporter_had_its_time(tmp_path: Path) -> None:
    host = machine(tmp_path)
    dcgm = dcgm_of(host)
    assert run(host).remaining.unmanaged == ()
    os.utime(f"{tmp_path}{COUNTERS}", (time.time() - 3600, time.time() - 3600))
    dcgm.grow_old(EXPORTER, 300.0)
    outcome = run(host)
    assert outcome.status == IN_SYNC
    # It is not what the inventory names itself.
    run(host, strict=True)
    missing = {entry.object for entry in outcome.remaining.unmanaged}
    assert "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL" in missing
    # No Xid is no missing metric, and a label is none.
    assert all("NVLINK" in name for name in missing)


def test_a_metric_that_was_named_and_has_no_value_is_an_error_with_strict(tmp_path: Path) -> None:
    host = machine(tmp_path)
    declared = {**ALL, "metrics": [{"name": "DCGM_FI_DEV_NVLINK_BANDWIDTH_L0", "type": "counter"}]}
    run(host, declared)
    os.utime(f"{tmp_path}{COUNTERS}", (time.time() - 3600, time.time() - 3600))
    dcgm_of(host).grow_old(EXPORTER, 300.0)
    with pytest.raises(GpuFleetError, match="DCGM_FI_DEV_NVLINK_BANDWIDTH_L0"):
        run(host, declared, strict=True)


def test_an_exporter_that_ends_at_once_is_a_failure(tmp_path: Path) -> None:
    """One that is older than its library, and does not know a field of it."""
    host = machine(tmp_path)
    dcgm = dcgm_of(host)
    dcgm.generation = 3
    with pytest.raises(Refused) as caught:
        run(host)
    assert str(caught.value) == (
        "Cannot start nvidia-dcgm-exporter.service: it exited at once. Check journalctl -u nvidia-dcgm-exporter.service"
        " and /var/log/dcgm-exporter.log."
    )
    dcgm.generation = 4
    assert run(host).error is None
    assert EXPORTER in dcgm.active


def test_a_machine_without_a_unit_of_the_exporter_gets_one_with_it(tmp_path: Path) -> None:
    host = machine(tmp_path, extra={f"{LIB}/{EXPORTER}": None})
    before = snapshot(tmp_path)
    run(host)
    text = host.files.read(f"{ETC}/{EXPORTER}")
    assert f"\nExecStart=/usr/bin/dcgm-exporter -f {COUNTERS} -r localhost:5555\n" in text
    assert host.files.exists(f"{ETC}/multi-user.target.wants/{EXPORTER}")
    assert not host.files.exists(DROP_IN)
    assert run(host).changes == ()
    absent(host)
    assert snapshot(tmp_path) == before
    assert dcgm_of(host).active == set()


def test_our_unit_makes_room_for_that_of_a_package(tmp_path: Path) -> None:
    host = machine(tmp_path, extra={f"{LIB}/{EXPORTER}": None})
    run(host)
    build(tmp_path, {f"{LIB}/{EXPORTER}": EXPORTER_UNIT})
    run(host)
    assert not host.files.exists(f"{ETC}/{EXPORTER}")
    assert host.files.exists(DROP_IN)
    assert run(host).changes == ()


def test_the_deprecated_unit_of_generation_3_does_not_start_at_boot_as_well(tmp_path: Path) -> None:
    host = machine(tmp_path, 3)
    host.commands.run(["systemctl", "enable", TWIN])
    before = snapshot(tmp_path)
    dcgm_of(host).run(TWIN)
    run(host)
    assert not host.files.exists(f"{ETC}/multi-user.target.wants/{TWIN}")
    assert ENGINE in dcgm_of(host).active
    assert TWIN not in dcgm_of(host).active
    absent(host)
    assert snapshot(tmp_path) == before


def test_watches_that_were_cleared_are_set_again(tmp_path: Path) -> None:
    host = machine(tmp_path)
    dcgm = dcgm_of(host)
    run(host)
    dcgm.watches.discard("PCIe")
    (change,) = run(host, check=True).changes
    words = ("health watches", "inforom, memory, nvlink, thermal", "all")
    assert (change.setting, change.before, change.after) == words
    run(host)
    assert "PCIe" in dcgm.watches
    # One that hangs keeps no boot from being over.
    assert ("Service.TimeoutStartSec", "90") in [*systemd.assignments(host.files.read(HEALTH_FILE))]
    # They come with the host engine, whoever starts it again.
    host.commands.run(["systemctl", "restart", ENGINE])
    assert "PCIe" in dcgm.watches
    assert run(host).status == IN_SYNC


def test_watches_from_before_are_set_again_where_the_engine_goes_on(tmp_path: Path) -> None:
    host = machine(tmp_path)
    dcgm = dcgm_of(host)
    dcgm.run(ENGINE)
    host.commands.run(["dcgmi", "health", "-s", "pm"])
    before = snapshot(tmp_path)
    run(host)
    absent(host)
    assert dcgm.watches == {"PCIe", "Memory"}
    assert snapshot(tmp_path) == before
    assert dcgm.active == {ENGINE}


def test_a_host_engine_that_does_not_tell_its_watches_gets_them_again(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host)
    dcgm_of(host).mute = True
    (change,) = run(host, check=True).changes
    assert change.before == "Error: Unable to get health watches. Return: Timeout"


def test_what_is_no_longer_declared_of_the_exporter_is_taken_back(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host)
    run(host, {"host_engine": True})
    for path in (COUNTERS, DROP_IN, HEALTH_FILE):
        assert not host.files.exists(path)
    # It still runs, with the file of its package.
    assert EXPORTER in dcgm_of(host).active
    assert "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL" not in dcgm_of(host).served


def test_both_are_off_where_that_is_declared(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host)
    run(host, {"host_engine": False, "exporter": False})
    assert dcgm_of(host).active == set()
    assert run(host, {"host_engine": False, "exporter": False}).status == IN_SYNC
    assert not host.files.exists(f"{ETC}/multi-user.target.wants/{ENGINE}")


def test_what_is_excluded_is_not_shown(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, {**ALL, "exclude_metrics": ["DCGM_FI_PROF_*"]})
    assert not [name for name in names_in(host) if "_PROF_" in name]
    run(host, {**ALL, "shipped_metrics": False})
    assert set(names_in(host)) == set(metrics.of_alerts(4))


def test_where_nothing_is_to_change_the_file_of_the_package_counts(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host, {**ALL, "alert_metrics": False})
    assert not host.files.exists(COUNTERS)
    assert host.files.read(DROP_IN).endswith(f"ExecStart=/usr/bin/dcgm-exporter -f {SHIPPED} -r localhost:5555\n")


def test_help_with_commas_and_quotes_is_read_as_it_was_written() -> None:
    metric = metrics.Metric("DCGM_FI_DEV_PSTATE", "gauge", 'A "state", from 0 to 15')
    text = metrics.render("# Ours\n", [metric])
    assert text == '# Ours\nDCGM_FI_DEV_PSTATE,gauge,"A ""state"", from 0 to 15"\n'
    assert metrics.parse(text) == {metric.name: metric}


@pytest.mark.parametrize("generation", GENERATIONS)
def test_the_published_files_are_understood(generation: int) -> None:
    found = metrics.parse(counters_of(generation))
    assert found["DCGM_FI_DEV_DEC_UTIL"].type == "gauge"
    assert found["DCGM_FI_DRIVER_VERSION"].type == "label"
    assert [name for name in found if str(generation) not in names.generations(name)] == []


def test_where_systemd_does_not_run_only_the_next_boot_is_set(tmp_path: Path) -> None:
    host = machine(tmp_path, extra={"/run/systemd/system/.keep": None})
    outcome = run(host)
    assert {change.scope for change in outcome.changes} == {"boot"}
    assert outcome.effective["host_engine"] is None
    assert run(host).changes == ()


def test_a_look_at_what_is_as_declared_runs_two_programs(tmp_path: Path) -> None:
    host = machine(tmp_path)
    run(host)
    host.commands.calls.clear()
    run(host, check=True)
    assert [call[:2] for call in host.commands.calls] == [("systemctl", "show"), ("/usr/bin/dcgmi", "health")]
