# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
"""Frequencies for the CPUs of a node, which QEMU has none of: an ACPI table by which acpi-cpufreq sets and reads them.

ACPI Specification 6.5: 5.2.6 (the header of a table), 8.4.5.1 (_PCT), 8.4.5.2 (_PSS), 20.2 (the byte code).
"""

from __future__ import annotations

import struct
from typing import Sequence

# In MHz, the highest first.
FREQUENCIES = (2400, 2100, 1800, 1500, 1200, 800)
# Ports that keep a byte and do nothing with it here: the pages of DMA channels that no device of a node has. Each CPU
# has one of its own, and so a frequency of its own; more than eight share them.
PORTS = (0x81, 0x82, 0x83, 0x87, 0x89, 0x8A, 0x8B, 0x8F)
MICROSECONDS = 10
_SCOPE, _NAME, _BUFFER, _PACKAGE, _BYTE, _DWORD = b"\x10", b"\x08", b"\x11", b"\x12", b"\x0a", b"\x0c"
_HEADER = struct.Struct("<4sIBB6s8sI4sI")
_IO_PORTS, _BYTES = 1, 1


def frequency_table(cpus: int) -> bytes:
    """The table for as many CPUs, at the names that QEMU gives them in its own table."""
    body = b"".join(_processor(cpu, PORTS[cpu % len(PORTS)]) for cpu in range(cpus))

    def table(checksum: int) -> bytes:
        length = _HEADER.size + len(body)
        return _HEADER.pack(b"SSDT", length, 2, checksum, b"GPUFLT", b"CPUFREQ ", 1, b"GPUF", 1) + body

    return table(-sum(table(0)) % 256)


def _processor(cpu: int, port: int) -> bytes:
    control = _NAME + b"_PCT" + _package([_register(port)] * 2)
    states = [
        # Frequency in MHz, power in mW, two latencies, what is written for it, and what is read then.
        _package([_dword(value) for value in (mhz, 10 * mhz, MICROSECONDS, MICROSECONDS, number, number)])
        for number, mhz in enumerate(FREQUENCIES, start=1)
    ]
    name = b"\\\x2f\x03_SB_CPUS" + b"C%03X" % cpu
    return _with_length(_SCOPE, name + control + _NAME + b"_PSS" + _package(states))


def _register(port: int) -> bytes:
    """A resource descriptor of a register of one byte, and the end of the list of descriptors."""
    descriptor = struct.pack("<BHBBBBQ", 0x82, 12, _IO_PORTS, 8, 0, _BYTES, port) + b"\x79\x00"
    return _with_length(_BUFFER, _BYTE + bytes([len(descriptor)]) + descriptor)


def _package(items: Sequence[bytes]) -> bytes:
    return _with_length(_PACKAGE, bytes([len(items)]) + b"".join(items))


def _dword(value: int) -> bytes:
    return _DWORD + struct.pack("<I", value)


def _with_length(operation: bytes, body: bytes) -> bytes:
    """The length counts its own bytes: one up to 63, else two, of which the first has the lowest four bits."""
    if len(body) + 1 < 1 << 6:
        return operation + bytes([len(body) + 1]) + body
    length = len(body) + 2
    if length >= 1 << 12:
        raise ValueError(f"{length} bytes in one piece")
    return operation + bytes([0x40 | length & 0xF, length >> 4]) + body
