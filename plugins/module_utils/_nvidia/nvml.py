# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The NVIDIA driver, asked in a process of its own: a call that hangs in the kernel costs that process, not ours."""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import struct
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Tuple, Type, TypeVar

from .._core.errors import CannotLook, GpuFleetError
from .._core.regex import regex
from .._machine import bytecode
from .driver import LIBRARY
from .errors import GOAL, DriverHangs

if TYPE_CHECKING:
    from .._core.protocols import Commands

T = TypeVar("T")

# Without persistence mode the driver initialises every GPU when it is first asked, which takes seconds for each.
DEADLINE_SECONDS = 60.0
# Why no further question is asked, and the next step.
INTERRUPTED = ("it was still busy with another query", "check the kernel log for NVRM")


class LocalNvml:
    """``protocols.Nvml`` on this machine. The process is started by the first question and serves all others.

    ``library`` is the name or the path of the one to load, ``deadline`` how many seconds an answer may take.
    ``offered`` is the text of a binding that came with the run, for a machine that has none of its own that will do.
    """

    offered = ""

    def __init__(self, commands: Commands, *, library: str = LIBRARY, deadline: Optional[float] = None) -> None:
        self._commands = commands
        self._library = library
        self._deadline = deadline or DEADLINE_SECONDS
        self._child = 0
        self._questions = -1
        self._answers = -1
        self._hangs: Optional[Tuple[str, str]] = None

    def begin(self) -> None:
        """Let the process start to load the driver's library, while we do something else."""
        if not self._child and self._hangs is None:
            self._fork()

    def ask(self, question: Callable[..., T], *arguments: Any) -> T:
        if self._hangs is not None:
            raise DriverHangs(GOAL, cause=self._hangs[0], hint=self._hangs[1])
        self.begin()
        deadline = time.monotonic() + self._deadline
        try:
            _send(self._questions, (question, arguments))
            kind, answer = _receive(self._answers, deadline)
        except TimeoutError:
            self._abandon()
            cause, hint = self._hangs = self._diagnose()
            raise DriverHangs(GOAL, cause=cause, hint=hint) from None
        except (EOFError, BrokenPipeError):
            self._end()
            raise CannotLook(GOAL, cause="the process that queried it died", hint="check the kernel log") from None
        except BaseException:
            # Interrupted, by the deadline of a look: this answer must not be taken for that to the next question.
            self._abandon()
            self._hangs = INTERRUPTED
            raise
        if kind == "error":
            raise _rebuilt(*answer)
        value: T = answer
        return value

    def close(self) -> None:
        """Let go of the driver, as before a reset of a GPU: whoever has it open is in its way.

        After a question that was interrupted, the next one is asked again: that was no fault of the driver.
        """
        if self._hangs == INTERRUPTED:
            self._hangs = None
        if self._child:
            os.close(self._questions)
            self._questions = -1
            try:
                _receive(self._answers, time.monotonic() + self._deadline)
            except TimeoutError:
                self._abandon()
            except EOFError:
                self._end()

    def _fork(self) -> None:
        questions, self._questions = os.pipe()
        self._answers, answers = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            # Never back into the code of the caller, whatever happens.
            status = 1
            try:
                _leave_what_is_not_ours(keep=(questions, answers, *bytecode.descriptors()))
                _serve(questions, answers, self._library, self.offered)
                status = 0
            finally:
                os._exit(status)
        os.close(questions)
        os.close(answers)

    def _abandon(self) -> None:
        """Leave the process behind: one that sleeps in the kernel cannot be ended, and not be waited for."""
        if self._child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._child, signal.SIGKILL)
            self._end(options=os.WNOHANG)

    def _end(self, options: int = 0) -> None:
        for descriptor in (self._questions, self._answers):
            if descriptor >= 0:
                os.close(descriptor)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self._child, options)
        self._child, self._questions, self._answers = 0, -1, -1

    def _diagnose(self) -> Tuple[str, str]:
        """Why it hangs, and the next step: the last Xid of the kernel log is the best that can be said."""
        cause = f"it did not respond within {self._deadline:g} s"
        last = last_xid(self._commands)
        if last is None:
            return cause, "check the kernel log for NVRM, and for processes in state D; the node may need a reboot"
        return f"{cause}; the kernel log says: {last}", "look up the Xid in NVIDIA's list; the node may need a reboot"


XID = regex(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)(.*)")


def last_xid(commands: Commands) -> Optional[str]:
    """The last line about an Xid in the kernel's ring buffer, None where there is none or it cannot be read."""
    try:
        log = commands.run(["dmesg"], timeout=5.0)
    except OSError:
        return None
    found = [match.group() for match in XID.finditer(log.output)]
    return found[-1] if found else None


# --- between the processes --------------------------------------------------------------------------------------------


def _send(descriptor: int, message: Any) -> None:
    data = pickle.dumps(message)
    view = memoryview(struct.pack("<Q", len(data)) + data)
    while view:
        view = view[os.write(descriptor, view) :]


def _receive(descriptor: int, deadline: Optional[float] = None) -> Any:
    (size,) = struct.unpack("<Q", _read(descriptor, 8, deadline))
    return pickle.loads(_read(descriptor, size, deadline))


def _read(descriptor: int, size: int, deadline: Optional[float]) -> bytes:
    pieces = b""
    while len(pieces) < size:
        if deadline is not None and not select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]:
            raise TimeoutError
        piece = os.read(descriptor, size - len(pieces))
        if not piece:
            raise EOFError
        pieces += piece
    return pieces


def _rebuilt(kind: Type[GpuFleetError], message: str, fields: Dict[str, Any]) -> GpuFleetError:
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    error.__dict__.update(fields)
    return error


# --- the other process ------------------------------------------------------------------------------------------------


def _leave_what_is_not_ours(keep: Tuple[int, ...]) -> None:
    """Close all descriptors but ours: who waits for our parent's output or lock must not wait for us."""
    for number in (signal.SIGALRM, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    for name in os.listdir("/proc/self/fd"):
        if int(name) not in keep:
            with contextlib.suppress(OSError):
                os.close(int(name))
    # The lowest three must lead somewhere harmless: libraries write to them.
    while os.open("/dev/null", os.O_RDWR) < 2:
        pass


def _serve(questions: int, answers: int, library: str, offered: str) -> None:
    from .driver import Driver, open_driver

    driver: Optional[Driver] = None
    trouble: Optional[GpuFleetError] = None
    try:
        driver = open_driver(library, offered)
    except GpuFleetError as error:
        trouble = error
    while True:
        try:
            question, arguments = _receive(questions)
        except EOFError:
            break
        try:
            if trouble is not None or driver is None:
                raise trouble or AssertionError
            message = ("answer", question(driver, *arguments))
        except Exception as error:
            message = ("error", _described(error))
        _send(answers, message)
    if driver is not None:
        driver.close()


def _described(error: Exception) -> Tuple[Type[GpuFleetError], str, Dict[str, Any]]:
    from .driver import explain

    known = explain(error)
    return type(known), str(known), known.__dict__
