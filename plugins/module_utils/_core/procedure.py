# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What procedures share that take a node out of service: whose the drain is, and how they wait."""

from __future__ import annotations

import time
from typing import Iterator

from .errors import DeclarationError

# Whose drain it is, by how its reason begins. Who takes a node over from us gives it a reason of his own.
MARK = "gpufleet: "
OURS, THEIRS, NOBODYS = "ours", "theirs", "nobody"
DRAINED, IN_SERVICE = "drained", "in_service"

FIRST_POLL_SECONDS = 1.0


def refusal(option: str, cause: str, found: str) -> DeclarationError:
    """What is said of an option that makes no sense."""
    return DeclarationError("use {}", object=option, cause=cause, found=found)


def refuse_senseless_times(timeout: int, poll: int) -> None:
    """Raise ``DeclarationError`` where these are not numbers of seconds."""
    for option, seconds, least in (("timeout", timeout, 0), ("poll", poll, 1)):
        if seconds < least:
            raise refusal(option, f"it must be at least {least} s", str(seconds))


def turns(timeout: float, poll: float) -> Iterator[None]:
    """One turn at once and others after pauses that grow to ``poll``, until ``timeout`` is over. All are seconds."""
    begin = time.monotonic()
    pause = FIRST_POLL_SECONDS
    while True:
        yield
        left = timeout - (time.monotonic() - begin)
        if left <= 0:
            return
        time.sleep(min(pause, left))
        pause = min(2 * pause, float(poll))
