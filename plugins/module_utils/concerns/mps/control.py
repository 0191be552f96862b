# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The control daemon, asked through its own program by version 2 of the protocol: each answer is at most one line.

The program reads commands line by line and asks them one after the other. An answer may be missing, as that of a limit
that is not set, so each question is followed by one whose answer can be nothing else (tried with 535, 550 and 555). A
client follows the protocol of the daemon, and ours is told to speak v2, so that these are the answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional, Sequence, Tuple

from ..._core.errors import CannotLook, NotPermitted

if TYPE_CHECKING:
    from ..._core.protocols import Host

PROGRAM = "nvidia-cuda-mps-control"
SERVER_PROGRAM = "nvidia-cuda-mps-server"
# What follows each question: the answer is the priority, 0 or 1, which is neither a percentage nor a process.
MARK = "get_default_client_priority"
MARKED = ("0", "1", f'Unknown command "{MARK}"')
SECONDS = 10.0


def ask(host: Host, pipes: str, questions: Sequence[str]) -> Optional[Tuple[str, ...]]:
    """The answers in order, empty for none; None where no daemon listens. Raises ``CannotLook``."""
    data = "".join(f"{question}\n{MARK}\n" for question in questions)
    goal = "ask the MPS control daemon"
    try:
        # The program knows its daemon by the environment alone.
        argv = ("env", f"CUDA_MPS_PIPE_DIRECTORY={pipes}", PROGRAM)
        completed = host.commands.run(argv, timeout=SECONDS, data=data)
    except OSError as error:
        raise CannotLook(goal, object=pipes, cause=f"{PROGRAM}: {error.strerror or error}") from error
    if completed.timed_out:
        raise CannotLook(
            goal,
            object=pipes,
            cause=f"it did not respond within {SECONDS:g} s; it may be waiting for its clients to end",
            hint=f"end its clients, or give {PROGRAM} the command quit -t SECONDS, which ends them after that time",
        )
    said = completed.errors.strip()
    if "authenticate" in said:
        raise CannotLook(goal, object=pipes, cause="not running as root", hint="run the task with become: true")
    if completed.status != 0:
        return None
    found: List[str] = []
    answer: List[str] = []
    for line in completed.output.splitlines():
        if line in MARKED:
            found.append("\n".join(answer))
            answer = []
        else:
            answer.append(line)
    # One that ends while it is asked answers no more.
    return tuple(found) if len(found) == len(questions) else None


def tell(host: Host, pipes: str, commands: Sequence[str]) -> None:
    """Give it commands. Raises ``NotPermitted`` where no daemon listens: what they did is seen by the next look."""
    if ask(host, pipes, commands) is None:
        raise NotPermitted("tell the MPS control daemon", object=pipes, cause="no daemon listens", hint="run again")
