# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What this machine cannot have, and what would take a disk away from somebody, found before anything changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, Sequence, Tuple

from ..._core.errors import DeclarationError, InUse
from ..._core.wording import first_of
from ..._linux.kernel_modules import normal, read_installed
from .lines import MODULES
from .spec import Connection, Key, name_of
from .state import SHOWN, NvmeOfState

if TYPE_CHECKING:
    from ..._core.protocols import Files


def lacking_modules(files: Files, connections: Sequence[Connection]) -> Tuple[str, ...]:
    """The modules for these connections that the running kernel does not have."""
    needed = dict.fromkeys(MODULES[connection.transport] for connection in connections)
    absent = [name for name in needed if not files.exists(f"/sys/module/{normal(name)}")]
    if not absent:
        return ()
    installed = read_installed(files)
    return tuple(name for name in absent if installed.dependencies(name) is None and not installed.has_built_in(name))


def refuse_lacking(modules: Sequence[str]) -> NoReturn:
    raise DeclarationError(
        "connect to NVMe subsystems",
        cause=f"this kernel has no {first_of(list(modules), SHOWN)}",
        hint="install the modules of the running kernel, such as linux-modules-extra, or boot one that has them",
    )


def refuse_interfaces(names: Sequence[str]) -> NoReturn:
    raise DeclarationError(
        "connect to NVMe subsystems",
        cause=f"this machine has no interface {first_of(list(names), SHOWN)}",
        hint="correct host_interface; nothing was changed",
    )


def refuse_in_use(state: NvmeOfState, ending: Sequence[Key]) -> None:
    """Raise ``InUse`` where an end of these connections leaves a disk that is used without a way to it."""
    for key in ending:
        others = [
            one
            for other, one in state.controllers.items()
            if other[0] == key[0] and other not in ending and one.state == "live"
        ]
        # What it alone leads to is lost in any case.
        users = state.users.get(state.controllers[key].name, ()) or (() if others else state.users.get(key[0], ()))
        if users:
            raise InUse(
                "end {}",
                object=name_of(key),
                cause=f"it is the last path to what is in use: {first_of(list(users), SHOWN)}",
                hint="nothing was changed; unmount it first, or keep the connection declared",
            )
