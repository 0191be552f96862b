# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is said to the QEMU of a running node: its machine protocol (QMP), by a socket in the node's folder."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, List, Optional, Type

from bed_host import BedError

SOCKET = "qmp"
# QEMU answers a question at once; only a guest takes its time.
ANSWER_SECONDS = 30.0
# An operating system lets go of a device when it likes. Of a slot with an attention button it waits for five seconds.
GUEST_SECONDS = 90.0


class Monitor:
    """A conversation with one QEMU. Raises ``BedError`` with what QEMU said when it refuses, or says nothing."""

    def __init__(self, folder: Path) -> None:
        self._events: List[Dict[str, Any]] = []
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(ANSWER_SECONDS)
        # The address of a socket has room for 107 characters, and a checkout may lie deep.
        descriptor = os.open(folder, os.O_PATH)
        try:
            self._socket.connect(f"/proc/self/fd/{descriptor}/{SOCKET}")
        except OSError as error:
            raise BedError(f"Cannot reach the monitor {folder / SOCKET}: {error.strerror}") from error
        finally:
            os.close(descriptor)
        self._stream = self._socket.makefile("r", encoding="utf-8")
        self._read()
        self.ask("qmp_capabilities")

    def __enter__(self) -> Monitor:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._stream.close()
        self._socket.close()

    def ask(self, command: str, **arguments: Any) -> Any:
        """What a command returns. Its arguments are written with ``_`` for ``-``."""
        words = {name.replace("_", "-"): value for name, value in arguments.items()}
        self._socket.sendall(json.dumps({"execute": command, "arguments": words}).encode() + b"\n")
        while True:
            message = self._read()
            if "event" in message:
                self._events.append(message)
            elif "error" in message:
                raise BedError(f"Cannot {command} {json.dumps(words)}: {message['error']['desc']}")
            else:
                return message["return"]

    def release(self, device: str) -> None:
        """Ask the guest to let go of a device, and wait until it has."""
        self.ask("device_del", id=device)
        self._socket.settimeout(GUEST_SECONDS)
        while True:
            message = self._events.pop(0) if self._events else self._read()
            if message.get("event") == "DEVICE_DELETED" and message["data"].get("device") == device:
                break
        self._socket.settimeout(ANSWER_SECONDS)

    def _read(self) -> Dict[str, Any]:
        with contextlib.suppress(TimeoutError):
            line = self._stream.readline()
            if line:
                message: Dict[str, Any] = json.loads(line)
                return message
            raise BedError("Cannot hear the monitor of QEMU: it hung up")
        raise BedError(f"Cannot hear the monitor of QEMU: nothing within {self._socket.gettimeout():.0f} s")
