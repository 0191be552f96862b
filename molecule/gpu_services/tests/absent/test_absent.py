# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any


def test_the_daemon_is_gone(host: Any) -> None:
    assert host.run("systemctl is-active gpufleet-mps.service").stdout == "inactive\n"
    assert not host.file("/run/nvidia-mps").exists
    assert not host.file("/var/log/nvidia-mps").exists
    assert host.run("systemctl cat gpufleet-mps.service").rc != 0


def test_dcgm_and_the_fabric_manager_are_as_their_packages_left_them(host: Any) -> None:
    for unit in ("nvidia-dcgm.service", "nvidia-dcgm-exporter.service", "nvidia-fabricmanager.service"):
        assert host.run(f"systemctl is-enabled {unit}; systemctl is-active {unit}").stdout == "disabled\ninactive\n"
    assert host.check_output("apt-mark showhold") == ""


def test_no_gpu_is_divided(host: Any) -> None:
    assert "MIG on" not in host.check_output("nvml-sim describe")


def test_no_file_of_ours_is_left(host: Any) -> None:
    assert host.check_output("find /etc /var/lib /usr/local -name '*gpufleet*'") == ""


def test_every_configuration_file_is_as_it_was(host: Any) -> None:
    compared = host.run("sha256sum --quiet --check /root/before.sums")
    assert (compared.rc, compared.stdout) == (0, "")
