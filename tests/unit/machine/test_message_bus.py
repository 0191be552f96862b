# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Questions by D-Bus, against bytes that systemd 257, dbus-daemon 1.16 and firewalld 2.3 sent, and against others."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
from pathlib import Path
from typing import Callable, Iterator, List, Optional

import pytest
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import BusCall
from ansible_collections.gpufleet.node.plugins.module_utils._machine import message_bus

MANAGER = "org.freedesktop.systemd1.Manager"
UNIT = "org.freedesktop.systemd1.Unit"
PROPERTIES = "org.freedesktop.DBus.Properties"
TIMER = "/org/freedesktop/systemd1/unit/man_2ddb_2etimer"
OK = b"OK f54e0ade20584a8f8ec68b1273e92287\r\n"
# As systemd 257 sent them: the Id of man-db.timer, the news that it has loaded it for that, and its state.
ID = (
    b"l\x02\x01\x01\x15\x00\x00\x00\x01\x00\x00\x007\x00\x00\x00\x05\x01u\x00\x01\x00\x00\x00\x07\x01s\x00\x18\x00\x00"
    b"\x00org.freedesktop.systemd1\x00\x00\x00\x00\x00\x00\x00\x00\x08\x01g\x00\x01v\x00\x00\x01s\x00\x00\x0c\x00\x00"
    b"\x00man-db.timer\x00"
)
UNIT_NEW = (
    b"l\x04\x01\x01H\x00\x00\x00\x02\x00\x00\x00\x98\x00\x00\x00\x01\x01o\x00\x19\x00\x00\x00/org/freedesktop/systemd1"
    b"\x00\x00\x00\x00\x00\x00\x00\x02\x01s\x00 \x00\x00\x00org.freedesktop.systemd1.Manager\x00\x00\x00\x00\x00\x00"
    b"\x00\x00\x03\x01s\x00\x07\x00\x00\x00UnitNew\x00\x07\x01s\x00\x18\x00\x00\x00org.freedesktop.systemd1\x00\x00"
    b"\x00\x00\x00\x00\x00\x00\x08\x01g\x00\x02so\x00\x0c\x00\x00\x00man-db.timer\x00\x00\x00\x00/\x00\x00\x00"
    b"/org/freedesktop/systemd1/unit/man_2ddb_2etimer\x00"
)
LOAD_STATE = (
    b"l\x02\x01\x01\x0f\x00\x00\x00\x04\x00\x00\x007\x00\x00\x00\x05\x01u\x00\x02\x00\x00\x00\x07\x01s\x00\x18\x00\x00"
    b"\x00org.freedesktop.systemd1\x00\x00\x00\x00\x00\x00\x00\x00\x08\x01g\x00\x01v\x00\x00\x01s\x00\x00\x06\x00\x00"
    b"\x00masked\x00"
)
# As dbus-daemon 1.16 sent them: the name that it gives, the news of that, and the answers of firewalld 2.3.0.
NAME = (
    b"l\x02\x01\x01\n\x00\x00\x00\x01\x00\x00\x00=\x00\x00\x00\x06\x01s\x00\x05\x00\x00\x00:1.59\x00\x00\x00\x05\x01u"
    b"\x00\x01\x00\x00\x00\x08\x01g\x00\x01s\x00\x00\x07\x01s\x00\x14\x00\x00\x00org.freedesktop.DBus\x00\x00\x00\x00"
    b"\x05\x00\x00\x00:1.59\x00"
)
NAME_ACQUIRED = (
    b"l\x04\x01\x01\n\x00\x00\x00\x02\x00\x00\x00\x8d\x00\x00\x00\x01\x01o\x00\x15\x00\x00\x00/org/freedesktop/DBus\x00"
    b"\x00\x00\x02\x01s\x00\x14\x00\x00\x00org.freedesktop.DBus\x00\x00\x00\x00\x03\x01s\x00\x0c\x00\x00\x00"
    b"NameAcquired\x00\x00\x00\x00\x06\x01s\x00\x05\x00\x00\x00:1.59\x00\x00\x00\x08\x01g\x00\x01s\x00\x00\x07\x01s\x00"
    b"\x14\x00\x00\x00org.freedesktop.DBus\x00\x00\x00\x00\x05\x00\x00\x00:1.59\x00"
)
DEFAULT_ZONE = (
    b"l\x02\x01\x01\x0b\x00\x00\x00Z\x01\x00\x00.\x00\x00\x00\x06\x01s\x00\x05\x00\x00\x00:1.59\x00\x00\x00\x05\x01u\x00"
    b"\x02\x00\x00\x00\x08\x01g\x00\x01s\x00\x00\x07\x01s\x00\x05\x00\x00\x00:1.55\x00\x00\x00\x06\x00\x00\x00public\x00"
)
ACTIVE_ZONES = (
    b"l\x02\x01\x01@\x00\x00\x00\\\x01\x00\x006\x00\x00\x00\x06\x01s\x00\x05\x00\x00\x00:1.59\x00\x00\x00\x05\x01u\x00"
    b"\x03\x00\x00\x00\x08\x01g\x00\na{sa{sas}}\x00\x07\x01s\x00\x05\x00\x00\x00:1.55\x00\x00\x008\x00\x00\x00\x00\x00\x00\x00"
    b"\x06\x00\x00\x00public\x00\x00(\x00\x00\x00\n\x00\x00\x00interfaces\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00"
    b"\x00sources\x00\x00\x00\x00\x00"
)
FIREWALLD = "org.fedoraproject.FirewallD1"
ZONES = (
    BusCall("/org/fedoraproject/FirewallD1", FIREWALLD, "getDefaultZone"),
    BusCall("/org/fedoraproject/FirewallD1", f"{FIREWALLD}.zone", "getActiveZones"),
)
CALLS = (
    BusCall(TIMER, PROPERTIES, "Get", (UNIT, "Id")),
    BusCall(TIMER, PROPERTIES, "Get", (UNIT, "LoadState")),
)
Serve = Callable[..., str]


@pytest.fixture(name="serve")
def _serve(tmp_path: Path) -> Iterator[Serve]:
    """What listens on a socket as systemd does: it says OK, reads what is asked, and sends the parts of its answer."""
    path = str(tmp_path / "private")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(1)
    threads: List[threading.Thread] = []
    done = threading.Event()

    def start(*parts: bytes, greeting: bytes = OK, silent: bool = False, seen: Optional[List[bytes]] = None) -> str:
        def run() -> None:
            channel, _address = listener.accept()
            with channel, contextlib.suppress(OSError):
                # What comes together with BEGIN would wait for ever at systemd.
                whole = channel.recv(65536)
                channel.sendall(greeting)
                asked = channel.recv(65536)
                if seen is not None:
                    seen.extend((whole, asked))
                for part in parts:
                    channel.sendall(part)
                if silent:
                    done.wait(10)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return path

    yield start
    done.set()
    for thread in threads:
        thread.join()
    listener.close()


def test_answers_come_in_the_order_of_the_calls_whatever_is_said_in_between(serve: Serve) -> None:
    assert message_bus.ask(CALLS, path=serve(LOAD_STATE + UNIT_NEW, ID)) == [("man-db.timer",), ("masked",)]


def test_an_answer_may_come_byte_by_byte(serve: Serve) -> None:
    parts = [bytes([byte]) for byte in ID + LOAD_STATE]
    assert message_bus.ask(CALLS, path=serve(*parts)) == [("man-db.timer",), ("masked",)]


def test_what_is_sent_is_what_systemd_took(serve: Serve) -> None:
    seen: List[bytes] = []
    message_bus.ask(CALLS[:1], path=serve(ID, seen=seen))
    message = (
        b"l\x01\x00\x01+\x00\x00\x00\x01\x00\x00\x00x\x00\x00\x00\x01\x01o\x00/\x00\x00\x00"
        b"/org/freedesktop/systemd1/unit/man_2ddb_2etimer\x00\x02\x01s\x00\x1f\x00\x00\x00"
        b"org.freedesktop.DBus.Properties\x00\x03\x01s\x00\x03\x00\x00\x00Get\x00\x00\x00\x00\x00"
        b"\x08\x01g\x00\x02ss\x00\x1d\x00\x00\x00org.freedesktop.systemd1.Unit\x00\x00\x00\x02\x00\x00\x00Id\x00"
    )
    assert seen == [b"\0AUTH EXTERNAL " + str(os.geteuid()).encode().hex().encode() + b"\r\nBEGIN\r\n", message]


def test_an_array_of_texts_is_sent_with_its_length(serve: Serve) -> None:
    seen: List[bytes] = []
    call = BusCall("/org/freedesktop/systemd1", MANAGER, "ListUnitsByNames", (("a.timer", "cups.service"),))
    message_bus.ask([call], path=serve(ID, seen=seen))
    texts = b"\x07\x00\x00\x00a.timer\x00\x0c\x00\x00\x00cups.service\x00"
    assert seen[1].endswith(b"\x08\x01g\x00\x02as\x00" + bytes([len(texts)]) + b"\x00\x00\x00" + texts)


@pytest.mark.parametrize(
    ("parts", "expected", "cause"),
    [
        ((), errno.ECONNRESET, "Connection reset"),
        ((ID[:40],), errno.ECONNRESET, "Connection reset"),
        ((b"B" + ID[1:],), errno.EPROTO, "byte order"),
        ((b"HTTP/1.1 400 Bad Request\r\n\r\n",), errno.EPROTO, "byte order"),
        ((ID[:4] + b"\xff\xff\xff\x7f" + ID[8:],), errno.EPROTO, "bytes"),
        ((ID.replace(b"\x0c\x00\x00\x00man", b"\xff\x00\x00\x00man"),), errno.EPROTO, "beyond its message"),
        ((ID.replace(b"\x01v\x00", b"\x01?\x00"),), errno.EPROTO, "unknown type"),
    ],
)
def test_what_is_no_answer_of_systemd_is_an_error_of_the_socket(
    serve: Serve, parts: List[bytes], expected: int, cause: str
) -> None:
    path = serve(*parts)
    with pytest.raises(OSError, match=cause) as caught:
        message_bus.ask(CALLS[:1], path=path)
    assert (caught.value.errno, caught.value.filename) == (expected, path)


def test_who_may_not_ask_is_told_so(serve: Serve) -> None:
    with pytest.raises(PermissionError, match="REJECTED EXTERNAL"):
        message_bus.ask(CALLS, path=serve(greeting=b"REJECTED EXTERNAL\r\n"))


def test_an_error_is_the_answer_to_its_call_alone(serve: Serve) -> None:
    error = b"l\x03" + LOAD_STATE[2:]
    assert message_bus.ask(CALLS, path=serve(ID, error)) == [("man-db.timer",), None]


def test_who_does_not_answer_is_not_waited_for(serve: Serve) -> None:
    with pytest.raises(TimeoutError, match=r"no response within 0\.1 seconds"):
        message_bus.ask(CALLS, timeout=0.1, path=serve(ID, silent=True))


def test_nobody_listens(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        message_bus.ask(CALLS, path=str(tmp_path / "private"))


# --- services on the system bus ---------------------------------------------------------------------------------------


def test_a_bus_is_greeted_before_a_service_on_it_is_asked(serve: Serve) -> None:
    seen: List[bytes] = []
    path = serve(NAME, NAME_ACQUIRED + DEFAULT_ZONE, ACTIVE_ZONES, seen=seen)
    active = [("public", [("interfaces", []), ("sources", [])])]
    assert message_bus.ask_service(FIREWALLD, ZONES, path=path) == [("public",), (active,)]
    hello, question = seen[1].partition(b"l\x01\x02\x01\x00\x00\x00\x00\x02\x00\x00\x00")[::2]
    assert b"Hello" in hello
    assert b"\x06\x01s\x00\x14\x00\x00\x00org.freedesktop.DBus\x00" in hello
    assert b"\x06\x01s\x00\x1c\x00\x00\x00org.fedoraproject.FirewallD1\x00" in question


def test_a_service_that_does_not_run_answers_nothing(serve: Serve) -> None:
    unknown = [b"l\x03" + answer[2:] for answer in (DEFAULT_ZONE, ACTIVE_ZONES)]
    assert message_bus.ask_service(FIREWALLD, ZONES, path=serve(NAME, *unknown)) == [None, None]


def test_the_answer_of_the_bus_to_the_greeting_is_no_answer_of_a_service(serve: Serve) -> None:
    assert message_bus.ask_service(FIREWALLD, [], path=serve(NAME)) == []
