# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The log of a discovery controller: how it is read, and what its entries say.

Documentation: NVM Express Base Specification, Discovery Log Page (log identifier 70h). It is read through the
controller that is connected, and so needs neither nvme-cli nor a connection of its own. A program does it: it can be
ended where the kernel waits for a target.
"""

from __future__ import annotations

import struct
import sys
from binascii import Error, a2b_base64
from typing import TYPE_CHECKING, Tuple

from .state import Entry, Log

if TYPE_CHECKING:
    from ..._core.protocols import Host

# What the kernel gives a command, and what the program takes besides.
ANSWER_SECONDS, MARGIN_SECONDS = 5, 5
ENTRY_BYTES = 1024
# Where in an entry: transport, family, kind and requirements; flags; port, name of the subsystem, and address.
_HEAD, _FLAGS = struct.Struct("<BBBB"), struct.Struct("<H")
_FLAGS_AT, _PORT, _NQN, _ADDRESS = 10, slice(32, 64), slice(256, 512), slice(512, 768)
TRANSPORTS = {1: "rdma", 2: "fc", 3: "tcp", 254: "loop"}
REFERRAL, SUBSYSTEM = 1, 2
# Of the requirements: whether the channel must be secure.
_SECURE, _SECURE_REQUIRED = 0x3, 1
# EFLAGS: the other controller returns what this one does.
_DUPLICATE = 0x1

# ``struct nvme_passthru_cmd`` and NVME_IOCTL_ADMIN_CMD of include/uapi/linux/nvme_ioctl.h. All but the last read keep
# the event that the log has changed: the last one lets the controller send the next.
SCRIPT = """\
import fcntl, os, struct, sys
from array import array
from binascii import b2a_base64

device, timeout = os.open(sys.argv[1], os.O_RDONLY), int(sys.argv[2])

def read(offset, size, keep):
    buffer = array("B", bytes(size))
    words = size // 4 - 1
    command = bytearray(struct.pack(
        "<BBHIIIQQIIIIIIIIII", 0x02, 0, 0, 0, 0, 0, 0, buffer.buffer_info()[0], 0, size,
        0x70 | keep << 15 | (words & 0xFFFF) << 16, words >> 16, offset & 0xFFFFFFFF, offset >> 32, 0, 0, timeout, 0))
    status = fcntl.ioctl(device, 0xC0484E41, command)
    if status:
        sys.exit(f"it returned the status {status & 0x7FF:#x}")
    return buffer.tobytes()

for attempt in range(3):
    head = read(0, 1024, 1)
    generation, count, form = struct.unpack_from("<QQH", head)
    if form or count > 8192:
        sys.exit(f"its log has {count} entries of the form {form}")
    end = 1024 * (1 + count)
    log = b"".join(read(at, min(4096, end - at), 1) for at in range(1024, end, 4096))
    if read(0, 1024, 0)[:8] == head[:8]:
        sys.stdout.write(b2a_base64(log, newline=False).decode())
        break
else:
    sys.exit("its log changed while it was read")
"""


def read(host: Host, controller: str) -> Log:
    """The log of a controller that is connected, by the name that the kernel has for it."""
    timeout = float(ANSWER_SECONDS + MARGIN_SECONDS)
    argv = (sys.executable, "-IBS", "-c", SCRIPT, f"/dev/{controller}", str(ANSWER_SECONDS * 1000))
    completed = host.commands.run(argv, timeout=timeout)
    if completed.timed_out:
        return Log(error=f"it did not respond within {timeout:.0f} seconds")
    if completed.status != 0:
        said = (completed.errors or completed.output).strip().rpartition("\n")[2]
        return Log(error=said or f"exit status {completed.status}")
    try:
        return Log(entries_of(a2b_base64(completed.output)))
    except (Error, struct.error) as error:
        return Log(error=f"its log cannot be read: {error}")


def entries_of(log: bytes) -> Tuple[Entry, ...]:
    """The entries behind the head of the log."""
    return tuple(_entry(log[at : at + ENTRY_BYTES]) for at in range(0, len(log), ENTRY_BYTES))


def _entry(raw: bytes) -> Entry:
    transport, _family, kind, requirements = _HEAD.unpack_from(raw)
    return Entry(
        kind=kind,
        transport=TRANSPORTS.get(transport, f"type {transport}"),
        address=_text(raw[_ADDRESS]),
        port=_text(raw[_PORT]),
        nqn=_text(raw[_NQN]),
        secure=requirements & _SECURE == _SECURE_REQUIRED,
        duplicate=bool(_FLAGS.unpack_from(raw, _FLAGS_AT)[0] & _DUPLICATE),
    )


def _text(raw: bytes) -> str:
    """Up to the first zero, without the blanks that some fill up with."""
    return raw.partition(b"\0")[0].decode("ascii", "replace").strip()
