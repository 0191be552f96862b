# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""What the bed needs from the machine it runs on: places, tools, taps, ports and processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Dict, Iterator, List, Sequence, Tuple

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "vm"
STARTED = time.monotonic()

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# Which Debian package brings a program. The keyring is a file, but missing in the same way.
PACKAGES: Dict[str, str] = {
    "mmdebstrap": "mmdebstrap",
    "mkfs.ext4": "e2fsprogs",
    "debugfs": "e2fsprogs",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "newuidmap": "uidmap",
    "cc": "gcc",
    "/usr/include/stdio.h": "libc6-dev",
    KEYRING: "debian-archive-keyring",
}

# Outside the range that Linux hands out for outgoing connections: a port stays free while its node is powered off.
PORTS = range(20000, 32000)

TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI, IFF_MULTI_QUEUE = 0x0002, 0x1000, 0x0100


class BedError(Exception):
    """An expected failure: its text is the whole message for the user."""


def say(text: str) -> None:
    """One line of progress on stderr, with the seconds since the start."""
    print(f"[{time.monotonic() - STARTED:6.1f} s] {text}", file=sys.stderr, flush=True)


def tool(name: str) -> str:
    """Path of a program. /usr/sbin counts even where it is not in PATH (Debian's default for users)."""
    path = shutil.which(name, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin")
    if path is None:
        raise BedError(f"Cannot find the program {name}")
    return path


def require(names: Sequence[str]) -> None:
    """Check that programs (or files, when the name is a path) are there.

    Errors: BedError that names every missing one and the packages to install.
    """
    missing = []
    for name in names:
        try:
            if name.startswith("/"):
                if not Path(name).exists():
                    raise BedError(name)
            else:
                tool(name)
        except BedError:
            missing.append(name)
    if missing:
        packages = " ".join(sorted({PACKAGES[name] for name in missing}))
        raise BedError(f"Cannot run the VM bed without {', '.join(missing)}: apt-get install {packages}")


def bootstrap_tools() -> Tuple[str, ...]:
    """What mmdebstrap takes: without root also a range of subordinate ids."""
    return ("mmdebstrap", KEYRING) if os.geteuid() == 0 else ("mmdebstrap", KEYRING, "newuidmap")


def run_logged(command: Sequence[str], *, log: Path, goal: str) -> None:
    """Run a command whose output goes to the end of a log. Raises ``BedError`` with that end when it fails."""
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    with log.open("ab") as output:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment, check=False
        )
    if done.returncode != 0:
        raise BedError(f"Cannot {goal}: exit status {done.returncode}, log {log}:\n{tail(log)}")


@contextlib.contextmanager
def locked(path: Path, *, what: str) -> Iterator[None]:
    """Hold an exclusive lock on a file; says what it waits for when another process holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"{what} is in use by another process, waiting")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def multi_queue_taps() -> bool:
    """Whether this process may create a tap with several queues. The one it tries vanishes with its descriptor."""
    try:
        descriptor = os.open("/dev/net/tun", os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", b"", IFF_TAP | IFF_NO_PI | IFF_MULTI_QUEUE))
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def free_port(taken: Sequence[int]) -> int:
    """A TCP port on 127.0.0.1 that nobody listens on and that is not in `taken`."""
    for port in random.sample(PORTS, 200):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                if port not in taken:
                    probe.bind(("127.0.0.1", port))
                    return port
    raise BedError(f"Cannot find a free port on 127.0.0.1 between {PORTS.start} and {PORTS.stop}")


def processes(argument: str) -> List[int]:
    """PIDs of the processes that have `argument` as one of their arguments. A zombie has none."""
    wanted = os.fsencode(argument)
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if wanted in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found


def stop(argument: str, *, force: bool = False, grace: float = 5.0) -> int:
    """End every process that has `argument` as one of its arguments: SIGTERM, after `grace` seconds SIGKILL.

    The descriptor is opened before the arguments are read, so a PID that is reused meanwhile is never hit.
    Returns how many there were.
    """
    stopped = 0
    for pid in processes(argument):
        try:
            descriptor = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            if pid not in processes(argument):
                continue
            stopped += 1
            signals = [signal.SIGKILL] if force else [signal.SIGTERM, signal.SIGKILL]
            for number in signals:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, number)
                if select.select([descriptor], [], [], grace)[0]:
                    break
            else:
                raise BedError(f"Cannot stop the process {pid} ({argument}): it survived SIGKILL for {grace:.0f} s")
        finally:
            os.close(descriptor)
    return stopped


def tail(path: Path, *, lines: int = 40) -> str:
    """The last lines of a log, printable, for an error message."""
    try:
        text = path.read_bytes().decode("utf-8", "replace")
    except FileNotFoundError:
        return f"({path} does not exist)"
    kept = [line for line in text.replace("\r", "\n").split("\n") if line.strip()][-lines:]
    printable = ("".join(char for char in line if char.isprintable()) for line in kept)
    return "\n".join(f"    {line}" for line in printable) if kept else f"    ({path} is empty)"
