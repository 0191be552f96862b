# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel command line of the next boot, through the boot loader that is there.

What the loader really reads is what counts here: the generated grub.cfg, the loader entries. What generates those
(/etc/default/grub) is only where we put arguments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence, Tuple

if TYPE_CHECKING:
    from .._core.change import Step
    from .bootloader_entries import Entries
    from .protocols import Files, Host

DEFAULTS = "/etc/default/grub"
DROP_INS = "/etc/default/grub.d"
KERNEL_COMMAND_LINE = "/etc/kernel/cmdline"
ENTRY_FOLDERS = ("/boot/loader/entries", "/efi/loader/entries", "/boot/efi/loader/entries")
IMAGE_FOLDERS = ("/boot/EFI/Linux", "/efi/EFI/Linux", "/boot/efi/EFI/Linux")
MARK = "# gpufleet.node."
GRUB = "GRUB"
GRUBBY = "GRUB with loader entries"
OSTREE = "rpm-ostree"
SYSTEMD = "systemd-boot"
NONE = "none"
Arguments = Tuple[str, ...]


@dataclass(frozen=True)
class BootLoader:
    """A boot loader, read once. ``command_line`` is what the next boot brings, as far as it can be known.

    ``texts`` are files that were read to know that, by path: ``source``, where our arguments go, with GRUB; all
    entries, the one that boots by default last, with systemd-boot. ``carried`` are the arguments that ``source`` brings
    for this concern, ``reason`` says why arguments cannot be set, ``command`` generates ``config``.
    """

    name: str
    command_line: str
    concern: str = ""
    carried: Arguments = ()
    texts: Mapping[str, Optional[str]] = field(default_factory=dict)
    source: str = ""
    config: str = ""
    command: Tuple[str, ...] = ()
    reason: str = ""

    def plan_arguments(self, wanted: Arguments, ours: Arguments) -> Tuple[Step, ...]:
        """The steps after which the next boot has ``wanted`` in the place of ``ours``, this concern's arguments now.

        Pure. The last step completes the others. Raises ``DeclarationError`` when this loader cannot do it.
        """
        from .bootloader_plan import plan_arguments

        return plan_arguments(self, wanted, ours)


def detect(host: Host, concern: str, running: str) -> BootLoader:
    """The boot loader of this machine, with the files of ``concern``. ``running`` is /proc/cmdline."""
    files = host.files
    entries: Optional[Entries] = None
    if any(files.exists(folder) for folder in ENTRY_FOLDERS):
        from .bootloader_entries import read_entries

        entries = read_entries(files)
    if entries and files.exists("/run/ostree-booted"):
        return entries.rpm_ostree()
    for folder in ("/boot/grub", "/boot/grub2"):
        config = f"{folder}/grub.cfg"
        text = files.read_optional(config)
        variables = _read_environment(files, config)
        if entries and (folder == "/boot/grub2" and files.exists(folder) if text is None else "blscfg" in text):
            return entries.grub(text or "", variables)
        if text is not None:
            return _grub(host, concern, config, _menu_arguments(text, variables))
    if files.exists("/etc/zipl.conf"):
        return BootLoader(NONE, running, reason="zipl is not supported")
    if entries:
        return entries.systemd_boot(files)
    if any(name.endswith(".efi") for folder in IMAGE_FOLDERS for name in files.names(folder)):
        return BootLoader(NONE, running, reason="unified kernel images carry their command line inside")
    return BootLoader(NONE, running, reason="no boot loader was found")


def menu_command_line(files: Files, config: str) -> str:
    """The arguments that a grub.cfg gives the kernel it boots by default."""
    return _menu_arguments(files.read(config), _read_environment(files, config))


def without(command_line: str, arguments: Sequence[str]) -> str:
    """The command line without one occurrence of these arguments, which stand next to each other in it."""
    return exchange(command_line, (), tuple(arguments))


def drop_in_of(concern: str) -> str:
    return f"{DROP_INS}/gpufleet-{concern}.cfg"


def mark_of(concern: str) -> str:
    """The comment at the end of a line of ours."""
    return f"{MARK}{concern}: written by this module, changes are lost"


def _grub(host: Host, concern: str, config: str, command_line: str) -> BootLoader:
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
    return BootLoader(GRUB, command_line, concern, carried, {source: text}, source, config, command)


def exchange(line: str, wanted: Arguments, ours: Arguments) -> str:
    """A command line with one occurrence of the arguments that are ours taken out, and others added to its end."""
    old = " ".join(ours)
    if old:
        line = re.sub(rf"(^| ){re.escape(old)}(?= |$)", "", line, count=1)
    return f"{line} {' '.join(wanted)}" if wanted else line


def _read_environment(files: Files, config: str) -> Dict[str, str]:
    """The variables of the grubenv file beside a grub.cfg."""
    text = files.read_optional(f"{config[: -len('.cfg')]}env") or ""
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {name: value for name, equals, value in pairs if equals}


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
