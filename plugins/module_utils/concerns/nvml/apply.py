# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The steps of the binding: put it where Python finds it, and take it away again."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from ..._core import steps
from ..._core.change import RunCommand, Step
from ..._core.errors import CannotLook, NotSent, Refused
from ..._core.exposure import BINDING_FOLDER
from .plan import Install, RemoveOurs
from .recognise import FILE, digest
from .state import OURS

if TYPE_CHECKING:
    from ..._core.protocols import Host

CACHE = f"{BINDING_FOLDER}/__pycache__"


def perform(step: Step, host: Host) -> None:
    """Take one step. Raises ``Refused`` or ``CannotLook``."""
    action = step.action
    if isinstance(action, Install):
        _install(action, host)
    elif isinstance(action, RemoveOurs):
        _remove(host)
    else:
        steps.perform(step, host)


def _install(action: Install, host: Host) -> None:
    text = action.text if action.text is not None else _sent(action)
    if action.anew:
        host.files.remove(OURS)
    host.files.replace(OURS, text)
    # Now, so that the first look after this one does not wait for it. A recorded tree has no Python to do it.
    if host.commands.find(sys.executable):
        steps.run(RunCommand((sys.executable, "-I", "-m", "py_compile", OURS), "compile nvidia-ml-py"), host)


def _sent(action: Install) -> str:
    """The file that came with the module; it lies outside of any recorded tree."""
    if action.source is None:
        raise NotSent("install nvidia-ml-py", cause="the task did not send the file")
    try:
        with open(action.source, "rb") as stream:
            text = stream.read().decode("utf-8", "surrogateescape")
    except OSError as error:
        cause = error.strerror or str(error)
        raise CannotLook("install nvidia-ml-py", object=action.source, cause=cause) from error
    if digest(text) != action.sha256:
        raise Refused(
            "install nvidia-ml-py",
            object=action.source or "",
            cause="the received file differs from the one that was sent",
            found=digest(text),
            wanted=action.sha256,
        )
    return text


def _remove(host: Host) -> None:
    stem = f"{os.path.splitext(FILE)[0]}."
    for name in host.files.names(CACHE):
        if name.startswith(stem):
            host.files.remove(f"{CACHE}/{name}")
    # Last, for without it a run that follows one that was killed sees nothing of ours.
    host.files.remove(OURS)
    for folder in (CACHE, BINDING_FOLDER, os.path.dirname(BINDING_FOLDER)):
        host.files.remove_folder(folder)
