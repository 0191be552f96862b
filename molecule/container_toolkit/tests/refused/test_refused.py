# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import packages


def test_what_was_refused_changed_no_package(host: Any) -> None:
    assert packages.versions(host) == packages.all_in("1.17.8-1")


def test_an_upgrade_of_the_node_leaves_the_version(host: Any) -> None:
    packages.upgrade(host)
    assert packages.versions(host) == packages.all_in("1.17.8-1")


def test_without_the_hold_an_upgrade_would_not(host: Any) -> None:
    simulated = {
        "apt": "apt-get --simulate --ignore-hold upgrade | grep '^Inst'",
        "dnf": "dnf --disableplugin=versionlock check-update; [ $? = 100 ]",
    }
    offered = host.run(simulated[host.backend.get_hostname()])
    assert (offered.rc, "1.18.1-1" in offered.stdout) == (0, True)
