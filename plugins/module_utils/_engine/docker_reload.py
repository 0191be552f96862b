# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether dockerd has reloaded. SIGHUP has no answer: it reads its file later, and keeps what it had if that is bad."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING
from urllib.parse import quote

from .._core.errors import CannotLook
from . import docker_check
from .docker import KIND, socket_of

if TYPE_CHECKING:
    from .._host.protocols import Host
    from .model import Installation

FILTERS = quote(json.dumps({"type": {"daemon": True}, "event": {"reload": True}}))


def told(host: Host, installation: Installation, began: float) -> bool:
    """Whether it says that it has reloaded since ``began``, in seconds since 1970; then it is noted what that gave it.

    It keeps its last 256 events, and has one of a reload only where that succeeded (``Reload`` of moby's
    daemon/reload.go). Raises ``CannotLook`` where it does not answer.
    """
    socket = socket_of(KIND.read(host.files, installation))
    try:
        # Up to now, so that it does not wait for more of them.
        answer = host.http_get(socket, f"/events?since={began:.9f}&until={time.time():.9f}&filters={FILTERS}")
    except OSError as error:
        raise CannotLook("ask dockerd for its events", object=socket, cause=error.strerror or str(error)) from error
    if not answer.strip():
        return False
    docker_check.reloaded(host, installation)
    return True
