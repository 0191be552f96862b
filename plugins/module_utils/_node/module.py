# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Convergence on ``AnsibleModule``: the host that Ansible gives us, and the way from options to a result."""

from __future__ import annotations

import errno
import os
from functools import cached_property
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Sequence, Tuple

from ansible.module_utils.basic import AnsibleModule

from .._core.contract import AnyConcern, refused
from .._core.convergence import converge
from .._core.errors import GpuFleetError
from .._core.shared_options import SHARED_OPTIONS
from .._machine import journal, unix_http
from .._machine.files import UMASK, LocalFiles

if TYPE_CHECKING:
    from .._core.procedure import AnyProcedure
    from .._core.protocols import BusCall, Completed, Host, Identity, Nvml


class ModuleFiles(LocalFiles):
    """Finished files are moved by ``atomic_move``, which knows owners, SELinux contexts and bind mounts."""

    def __init__(self, module: AnsibleModule) -> None:
        self._module = module

    def move(self, source: str, target: str) -> None:
        mode = os.stat(source).st_mode & 0o7777
        new = not os.path.exists(target)
        # atomic_move gives a new file the mode that the umask says, and nobody may write it until it has its own.
        umask = os.umask(0o777 & ~mode | UMASK)
        try:
            self._module.atomic_move(source, target)
        except OSError:
            raise
        except Exception as error:
            # ansible-core 2.19 says what went wrong with a rename by a bare Exception.
            cause = error.__cause__
            number = cause.errno if isinstance(cause, OSError) else None
            raise OSError(number or errno.EIO, str(error), target) from error
        finally:
            os.umask(umask)
        if new:
            os.chmod(target, mode)


class ModuleCommands:
    """Programs. Not by Ansible's ``run_command``, which has no deadline and keeps any amount of what they say."""

    def __init__(self, module: AnsibleModule) -> None:
        self._module = module

    def find(self, name: str) -> Optional[str]:
        found: Optional[str] = self._module.get_bin_path(name)
        return found

    def run(self, argv: Sequence[str], *, timeout: float = 60.0, data: str = "") -> Completed:
        program = self.find(argv[0])
        if program is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), argv[0])
        from .._machine import programs

        environment = {**os.environ, "LANG": "C", "LC_ALL": "C"}
        return programs.run([program, *argv[1:]], environment, timeout=timeout, data=data)


class ModuleHost:
    """``protocols.Host`` inside a module that Ansible runs."""

    def __init__(self, module: AnsibleModule) -> None:
        self.files = ModuleFiles(module)
        self.commands = ModuleCommands(module)
        self.may_change = os.geteuid() == 0

    @cached_property
    def nvml(self) -> Nvml:
        from .._nvidia.nvml import LocalNvml

        return LocalNvml(self.commands)

    def http_get(self, socket: str, target: str, identity: Optional[Identity] = None) -> str:
        return unix_http.get(socket, target, identity=identity)

    def ask_systemd(self, calls: Sequence[BusCall]) -> Sequence[Optional[Tuple[Any, ...]]]:
        from .._machine import message_bus

        return message_bus.ask(calls)

    def ask_service(self, service: str, calls: Sequence[BusCall]) -> Sequence[Optional[Tuple[Any, ...]]]:
        from .._machine import message_bus

        return message_bus.ask_service(service, calls)

    def journal(self, message: str, fields: Mapping[str, str]) -> None:
        journal.send(message, fields)


def host_of(module: AnsibleModule) -> Host:
    """This machine. Every module asks here, so that a test bed has one place to hand in another."""
    return ModuleHost(module)


def arguments_of(concern: AnyConcern) -> Dict[str, Any]:
    """What ``AnsibleModule`` must be told of a concern."""
    return {"argument_spec": {**SHARED_OPTIONS, **concern.options}, "supports_check_mode": True}


def run(concern: AnyConcern) -> None:
    """The whole module of a concern."""
    module = AnsibleModule(**arguments_of(concern))
    finish(module, answer(module, concern))


def finish(module: AnsibleModule, result: Mapping[str, Any]) -> None:
    """End the module with this result."""
    if result.get("failed"):
        module.fail_json(**result)
    module.exit_json(**result)


def answer(module: AnsibleModule, concern: AnyConcern) -> Dict[str, Any]:
    """Converge and return the result; it says ``failed`` when it did not reach the end."""
    host = host_of(module)
    try:
        outcome = converge(concern, module.params, host, check_mode=module.check_mode, diff=module._diff)
    except GpuFleetError as error:
        outcome = refused(error)
    return _as_requested(module, outcome.as_dict())


def run_procedure(procedure: AnyProcedure, spec: Optional[Mapping[str, Any]] = None) -> None:
    """The whole module of a procedure; ``spec`` are the options that it takes, where they are more than its own."""
    from .._core.procedure import failure_of, run_through

    module = AnsibleModule(argument_spec=dict(spec or procedure.options), supports_check_mode=True)
    try:
        result = run_through(procedure, module.params, host_of(module), check_mode=module.check_mode)
    except GpuFleetError as error:
        module.fail_json(changed=False, **failure_of(error))
    finish(module, _as_requested(module, result))


def _as_requested(module: AnsibleModule, result: Dict[str, Any]) -> Dict[str, Any]:
    """The result, with its difference only where the task shows one: Ansible prints what it is given, of every host."""
    return result if module._diff else {key: result[key] for key in result if key != "diff"}
