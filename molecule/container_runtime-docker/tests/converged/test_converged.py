# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from typing import Any

import pytest
import runs

TRACE = "/var/log/nvidia-container-runtime.trace"
RUN = "docker run --rm --network none"


def traces(host: Any) -> int:
    return int(host.check_output(f"touch {TRACE}; grep -c create {TRACE} || true"))


def test_check_mode_predicted_what_was_done(host: Any) -> None:
    name = host.backend.get_hostname()
    predicted, done = runs.predicted_and_done("converge.yml", name)
    assert predicted
    assert predicted == done


def test_the_daemon_says_that_the_runtime_is_the_default_one(host: Any) -> None:
    info = json.loads(host.check_output("docker info --format '{{json .}}'"))
    assert info["DefaultRuntime"] == "nvidia"
    assert info["Runtimes"]["nvidia"]["path"] == "/usr/bin/nvidia-container-runtime"
    assert info["LiveRestoreEnabled"] is True


def test_a_container_that_asks_for_the_runtime_is_started_by_it(host: Any) -> None:
    before = traces(host)
    assert host.check_output(f"{RUN} --runtime nvidia tiny echo here") == "here"
    assert traces(host) == before + 1


def test_a_container_that_asks_for_none_is_started_by_it_too(host: Any) -> None:
    before = traces(host)
    assert host.check_output(f"{RUN} tiny echo here") == "here"
    assert traces(host) == before + 1


def test_a_container_that_asks_for_runc_is_not(host: Any) -> None:
    before = traces(host)
    assert host.check_output(f"{RUN} --runtime runc tiny echo here") == "here"
    assert traces(host) == before


def test_a_container_gets_a_device_by_cdi(host: Any) -> None:
    if host.backend.get_hostname() == "bookworm":
        pytest.skip("Docker 20.10 has no CDI")
    said = host.check_output(f"{RUN} --device nvidia.com/gpu=0 tiny env")
    assert "GPUFLEET_CDI=0" in said.splitlines()


def test_a_container_has_the_limits_and_the_shared_memory_that_are_declared(host: Any) -> None:
    # In KiB; of the limits the soft one.
    said = host.check_output(f"{RUN} tiny sh -c 'ulimit -n; cat /proc/mounts'").splitlines()
    assert said[0] == "1024"
    assert any(" /dev/shm " in line and "size=98304k" in line for line in said)


def test_what_others_configured_is_still_there(host: Any) -> None:
    values = json.loads(host.file("/etc/docker/daemon.json").content_string)
    assert (values["bridge"], values["iptables"], values["log-opts"]) == ("none", False, {"max-size": "10m"})


def test_the_job_has_survived(host: Any) -> None:
    now = host.check_output("docker inspect --format '{{.State.Pid}} {{.State.StartedAt}}' job")
    assert now == host.check_output("cat /root/job.started")
