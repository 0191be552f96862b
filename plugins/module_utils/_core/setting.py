# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One setting of one object, seen three ways: as it is wanted, as it is in effect, and as the next boot brings it."""

from __future__ import annotations

from typing import Dict, Union

from .value import frozen

Scalar = Union[str, int, None]

EFFECTIVE = "effective"
BOOT = "boot"

NOW = "now"
GPU_RESET = "gpu_reset"
REBOOT = "reboot"

IN_SYNC = "in_sync"
DRIFTED = "drifted"
PENDING = "pending"
UNKNOWN = "unknown"
INVALID = "invalid"
# As declared, while another owner may set it too, which the inventory accepts. It is no status of a concern.
ACCEPTED = "accepted"


def worded(value: Scalar) -> str:
    """A value in a sentence."""
    return "not set" if value is None else str(value)


@frozen
class Setting:
    """One setting of one object: what is wanted, what is in effect and what the next boot will bring.

    ``effective_matters`` and ``boot_matters`` follow ``immediate`` and ``permanent``. ``identity`` is what the object
    is known by across reboots (serial, PCI address, path); ``object`` is what a person calls it today.
    ``pending`` says why the effective value can only come right later, and is empty otherwise; ``needs`` what it takes.
    ``doubt`` says who else may give it another value at boot, and ``accepted`` the same of those that the inventory
    accepts (``accepted.py``).
    """

    object: str
    setting: str
    wanted: Scalar
    effective: Scalar
    boot: Scalar
    identity: str
    effective_matters: bool = True
    boot_matters: bool = True
    pending: str = ""
    needs: str = REBOOT
    doubt: str = ""
    accepted: str = ""

    @property
    def status(self) -> str:
        if self.boot_matters and self.boot != self.wanted:
            return DRIFTED
        if self.effective_matters and self.effective != self.wanted:
            if not self.pending:
                return DRIFTED
            return UNKNOWN if self.doubt else PENDING
        if self.doubt:
            return UNKNOWN
        return ACCEPTED if self.accepted else IN_SYNC

    def row(self) -> Dict[str, Scalar]:
        """The setting as a row of the audit's table."""
        row = {
            "object": self.object,
            "setting": self.setting,
            "wanted": self.wanted,
            "effective": self.effective,
            "boot": UNKNOWN if self.doubt else self.boot,
            "status": self.status,
        }
        note = {UNKNOWN: self.doubt, ACCEPTED: self.accepted}.get(self.status)
        return {**row, "note": note} if note else row
