# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of the tools on the node: owners and modes, the archive, the boot service."""

from __future__ import annotations

import errno
import os
import stat
from hashlib import sha256
from typing import TYPE_CHECKING

from ..._core.change import Step
from ..._core.errors import NotSent, Refused
from ..._linux import program_apply, systemd_apply
from ..._linux.boot_service import UNIT
from ..._linux.program import ARCHIVE
from ..._machine.files import LocalFiles
from .owners import distrust, is_compiled
from .plan import CompileProgram, EnableUnit, InstallArchive, Protect, RemoveArchive

if TYPE_CHECKING:
    from ..._core.protocols import Host


def perform(step: Step, host: Host) -> None:
    action = step.action
    if isinstance(action, InstallArchive):
        install_archive(action, host)
    elif isinstance(action, CompileProgram):
        program_apply.compile_program(host.files)
    elif isinstance(action, Protect):
        protect(action, host)
    elif isinstance(action, RemoveArchive):
        program_apply.remove_compiled(host.files)
        host.files.remove(ARCHIVE)
    elif isinstance(action, EnableUnit):
        (systemd_apply.reenable if action.enable else systemd_apply.disable)(host, UNIT)
    else:
        systemd_apply.perform(step, host)


def protect(action: Protect, host: Host) -> None:
    """Folders first, so that nobody comes back to what is in them."""
    if not isinstance(host.files, LocalFiles):
        raise TypeError("others have no owners that could be wrong")
    for place in action.places:
        if is_compiled(place.path):
            continue
        if place.foreign:
            host.files.remove(place.path)
        else:
            _protect(host.files.locate(place.path), place.mode)
    if distrust(action.places):
        # The next step makes it again.
        program_apply.remove_compiled(host.files)


def _protect(target: str, mode: int) -> None:
    """Raises ``OSError`` for a link of either kind: whoever could write here may have put a file of root there."""
    descriptor = os.open(target, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
            raise OSError(errno.EMLINK, os.strerror(errno.EMLINK), target)
        if os.geteuid() == 0:
            os.fchown(descriptor, 0, 0)
        os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def install_archive(action: InstallArchive, host: Host) -> None:
    """Raises ``Refused`` for a file that is not the declared one: what arrived may not be what was sent."""
    if action.content is None:
        raise NotSent(
            "install the archive",
            object=ARCHIVE,
            cause="the task did not send the file",
            wanted=action.digest[:12],
            hint="run again",
        )
    content = action.content
    digest = sha256(content).hexdigest()
    if digest != action.digest:
        raise Refused(
            "install the archive",
            object=ARCHIVE,
            cause="the received file has a different SHA-256 checksum",
            found=digest[:12],
            wanted=action.digest[:12],
            hint="run again",
        )
    host.files.replace(ARCHIVE, content.decode("utf-8", "surrogateescape"))
