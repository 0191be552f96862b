# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What there is to say where the NVIDIA driver does not respond."""

from __future__ import annotations

from .._core.errors import CannotLook

GOAL = "query the NVIDIA driver"


class NoDriver(CannotLook):
    """There is no NVIDIA driver here: its library is not installed, or its kernel module is not loaded.

    ``state`` says which of the two, in the words of the table.
    """

    code = "no_driver"

    def __init__(self, goal: str, *, cause: str, object: str = "", hint: str = "", state: str = "not loaded") -> None:
        super().__init__(goal, object=object, cause=cause, hint=hint)
        self.state = state


class NoBinding(CannotLook):
    """The Python that runs this has no nvidia-ml-py, or one that is damaged or too old.

    ``state`` says which, in the words of the table.
    """

    code = "no_binding"

    def __init__(self, goal: str, *, cause: str, hint: str = "", state: str = "not installed") -> None:
        super().__init__(goal, cause=cause, hint=hint)
        self.state = state


class DriverMismatch(CannotLook):
    """The driver's library does not fit the kernel module that is loaded."""


class DriverHangs(CannotLook):
    """The driver did not respond in time."""

    code = "driver_hangs"


LOST = "the GPU is lost: it has fallen off the bus or does not respond"
LOST_HINT = "check the kernel log for its Xid; a reset, a reboot or a power cycle may bring it back"
