# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any


def test_no_file_of_ours_is_left(host: Any) -> None:
    assert host.check_output("find /etc /var/lib /usr/local /usr/lib/udev /usr/lib/tmpfiles.d -name '*gpufleet*'") == ""


def test_every_configuration_file_is_as_it_was(host: Any) -> None:
    compared = host.run("sha256sum --quiet --check /root/before.sums")
    assert (compared.rc, compared.stdout) == (0, "")


def test_no_configuration_file_was_added(host: Any) -> None:
    known = host.check_output("cut -c67- /root/before.sums | sort")
    found = "find /etc /usr/lib/udev /usr/lib/tmpfiles.d -type f | sort"
    assert host.check_output(found) == known


def test_systemd_has_its_own_limits_again(host: Any) -> None:
    assert host.check_output("systemctl show -P DefaultLimitMEMLOCK") != str(1024**2)
    assert host.check_output("systemctl show -P LimitNOFILE demo-index.service") != "900"


def test_the_timer_is_enabled_and_runs_as_before(host: Any) -> None:
    assert host.check_output("systemctl is-enabled demo-index.timer") == "enabled"
    assert host.check_output("systemctl is-active demo-index.timer") == "active"
