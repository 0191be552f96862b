# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A nvidia-persistenced for simulated GPUs, with the options, files, messages and exit codes of the real program.

It keeps the persistence of the GPUs that it found when it started, and serves one request a connection on its socket:
``set <pci bus id> <0|1>``, answered by ``ok`` or ``error <NVML error>``. Its runtime folder is
/var/run/nvidia-persistenced, or the one of NVML_SIM_PERSISTENCED, which names the socket.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import grp
import os
import pwd
import signal
import socket
import struct
import sys
import syslog
from typing import Dict, List, NoReturn, Optional, Tuple

import nvml_sim

NAME = "nvidia-persistenced"
SOCKET = f"/var/run/{NAME}/socket"
REQUEST_SECONDS = 5.0

# What NVML answers.
INVALID_ARGUMENT = 2
NO_PERMISSION = 4
NOT_FOUND = 6
UNKNOWN = 999


class CannotStart(Exception):
    """The reason is in the system's log, as the real program's."""


class Ended(BaseException):
    """The service manager wants the daemon to end."""


class Daemon:
    """The process that stays: its runtime files, its socket and the GPUs it knows."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.socket_path = os.environ.get("NVML_SIM_PERSISTENCED", SOCKET)
        self.folder = os.path.dirname(self.socket_path)
        self.pid_path = os.path.join(self.folder, f"{NAME}.pid")
        # Who may change the mode: root, as with the real program, or whoever runs the simulation.
        self.callers = {0, os.getuid()}
        self.made_folder = False
        self.pid_file: Optional[int] = None
        self.listener: Optional[socket.socket] = None
        self.simulator = nvml_sim.Simulator()
        self.gpus: Dict[str, Tuple[int, int]] = {}  # index and minor number
        self.held: Dict[str, List[int]] = {}  # with the descriptors of its device files

    def start(self) -> None:
        """Everything up to the first request; raises ``CannotStart``."""
        self.find_gpus()
        self.make_folder()
        self.drop_privileges()
        if not os.access(self.folder, os.R_OK | os.W_OK):
            raise CannotStart(f"Unable to access {self.folder}")
        self.lock_pid_file()
        syslog.syslog(syslog.LOG_NOTICE, f"Started ({os.getpid()})")
        if self.options.persistence_mode:
            for address in self.gpus:
                self.set_mode(address, on=True)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.socket_path)
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.socket_path)
        self.listener.listen()
        verbose(self.options, syslog.LOG_INFO, "Local RPC services initialized")

    def make_folder(self) -> None:
        try:
            os.mkdir(self.folder, 0o755)
            self.made_folder = True
        except FileExistsError:
            verbose(self.options, syslog.LOG_INFO, f"Directory {self.folder} will not be removed on exit")
        except OSError as error:
            syslog.syslog(syslog.LOG_WARNING, f"Failed to create directory {self.folder}: {error.strerror}")

    def drop_privileges(self) -> None:
        uid, gid = self.options.user, self.options.group
        if (os.getuid(), os.getgid()) == (uid, gid):
            return
        try:
            os.chown(self.folder, uid, gid)
            os.setgid(gid)
            os.setuid(uid)
        except OSError as error:
            raise CannotStart(f"Failed to change to user ID {uid} and group ID {gid}: {error.strerror}") from error
        verbose(self.options, syslog.LOG_INFO, f"Now running with user ID {uid} and group ID {gid}")

    def lock_pid_file(self) -> None:
        descriptor = os.open(self.pid_path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise CannotStart(f"Failed to lock PID file: {error.strerror}") from error
        self.pid_file = descriptor
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())

    def find_gpus(self) -> None:
        """The GPUs there are now: one that appears later is unknown until the next start."""
        try:
            state = self.simulator.describe()
        except nvml_sim.SimulatorError as error:
            raise CannotStart(f"Failed to query NVIDIA devices: {error}") from error
        if not state["system"]["driver_loaded"] or not state["gpus"]:
            raise CannotStart("Unable to find any NVIDIA devices")
        for gpu in state["gpus"]:
            address = short_address(gpu["pci_bus_id"])
            self.gpus[address] = (gpu["index"], gpu["minor_number"])
            verbose(self.options, syslog.LOG_DEBUG, f"device {address} - registered")

    def set_mode(self, address: str, *, on: bool) -> int:
        """0, or the error of NVML."""
        if address not in self.gpus:
            return NOT_FOUND
        if on == (address in self.held):
            verbose(self.options, syslog.LOG_NOTICE, f"device {address} - already in requested persistence mode.")
            return 0
        index, minor = self.gpus[address]
        try:
            if on:
                self.simulator.control("hold", index, os.getpid())
                opened = (nvml_sim.open_device(name) for name in ("nvidiactl", f"nvidia{minor}"))
                self.held[address] = [descriptor for descriptor in opened if descriptor is not None]
            else:
                self.simulator.control("release", index)
                for descriptor in self.held.pop(address):
                    os.close(descriptor)
        except nvml_sim.SimulatorError as error:
            syslog.syslog(syslog.LOG_ERR, f"device {address} - failed to {'open' if on else 'close'}: {error}")
            return UNKNOWN
        mode = "enabled" if on else "disabled"
        verbose(self.options, syslog.LOG_NOTICE, f"device {address} - persistence mode {mode}.")
        return 0

    def serve(self) -> NoReturn:
        assert self.listener is not None
        while True:
            connection, _address = self.listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.settimeout(REQUEST_SECONDS)
                code = self.answer(connection)
                connection.sendall(f"error {code}\n".encode() if code else b"ok\n")

    def answer(self, connection: socket.socket) -> int:
        with connection.makefile("rb") as lines:
            words = lines.readline(256).decode(errors="replace").split()
        credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        if struct.unpack("3i", credentials)[1] not in self.callers:
            return NO_PERMISSION
        if len(words) != 3 or words[0] != "set" or words[2] not in ("0", "1"):
            return INVALID_ARGUMENT
        return self.set_mode(short_address(words[1]), on=words[2] == "1")

    def stop(self) -> None:
        """Give back everything; what cannot be removed any more is the unit's ``ExecStopPost=``."""
        if self.listener is not None:
            self.listener.close()
            verbose(self.options, syslog.LOG_INFO, "Socket closed.")
            remove(self.socket_path)
        for address in list(self.held):
            self.set_mode(address, on=False)
        if self.pid_file is not None:
            remove(self.pid_path)
            os.close(self.pid_file)
            verbose(self.options, syslog.LOG_INFO, "PID file closed.")
        if self.made_folder:
            try:
                os.rmdir(self.folder)
            except OSError as error:
                verbose(self.options, syslog.LOG_NOTICE, f"Failed to remove {self.folder}: {error.strerror}")
        syslog.syslog(syslog.LOG_NOTICE, f"Shutdown ({os.getpid()})")


def short_address(bus_id: str) -> str:
    """``0000:07:00.0`` of ``00000000:07:00.0``: the real daemon knows domains of four digits."""
    domain, colon, rest = bus_id.lower().partition(":")
    return f"{domain[-4:]}{colon}{rest}"


def verbose(options: argparse.Namespace, level: int, message: str) -> None:
    if options.verbose:
        syslog.syslog(level, message)


def remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError as error:
        syslog.syslog(syslog.LOG_ERR, f"Failed to unlink {path}: {error.strerror}")


def run(options: argparse.Namespace, ready: int) -> int:
    """The daemon from its first to its last moment; one byte to ``ready`` says that it serves."""
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    os.umask(0)
    os.setsid()
    os.chdir("/")
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in range(3):
        os.dup2(nothing, standard)
    syslog.openlog(NAME, 0, syslog.LOG_DAEMON)
    syslog.setlogmask(syslog.LOG_UPTO(syslog.LOG_DEBUG if options.verbose else syslog.LOG_NOTICE))
    verbose(options, syslog.LOG_INFO, "Verbose syslog connection opened")
    daemon = Daemon(options)
    try:
        daemon.start()
        os.write(ready, b"\1")
        os.close(ready)
        daemon.serve()
    except (CannotStart, OSError) as reason:
        syslog.syslog(syslog.LOG_ERR, str(reason))
        return 1
    except Ended:
        return 0
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        daemon.stop()


def end(number: int, frame: object) -> NoReturn:
    raise Ended


class Parser(argparse.ArgumentParser):
    """Wrong use ends with success, as with the real program: systemd then says that the unit has no process."""

    def error(self, message: str) -> NoReturn:
        self.exit(0, f"ERROR: Invalid commandline, please run `{self.prog} --help` for usage information.\n")


def options_of(arguments: List[str]) -> argparse.Namespace:
    parser = Parser(prog=NAME, description="Keep the driver's state of simulated GPUs.", allow_abbrev=False)
    parser.add_argument("-v", "--version", action="version", version=f"{NAME}: version simulated")
    parser.add_argument("-V", "--verbose", action="store_true", help="log every change of a GPU's mode")
    parser.add_argument("-u", "--user", help="run with this user's permissions")
    parser.add_argument("-g", "--group", help="run with this group's permissions")
    for name, about in (("persistence-mode", "of every GPU (default: on)"), ("uvm-persistence-mode", "accepted")):
        destination = name.replace("-", "_")
        on = name == "persistence-mode"
        parser.add_argument(f"--{name}", action="store_true", dest=destination, default=on, help=about)
        parser.add_argument(f"--no-{name}", action="store_false", dest=destination, help=f"the opposite of --{name}")
    parser.add_argument("--nvidia-cfg-path", metavar="PATH", help="accepted; there is no such library")
    options = parser.parse_args(arguments)
    user, group = options.user, options.group
    options.user, options.group = os.getuid(), os.getgid()
    if user is not None:
        try:
            entry = pwd.getpwnam(user)
        except KeyError:
            parser.exit(1, f"ERROR: Failed to find user ID of user '{user}': No such file or directory\n")
        options.user, options.group = entry.pw_uid, entry.pw_gid
    if group is not None:
        try:
            options.group = grp.getgrnam(group).gr_gid
        except KeyError:
            parser.exit(1, f"ERROR: Failed to find group ID of group '{group}': No such file or directory\n")
    return options


def main() -> int:
    """Start the daemon in the background and wait until it serves."""
    options = options_of(sys.argv[1:])
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        # By its name in /proc/PID/comm, not Python's, it is known to who looks for holders of GPUs.
        with open("/proc/self/comm", "w", encoding="ascii") as comm:
            comm.write(NAME)
        os._exit(run(options, writer))
    os.close(writer)
    if os.read(reader, 1) == b"\1":
        return 0
    print(f"{NAME} failed to initialize. Check syslog for more details.", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
