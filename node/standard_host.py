# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The machine on the standard library alone: for the boot service and the command on the node, where no Ansible is."""

from __future__ import annotations

import errno
import os
from functools import cached_property
from typing import TYPE_CHECKING, Any, List, Mapping, Optional, Sequence, Tuple

from ansible_collections.gpufleet.node.plugins.module_utils._machine.files import LocalFiles

if TYPE_CHECKING:
    from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import (
        BusCall,
        Completed,
        Host,
        Identity,
        Nvml,
    )

CONTEXT = "security.selinux"
SELINUX = "/sys/fs/selinux/enforce"
SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin")


class StandardFiles(LocalFiles):
    """Finished files are renamed into place, with the owner, mode and SELinux context of what was there."""

    def __init__(self, commands: StandardCommands) -> None:
        self._commands = commands

    def move(self, source: str, target: str) -> None:
        try:
            status = os.stat(target)
        except FileNotFoundError:
            os.replace(source, target)
            self._label_as_policy_says(target)
            return
        fresh = os.stat(source)
        if (fresh.st_uid, fresh.st_gid) != (status.st_uid, status.st_gid):
            os.chown(source, status.st_uid, status.st_gid)
        # After chown, which clears the setuid bits.
        os.chmod(source, status.st_mode & 0o7777)
        context = _context(target)
        if context is not None and context != _context(source):
            os.setxattr(source, CONTEXT, context)
        os.replace(source, target)

    def _label_as_policy_says(self, path: str) -> None:
        # A rename keeps the label of the temporary file, which the policy may know nothing of.
        if os.path.exists(SELINUX) and self._commands.find("restorecon") is not None:
            self._commands.run(["restorecon", path])


class StandardCommands:
    """Programs, by the way to them that we have and the folders of those for administrators."""

    def find(self, name: str) -> Optional[str]:
        paths = [name] if "/" in name else [f"{folder}/{name}" for folder in _search_path()]
        return next((path for path in paths if os.access(path, os.X_OK) and os.path.isfile(path)), None)

    def run(self, argv: Sequence[str], *, timeout: float = 60.0, data: str = "") -> Completed:
        program = self.find(argv[0])
        if program is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
        # Most looks start no program, and what starts one is a tenth of what they import.
        from ansible_collections.gpufleet.node.plugins.module_utils._machine import programs

        environment = {**os.environ, "PATH": os.pathsep.join(_search_path()), "LANG": "C", "LC_ALL": "C"}
        return programs.run([program, *argv[1:]], environment, timeout=timeout, data=data)


class StandardHost:
    """``protocols.Host`` without Ansible."""

    def __init__(self) -> None:
        self.commands = StandardCommands()
        self.files = StandardFiles(self.commands)
        self.may_change = os.geteuid() == 0

    @cached_property
    def nvml(self) -> Nvml:
        from ansible_collections.gpufleet.node.plugins.module_utils._nvidia.nvml import LocalNvml

        return LocalNvml(self.commands)

    def http_get(self, socket: str, target: str, identity: Optional[Identity] = None) -> str:
        from ansible_collections.gpufleet.node.plugins.module_utils._machine import unix_http

        return unix_http.get(socket, target, identity=identity)

    def ask_systemd(self, calls: Sequence[BusCall]) -> Sequence[Optional[Tuple[Any, ...]]]:
        from ansible_collections.gpufleet.node.plugins.module_utils._machine import message_bus

        return message_bus.ask(calls)

    def ask_service(self, service: str, calls: Sequence[BusCall]) -> Sequence[Optional[Tuple[Any, ...]]]:
        from ansible_collections.gpufleet.node.plugins.module_utils._machine import message_bus

        return message_bus.ask_service(service, calls)

    def journal(self, message: str, fields: Mapping[str, str]) -> None:
        from ansible_collections.gpufleet.node.plugins.module_utils._machine import journal

        journal.send(message, fields)


def this_host() -> Host:
    """This machine. The program asks here, so that a test bed has one place to hand in another."""
    return StandardHost()


def _search_path() -> List[str]:
    folders = [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    return [*folders, *(folder for folder in SBIN if folder not in folders)]


def _context(path: str) -> Optional[bytes]:
    """The SELinux context of a file; None where the file system has none."""
    try:
        return os.getxattr(path, CONTEXT)
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.ENOTSUP):
            return None
        raise
