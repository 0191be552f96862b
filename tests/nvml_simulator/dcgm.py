# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stands in for DCGM: its host engine ``nv-hostengine``, ``dcgmi health``, and ``dcgm-exporter``.

As their sources say (DCGM 4.5.3, dcgm-exporter 4.5.3-4.8.2): the engine has all GPUs open, and the health watches in
its memory alone. The exporter reads its file of counters once and ends at a line that is none; without ``-r`` it has an
engine in itself. Both know the MIG devices that were there when they started (issue 443 of dcgm-exporter). They speak a
protocol of their own, so none of them works with the counterpart of another. All metrics are 0.
"""

from __future__ import annotations

import contextlib
import csv
import ctypes
import http.server
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from typing import List, Optional, Sequence, Set, Tuple

import nvml_sim

ENGINE, EXPORTER = "nv-hostengine", "dcgm-exporter"
HOST, PORT = "127.0.0.1", 5555
SHIPPED_COUNTERS = "/etc/dcgm-exporter/default-counters.csv"
# The order and the names of dcgmi health --fetch.
TAGS = ("PCIe", "NVLINK", "Memory", "SM", "InfoROM", "Thermal", "Power", "Driver", "NvSwitch NF", "NvSwitch F")
FLAGS = {"p": ("PCIe",), "m": ("Memory",), "i": ("InfoROM",), "t": ("Thermal", "Power"), "n": ("NVLINK",)}
NOT_CONNECTED = "Error: unable to establish a connection to the specified host: localhost"
# The engine is started before it listens.
CONNECT_SECONDS = 10.0
POLL_SECONDS = 0.1
LABELS, ENGINE_METRICS = "label", "DCGM_EXP_"


class Watched:
    """The GPUs as they were at the start: opened, and the labels of each and of its MIG devices."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libnvidia-ml.so.1")
        status = self._library.nvmlInit_v2()
        if status:
            raise OSError(f"nvmlInit: NVML error {status}")
        self.labels = list(_labels())

    def close(self) -> None:
        self._library.nvmlShutdown()


def _labels() -> Sequence[str]:
    found: List[str] = []
    for gpu in nvml_sim.Simulator().describe()["gpus"]:
        own = f'gpu="{gpu["index"]}",UUID="{gpu["uuid"]}"'
        found += [own] if not gpu["instances"] else []
        found += [f'{own},GPU_I_PROFILE="{one["profile"]}",GPU_I_ID="{one["id"]}"' for one in gpu["instances"]]
    return found


# --- the host engine --------------------------------------------------------------------------------------------------


class Engine:
    """What the engine keeps in its memory, and what it answers."""

    def __init__(self, labels: Sequence[str]) -> None:
        self.labels = labels
        self.watches: Set[str] = set()

    def answer(self, line: str) -> str:
        verb, *arguments = line.split()
        if verb == "devices":
            return "\n".join(self.labels)
        if arguments[:1] in (["-f"], ["--fetch"]):
            rule = f"+-----------------+{'-' * 68}+"
            rows = [f"| {tag:<15} | {'On' if tag in self.watches else 'Off':<66} |" for tag in TAGS]
            return "\n".join(["Health monitor systems report", rule, *rows, rule])
        flags = arguments[1] if arguments[:1] in (["-s"], ["--set"]) else ""
        flags = "".join(FLAGS) if flags == "a" else flags
        if set(flags).difference(FLAGS):
            return "PARSE ERROR: Argument: set\nInvalid flags detected"
        self.watches = {tag for flag in flags for tag in FLAGS[flag]}
        return "Health monitor systems set successfully."


def run_engine() -> int:
    _be_called(ENGINE)
    gpus = Watched()
    engine = Engine(gpus.labels)
    listener = socket.create_server((HOST, PORT))

    def serve() -> None:
        while True:
            connection, _address = listener.accept()
            with connection, connection.makefile("rw", encoding="utf-8") as stream, contextlib.suppress(OSError):
                stream.write(engine.answer(stream.readline()))

    return _until_signal(serve, gpus)


def _ask(address: Tuple[str, int], line: str) -> Optional[str]:
    """The answer of an engine, None where none listens."""
    try:
        with socket.create_connection(address) as connection, connection.makefile("rw", encoding="utf-8") as stream:
            stream.write(f"{line}\n")
            stream.flush()
            return stream.read()
    except OSError:
        return None


def run_client(arguments: Sequence[str]) -> int:
    """``dcgmi health``: of the others there is none."""
    if arguments[:1] != ["health"]:
        print(f"dcgmi: this stand-in has no {' '.join(arguments)}", file=sys.stderr)
        return 2
    said = _ask((HOST, PORT), " ".join(arguments))
    print(NOT_CONNECTED if said is None else said)
    return 0 if said is not None and not said.startswith("PARSE ERROR") else 255


# --- the exporter -----------------------------------------------------------------------------------------------------


def read_counters(text: str) -> Sequence[Tuple[str, str, str]]:
    """The lines of a file of counters. Raises ``ValueError`` at one that is none, as the exporter ends there."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    found = []
    for record in csv.reader(lines, skipinitialspace=True):
        fields = [field.strip() for field in record]
        if len(fields) != 3 or not fields[0].startswith(("DCGM_FI_", ENGINE_METRICS)):
            raise ValueError(f"malformed CSV record: {record}")
        found.append((fields[0], fields[1], fields[2]))
    return found


def metrics_text(counters: Sequence[Tuple[str, str, str]], labels: Sequence[str]) -> str:
    parts = []
    for name, kind, text in counters:
        if kind != LABELS and not name.startswith(ENGINE_METRICS):
            parts.append(f"# HELP {name} {text}\n# TYPE {name} {kind}\n")
            parts += [f"{name}{{{label}}} 0\n" for label in labels]
    return "".join(parts)


def run_exporter(arguments: Sequence[str]) -> int:
    given = dict(zip(arguments[::2], arguments[1::2]))
    counters = read_counters(Path(given.get("-f", SHIPPED_COUNTERS)).read_text(encoding="utf-8"))
    _be_called(EXPORTER)
    gpus = None
    if "-r" in given:
        host, _colon, port = given["-r"].rpartition(":")
        labels = _labels_of(host, int(port))
    else:
        gpus = Watched()
        labels = gpus.labels
    page = metrics_text(counters, labels).encode()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_words: object) -> None:
            """Says nothing."""

    host, _colon, port = given.get("-a", ":9400").rpartition(":")
    return _until_signal(http.server.ThreadingHTTPServer((host, int(port)), Handler).serve_forever, gpus)


def _labels_of(host: str, port: int) -> Sequence[str]:
    deadline = time.monotonic() + CONNECT_SECONDS
    while time.monotonic() < deadline:
        said = _ask((host, port), "devices")
        if said is not None:
            return said.splitlines()
        time.sleep(POLL_SECONDS)
    raise OSError(NOT_CONNECTED)


# --- all of them ------------------------------------------------------------------------------------------------------


def _be_called(name: str) -> None:
    # By its name, not Python's, it is known to who looks for it.
    Path("/proc/self/comm").write_text(name, encoding="ascii")


def _until_signal(serve: object, gpus: Optional[Watched]) -> int:
    ends = (signal.SIGTERM, signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    threading.Thread(target=serve, daemon=True).start()  # type: ignore[arg-type]
    signal.sigwait(ends)
    if gpus is not None:
        gpus.close()
    return 0


def main() -> int:
    name, *arguments = sys.argv
    try:
        if name == ENGINE:
            return run_engine()
        return run_exporter(arguments) if name == EXPORTER else run_client(arguments)
    except (OSError, ValueError, nvml_sim.SimulatorError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
