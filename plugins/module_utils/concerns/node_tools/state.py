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
    ``command`` is None where its folder cannot be written. ``interpreter`` is what the launcher names, or what runs
    this where it names none that is there. ``links`` are the folders in /etc that hold a link to the unit. ``early``
    are those of ``boot_before`` that cannot wait. ``exposed`` is what of ours has a wrong owner or mode, ``unsafe``
    what on the way to the program has.
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
