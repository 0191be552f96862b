# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Small processes: in one the tool of the NVML simulator runs, the other forks the processes that query the driver.

They are two, for what the library exports is settled when it is loaded: a child has to load it itself.

A child of the process of pytest takes 20 ms of the processor before it does anything: with all tests collected there
are 200 MB whose page tables are copied, and then the pages that both write to. A child of this process takes 3 ms.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import importlib.util
import io
import os
import pickle
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Dict, Mapping, NamedTuple, Sequence, Set, Tuple

from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.nvml import LocalNvml

# What does not come back within it never will.
SECONDS = 300.0
HEADER = struct.Struct("<Q")

Reply = Tuple[Any, Sequence[int]]


@functools.cache
def module_of(built: Path, name: str) -> ModuleType:
    """One of the simulator's modules, from the built folder."""
    specification = importlib.util.spec_from_file_location(name, built / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    if name != "nvml_sim":  # which the others import
        sys.modules["nvml_sim"] = tool_of(built)
    specification.loader.exec_module(module)
    return module


def tool_of(built: Path) -> ModuleType:
    """The module behind ``nvml-sim``; it loads the library when it is asked for something."""
    return module_of(built, "nvml_sim")


def output_of(built: Path, module: str, arguments: Sequence[str]) -> Tuple[Any, str, str]:
    """The exit status of a program of the simulator, and what it printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = module_of(built, module).main(list(arguments))
        except SystemExit as end:
            code = end.code
    return code, out.getvalue(), err.getvalue()


def answer_of(built: Path, state: str, question: str, **options: Any) -> Any:
    """What the simulator answers that is a value, without the printing of it, which takes longer than all else."""
    return getattr(tool_of(built).Simulator(state), question)(**options)


class ForkServer:
    """The process, seen from the one that started it, which alone may ask it for something."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        # Those of the questions so far, which a child would import each time.
        self.modules: Set[str] = set()
        self._lock = threading.Lock()
        self._connection, other = socket.socketpair()
        self._connection.settimeout(SECONDS)
        # Not even the site module, for all that it looks for is on the path already.
        command = [sys.executable, "-S", __file__, str(other.fileno())]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        self._process = subprocess.Popen(
            command, env=environment, pass_fds=[other.fileno()], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        other.close()

    def close(self) -> None:
        # Children of this process may still have it open.
        self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        self._process.wait(SECONDS)

    def output_of(self, built: Path, module: str, arguments: Sequence[str], variables: Mapping[str, str]) -> Any:
        return self._ask("output_of", built, module, arguments, variables)[0]

    def output_of_child(self, built: Path, module: str, arguments: Sequence[str], variables: Mapping[str, str]) -> Any:
        """The same, of a program that may be killed, or waits for a signal."""
        return self._ask("output_of_child", built, module, arguments, variables)[0]

    def answer_of(self, built: Path, state: str, question: str, **options: Any) -> Any:
        return self._ask("answer_of", built, state, question, options)[0]

    def driver(self, library: str) -> Tuple[int, int, int]:
        """A new process that queries the driver: its id, and the pipes for questions and for answers."""
        child, (questions, answers) = self._ask("driver", library, sorted(self.modules))
        return child, questions, answers

    def wait(self, child: int, options: int) -> None:
        self._ask("wait", child, options)

    def _ask(self, *request: Any) -> Reply:
        with self._lock:
            _send(self._connection, (dict(os.environ), *request))
            failed, answer, pipes = _receive(self._connection)
        if failed:
            raise RuntimeError(f"in the fork server: {answer}")
        return answer, pipes


class ForkServers(NamedTuple):
    """``tool`` answers what needs no process of its own, and has the library loaded; ``drivers`` has not."""

    tool: ForkServer
    drivers: ForkServer

    @property
    def owner(self) -> int:
        return self.tool.owner

    def close(self) -> None:
        for server in self:
            server.close()


class ServedNvml(LocalNvml):
    """``LocalNvml`` whose process is a child of the fork server; all else is the same."""

    def __init__(self, server: ForkServer, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._server = server

    def ask(self, question: Callable[..., Any], *arguments: Any) -> Any:
        if question.__module__.startswith("ansible_collections."):
            self._server.modules.add(question.__module__)
        elif not self._child and self._hangs is None:
            # A question of a test: to import that takes longer than to fork where it has been.
            super()._fork()
        return super().ask(question, *arguments)

    def _fork(self) -> None:
        self._child, self._questions, self._answers = self._server.driver(self._library)

    def _end(self, options: int = 0) -> None:
        child = self._child
        super()._end(options)
        if child:
            self._server.wait(child, options)


# --- between the processes --------------------------------------------------------------------------------------------


def _send(connection: socket.socket, message: Any, pipes: Sequence[int] = ()) -> None:
    data = pickle.dumps(message)
    socket.send_fds(connection, [HEADER.pack(len(data))], list(pipes))
    connection.sendall(data)


def _receive(connection: socket.socket) -> Any:
    """A message with the descriptors that came with it at its end. Raises ``EOFError``."""
    header, pipes, _flags, _address = socket.recv_fds(connection, HEADER.size, 2)
    if not header:
        raise EOFError
    for pipe in pipes:
        os.set_inheritable(pipe, False)
    (size,) = HEADER.unpack(header)
    data = bytearray()
    while len(data) < size:
        data += connection.recv(size - len(data)) or _broken()
    return (*pickle.loads(data), pipes)


def _broken() -> bytes:
    raise EOFError


# --- the process ------------------------------------------------------------------------------------------------------


def _in_a_child(work: Callable[[], Any]) -> Any:
    """What ``work`` returns in a child of this process; how the child ended where it did not get so far."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with os.fdopen(writer, "wb") as stream:
                stream.write(pickle.dumps(work()))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        data = stream.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return pickle.loads(data) if data else (status, "", "")


def _output_of(built: Path, module: str, arguments: Sequence[str], variables: Mapping[str, str]) -> Reply:
    os.environ.update(variables)
    return output_of(built, module, arguments), ()


def _output_of_child(built: Path, module: str, arguments: Sequence[str], variables: Mapping[str, str]) -> Reply:
    os.environ.update(variables)
    module_of(built, module)
    return _in_a_child(lambda: output_of(built, module, arguments)), ()


def _answer_of(built: Path, state: str, question: str, options: Mapping[str, Any]) -> Reply:
    return answer_of(built, state, question, **options), ()


def _driver(library: str, modules: Sequence[str]) -> Reply:
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    nvml = LocalNvml(None, library=library)  # type: ignore[arg-type]
    nvml.begin()
    return nvml._child, (nvml._questions, nvml._answers)


def _wait(child: int, options: int) -> Reply:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(child, options)
    return None, ()


def _adopt(environment: Dict[str, str]) -> None:
    """Make the environment that of the other process: little of it changes from one request to the next."""
    for name in os.environ.keys() - environment.keys():
        del os.environ[name]
    for name, value in environment.items():
        if os.environ.get(name) != value:
            os.environ[name] = value


def main(descriptor: int) -> None:
    import pynvml  # noqa: F401  # here once, instead of in every child

    requests: Dict[str, Callable[..., Reply]] = {
        "output_of": _output_of,
        "output_of_child": _output_of_child,
        "answer_of": _answer_of,
        "driver": _driver,
        "wait": _wait,
    }
    gc.disable()  # a child would copy every page that it looks at
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    while True:
        try:
            environment, name, *arguments, _pipes = _receive(connection)
        except EOFError:
            return
        pipes: Sequence[int] = ()
        try:
            _adopt(environment)
            answer, pipes = requests[name](*arguments)
            _send(connection, (False, answer), pipes)
        except Exception as error:
            _send(connection, (True, repr(error)))
        for pipe in pipes:
            os.close(pipe)


if __name__ == "__main__":
    main(int(sys.argv[1]))
