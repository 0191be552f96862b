# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any


def test_no_file_of_ours_is_left(host: Any) -> None:
    assert host.check_output("find /etc /var/lib /usr/local -name '*gpufleet*'") == ""
    assert host.check_output("find /run/gpufleet -mindepth 1 -not -name lock") == ""


def test_every_configuration_file_is_as_it_was(host: Any) -> None:
    compared = host.run("sha256sum --quiet --check /root/before.sums")
    assert (compared.rc, compared.stdout) == (0, "")


def test_no_configuration_file_was_added(host: Any) -> None:
    known = host.check_output("cut -c67- /root/before.sums | sort")
    assert host.check_output("find /etc -type f | sort") == known


def test_containers_run_without_the_runtime(host: Any) -> None:
    options = "--rm --network none --cgroup-parent $(cat /root/control-group)"
    assert host.run(f"podman --runtime nvidia run {options} tiny echo here").rc != 0
    assert host.check_output(f"podman run {options} tiny echo here") == "here"


def test_the_job_has_survived(host: Any) -> None:
    now = host.check_output("podman inspect --format '{{.State.Pid}} {{.State.StartedAt}}' job")
    assert now == host.check_output("cat /root/job.started")
