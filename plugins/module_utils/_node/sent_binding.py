# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controller's nvidia-ml-py, sent along with a look at a node that has none.

It stays in the memory of the process that queries the driver, so that the first look at a node writes nothing there
and sees its GPUs all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._core.errors import DeclarationError

if TYPE_CHECKING:
    from .._core.protocols import Host

# In an answer: the concerns that could not be read for want of it. It is there where anything wants it.
LACKS = "lacks_binding"


def offer(host: Host, packed: str) -> None:
    """Have the driver queried with this binding, as ``compressed`` packs its text, unless the node has a good one.

    Raises ``DeclarationError`` where it is something else.
    """
    from .._nvidia.nvml import LocalNvml
    from .compressed import decompress

    try:
        text = decompress(packed)
    except ValueError as error:
        raise DeclarationError("read the request", object="binding", cause=f"it is damaged: {error}") from error
    # A recorded tree has no driver that could be queried.
    if isinstance(host.nvml, LocalNvml):
        host.nvml.offered = str(text)
