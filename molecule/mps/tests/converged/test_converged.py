# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from typing import Any

CONTROL = "CUDA_MPS_PIPE_DIRECTORY=/run/nvidia-mps nvidia-cuda-mps-control"


def ask(host: Any, question: str) -> str:
    found: str = host.check_output(f"echo '{question}' | {CONTROL}")
    return found


def test_the_daemon_runs_and_has_the_limits(host: Any) -> None:
    assert host.check_output("systemctl is-active gpufleet-mps.service") == "active"
    assert host.check_output("systemctl is-enabled gpufleet-mps.service") == "enabled"
    uuid = json.loads(host.check_output("nvml-sim describe --json"))["gpus"][0]["uuid"]
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
