# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import packages


def test_all_packages_have_the_declared_version_and_not_the_newest(host: Any) -> None:
    assert packages.versions(host) == packages.all_in("1.17.8-1")


def test_the_run_that_changed_nothing_had_no_mirror(host: Any) -> None:
    assert host.run("systemctl is-active mirror.service").stdout.strip() == "inactive"
