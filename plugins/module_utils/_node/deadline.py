# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A limit to how long one concern may keep the others waiting."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from types import FrameType
from typing import Iterator, Optional


class DeadlineExceeded(Exception):
    """One concern took too long."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise ``DeadlineExceeded`` in here after this many seconds. Ansible runs modules in the main thread.

    The signal ends a loop and a wait for a program. It cannot end a read(2) that sleeps uninterruptibly in the kernel.
    """

    def exceeded(_number: int, _frame: Optional[FrameType]) -> None:
        raise DeadlineExceeded

    previous = signal.signal(signal.SIGALRM, exceeded)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
