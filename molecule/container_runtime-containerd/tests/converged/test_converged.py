# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import pytest
import runs

TRACE = "/var/log/nvidia-container-runtime.trace"


def traces(host: Any) -> int:
    return int(host.check_output(f"touch {TRACE}; grep -c create {TRACE} || true"))


def test_check_mode_predicted_what_was_done(host: Any) -> None:
    predicted, done = runs.predicted_and_done("converge.yml", host.backend.get_hostname())
    assert predicted
    assert predicted == done


def test_a_pod_that_asks_for_the_runtime_is_started_by_it(host: Any) -> None:
    before = traces(host)
    assert host.check_output("cri --runtime nvidia asked echo here") == "here"
    # The sandbox and the container.
    assert traces(host) == before + 2


def test_a_pod_that_asks_for_none_is_started_by_it_too(host: Any) -> None:
    before = traces(host)
    assert host.check_output("cri by-default echo here") == "here"
    assert traces(host) == before + 2


@pytest.mark.parametrize("runtime", ["runc", "nvidia"])
def test_a_pod_has_the_limits_of_the_base_specification_with_either_runtime(host: Any, runtime: str) -> None:
    if host.backend.get_hostname() == "bookworm":
        pytest.skip("the runc that is built in has no base specification")
    assert host.check_output(f"cri --runtime {runtime} limits-{runtime} sh -c 'ulimit -n; ulimit -Hn'") == "4321\n8642"


def test_a_pod_gets_a_device_by_cdi(host: Any) -> None:
    if host.backend.get_hostname() == "bookworm":
        pytest.skip("containerd 1.6 has no CDI")
    assert "GPUFLEET_CDI=0" in host.check_output("cri --device nvidia.com/gpu=0 device env").splitlines()


def test_version_2_has_a_file_of_ours_and_version_1_a_block_in_its_own(host: Any) -> None:
    text = host.file("/etc/containerd/config.toml").content_string
    drop_in = host.file("/etc/containerd/conf.d/99-gpufleet.toml").exists
    assert drop_in == (host.backend.get_hostname() == "sid")
    assert ("# BEGIN gpufleet container_runtime" in text) != drop_in


def test_what_others_configured_is_still_there(host: Any) -> None:
    text = host.file("/etc/containerd/config.toml").content_string
    assert "version = 2   # as Debian has it\n" in text
    assert '    sandbox_image = "docker.io/library/tiny:latest"\n' in text


def test_the_job_has_survived(host: Any) -> None:
    started = host.check_output("cat /root/job.started")
    assert started in host.check_output("ctr --namespace k8s.io tasks ls").splitlines()
