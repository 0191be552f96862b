# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import peers


def test_the_mtu_is_that_from_before(host: Any) -> None:
    assert host.check_output("cat /sys/class/net/fast0/mtu /sys/class/net/old0/mtu").split() == ["1500", "1500"]


def test_no_file_of_ours_is_left(host: Any) -> None:
    assert host.check_output("find /etc /var/lib /usr/local -name '*gpufleet*'") == ""


def test_every_configuration_file_is_as_it_was(host: Any) -> None:
    compared = host.run("grep -v '/system-connections/' /root/before.sums | sha256sum --quiet --check")
    assert (compared.rc, compared.stdout) == (0, "")


def test_only_what_others_let_in_comes_in(host: Any) -> None:
    others = {7000} if host.backend.get_hostname() == "trixie" else set()
    assert peers.reached(host, peers.OF_CLUSTER) == others
