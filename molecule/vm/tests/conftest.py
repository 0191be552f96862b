# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from typing import Any

import machine
import pytest


@pytest.fixture(scope="module")
def said(host: Any) -> machine.Said:
    """What the node said when it was first asked."""
    return machine.ask(host)
