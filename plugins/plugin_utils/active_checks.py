# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is wrong with an entry of ``preflight_checks`` before it is run: a node would be drained for it in vain."""

from __future__ import annotations

import re
from typing import Any, Mapping, Optional

CHECKS = "preflight_checks"


def fault_of(check: Mapping[str, Any]) -> Optional[str]:
    """Why a check of the right types cannot be run or judged; None where it can."""
    pattern = check["pattern"]
    if not check["command"]:
        return "its command is empty"
    if check["timeout"] < 1:
        # timeout(1) takes 0 for no limit at all.
        return "its timeout must be at least 1 second"
    if pattern:
        return fault_of_pattern(pattern)
    return "its floor is compared with nothing without a pattern" if check["floor"] else None


def fault_of_pattern(pattern: str) -> Optional[str]:
    try:
        groups = re.compile(pattern).groups
    except re.error as error:
        return f"its pattern is not a regular expression ({error})"
    return None if groups else "its pattern has no group around the number"
