# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the driver says of all GPUs, and what follows where there is no driver to say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Sequence, Tuple, TypeVar

from .._core.errors import CannotLook
from .errors import NoDriver
from .gpus import NOT_THERE, UNSERVED

if TYPE_CHECKING:
    from .._core import match
    from .._core.change import Unmanaged
    from .._core.protocols import Host

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
