# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the driver says of all GPUs, and what follows where there is no driver to say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence, Tuple, TypeVar

from .._core.errors import CannotLook, DeclarationError
from . import gpus
from .errors import NoDriver
from .gpus import NOT_THERE, UNSERVED

if TYPE_CHECKING:
    from .._core import match
    from .._core.change import Unmanaged
    from .._core.protocols import Files, Host
    from .driver import Identity

Reading = TypeVar("Reading")


def ask(
    host: Host,
    question: Callable[..., Tuple[Reading, ...]],
    *arguments: Any,
    entries: Sequence[match.MatchEntry],
    restoring: bool,
) -> Tuple[Tuple[Reading, ...], Tuple[Unmanaged, ...], str]:
    """The readings of all GPUs, what nobody can set because there is no driver, and why a GPU is not seen.

    Raises ``CannotLook`` as ``driverless.unserved`` does. What is restored went with the driver.
    """
    try:
        return host.nvml.ask(question, *arguments), (), NOT_THERE
    except CannotLook as error:
        from . import driverless

        if restoring and isinstance(error, NoDriver):
            return (), (), UNSERVED
        return (), driverless.unserved(error, entries, host.files), NOT_THERE


def select(
    files: Files, entries: Sequence[match.MatchEntry], found: Sequence[Identity]
) -> Tuple[Tuple[Optional[int], ...], Tuple[Unmanaged, ...]]:
    """``gpus.select``, and what nobody can set because an entry is about a GPU that was handed on to a virtual machine.

    Raises ``DeclarationError`` as it does.
    """
    try:
        return gpus.select(entries, found), ()
    except DeclarationError:
        from . import driverless

        entries, unmanaged = driverless.without_handed_on(entries, files)
        if not unmanaged:
            raise
        return gpus.select(entries, found), unmanaged
