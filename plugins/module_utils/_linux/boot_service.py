# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The boot service as the rooms see it that have nothing else to carry their settings across a reboot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional

from .._core.declared import WANTED
from .._core.errors import Refused
from .._core.setting import Scalar
from .._core.value import frozen
from . import systemd
from .program import ARCHIVE, PROGRAM

if TYPE_CHECKING:
    from .._core.contract import Scope
    from .._core.protocols import Files

UNIT = "gpufleet-boot.service"
# The code of a run that fails because that service is missing; node_tools brings it.
NO_BOOT_SERVICE = "no_boot_service"


def why_not_persisted(files: Files) -> str:
    """Empty when the next boot applies the declarations that say ``apply_at_boot``, else why not. Reads only files."""
    status = systemd.enabled(files, UNIT)
    if status == systemd.ENABLED and files.exists(PROGRAM) and files.exists(ARCHIVE):
        return ""
    if status == systemd.MASKED:
        return f"the boot service is masked; run systemctl unmask {UNIT}"
    if status in (systemd.DISABLED, systemd.STATIC):
        return "the boot service is not enabled; run the role node_tools"
    return "the boot service is not installed; run the role node_tools"


@frozen
class BootCarrier:
    """What the boot service makes of a declaration. ``declared`` is that of the ``Scope``.

    ``missing`` says why the service applies nothing, and is empty where it does.
    """

    declared: Scalar = None
    missing: str = ""

    @property
    def applies_any(self) -> bool:
        """Whether the next boot applies a declaration, be it this one or another."""
        return self.declared is not None and not self.missing

    @property
    def applies(self) -> bool:
        """Whether the next boot applies the declaration of this run."""
        return self.declared == WANTED and not self.missing


def carrier(files: Files, scope: Scope) -> BootCarrier:
    return BootCarrier(scope.declared, why_not_persisted(files))


class NoBootService(Refused):
    """The boot service would not apply on this machine what is declared."""

    code = NO_BOOT_SERVICE


def not_persisted(why: str) -> Optional[Refused]:
    """The error for changes that the boot service has to make, with the way out of it; None where it makes them.

    ``why`` is what ``why_not_persisted`` says.
    """
    if not why:
        return None
    cause, _semicolon, way = why.partition("; ")
    return NoBootService(
        "keep what is declared across a reboot", cause=cause, hint=f"{way} first, or set permanent: false"
    )
