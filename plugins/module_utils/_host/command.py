# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a program is started with, and what it leaves."""

from __future__ import annotations

from dataclasses import dataclass

# Of what we make and of what the programs make that we run, whatever that of our caller is.
UMASK = 0o022


@dataclass(frozen=True)
class Completed:
    """What a command left: exit status, output and error text."""

    status: int
    output: str
    errors: str
