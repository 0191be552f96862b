# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whose kernel arguments are whose. Imported only where somebody set some that matter."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, Iterator, Sequence, Tuple

from .bootloader import DEFAULTS, DROP_INS, GRUB, KERNEL_COMMAND_LINE, MARK, Arguments, BootLoader, without

if TYPE_CHECKING:
    from .protocols import Files


def find_ours(files: Files, loader: BootLoader) -> Arguments:
    """The arguments on the command line that are this concern's, word for word; none that only look like them.

    They are those of the file of ours where the loader has one. Where the menu lacks those (a run ended before it was
    generated), and with loaders that read no file of ours, they are those that were noted before they were set.
    """
    for text in (" ".join(loader.carried), *loader.remembered):
        arguments = tuple(text.split())
        if not arguments or without(loader.command_line, arguments) == loader.command_line:
            continue
        # Without a file of ours GRUB's menu has what is left of ours, or the same arguments from somebody else.
        known = loader.name == GRUB and not loader.carried
        if not known or not any(text in line for _path, _number, line in _lines_of_others(files, loader)):
            return arguments
    return ()


def find_sources(files: Files, loader: BootLoader, names: Sequence[str]) -> Dict[str, Tuple[str, int]]:
    """File and line of arguments, by their names; nothing for one that the usual files lack."""
    found: Dict[str, Tuple[str, int]] = {}
    for path, number, line in _lines_of_others(files, loader):
        found.update((name, (path, number)) for name in names if re.search(rf"\b{name}=", line))
    return found


def _lines_of_others(files: Files, loader: BootLoader) -> Iterator[Tuple[str, int, str]]:
    """Path, number and text of the lines from which menus and entries get their arguments, without those of ours."""
    known = loader.texts
    names = (name for name in files.names(DROP_INS) if name.endswith(".cfg") and name[0] != ".")
    for path in (DEFAULTS, *(f"{DROP_INS}/{name}" for name in names), KERNEL_COMMAND_LINE):
        text = known[path] if path in known else files.read_optional(path)
        for number, line in enumerate((text or "").splitlines(), 1):
            if not line.lstrip().startswith("#") and MARK not in line:
                yield path, number, line
