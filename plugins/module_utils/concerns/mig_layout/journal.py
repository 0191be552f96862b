# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a change of layouts does besides: it is no setting of its own, and stands in the journal all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .spec import NAME

if TYPE_CHECKING:
    from ..._core.protocols import Host


def journal(host: Host, message: str, **fields: str) -> None:
    """One line, with the fields of that about a setting: ``object``, ``setting``, ``before``, ``after``."""
    named = {f"GPUFLEET_{name.upper()}": value for name, value in fields.items()}
    host.journal(f"{NAME}: {message}", {"GPUFLEET_CONCERN": NAME, **named})
