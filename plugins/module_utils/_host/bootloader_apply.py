# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The one step of a boot loader that is more than a file or a command. Imported only when there is something to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._core.change import RunCommand
from .._core.errors import GpuFleetError, NotInEffect
from .._core.steps import run
from .bootloader_grub import menu_command_line
from .bootloader_plan import RegenerateGrub

if TYPE_CHECKING:
    from .protocols import Host


def regenerate(action: RegenerateGrub, host: Host) -> None:
    """Generate grub.cfg and read it back. When that fails the source is as it was before, and the error says so."""
    command = RunCommand(action.command, goal="generate the boot menu", timeout=300.0)
    try:
        run(command, host)
        found = menu_command_line(host.files, action.config)
        missing = [word for word in action.needed if word not in found.split()]
        if missing:
            raise NotInEffect(
                "bring kernel arguments into the boot menu",
                object=action.config,
                cause=f"{action.command[0]} ran, and the entry that boots by default lacks {' '.join(missing)}",
                found=found,
                wanted=" ".join(action.needed),
                hint="look whether the default entry is one that is not generated",
            )
    except GpuFleetError as error:
        if action.previous is None:
            host.files.remove(action.source)
        else:
            host.files.replace(action.source, action.previous)
        if isinstance(error, NotInEffect):
            host.commands.run(action.command, timeout=command.timeout)
        error.hint = f"{action.source} is again as it was before this step" + (f"; {error.hint}" if error.hint else "")
        error.args = (f"{error} {action.source} is again as it was before this step.",)
        raise
