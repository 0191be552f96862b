# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether dockerd has reloaded. SIGHUP has no answer: it reads its file later, and keeps what it had if that is bad."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING
from urllib.parse import quote

from ...._core.errors import CannotLook
from .docker import KIND
from .meaning import LOADED, SHM_SIZE, ParsedDocker, note, noted_of, socket_of, untold

if TYPE_CHECKING:
    from ...._core.protocols import Host
    from ..model import Installation

FILTERS = quote(json.dumps({"type": {"daemon": True}, "event": {"reload": True}}))


def reported(host: Host, installation: Installation, began: float) -> bool:
    """Whether it says that it has reloaded since ``began``, in seconds since 1970; then it is noted what that gave it.

    It keeps its last 256 events, and has one of a reload only where that succeeded (``Reload`` of moby's
    daemon/reload.go). Raises ``CannotLook`` where it does not respond.
    """
    socket = socket_of(KIND.read(host.files, installation))
    try:
        # Up to now, so that it does not wait for more of them.
        answer = host.http_get(socket, f"/events?since={began:.9f}&until={time.time():.9f}&filters={FILTERS}")
    except OSError as error:
        raise CannotLook("read the events of dockerd", object=socket, cause=error.strerror or str(error)) from error
    if not answer.strip():
        return False
    reloaded(host, installation)
    return True


def reloaded(host: Host, installation: Installation) -> None:
    """Note what a reload that succeeded gave the daemon: of what it does not tell, the size of /dev/shm."""
    configuration = KIND.read(host.files, installation)
    parsed: ParsedDocker = configuration.parsed
    size = configuration.settings.get(SHM_SIZE)
    if parsed.process is None or size is None:
        return
    note(host.files, parsed.process, {**untold(host.files, configuration), SHM_SIZE: size})


def drop_note(host: Host, installation: Installation) -> None:
    """Drop what was noted of a daemon that is gone."""
    process = KIND.read(host.files, installation).parsed.process
    if host.files.exists(LOADED) and (process is None or noted_of(host.files).get("daemon") != process.identity):
        host.files.remove(LOADED)
