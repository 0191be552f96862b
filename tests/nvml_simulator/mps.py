# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stands in for CUDA's MPS: ``nvidia-cuda-mps-control``, its servers, and ``mps-client`` for a program that computes.

The control program has the options, the answers and the exit codes of the real one in the protocol v2, as those of the
drivers 535.261.03, 550.163.01 and 555.58.02 gave them on a machine without a GPU. Its daemon takes one command a
connection on the sockets of its pipe directory, by a protocol of its own, so neither works with the other's
counterpart. What the real one does with servers and clients is from NVIDIA's documentation.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence, Tuple

NAME, SERVER, CLIENT = "nvidia-cuda-mps-control", "nvidia-cuda-mps-server", "mps-client"
PIPES, DEVICES = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_VISIBLE_DEVICES"
PERCENTAGE, LIMITS = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
ABSENT = "Cannot find MPS control daemon process"
MULTI_USER = "-multiuser-server"
ALL = 100.0
# Of the words of a limit: an integer with G or M. Of "1.5G" the real one makes 1M.
MIB = {"G": 1024, "M": 1}
POLL_SECONDS = 0.05


class ServerState:
    """A server: what it was started with, and its clients."""

    def __init__(self, pid: int, percentage: float, limits: Dict[str, int]) -> None:
        self.pid = pid
        self.percentage = percentage
        self.limits = dict(limits)
        self.clients: List[int] = []
        self.ready = True


class Control:
    """What the daemon knows, and what it answers. ``start`` starts a server and returns its process.

    Defaults and the values of a server are apart: a server has those of the moment at which it started. A device is
    known by its UUID and by its number, and what is set for one is not told for the other.
    """

    def __init__(self, environment: Dict[str, str], start: Callable[[], int]) -> None:
        self.start = start
        self.percentage = _percentage(environment.get(PERCENTAGE, ""), ALL)
        self.limits: Dict[str, int] = {}
        # The daemon itself does not know these; its servers get them with its environment.
        self.inherited: Dict[str, int] = {}
        for part in environment.get(LIMITS, "").split(","):
            device, equals, text = part.partition("=")
            if equals:
                self.inherited[device] = _limit(text)
        self.servers: Dict[int, ServerState] = {}

    def answer(self, line: str) -> str:
        """The answer to one command, a line for each value; empty where there is none."""
        words = line.split()
        verb, arguments = (words[0], words[1:]) if words else ("", [])
        method = getattr(self, f"_{verb}", None) if re.fullmatch("[a-z_]+", verb) else None
        return f'Unknown command "{line}"' if method is None else str(method(*arguments))

    def connect(self, client: int) -> int:
        """A client comes: the process of its server, which is started where there is none."""
        server = next(iter(self.servers.values()), None) or self._new()
        server.clients.append(client)
        return server.pid

    def disconnect(self, client: int) -> None:
        for server in self.servers.values():
            if client in server.clients:
                server.clients.remove(client)

    def _new(self) -> ServerState:
        pid = self.start()
        self.servers[pid] = ServerState(pid, self.percentage, {**self.inherited, **self.limits})
        return self.servers[pid]

    def _get_server_list(self) -> str:
        return "\n".join(map(str, self.servers))

    def _start_server(self, *_words: str) -> str:
        self._new()
        return ""

    def _get_client_list(self, pid: str) -> str:
        return self._of(pid, lambda server: "\n".join(map(str, server.clients)))

    def _get_server_status(self, pid: str) -> str:
        return self._of(pid, lambda server: "ACTIVE" if server.ready else "INITIALIZING")

    def _get_default_client_priority(self) -> str:
        return "0"

    def _get_default_active_thread_percentage(self) -> str:
        return f"{self.percentage:.1f}"

    def _set_default_active_thread_percentage(self, text: str) -> str:
        self.percentage = _percentage(text, self.percentage)
        return self._get_default_active_thread_percentage()

    def _get_active_thread_percentage(self, pid: str) -> str:
        # One that starts is busy, and that is told to the log alone.
        return self._of(pid, lambda server: f"{server.percentage:.1f}" if server.ready else "")

    def _set_active_thread_percentage(self, pid: str, text: str) -> str:
        def change(server: ServerState) -> str:
            server.percentage = _percentage(text, server.percentage)
            return f"{server.percentage:.1f}"

        return self._of(pid, change)

    def _get_default_device_pinned_mem_limit(self, device: str) -> str:
        return _shown(self.limits.get(device))

    def _set_default_device_pinned_mem_limit(self, device: str, text: str) -> str:
        self.limits[device] = _limit(text)
        return ""

    def _get_device_pinned_mem_limit(self, pid: str, device: str) -> str:
        return self._of(pid, lambda server: _shown(server.limits.get(device)) if server.ready else "")

    def _shutdown_server(self, pid: str, *_force: str) -> str:
        server = self.servers.get(int(pid))
        if server is not None and not server.clients:
            del self.servers[server.pid]
        return ""

    def _of(self, pid: str, what: Callable[[ServerState], str]) -> str:
        server = self.servers.get(int(pid)) if pid.isdecimal() else None
        return f"Server {pid} not found" if server is None else what(server)


def _percentage(text: str, otherwise: float) -> float:
    with contextlib.suppress(ValueError):
        if 0 < float(text) <= ALL:
            return float(text)
    return otherwise


def _limit(text: str) -> int:
    found = re.match(r"([0-9]+)([GM]?)", text)
    return int(found[1]) * MIB.get(found[2], 1) if found else 0


def _shown(mib: Optional[int]) -> str:
    if not mib:
        return ""
    return f"{mib // 1024}G" if mib % 1024 == 0 else f"{mib}M"


# --- the daemon -------------------------------------------------------------------------------------------------------


class Daemon:
    """The process: its sockets, the children that are its servers, and its end."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.lock = threading.Lock()
        self.children: Dict[int, subprocess.Popen[bytes]] = {}
        self.control = Control(dict(os.environ), self.start_server)
        self.ending = threading.Event()

    def start_server(self) -> int:
        # Python takes its own name for the path of its interpreter.
        interpreter = os.readlink("/proc/self/exe")
        command = [SERVER, "-S", __file__, SERVER]
        child = subprocess.Popen(command, executable=interpreter, stdin=subprocess.PIPE)
        self.children[child.pid] = child
        return child.pid

    def listen(self) -> List[socket.socket]:
        listeners = []
        for name in ("control", "control_privileged"):
            path = f"{self.folder}/{name}"
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listener.bind(path)
            listener.listen()
            listeners.append(listener)
        os.chmod(f"{self.folder}/control", 0o666)
        Path(self.folder, f"{NAME}.pid").write_text(f"{os.getpid()}", encoding="ascii")
        return listeners

    def accept(self, listener: socket.socket) -> None:
        while True:
            connection, _address = listener.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        """One command, or a client for as long as it stays connected."""
        with connection, connection.makefile("rw", encoding="utf-8") as stream:
            line = stream.readline().rstrip("\n")
            with contextlib.suppress(OSError):
                if line.startswith("client "):
                    self.serve_client(int(line.split()[1]), stream)
                elif line.startswith("quit"):
                    self.quit(line)
                else:
                    print(f"Cmd:{line}", flush=True)
                    with self.lock:
                        stream.write(self.control.answer(line))

    def serve_client(self, pid: int, stream) -> None:  # type: ignore[no-untyped-def]
        if self.ending.is_set():
            return
        with self.lock:
            server = self.control.connect(pid)
        stream.write(f"{server}\n")
        stream.flush()
        stream.readline()
        with self.lock:
            self.control.disconnect(pid)

    def quit(self, line: str) -> None:
        """No new clients, and the end once the present ones have ended, or after the seconds of ``-t``."""
        found = re.search(r"-t (\d+)", line)
        until = time.monotonic() + int(found[1]) if found else float("inf")
        self.ending.set()
        while any(server.clients for server in self.control.servers.values()) and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
        for child in self.children.values():
            child.terminate()
            child.wait()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self.folder}/{NAME}.pid")
        os._exit(0)


def run_daemon(folder: str) -> int:
    os.makedirs(folder, exist_ok=True)
    if _ask(folder, "get_server_list") is not None:
        print("An instance of this daemon is already running")
        return 1
    daemon = Daemon(folder)
    try:
        listeners = daemon.listen()
    except OSError:
        # As for a path that is too long.
        print(ABSENT, file=sys.stderr)
        return 1
    print(f"Starting control daemon using socket {folder}/control", flush=True)
    for listener in listeners:
        threading.Thread(target=daemon.accept, args=(listener,), daemon=True).start()
    signal.sigwait((signal.SIGTERM, signal.SIGINT))
    for child in daemon.children.values():
        child.kill()
    return 0


def _ask(folder: str, line: str) -> Optional[str]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(f"{folder}/control")
        except OSError:
            return None
        connection.sendall(f"{line}\n".encode())
        connection.shutdown(socket.SHUT_WR)
        parts: List[bytes] = []
        while True:
            part = connection.recv(65536)
            if not part:
                return b"".join(parts).decode()
            parts.append(part)


def run_front_end(folder: str) -> int:
    """Commands of the standard input, one after the other."""
    if _ask(folder, "get_server_list") is None:
        print(ABSENT, file=sys.stderr)
        return 1
    for line in sys.stdin.read().splitlines():
        answer = _ask(folder, line)
        # After "quit" nobody is there.
        if answer:
            print(answer, flush=True)
    return 0


def run_client(folder: str, gpus: Sequence[str]) -> int:
    """Compute on these simulated GPUs until a signal; what NVML shows of a client of MPS is there meanwhile."""
    ends = (signal.SIGTERM, signal.SIGINT)
    signal.pthread_sigmask(signal.SIG_BLOCK, ends)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        try:
            connection.connect(f"{folder}/control")
        except OSError:
            print("no MPS control daemon: computing without it", file=sys.stderr)
            return 1
        connection.sendall(f"client {os.getpid()}\n".encode())
        server = connection.makefile("r", encoding="ascii").readline().strip()
        if not server:
            print("the MPS control daemon is shutting down", file=sys.stderr)
            return 1
        if gpus:
            import nvml_sim

            simulator = nvml_sim.Simulator()
            for gpu in gpus:
                simulator.add_client(gpu, name=CLIENT, pid=os.getpid(), kind="mps")
        print(f"connected to server {server}", flush=True)
        signal.sigwait(ends)
    return 0


def run_server() -> int:
    _be_called(SERVER)
    threading.Thread(target=_end_with_daemon, daemon=True).start()
    with contextlib.ExitStack() as opened:
        for path in _visible_devices():
            with contextlib.suppress(OSError):
                opened.enter_context(open(path, "rb"))
        signal.sigwait((signal.SIGTERM, signal.SIGINT))
    return 0


def _end_with_daemon() -> None:
    """However the daemon ends: it has the other end of the standard input."""
    sys.stdin.read()
    os._exit(0)


def _visible_devices() -> List[str]:
    """The device files of the simulated GPUs that the daemon may see, by their UUIDs."""
    visible = os.environ.get(DEVICES, "").split(",")
    import nvml_sim

    try:
        gpus = nvml_sim.Simulator().describe()["gpus"]
    except nvml_sim.SimulatorError:
        # As without a driver.
        return []
    return [f"/dev/nvidia{gpu['minor_number']}" for gpu in gpus if gpu["uuid"] in visible]


def _be_called(name: str) -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(name[:15], encoding="ascii")


def _with_name(name: str, arguments: Sequence[str]) -> None:
    """Begin again with a command line that starts with the name of the program, as its readers expect it."""
    words = Path("/proc/self/cmdline").read_bytes().split(b"\0")
    if os.path.basename(words[0].decode()) != name:
        os.execv(sys.executable, [name, "-S", __file__, name, *arguments])


def main(words: Optional[Sequence[str]] = None) -> int:
    name, *arguments = [os.path.basename(sys.argv[0]), *sys.argv[1:]] if words is None else words
    folder = os.environ.get(PIPES, "/tmp/nvidia-mps")
    if name == CLIENT:
        _with_name(name, arguments)
        _be_called(name)
        return run_client(folder, arguments)
    if name == SERVER:
        return run_server()
    if not arguments:
        return run_front_end(folder)
    if arguments[0] != "-f" or set(arguments[1:]) - {MULTI_USER}:
        # What an older one does with -p, without a word.
        return 1
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT))
    _with_name(name, arguments)
    _be_called(name)
    return run_daemon(folder)


def _of_script() -> Tuple[str, ...]:
    """The name and the arguments where this file itself was started, by ``_with_name`` or for a server."""
    return tuple(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main(_of_script()))
