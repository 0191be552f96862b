# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kernel command line of the next boot, through the boot loader that is there.

What the loader really reads is what counts here: the generated grub.cfg, the loader entries. What generates those
(/etc/default/grub) is only where we put arguments.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Dict, Mapping, Optional, Sequence, Tuple

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
    for this concern, ``remembered`` those that were noted before they were set, newest first, and ``ours`` are those of
    them that ``command_line`` has. ``reason`` says why arguments cannot be set, ``command`` generates ``config``.
    """

    name: str
    command_line: str
    concern: str = ""
    carried: Arguments = ()
    remembered: Tuple[str, ...] = ()
    ours: Arguments = ()
    texts: Mapping[str, Optional[str]] = field(default_factory=dict)
    source: str = ""
    config: str = ""
    command: Tuple[str, ...] = ()
    reason: str = ""

    @property
    def marked(self) -> bool:
        """Whether a file of this concern says that it set arguments."""
        return bool(self.carried or self.remembered)

    def plan_arguments(self, wanted: Arguments, ours: Arguments) -> Tuple[Step, ...]:
        """The steps after which the next boot has ``wanted`` in the place of ``ours``, this concern's arguments now.

        Pure. The last step completes the others. Raises ``DeclarationError`` when this loader cannot do it.
        """
        from .bootloader_plan import plan_arguments

        return plan_arguments(self, wanted, ours)


def detect(host: Host, concern: str, running: str) -> BootLoader:
    """The boot loader of this machine, with the files of ``concern``. ``running`` is /proc/cmdline."""
    loader = _detect(host, concern, running)
    remembered = tuple((host.files.read_optional(memory_of(concern)) or "").splitlines())
    loader = replace(loader, concern=concern, remembered=remembered)
    if not loader.marked:
        return loader
    from .bootloader_sources import find_ours

    return replace(loader, ours=find_ours(host.files, loader))


def _detect(host: Host, concern: str, running: str) -> BootLoader:
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
        if entries and (folder == "/boot/grub2" and files.exists(folder) if text is None else "blscfg" in text):
            return entries.grub(text or "", read_environment(files, config))
        if text is not None:
            from .bootloader_grub import read_grub

            return read_grub(host, concern, config, text)
    if files.exists("/etc/zipl.conf"):
        return BootLoader(NONE, running, reason="zipl is not supported")
    if entries:
        return entries.systemd_boot(files)
    if any(name.endswith(".efi") for folder in IMAGE_FOLDERS for name in files.names(folder)):
        return BootLoader(NONE, running, reason="unified kernel images carry their command line inside")
    return BootLoader(NONE, running, reason="no boot loader was found")


def without(command_line: str, arguments: Sequence[str]) -> str:
    """The command line without one occurrence of these arguments, which stand next to each other in it."""
    return exchange(command_line, (), tuple(arguments))


def drop_in_of(concern: str) -> str:
    return f"{DROP_INS}/gpufleet-{concern}.cfg"


def memory_of(concern: str) -> str:
    """Where the exact arguments that a concern sets are noted: nothing else on a command line says whose they are."""
    return f"/var/lib/gpufleet/{concern}.arguments"


def mark_of(concern: str) -> str:
    """The comment at the end of a line of ours."""
    return f"{MARK}{concern}: written by this module, changes are lost"


def exchange(line: str, wanted: Arguments, ours: Arguments) -> str:
    """A command line with one occurrence of the arguments that are ours taken out, and others added to its end."""
    old = " ".join(ours)
    if old:
        line = re.sub(rf"(^| ){re.escape(old)}(?= |$)", "", line, count=1)
    return f"{line} {' '.join(wanted)}" if wanted else line


def read_environment(files: Files, config: str) -> Dict[str, str]:
    """The variables of the grubenv file beside a grub.cfg."""
    text = files.read_optional(f"{config[: -len('.cfg')]}env") or ""
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {name: value for name, equals, value in pairs if equals}
