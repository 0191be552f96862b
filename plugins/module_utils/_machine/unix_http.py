# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Questions to a daemon that speaks HTTP on a socket of this machine, in the file system or at a port of TCP, where it
may ask for a certificate of its client.

They are of HTTP/1.0: the answer comes in one piece and ends with the connection.
"""

from __future__ import annotations

import contextlib
import errno
import socket
import time
from typing import TYPE_CHECKING, List, Optional, Tuple

from .socket_errors import named

if TYPE_CHECKING:
    from .._core.protocols import Identity

# dockerd starts other programs for an answer, which takes seconds on a busy machine. A look has ten for all it asks.
TIMEOUT_SECONDS = 6.0
LIMIT_BYTES = 16 << 20


def get(path: str, target: str, timeout: float = TIMEOUT_SECONDS, *, identity: Optional[Identity] = None) -> str:
    """The body of the answer to GET ``target`` on the socket ``path``, or at an address such as ``127.0.0.1:9400``.

    Raises ``OSError`` with the path: nobody listens, we may not, the whole answer did not come within ``timeout``
    seconds (``TimeoutError``), or it is not status 200 (EPROTO).

    With an ``identity``, the files of a certificate and its key, it speaks TLS. The certificate of the daemon is not
    verified: it is on this machine.
    """
    deadline = time.monotonic() + timeout
    parts: List[bytes] = []
    with named(path, timeout), contextlib.ExitStack() as stack:
        channel = stack.enter_context(_socket(path))
        channel.settimeout(timeout)
        channel.connect(path if path.startswith("/") else _address(path))
        if identity is not None:
            channel = stack.enter_context(_secured(channel, identity))
        channel.sendall(f"GET {target} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise socket.timeout
            channel.settimeout(left)
            part = channel.recv(65536)
            if not part:
                break
            parts.append(part)
            if sum(map(len, parts)) > LIMIT_BYTES:
                raise OSError(errno.EPROTO, "the response is truncated")
    return _body(b"".join(parts), path)


def _socket(path: str) -> socket.socket:
    family = socket.AF_UNIX if path.startswith("/") else socket.AF_INET6 if path.startswith("[") else socket.AF_INET
    return socket.socket(family, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)


def _secured(channel: socket.socket, identity: Identity) -> socket.socket:
    # A look that asks nobody for a certificate pays nothing for it.
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.load_cert_chain(*identity)
    return context.wrap_socket(channel)


def _address(path: str) -> Tuple[str, int]:
    """Host and port. A name would be looked up in the network: it is none of this machine."""
    host, _colon, port = path.rpartition(":")
    host = host.strip("[]")
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in host else socket.AF_INET, host)
        number = int(port)
    except (OSError, ValueError) as error:
        raise OSError(errno.EINVAL, "not an address with a port, in numbers", path) from error
    return host, number


def _body(answer: bytes, path: str) -> str:
    head, blank, body = answer.partition(b"\r\n\r\n")
    status = head.split(b"\r\n", 1)[0].decode("latin-1")
    words = status.split(None, 2)
    if not blank or not status.startswith("HTTP/") or len(words) < 2:
        raise OSError(errno.EPROTO, "not an HTTP response", path)
    text = body.decode("utf-8", "surrogateescape")
    if words[1] != "200":
        raise OSError(errno.EPROTO, f"status {' '.join(words[1:])}: {text.strip()[:200]}", path)
    return text
