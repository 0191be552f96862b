# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any


def test_every_file_but_the_declaration_is_as_it_was(host: Any) -> None:
    compared = host.run("grep -v /etc/gpufleet/ /root/converged.sums | sha256sum --quiet --check")
    assert (compared.rc, compared.stdout) == (0, "")


def test_the_daemon_runs_with_what_was_right(host: Any) -> None:
    said = host.check_output("docker info --format '{{.DefaultRuntime}} {{.DockerRootDir}}'")
    assert said == "nvidia /var/lib/docker"


def test_the_job_has_survived(host: Any) -> None:
    now = host.check_output("docker inspect --format '{{.State.Pid}} {{.State.StartedAt}}' job")
    assert now == host.check_output("cat /root/job.started")
