# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import machine


def test_no_file_of_ours_is_left(host: Any) -> None:
    assert host.check_output("find /etc /var/lib /boot /usr/local -name '*gpufleet*'") == ""
    assert "hugepages=" not in machine.text(host, "/boot/grub/grub.cfg")


def test_the_kernel_has_the_values_from_before(host: Any) -> None:
    before = host.check_output("cat /root/before")
    assert host.check_output("sh /root/settings") == before


def test_every_configuration_file_is_as_it_was(host: Any) -> None:
    assert host.run("sha256sum --quiet --check /root/before.sums").stdout == ""


def test_no_gpu_is_divided(host: Any) -> None:
    assert "MIG" not in host.check_output("nvidia-smi -L")
    modes = host.check_output("nvidia-smi --query-gpu=mig.mode.current,mig.mode.pending --format=csv,noheader")
    assert modes.splitlines() == ["Disabled, Disabled"] * 8
