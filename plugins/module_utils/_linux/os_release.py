# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the distribution calls itself: os-release(5)."""

from __future__ import annotations

from typing import Dict

PATH = "/etc/os-release"


def parse(text: str) -> Dict[str, str]:
    """The assignments of the file, without their quotes."""
    pairs = (line.partition("=") for line in text.splitlines())
    return {name: value.strip().strip("\"'") for name, equals, value in pairs if equals}
