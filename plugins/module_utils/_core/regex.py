# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Regular expressions that are compiled when they are first used.

A look imports all that it may meet, and meets little of it: to compile every expression took a tenth of the import.
"""

from __future__ import annotations

import re
from typing import Any, cast


class _WhenUsed:
    """Has what the compiled expression has, from the first time that it is asked for."""

    def __init__(self, text: str, flags: int) -> None:
        self._source = (text, flags)

    def __getattr__(self, name: str) -> Any:
        # Kept here, so that the next call finds it without us.
        found = getattr(re.compile(*self._source), name)
        setattr(self, name, found)
        return found


def regex(text: str, flags: int = 0) -> re.Pattern[str]:
    """As ``re.compile``. A wrong expression raises ``re.error`` at its first use."""
    return cast("re.Pattern[str]", _WhenUsed(text, flags))
