# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Questions by D-Bus: to systemd on its own socket, where it listens for root even while there is no D-Bus daemon, and
to services on the system bus.

That is how systemctl asks as well, but to start systemctl costs a look more than all that it reads itself. The wire
format is that of the D-Bus specification 0.43, "Message Format" and "Authentication Protocol".
"""

from __future__ import annotations

# What socket puts around it costs three times what the whole question does.
import _socket
import errno
import os
import struct
import time
from typing import Any, Iterator, List, Optional, Sequence, Tuple

from .._core.protocols import BusCall
from .socket_errors import named

SOCKET = "/run/systemd/private"
SYSTEM_BUS = "/run/dbus/system_bus_socket"
BUS = "org.freedesktop.DBus"
HELLO = BusCall("/org/freedesktop/DBus", BUS, "Hello")
TIMEOUT_SECONDS = 6.0
# 128 MiB is the longest message there may be; this is the longest that we wait for.
LIMIT_BYTES = 16 << 20
CALL, RETURN, ERROR = 1, 2, 3
PATH, INTERFACE, MEMBER, REPLY_TO, DESTINATION, SIGNATURE = 1, 2, 3, 5, 6, 8
# The bus must not start a service only because it is asked.
NO_AUTO_START = 0x2
HEADER_BYTES = 16
NUMBERS = {"y": "B", "b": "I", "n": "h", "q": "H", "i": "i", "u": "I", "x": "q", "t": "Q", "d": "d", "h": "I"}


def ask_service(
    service: str, calls: Sequence[BusCall], timeout: float = TIMEOUT_SECONDS, path: str = SYSTEM_BUS
) -> List[Optional[Tuple[Any, ...]]]:
    """What a service on the system bus returns, as ``ask``. All are None where no service of that name runs."""
    return ask(calls, timeout, path, service)


def ask(
    calls: Sequence[BusCall], timeout: float = TIMEOUT_SECONDS, path: str = SOCKET, service: str = ""
) -> List[Optional[Tuple[Any, ...]]]:
    """What each call returns, in their order; None for one that is answered with an error.

    All are sent at once, and signals that come in between are dropped. Raises ``OSError`` with the path: nobody
    listens, we may not, not all answers came within ``timeout`` seconds (``TimeoutError``), or what came is no D-Bus
    (EPROTO).
    """
    channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    with named(path, timeout):
        try:
            messages = _messages(calls, service)
            answers = _asked(channel, messages, time.monotonic() + timeout, path)
            return answers[len(messages) - len(calls) :]
        except (ValueError, IndexError, struct.error) as error:
            raise OSError(errno.EPROTO, f"not a D-Bus response: {error}") from error
        finally:
            channel.close()


def _messages(calls: Sequence[BusCall], service: str) -> List[bytes]:
    """What is sent for them. A bus wants ``Hello`` before anything else, and answers that as well."""
    addressed = [(BUS, HELLO)] if service else []
    addressed += [(service, call) for call in calls]
    return [_message(serial, call, to) for serial, (to, call) in enumerate(addressed, 1)]


def _asked(
    channel: _socket.socket, messages: Sequence[bytes], deadline: float, path: str
) -> List[Optional[Tuple[Any, ...]]]:
    channel.settimeout(_left(deadline))
    channel.connect(path)
    who = str(os.geteuid()).encode().hex().encode()
    channel.sendall(b"\0AUTH EXTERNAL " + who + b"\r\nBEGIN\r\n")
    received = _Received(channel, deadline)
    line = received.until(b"\r\n")
    if not line.startswith(b"OK "):
        raise PermissionError(errno.EACCES, line.decode("latin-1"))
    # Not before: what comes together with BEGIN is not looked at until more comes.
    channel.sendall(b"".join(messages))
    answers: List[Optional[Tuple[Any, ...]]] = [None] * len(messages)
    missing = set(range(1, len(messages) + 1))
    while missing:
        kind, reply_to, values = _parsed(received)
        if kind in (RETURN, ERROR) and reply_to in missing:
            missing.remove(reply_to)
            answers[reply_to - 1] = values if kind == RETURN else None
    return answers


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


class _Received:
    """What has come so far and was not taken yet."""

    def __init__(self, channel: _socket.socket, deadline: float) -> None:
        self._channel = channel
        self._deadline = deadline
        self._waiting = b""

    def until(self, end: bytes) -> bytes:
        while end not in self._waiting:
            self._more()
        line, _end, self._waiting = self._waiting.partition(end)
        return line

    def peek(self, length: int) -> bytes:
        while len(self._waiting) < length:
            self._more()
        return self._waiting[:length]

    def take(self, length: int) -> bytes:
        taken = self.peek(length)
        self._waiting = self._waiting[length:]
        return taken

    def _more(self) -> None:
        if len(self._waiting) > LIMIT_BYTES:
            raise ValueError("it is too long")
        self._channel.settimeout(_left(self._deadline))
        part = self._channel.recv(65536)
        if not part:
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        self._waiting += part


def _message(serial: int, call: BusCall, service: str) -> bytes:
    signature = "".join("s" if isinstance(argument, str) else "as" for argument in call.arguments)
    body = b""
    for argument in call.arguments:
        body = _padded(body, 4)
        if isinstance(argument, str):
            body += _text(argument)
        else:
            # An array of texts is aligned as its length is, so that their lengths add up from zero.
            texts = b""
            for text in argument:
                texts = _padded(texts, 4) + _text(text)
            body += struct.pack("<I", len(texts)) + texts
    fields = b""
    headers = [(PATH, b"o", call.path), (INTERFACE, b"s", call.interface), (MEMBER, b"s", call.member)]
    headers += [(DESTINATION, b"s", service)] if service else []
    for code, kind, value in headers:
        fields = _padded(fields, 8) + struct.pack("<BB1sx", code, 1, kind) + _text(value)
    if signature:
        fields = _padded(fields, 8) + struct.pack("<BB1sx", SIGNATURE, 1, b"g")
        fields += struct.pack("<B", len(signature)) + signature.encode() + b"\0"
    flags = NO_AUTO_START if service else 0
    head = struct.pack("<cBBBIII", b"l", CALL, flags, 1, len(body), serial, len(fields))
    return _padded(head + fields, 8) + body


def _text(text: str) -> bytes:
    encoded = text.encode("utf-8", "surrogateescape")
    return struct.pack("<I", len(encoded)) + encoded + b"\0"


def _padded(data: bytes, size: int) -> bytes:
    return data + b"\0" * (-len(data) % size)


def _parsed(received: _Received) -> Tuple[int, int, Tuple[Any, ...]]:
    """Type of the next message, the serial of what it answers, and its values."""
    order, kind, _flags, _version, body, _serial, fields = struct.unpack("<cBBBIII", received.peek(HEADER_BYTES))
    if order != b"l":
        raise ValueError(f"it is in byte order {order!r}")
    length = HEADER_BYTES + fields + -fields % 8 + body
    if length > LIMIT_BYTES:
        raise ValueError(f"it has {length} bytes")
    message = received.take(length)
    # The length of the fields belongs to their array.
    (named,) = _Reader(message, 12).values("a(yv)")
    known = dict(named)
    values = _Reader(message, length - body).values(known.get(SIGNATURE, ""))
    return kind, known.get(REPLY_TO, 0), values


class _Reader:
    """Values of a message, which are aligned from its beginning."""

    def __init__(self, message: bytes, at: int) -> None:
        self._message = message
        self._at = at

    def values(self, signature: str) -> Tuple[Any, ...]:
        return tuple(self._value(single) for single in _singles(signature))

    def _value(self, kind: str) -> Any:
        first = kind[0]
        if first in NUMBERS:
            return self._number(NUMBERS[first])
        if first in "so":
            return self._text(self._number("I"))
        if first == "g":
            return self._text(self._number("B"))
        if first == "v":
            (single,) = self.values(self._text(self._number("B")))
            return single
        if first == "a":
            return self._array(kind[1:])
        if first in "({":
            self._align(8)
            return self.values(kind[1:-1])
        raise ValueError(f"unknown type {kind!r}")

    def _array(self, kind: str) -> List[Any]:
        length = self._number("I")
        self._align(_alignment(kind))
        end = self._at + length
        if end > len(self._message):
            raise ValueError("an array goes beyond its message")
        found = []
        while self._at < end:
            found.append(self._value(kind))
        return found

    def _number(self, kind: str) -> Any:
        size = struct.calcsize(kind)
        self._align(size)
        (number,) = struct.unpack_from(f"<{kind}", self._message, self._at)
        self._at += size
        return number

    def _text(self, length: int) -> str:
        text = self._message[self._at : self._at + length]
        if len(text) < length:
            raise ValueError("a text goes beyond its message")
        self._at += length + 1
        return text.decode("utf-8", "surrogateescape")

    def _align(self, size: int) -> None:
        self._at += -self._at % size


def _alignment(kind: str) -> int:
    first = kind[0]
    if first in NUMBERS:
        return struct.calcsize(NUMBERS[first])
    return 8 if first in "({" else 1 if first in "gv" else 4


def _singles(signature: str) -> Iterator[str]:
    """The complete types that a signature has one after the other."""
    start = depth = 0
    for at, letter in enumerate(signature):
        depth += (letter in "({") - (letter in ")}")
        if depth == 0 and letter != "a":
            yield signature[start : at + 1]
            start = at + 1
