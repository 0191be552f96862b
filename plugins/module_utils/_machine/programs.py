# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Programs, each in a session of its own, so that its children end with it where it takes too long.

Without ``subprocess``: a look that starts one program would spend more on importing that than on all its own reading.
Without ``AnsibleModule.run_command``: the program on a node has no module, what a command leaves running would be
waited for, and its output kept without a limit.
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import time
from typing import Dict, List, Mapping, Sequence, Tuple

from .._core.protocols import TIMED_OUT, Completed
from .files import UMASK

GRACE_SECONDS = 5.0
CHUNK = 65536
# Bytes of each stream. A longer output does not answer anything that is asked here.
MAX_OUTPUT = 16 << 20
# How long the output stays open for processes that a program left running, which may keep it open for ever.
LINGER_SECONDS = 0.5
# Between two checks whether a program has ended whose output is open.
CHECK_SECONDS = 0.1
# How long is waited at first, and at most, for the end of a program that has closed its output.
BRIEFLY, A_WHILE = 0.0005, 0.05
# Python ignores them, and a program would inherit that.
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


def run(argv: Sequence[str], environment: Mapping[str, str], *, timeout: float, data: str = "") -> Completed:
    """Run a program to its end; the first word is its path. Status 124 is that of one that took longer.

    ``data`` is what it reads from its standard input. What it leaves running, such as a daemon, is neither waited
    for nor ended; its output leads nowhere then. Raises ``OSError`` where the program cannot be started, and ``EFBIG``
    where it said more than ``MAX_OUTPUT``.
    """
    with contextlib.ExitStack() as ends:
        program = _Program(argv, environment, ends, data)
        try:
            if not program.ends_within(timeout):
                program.end()
                return Completed(status=TIMED_OUT, output=program.output, errors=program.errors)
        except BaseException:
            program.end()
            raise
        if program.said_too_much:
            raise OSError(errno.EFBIG, f"it said more than {MAX_OUTPUT >> 20} MiB", argv[0])
        return Completed(status=program.status, output=program.output, errors=program.errors)


class _Program:
    """One that was started, and what it has said so far."""

    def __init__(
        self, argv: Sequence[str], environment: Mapping[str, str], ends: contextlib.ExitStack, data: str
    ) -> None:
        self.status = 0
        self._ended = False
        with contextlib.ExitStack() as its_ends:
            self._output, its_output = _pipe(ends, its_ends)
            self._errors, its_errors = _pipe(ends, its_ends)
            its_input = _file(data, its_ends)
            umask = os.umask(UMASK)
            try:
                self._pid = os.posix_spawn(  # pylint: disable=ansible-bad-function
                    argv[0],
                    list(argv),
                    environment,
                    file_actions=(
                        (os.POSIX_SPAWN_DUP2, its_input, 0),
                        (os.POSIX_SPAWN_DUP2, its_output, 1),
                        (os.POSIX_SPAWN_DUP2, its_errors, 2),
                    ),
                    setsid=True,
                    setsigdef=IGNORED_BY_PYTHON,
                )
            finally:
                os.umask(umask)
        self._said: Dict[int, List[bytes]] = {self._output: [], self._errors: []}
        self._remaining = {self._output: MAX_OUTPUT, self._errors: MAX_OUTPUT}
        self.said_too_much = False
        self._open = [*self._said]

    @property
    def output(self) -> str:
        return self._text(self._output)

    @property
    def errors(self) -> str:
        return self._text(self._errors)

    def _text(self, end: int) -> str:
        return b"".join(self._said[end]).decode("utf-8", "surrogateescape")

    def ends_within(self, seconds: float, *, linger: bool = True) -> bool:
        """Whether it has said all and ended before the time was over.

        linger: what it left running has its output open for a moment longer at most.
        """
        now = time.monotonic()
        deadline, check, given_up = now + seconds, now + CHECK_SECONDS, 0.0
        while self._open:
            now = time.monotonic()
            if linger and now >= check:
                check = now + CHECK_SECONDS
                if given_up and now >= given_up:
                    return True
                if not given_up and self._has_ended():
                    given_up = now + LINGER_SECONDS
            if now >= deadline:
                return linger and self._has_ended()
            self._listen(min(deadline - now, CHECK_SECONDS) if linger else deadline - now)
        pause = BRIEFLY
        while not self._has_ended():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause = min(2 * pause, A_WHILE)
        return True

    def end(self) -> None:
        """End it and its children, politely first. One that hangs in the kernel is left behind."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            # One that became another user's, as by pkexec, is not ours to end.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)
            if self.ends_within(GRACE_SECONDS, linger=False):
                return

    def _listen(self, seconds: float) -> None:
        poll = select.poll()
        for end in self._open:
            poll.register(end, select.POLLIN)
        # A fraction of a millisecond would be rounded down to none.
        for end, _event in poll.poll(seconds * 1000 + 1):
            said = os.read(end, CHUNK)
            if not said:
                self._open.remove(end)
                continue
            kept = said[: self._remaining[end]]
            self._said[end].append(kept)
            self._remaining[end] -= len(kept)
            self.said_too_much |= len(kept) < len(said)

    def _has_ended(self) -> bool:
        if not self._ended:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            self._ended = pid != 0
            if self._ended:
                self.status = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
        return self._ended


def _pipe(ours: contextlib.ExitStack, its: contextlib.ExitStack) -> Tuple[int, int]:
    """A pipe: the end that we read, and the one that the program writes."""
    reads, writes = os.pipe()
    ours.callback(os.close, reads)
    its.callback(os.close, writes)
    return reads, writes


def _file(data: str, its: contextlib.ExitStack) -> int:
    """What a program reads: a file in memory, which takes any size without a reader, or nothing."""
    if not data:
        empty = os.open(os.devnull, os.O_RDONLY)
        its.callback(os.close, empty)
        return empty
    held = os.memfd_create("data")
    its.callback(os.close, held)
    left = data.encode("utf-8", "surrogateescape")
    while left:
        left = left[os.write(held, left) :]
    os.lseek(held, 0, os.SEEK_SET)
    return held
