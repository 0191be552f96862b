# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One structured line in the journal, by systemd's native protocol (https://systemd.io/JOURNAL_NATIVE_PROTOCOL/)."""

from __future__ import annotations

import socket
import struct
from typing import Mapping

SOCKET = "/run/systemd/journal/socket"


def entry(message: str, fields: Mapping[str, str]) -> bytes:
    """The datagram of one entry. A value with a newline is sent with its length, as the protocol asks."""
    parts = []
    for name, value in {"MESSAGE": message, "PRIORITY": "5", "SYSLOG_IDENTIFIER": "gpufleet", **fields}.items():
        data = value.encode("utf-8", "replace")
        if b"\n" in data:
            parts.append(name.encode() + b"\n" + struct.pack("<Q", len(data)) + data + b"\n")
        else:
            parts.append(name.encode() + b"=" + data + b"\n")
    return b"".join(parts)


def send(message: str, fields: Mapping[str, str]) -> None:
    """Send it; a machine without journald has nobody to tell, which is no error."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
        channel.setblocking(False)
        try:
            channel.sendto(entry(message, fields), SOCKET)
        except OSError:
            return
