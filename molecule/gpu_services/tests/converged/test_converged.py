# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from typing import Any

import runs

CONTROL = "CUDA_MPS_PIPE_DIRECTORY=/run/nvidia-mps nvidia-cuda-mps-control"
PAGE = 'import urllib.request as web; print(web.urlopen("http://127.0.0.1:9400/metrics").read().decode())'


def ask(host: Any, question: str) -> str:
    found: str = host.check_output(f"echo '{question}' | {CONTROL}")
    return found


def test_check_mode_predicted_what_was_done(host: Any) -> None:
    predicted, done = runs.predicted_and_done("converge.yml", host.backend.get_hostname())
    assert predicted
    assert predicted == done


def test_a_second_run_changed_nothing(host: Any) -> None:
    assert not any(runs.repeated("converge.yml", host.backend.get_hostname()).values())


def test_the_daemon_runs_and_has_the_limits(host: Any) -> None:
    assert host.check_output("systemctl is-active gpufleet-mps.service") == "active"
    assert host.check_output("systemctl is-enabled gpufleet-mps.service") == "enabled"
    uuid = json.loads(host.check_output("nvml-sim describe --json"))["gpus"][1]["uuid"]
    assert ask(host, "get_default_active_thread_percentage") == "40.0"
    assert ask(host, f"get_default_device_pinned_mem_limit {uuid}") == "10G"


def test_systemd_takes_every_line_of_the_unit(host: Any) -> None:
    # What it ignores it says on the error output, and exits with 0.
    verified = host.run("systemd-analyze verify /etc/systemd/system/gpufleet-mps.service")
    assert (verified.rc, [line for line in verified.stderr.splitlines() if "gpufleet-mps" in line]) == (0, [])


def test_the_pipes_are_for_all_users_and_nobody_removes_those_of_another(host: Any) -> None:
    folder = host.file("/run/nvidia-mps")
    assert (folder.user, oct(folder.mode)) == ("root", "0o1777")
    assert host.file("/run/nvidia-mps/control").is_socket


def test_a_daemon_that_is_killed_comes_back_with_its_limits(host: Any) -> None:
    host.check_output("systemctl kill --signal=KILL --kill-who=main gpufleet-mps.service")
    # Until it is back, nobody listens.
    asked = f"echo get_default_active_thread_percentage | {CONTROL}"
    assert host.check_output(f"for i in 1 2 3 4 5 6 7 8 9; do {asked} && break; sleep 1; done") == "40.0"


def test_the_fabric_manager_runs_as_declared_and_is_held_with_the_driver(host: Any) -> None:
    unit = "nvidia-fabricmanager.service"
    assert host.check_output(f"systemctl is-enabled {unit} && systemctl is-active {unit}") == "enabled\nactive"
    # The driver knows of it, whose GPUs are reset alone from now on.
    manager = json.loads(host.check_output("nvml-sim describe --json"))["system"]["fabric_manager_pid"]
    assert str(manager) == host.check_output(f"systemctl show -P MainPID {unit}")
    assert "LOG_LEVEL=3" in host.file("/usr/share/nvidia/nvswitch/fabricmanager.cfg").content_string.splitlines()
    assert host.check_output("apt-mark showhold").splitlines() == ["libnvidia-compute-550", "nvidia-fabricmanager-550"]


def test_the_host_engine_has_its_watches_and_the_exporter_the_metrics_of_alerts(host: Any) -> None:
    watched = host.check_output("dcgmi health --fetch").splitlines()
    on = {line.split("|")[1].strip() for line in watched if line.endswith("|") and line.split("|")[2].strip() == "On"}
    assert on == {"PCIe", "NVLINK", "Memory", "InfoROM", "Thermal", "Power"}
    page = host.check_output(f"python3 -c '{PAGE}'")
    assert page.count("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{") == 8
    assert host.check_output("pgrep --count nv-hostengine") == "1"
    exporter = host.check_output("systemctl show -P MainPID nvidia-dcgm-exporter.service")
    opened = host.check_output(f"readlink /proc/{exporter}/fd/*").splitlines()
    assert not [path for path in opened if path.startswith("/dev/nvidia")]
