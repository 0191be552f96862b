# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any


def test_what_an_administrator_has_drained_is_still_drained(host: Any) -> None:
    assert host.check_output("sinfo --noheader --format='%E'") == "bad DIMM"
    assert "+DRAIN" in host.check_output("scontrol --oneliner show node")
