# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Errors of a socket with its name, which the kernel does not tell."""

from __future__ import annotations

# What socket puts around it costs three times what a question to systemd does.
import _socket
import contextlib
import errno
import os
from typing import Iterator


@contextlib.contextmanager
def named(path: str, timeout: float) -> Iterator[None]:
    """Let what is an ``OSError`` have the path, and a ``TimeoutError`` the ``timeout`` in seconds."""
    try:
        yield
    except (TimeoutError, _socket.timeout) as error:
        raise TimeoutError(errno.ETIMEDOUT, f"no response within {timeout:g} seconds", path) from error
    except OSError as error:
        number = error.errno or errno.EIO
        raise OSError(number, error.strerror or os.strerror(number), path) from error
