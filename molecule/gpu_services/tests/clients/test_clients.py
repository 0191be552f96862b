# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from typing import Any

CONTROL = "CUDA_MPS_PIPE_DIRECTORY=/run/nvidia-mps nvidia-cuda-mps-control"


def test_the_change_waited_for_the_clients(host: Any) -> None:
    assert host.run("systemctl is-active job-of-alice.service job-of-bob.service").rc != 0
    assert host.check_output(f"echo get_default_active_thread_percentage | {CONTROL}") == "60.0"
    # A restarted daemon has no server yet.
    assert host.check_output(f"echo get_server_list | {CONTROL}") == ""
    now = host.check_output("systemctl show -P MainPID gpufleet-mps.service")
    assert now not in host.check_output("cat /root/processes").split()


def test_nvml_showed_both_as_clients_of_mps(host: Any) -> None:
    clients = json.loads(host.check_output("cat /root/with-clients.json"))["clients"]
    assert [client["kind"] for client in clients if client["name"] == "mps-client"] == ["mps", "mps"]
