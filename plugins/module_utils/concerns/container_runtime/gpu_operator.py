# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The toolkit container of the GPU Operator, which writes the configuration of an engine at its every start."""

from __future__ import annotations

from ..._core.errors import OwnedByAnother
from ..._core.setting import Scalar

# Where it puts its programs, unless it is told to put them elsewhere (``toolkit.installDir``).
PROGRAMS = "/usr/local/nvidia/toolkit/"


def refuse(engine: str, path: str, program: str, wanted: Scalar) -> None:
    """Raises ``OwnedByAnother`` where a runtime in a file starts a program of it. ``wanted`` is ours of this name."""
    if program.startswith(PROGRAMS):
        raise OwnedByAnother(
            f"configure {engine}",
            object=path,
            cause="the toolkit container of the GPU Operator owns it, and rewrites it at every start",
            found=program,
            wanted=wanted,
            hint=f"remove {engine} from the declaration, or set toolkit.enabled=false in the GPU Operator and remove "
            "its runtimes from this file",
        )
