# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kind *boot arguments*: arguments of ours on the kernel's command line, through the boot loader that is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Optional, Sequence, Tuple

from .._core.change import Change, Step
from .._core.setting import BOOT
from .._core.value import frozen, replace
from .._linux import bootloader
from .._linux.bootloader import Arguments, BootLoader

if TYPE_CHECKING:
    from .._linux.grub_defaults import Overwrite

COMMAND_LINE = "kernel command line"


@frozen
class BootArguments:
    """The arguments of a concern: those that ``loader`` has now, and those that are wanted."""

    loader: BootLoader
    wanted: Arguments

    @property
    def others(self) -> str:
        """The command line of the next boot without what is ours."""
        return bootloader.without(self.loader.command_line, self.loader.ours)

    @property
    def command_line(self) -> str:
        """The same with what is wanted."""
        return " ".join((self.others, *self.wanted))

    @property
    def differs(self) -> bool:
        """Whether anything is to be done: also for files of ours that a run that was killed left, and bring nothing."""
        loader = self.loader
        return self.wanted != loader.ours or loader.will_lose(self.wanted) or (loader.marked and not self.wanted)

    @property
    def doubt(self) -> Optional[Overwrite]:
        """The line that may set the variable of our arguments again, where a menu with them is still to be made."""
        one = self.loader.overwrite
        return one if one is not None and one.in_doubt and self.wanted not in ((), self.loader.ours) else None

    def steps(self, changes: Sequence[Change], probe: str) -> Tuple[Step, ...]:
        """What makes the next boot have them. The last step makes the ``changes``, or where there are none that of the
        command line itself. ``probe`` is a file on the file system that has to be writable.
        """
        from .._linux.bootloader_plan import plan_arguments

        *first, last = plan_arguments(self.loader, self.wanted, self.loader.ours)
        return (*first, replace(last, changes=tuple(changes or (self._change(),)), probes=(*last.probes, probe)))

    def _change(self) -> Change:
        old, new = " ".join(self.loader.ours) or None, " ".join(self.wanted) or None
        if old != new:
            return Change(COMMAND_LINE, self.loader.concern, old, new, BOOT)
        return Change(COMMAND_LINE, "files", None if new else "present", new, BOOT)
