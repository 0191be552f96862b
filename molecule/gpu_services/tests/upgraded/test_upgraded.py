# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

NEWER = "550.90.07"


def test_the_fabric_manager_of_the_new_driver_runs(host: Any) -> None:
    assert host.check_output("systemctl is-active nvidia-fabricmanager") == "active"
    assert host.check_output("nv-fabricmanager --version") == f"Fabric Manager version is : {NEWER}"
    assert "LOG_LEVEL=2" in host.file("/usr/share/nvidia/nvswitch/fabricmanager.cfg").content_string.splitlines()


def test_both_packages_are_held_in_the_new_version(host: Any) -> None:
    held = host.check_output("apt-mark showhold").split()
    assert held == ["libnvidia-compute-550", "nvidia-fabricmanager-550"]
    versions = host.check_output(f"dpkg-query --show --showformat '${{Version}} ' {' '.join(held)}")
    assert versions.split() == [f"{NEWER}-1"] * 2
    assert "0 upgraded" in host.check_output("apt-get --simulate upgrade")
