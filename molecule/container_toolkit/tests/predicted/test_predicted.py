# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import packages


def test_a_prediction_for_a_new_node_brings_no_package(host: Any) -> None:
    assert packages.versions(host) == {}


def test_a_prediction_for_a_new_node_writes_no_file(host: Any) -> None:
    known = host.check_output("cut -c67- /root/before.sums | sort")
    assert host.check_output("find /etc -type f | sort") == known
