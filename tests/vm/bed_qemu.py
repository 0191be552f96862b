# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""The QEMU that the bed runs, and how it runs a guest: on the processor itself, or emulated."""

from __future__ import annotations

import hashlib
import os
import re
import struct
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import List, Optional

from bed_host import CACHE, BedError, bootstrap_tools, locked, require, run_logged, say, tool

PROGRAM = "qemu-system-x86_64"
# An older one takes twice the processor time for the same: 7.2 needs 45 ms for what 10.0 does in 7, a process that
# starts another one.
OLDEST = 10
# Where the host's is older, this Debian's is unpacked in the cache and runs from there with the libraries of that
# Debian. Nothing is installed.
SUITE = "trixie"
PACKAGE = "qemu-system-x86"
UNPACK = Path(__file__).resolve().parents[2] / "tools" / "debian_tree.py"
FIRMWARE = ("usr/share/qemu", "usr/share/seabios", "usr/lib/ipxe/qemu")

# What the guest that tries KVM writes where, and how long it may take: a processor counts that far in 0.1 s.
EXIT_PORT, COUNTED, COUNTING_SECONDS = 0xF4, 1, 3.0


def words() -> List[str]:
    """The first words of QEMU's command line. Raises ``BedError`` where ``ensure`` was not asked before."""
    own = _of_the_host()
    if own is not None:
        return [own]
    start = _unpacked() / "usr" / "bin" / PROGRAM
    if not start.exists():
        raise BedError(f"Cannot find QEMU {OLDEST} or newer: neither on PATH nor in {_unpacked()}")
    return [str(start), *(word for folder in FIRMWARE for word in ("-L", str(_unpacked() / folder)))]


def ensure(*, mirror: str) -> None:
    """Have a QEMU that is new enough. Raises ``BedError`` with the end of the log where none can be had."""
    if _of_the_host() is not None:
        return
    tree = _unpacked()
    with locked(tree.with_suffix(".lock"), what="QEMU"):
        if tree.exists():
            return
        require(bootstrap_tools())
        log = tree.with_suffix(".log")
        say(f"taking QEMU out of the packages of Debian {SUITE} (log: {log})")
        command = [sys.executable, str(UNPACK), str(tree), "--suite", SUITE, "--include", PACKAGE, "--mirror", mirror]
        command += ["--program", f"usr/bin/{PROGRAM}"]
        run_logged(command, log=log, goal=f"take QEMU out of the packages of {mirror}")


def _of_the_host() -> Optional[str]:
    """The path of the host's own, where that is new enough."""
    try:
        own = tool(PROGRAM)
    except BedError:
        return None
    said = subprocess.run([own, "--version"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"version (\d+)\.", said)
    return own if found and int(found[1]) >= OLDEST else None


def _unpacked() -> Path:
    digest = hashlib.sha256("\0".join((SUITE, PACKAGE)).encode() + UNPACK.read_bytes()).hexdigest()
    return CACHE / f"qemu-{digest[:16]}"


def accelerator() -> str:
    """`kvm` where a machine really runs with it, else `tcg`.

    Opening /dev/kvm proves nothing: without nested virtualisation QEMU aborts only when it creates the CPU, and
    a KVM without the processor's help (pvm) interprets what a boot loader does, 200 times slower than QEMU itself.
    """
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return "tcg"
    with tempfile.NamedTemporaryFile(prefix="gpufleet-rom-") as rom:
        rom.write(_counting_rom())
        rom.flush()
        command = [*words(), "-accel", "kvm", "-cpu", "host", "-machine", "q35", "-m", "64"]
        command += ["-nodefaults", "-display", "none", "-no-user-config", "-bios", rom.name]
        command += ["-device", f"isa-debug-exit,iobase={EXIT_PORT:#x},iosize=1"]
        try:
            done = subprocess.run(command, capture_output=True, timeout=COUNTING_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            return "tcg"
    return "kvm" if done.returncode == (COUNTED << 1 | 1) else "tcg"


def _counting_rom() -> bytes:
    """A firmware that counts to 20 million and says so at the port that ends QEMU."""
    count = b"\x66\xb9" + struct.pack("<I", 20_000_000) + b"\x67\xe2\xfd"  # mov ecx, 20000000; loop to itself
    end = b"\xba" + struct.pack("<H", EXIT_PORT) + b"\xb0" + bytes([COUNTED]) + b"\xee\xf4"  # out dx, al; hlt
    # The processor begins 16 bytes below the end, where there is room for a jump to the beginning: jmp f000:0000.
    return (count + end).ljust(0xFFF0, b"\xf4") + b"\xea\x00\x00\x00\xf0".ljust(16, b"\xf4")
