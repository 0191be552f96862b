# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The command and the boot service as they are on the node, and as declared."""

from __future__ import annotations

from typing import Optional, Tuple

from ..._core.change import Conflict
from ..._core.value import frozen
from ..._kinds.own_files import OwnFile
from ..._kinds.units import UnitFile
from ..._linux import systemd
from ..._linux.boot_service import UNIT
from .owners import Exposed

UNIT_PATH = f"{systemd.ETC}/{UNIT}"
MODE = "mode and owner"
LAUNCHER = "launcher"
COMMAND = "command"
UNIT_FILE = "unit"
BYTECODE = "bytecode"
INTACT = "intact"


@frozen
class NodeToolsState:
    """What was seen. None for a sum or a text means: no such file.

    ``bytecode`` is what can be said of the program compiled, for the archive that is declared.
    ``command`` is None if its folder is read-only. ``interpreter`` is the Python that the launcher names, or the one
    that runs this code if that does not exist. ``links`` are the folders in /etc that hold a link to the unit.
    ``early`` are those of ``boot_before`` that cannot wait. ``exposed`` are our files and folders with a wrong owner or
    mode, ``unsafe`` is why a folder above them is not secure.
    """

    archive: Optional[str]
    bytecode: str
    launcher: OwnFile
    command: Optional[OwnFile]
    interpreter: str
    unit: UnitFile
    masked: bool
    links: Tuple[str, ...]
    early: Tuple[str, ...] = ()
    drop_ins: Tuple[Conflict, ...] = ()
    exposed: Tuple[Exposed, ...] = ()
    unsafe: str = ""


@frozen
class NodeToolsDesired:
    """What the machine shall have; None for a text or a sum means: no such file."""

    archive: Optional[str] = None
    launcher: Optional[str] = None
    command: Optional[str] = None
    unit: Optional[str] = None
    links: Tuple[str, ...] = ()
