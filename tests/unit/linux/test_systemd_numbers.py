# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Values of unit files: which of them systemd reads was recorded with ``systemd-analyze verify`` of systemd 252."""

from __future__ import annotations

from typing import Optional

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._linux.systemd_numbers import DECIMAL, limit, size

COUNTS = {
    "infinity": "infinity:infinity",
    "Infinity": None,
    "unlimited": None,
    "1024": "1024:1024",
    "1024:2048": "1024:2048",
    "2048:1024": None,
    "1024:infinity": "1024:infinity",
    "infinity:1024": None,
    "1024:": None,
    ":1024": None,
    "1:2:3": None,
    "1024 : 2048": None,
    "1 024": None,
    "1K": None,
    "1.5": None,
    "0x10": "16:16",
    "010": "8:8",
    "08": None,
    "0o10": "8:8",
    "0b11": "3:3",
    "+5": "5:5",
    "-1": None,
    "-0": "0:0",
    "0": "0:0",
    "18446744073709551615": None,
    "18446744073709551616": None,
    "": None,
}
SIZES = {
    "infinity": "infinity:infinity",
    "1G:infinity": "1073741824:infinity",
    "1K": "1024:1024",
    "1.5G": "1610612736:1610612736",
    "1G 512M": "1610612736:1610612736",
    "1G512M": "1610612736:1610612736",
    "512M 1G": None,
    "1 G": "1073741824:1073741824",
    "1B": "1:1",
    "1KB": None,
    "1KiB": None,
    "1k": None,
    "0x10": None,
    "010": "10:10",
    "1.": "1:1",
    "1.5": "1:1",
    ".5G": None,
    "1.5:2G": "1:2147483648",
    "1K:1M": "1024:1048576",
    "16E": None,
    "15E": f"{15 << 60}:{15 << 60}",
    "": None,
}


@pytest.mark.parametrize(("text", "expected"), COUNTS.items())
def test_a_count_is_read_as_systemd_reads_it(text: str, expected: Optional[str]) -> None:
    assert limit(text, is_size=False) == expected


@pytest.mark.parametrize(("text", "expected"), SIZES.items())
def test_a_size_is_read_as_systemd_reads_it(text: str, expected: Optional[str]) -> None:
    assert limit(text, is_size=True) == expected


def test_a_rate_is_counted_in_thousands() -> None:
    assert (size("1.5G", DECIMAL), size("1 K", DECIMAL), size("1KB", DECIMAL)) == (1_500_000_000, 1000, None)
