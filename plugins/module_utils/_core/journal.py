# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What changed, for the journal of the system."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterable

from .setting import worded

if TYPE_CHECKING:
    from .change import Change
    from .protocols import Host


def journal(host: Host, name: str, changes: Iterable[Change]) -> None:
    """One line for each change. ``name`` is the concern or the module that made them."""
    for change in changes:
        before, after = worded(change.before), worded(change.after)
        host.journal(
            f"{name}: {change.object} {change.setting}: {before} -> {after} ({change.scope})",
            {
                "GPUFLEET_CONCERN": name,
                "GPUFLEET_OBJECT": change.object,
                "GPUFLEET_SETTING": change.setting,
                "GPUFLEET_BEFORE": before,
                "GPUFLEET_AFTER": after,
                "GPUFLEET_SCOPE": change.scope,
            },
        )
