# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where somebody else put kernel arguments. Imported only when there are such arguments."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, Sequence, Tuple

from .bootloader import DEFAULTS, DROP_INS, KERNEL_COMMAND_LINE, MARK, BootLoader

if TYPE_CHECKING:
    from .protocols import Files


def find_sources(files: Files, loader: BootLoader, names: Sequence[str]) -> Dict[str, Tuple[str, int]]:
    """File and line of arguments, by their names; nothing for one that the usual files lack."""
    found: Dict[str, Tuple[str, int]] = {}
    known = loader.texts
    drop_ins = (f"{DROP_INS}/{name}" for name in files.names(DROP_INS) if name.endswith(".cfg"))
    for path in (DEFAULTS, *drop_ins, KERNEL_COMMAND_LINE):
        text = known[path] if path in known else files.read_optional(path)
        for number, line in enumerate((text or "").splitlines(), 1):
            if not line.lstrip().startswith("#") and MARK not in line:
                found.update((name, (path, number)) for name in names if re.search(rf"\b{name}=", line))
    return found
