# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import runs

TRACE = "/var/log/nvidia-container-runtime.trace"
OPTIONS = "--rm --network none --cgroup-parent $(cat /root/control-group)"
RUN = f"podman run {OPTIONS}"


def traces(host: Any) -> int:
    return int(host.check_output(f"touch {TRACE}; grep -c create {TRACE} || true"))


def test_check_mode_predicted_what_was_done(host: Any) -> None:
    predicted, done = runs.predicted_and_done("converge.yml", host.backend.get_hostname())
    assert predicted
    assert predicted == done


def test_a_container_that_asks_for_the_runtime_is_started_by_it(host: Any) -> None:
    before = traces(host)
    said = host.check_output(f"podman --runtime nvidia run {OPTIONS} tiny echo here")
    assert said == "here"
    assert traces(host) == before + 1


def test_a_container_that_asks_for_none_is_started_by_it_too(host: Any) -> None:
    before = traces(host)
    assert host.check_output(f"{RUN} tiny echo here") == "here"
    assert traces(host) == before + 1


def test_a_container_gets_a_device_by_cdi(host: Any) -> None:
    said = host.check_output(f"{RUN} --device nvidia.com/gpu=0 tiny env")
    assert "GPUFLEET_CDI=0" in said.splitlines()


def test_a_container_gets_the_variables_of_jobs_where_it_asks_for_them(host: Any) -> None:
    device = "--device gpufleet.node/environment=job"
    assert 'GPUFLEET_JOB=one "two" # three' in host.check_output(f"{RUN} {device} tiny env").splitlines()
    assert "GPUFLEET_JOB" not in host.check_output(f"{RUN} tiny env")
    both = host.check_output(f"{RUN} {device} --device nvidia.com/gpu=0 tiny env").splitlines()
    assert {"GPUFLEET_CDI=0", 'GPUFLEET_JOB=one "two" # three'} <= set(both)


def test_such_a_container_sees_the_node_s_file_of_nccl(host: Any) -> None:
    said = host.check_output(f"{RUN} --device gpufleet.node/environment=job tiny cat /etc/nccl.conf")
    assert "NCCL_DEBUG=WARN" in said.splitlines()


def test_what_others_configured_is_as_it_was(host: Any) -> None:
    compared = host.run("grep containers.conf$ /root/before.sums | sha256sum --quiet --check")
    assert (compared.rc, compared.stdout) == (0, "")


def test_the_job_has_survived(host: Any) -> None:
    now = host.check_output("podman inspect --format '{{.State.Pid}} {{.State.StartedAt}}' job")
    assert now == host.check_output("cat /root/job.started")
