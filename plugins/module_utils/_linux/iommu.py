# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The groups of an IOMMU, and how each of them is translated (Documentation/ABI/testing/sysfs-kernel-iommu_groups)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator

if TYPE_CHECKING:
    from .._core.protocols import Files

GROUPS = "/sys/kernel/iommu_groups"
# The type of a group that is passed through.
IDENTITY = "identity"


def types(files: Files) -> Iterator[str]:
    """The type of each group that has one; nothing where there is no IOMMU."""
    for name in files.names(GROUPS):
        kind = (files.read_optional(f"{GROUPS}/{name}/type") or "").strip()
        if kind:
            yield kind
