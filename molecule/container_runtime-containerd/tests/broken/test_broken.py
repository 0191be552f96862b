# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any


def test_every_file_but_the_declaration_is_as_it_was(host: Any) -> None:
    compared = host.run("grep -v /etc/gpufleet/ /root/converged.sums | sha256sum --quiet --check")
    assert (compared.rc, compared.stdout) == (0, "")


def test_the_daemon_runs_pods(host: Any) -> None:
    assert host.check_output("cri --runtime nvidia again echo here") == "here"


def test_the_job_has_survived(host: Any) -> None:
    started = host.check_output("cat /root/job.started")
    assert started in host.check_output("ctr --namespace k8s.io tasks ls").splitlines()
