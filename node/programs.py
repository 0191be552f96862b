# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Programs by ``subprocess``, each in a session of its own, so that its children end with it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import Mapping, Sequence

from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._machine.files import UMASK

TIMED_OUT = 124
GRACE_SECONDS = 5.0


def run(argv: Sequence[str], environment: Mapping[str, str], *, timeout: float) -> Completed:
    """Run a program to its end; the first word is its path. Status 124 is that of one that took longer."""
    process = subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        encoding="utf-8",
        errors="surrogateescape",
        start_new_session=True,
        umask=UMASK,
    )
    try:
        output, errors = process.communicate(timeout=timeout)
        return Completed(status=process.returncode, output=output, errors=errors)
    except subprocess.TimeoutExpired:
        output, errors = _end(process)
        return Completed(status=TIMED_OUT, output=output, errors=errors)
    except BaseException:
        _end(process)
        raise


def _end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """End a program and its children, politely first. One that hangs in the kernel is left behind."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=GRACE_SECONDS)
    return "", ""
