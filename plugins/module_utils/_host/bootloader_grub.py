# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""GRUB with a menu that is generated, kernel arguments and all. Imported only where there is one."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, List, Mapping, Tuple

from .bootloader import DEFAULTS, DROP_INS, GRUB, BootLoader, drop_in_of, mark_of, read_environment

if TYPE_CHECKING:
    from .protocols import Files, Host


def read_grub(host: Host, concern: str, config: str, menu: str) -> BootLoader:
    """The loader whose generated ``menu`` is in the file ``config``, with the file of ``concern``."""
    generators: List[Tuple[str, ...]] = [("update-grub",)]
    generators += [(name, "-o", config) for name in ("grub-mkconfig", "grub2-mkconfig")]
    command = next((argv for argv in generators if host.commands.find(argv[0])), generators[0])
    script = ""
    for path in ("/usr/sbin/grub-mkconfig", "/usr/sbin/grub2-mkconfig", "/usr/bin/grub-mkconfig"):
        script = script or host.files.read_optional(path) or ""
    # Debian's generator reads drop-ins, and so do those derived from it; the original one knows only its defaults.
    reads_drop_ins = "default/grub.d" in script if script else host.files.exists(DROP_INS)
    source = drop_in_of(concern) if reads_drop_ins else DEFAULTS
    text = host.files.read_optional(source)
    line = rf'^GRUB_CMDLINE_LINUX="\$GRUB_CMDLINE_LINUX (.*)"  {re.escape(mark_of(concern))}$'
    found = re.search(line, text or "", re.MULTILINE)
    carried = tuple(found[1].split()) if found else ()
    return BootLoader(
        GRUB,
        _menu_arguments(menu, read_environment(host.files, config)),
        concern,
        carried,
        texts={source: text},
        source=source,
        config=config,
        command=command,
    )


def menu_command_line(files: Files, config: str) -> str:
    """The arguments that a grub.cfg gives the kernel it boots by default."""
    return _menu_arguments(files.read(config), read_environment(files, config))


def _menu_arguments(text: str, variables: Mapping[str, str]) -> str:
    """The arguments of the entry that a generated grub.cfg boots by default; of the first where that is not to be seen.

    An entry goes by its position (``1>0`` inside a submenu), its title or its id.
    """
    lines: List[Tuple[List[List[str]], str]] = []
    names: List[List[str]] = []
    counts = [0]
    for line in text.splitlines():
        stripped = line.strip()
        title = re.match(r"(?:menuentry|submenu)\s+(?:'([^']*)'|\"([^\"]*)\")", stripped)
        if title:
            identifier = re.search(r"\$menuentry_id_option\s+['\"]?([^'\"\s{]+)", stripped)
            names.append([str(counts[-1]), title[1] or title[2] or "", identifier[1] if identifier else ""])
            counts[-1] += 1
            counts.append(0)
        elif stripped.endswith("{") and not stripped.startswith("#"):
            names.append([])
            counts.append(0)
        elif stripped == "}" and names:
            names.pop()
            counts.pop()
        else:
            kernel = re.match(r"linux(?:16|efi)?\s+\S+\s*(.*)", stripped)
            if kernel and names:
                lines.append(([entry for entry in names if entry], kernel[1]))
    defaults = re.findall(r'^\s*set default="?([^"\n]*)"?$', text, re.MULTILINE)
    default = next((value for value in reversed(defaults) if "next_entry" not in value), "0")
    if "saved_entry" in default:
        default = variables.get("saved_entry", "0")
    wanted = default.split(">")
    for entry, arguments in lines:
        if len(entry) >= len(wanted) and all(part in names for part, names in zip(wanted, entry)):
            return _expand(arguments)
    return _expand(lines[0][1]) if lines else ""


def _expand(arguments: str) -> str:
    return " ".join(word for word in arguments.split() if not word.startswith("$"))
