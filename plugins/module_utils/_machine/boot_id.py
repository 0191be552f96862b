# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which boot of the machine this is: what was noted in another one may hold no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .._core.protocols import Files

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def boot_id(files: Files) -> str:
    """A UUID, empty where the kernel tells none."""
    return (files.read_optional(BOOT_ID) or "").strip()
