# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``gpufleet run``: a command in the slice of its GPUs, with these visible to it, and to all that it starts.

systemd moves the process that asks for it into a new scope of the slice, so that the command keeps the environment, the
limits and the terminal of who starts it. Only root may ask systemd for that. The group that may launch calls our own
program through pkexec, which moves nothing but its caller, and only into slices of ours.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

from ansible_collections.gpufleet.node.plugins.module_utils._core import declared
from ansible_collections.gpufleet.node.plugins.module_utils._core.contract import LOCK
from ansible_collections.gpufleet.node.plugins.module_utils._core.errors import (
    CannotLook,
    DeclarationError,
    NotPermitted,
    Refused,
)
from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed, Files, Host
from ansible_collections.gpufleet.node.plugins.module_utils._core.value import frozen
from ansible_collections.gpufleet.node.plugins.module_utils._linux import cpulist, systemd
from ansible_collections.gpufleet.node.plugins.module_utils._linux.program import ON_PATH, PROGRAM
from ansible_collections.gpufleet.node.plugins.module_utils._machine import processes
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_slices import files as slice_files
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_slices import visible
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_slices.launch import PKEXEC, PLACE
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_slices.observation import (
    SCHEDULERS,
    scheduler,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_slices.spec import LIMITS, NAME
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_slices.state import (
    CPUS,
    MEMORY,
    PARENT,
    SWAP,
    WEIGHT,
)
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.gpu_slices.topology import (
    of_gpu,
    read_numa_topology,
)

GOAL = "run on {}"
VARIABLE = "CUDA_VISIBLE_DEVICES"
MANAGER = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager")
# Where calls of users wait for each other, so that only one of them competes with a run for the lock.
QUEUE = "/run/gpufleet/place.lock"
LOCK_SECONDS = 60.0
MOVE_SECONDS = 10.0
# Of pkexec, which may ask polkit, and of our own program behind it.
START_SECONDS = 20.0
POLL_SECONDS = 0.05
# The signals with which a terminal stops its processes, whatever user they run as.
STOPS = (signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)
# What pkexec(1) ends with where polkit says no, or somebody who was asked for a password.
PKEXEC_REFUSES = (126, 127)
# As a shell has them.
NOT_EXECUTABLE, NOT_FOUND = 126, 127


def _no_check() -> None:
    """Root's own process needs no check."""


@frozen
class Scope:
    """Where a command runs: the slice, and what its scope has of its own, by setting."""

    slice: str
    values: Mapping[str, str]


def run(host: Host, gpus: Sequence[str], command: Sequence[str], *, quiet: bool = False) -> int:
    """Become the command. Returns only where that does not exist or cannot be run. Raises ``GpuFleetError``."""
    program = shutil.which(command[0])
    if program is None:
        print(f"Cannot run {command[0]}: there is no such program.", file=sys.stderr)
        return NOT_FOUND
    names, uuids = prepare(host, gpus)
    if os.geteuid() == 0:
        place(host, names, process=os.getpid())
    else:
        ask_to_place(host, names)
    if not quiet:
        print(f"gpufleet: {told(host.files, names, uuids)}", file=sys.stderr, flush=True)
    try:
        os.execve(program, [*command], {**os.environ, VARIABLE: ",".join(uuids)})
    except OSError as error:
        print(f"Cannot run {command[0]}: {error.strerror}.", file=sys.stderr)
    return NOT_EXECUTABLE


def prepare(host: Host, gpus: Sequence[str]) -> Tuple[Tuple[str, ...], Tuple[str, ...]]:
    """The slices of these GPUs and instances, and the UUIDs by which CUDA knows them."""
    there = host.nvml.ask(visible.read)
    host.nvml.close()
    chosen = visible.choose(gpus, there)
    names = dict.fromkeys(slice_of(host.files, one) for one in chosen)
    return tuple(names), tuple(one.uuid for one in chosen)


def slice_of(files: Files, chosen: visible.Chosen) -> str:
    """The slice of a GPU, or that of its NUMA node. Raises ``DeclarationError`` where neither is declared."""
    identity = chosen.gpu.identity
    name = slice_files.of_gpu(identity.index)
    text = _text_of(files, name)
    if text:
        if slice_files.about(text) != slice_files.about_gpu(identity.index, identity.uuid):
            raise DeclarationError(
                GOAL,
                object=identity.name,
                cause=f"{name} was made for another GPU",
                found=slice_files.about(text),
                hint=f"ask an administrator to run the role {NAME}, which makes it anew",
            )
        return name
    room = of_gpu(chosen.gpu, read_numa_topology(files, (chosen.gpu,)))
    for other in files.names(systemd.ETC) if room is not None else ():
        cpus = _values_of(files, other).get(CPUS, "") if other.startswith("gpu-node") else ""
        if cpus and room is not None and cpulist.parse(cpus) & room.cpus:
            return other
    unit = scheduler(systemd.UnitFiles(files))
    if unit:
        cause = f"{SCHEDULERS[unit]} places the jobs of this node ({unit} is enabled)"
        raise DeclarationError(GOAL, object=identity.name, cause=cause, hint="submit a job to it")
    raise DeclarationError(
        GOAL,
        object=identity.name,
        cause="this node has no slice for it",
        hint=f"declare it in {NAME}_gpus and run the role {NAME}",
    )


def place(
    host: Host,
    names: Sequence[str],
    *,
    process: int,
    locks: Sequence[str] = (LOCK,),
    check: Callable[[], None] = _no_check,
) -> None:
    """Move a process into a new scope of its slice, as root. Raises ``GpuFleetError``.

    ``check`` is called under the last of the ``locks``, and raises where the process must not be moved.
    """
    files = host.files
    _refuse_strange(files, names)
    slices, lock = ", ".join(names), ""
    try:
        with contextlib.ExitStack() as held:
            for lock in locks:
                held.enter_context(files.lock(lock, LOCK_SECONDS))
            # While a slice is changed nothing may be started in it, and what was seen before may be gone.
            check()
            _refuse_strange(files, names)
            _start_scope(host, scope_of(files, names), process)
    except TimeoutError as error:
        cause = "other commands are being started" if lock == QUEUE else "another run is changing this node"
        hint = "wait until it has ended, then run again"
        raise NotPermitted("start a command in {}", object=slices, cause=f"{cause} ({error})", hint=hint) from error


def _refuse_strange(files: Files, names: Sequence[str]) -> None:
    for name in names:
        if not _text_of(files, name):
            raise DeclarationError(
                "start a command in {}", object=name, cause=f"it is not a slice of {NAME}", hint="name one that is"
            )


def ask_to_place(host: Host, names: Sequence[str]) -> None:
    """Let polkit decide whether this user's process is moved. Raises ``NotPermitted`` with who may."""
    group = str((declared.of_file(host.files, NAME) or {}).get("launch_group") or "")
    may = f"root and the group {group}" if group else "root"
    who = _user()
    goal, slices = "start a command in {}", ", ".join(names)
    if not group or not _is_member(group):
        hint = (
            f"ask an administrator to add {who} to {group}"
            if group
            else f"ask an administrator to set {NAME}_launch_group to a group of yours"
        )
        raise NotPermitted(goal, object=slices, cause=f"only {may} may, and this is {who}", hint=hint)
    program = host.commands.find(PKEXEC)
    if program is None:
        raise NotPermitted(goal, object=slices, cause=f"{PKEXEC} is missing", hint="install polkit")
    # /var may be where no file may be executed, and below a link the rule would be asked for another name.
    has_command = host.files.exists(ON_PATH) and host.files.resolve(ON_PATH) == ON_PATH
    ours = ON_PATH if has_command else PROGRAM
    # pkexec refuses the variables of some users, such as a shell that /etc/shells lacks, and none of them is needed.
    argv = ("env", "--ignore-environment", program, "--disable-internal-agent", ours, PLACE, *names)
    completed = host.commands.run(argv, timeout=2 * LOCK_SECONDS + MOVE_SECONDS + START_SECONDS)
    if completed.status != 0:
        raise NotPermitted(goal, object=slices, **_why(completed))


def _why(completed: Completed) -> Dict[str, str]:
    """The cause and the hint of a refusal, which is that of polkit, or of our own program behind it."""
    said = completed.errors.strip().splitlines()
    if completed.status in PKEXEC_REFUSES:
        # The last line is that the incident has been reported.
        words = said[0].rpartition(": ")[2] if said else f"exit status {completed.status}"
        return {"cause": f"polkit refuses it ({words.rstrip('.')})", "hint": f"check that the role {NAME} is in sync"}
    if not said:
        return {"cause": f"gpufleet {PLACE} ended with exit status {completed.status}", "hint": ""}
    # It has told for itself what it cannot do.
    return {"cause": said[-1].partition(": ")[2].rstrip(".") or said[-1], "hint": ""}


def place_caller(host: Host, names: Sequence[str]) -> int:
    """``gpufleet place``: move the process that called us, if it is the user's for whom pkexec runs us.

    Who may call us may so put nothing but a process of their own into a slice. It may end while we wait for the lock,
    and its number become that of another user's process: so it is looked at again when we have it.
    """
    caller = os.getppid()
    user = os.environ.get("PKEXEC_UID", str(os.getuid()))
    seen = processes.read(host.files, caller)

    def check() -> None:
        now = processes.read(host.files, caller)
        same = now is not None and seen is not None and now.identity == seen.identity
        if os.geteuid() != 0 or caller <= 1 or not same or processes.user_of(host.files, str(caller)) != user:
            raise NotPermitted(
                "start a command in {}",
                object=", ".join(names),
                cause="the calling process does not belong to the user who asks",
                hint="use gpufleet run",
            )

    check()
    with _unstopped():
        place(host, names, process=caller, locks=(QUEUE, LOCK), check=check)
    return 0


@contextlib.contextmanager
def _unstopped() -> Iterator[None]:
    """Keep the caller's terminal from stopping us (Ctrl-Z): a stopped process keeps the lock that every run needs."""
    previous = {number: signal.signal(number, signal.SIG_IGN) for number in STOPS}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def scope_of(files: Files, names: Sequence[str]) -> Scope:
    """One slice as it is, or for several the one above them, with the CPUs and memory of all for this scope alone."""
    if len(names) == 1:
        return Scope(names[0], {})
    every = [_values_of(files, name) for name in names]
    values: Dict[str, str] = {}
    for setting in (CPUS, MEMORY):
        values[setting] = cpulist.render(number for one in every for number in cpulist.parse(one.get(setting, "")))
    # What limits each of them limits it as well.
    if all(SWAP in one for one in every):
        values[SWAP] = str(max(int(one[SWAP]) for one in every))
    if all(WEIGHT in one for one in every):
        values[WEIGHT] = str(max(int(one[WEIGHT]) for one in every))
    for setting in every[0]:
        if " of " in setting and all(setting in one for one in every):
            values[setting] = str(sum(int(one[setting]) for one in every))
    return Scope(PARENT, values)


def told(files: Files, names: Sequence[str], uuids: Sequence[str]) -> str:
    """What was set, for whoever started the command."""
    scope = scope_of(files, names)
    values = scope.values or _values_of(files, names[0])
    words = [f"{setting} {value}" for setting, value in values.items()]
    of = f" ({', '.join(names)})" if scope.slice == PARENT else ""
    return f"in {scope.slice}{of}: {', '.join(words)}; {VARIABLE}={','.join(uuids)}"


def _start_scope(host: Host, scope: Scope, process: int) -> None:
    name = f"gpufleet-run-{process}.scope"
    properties = [
        ("Description", "s", "Started by gpufleet run"),
        ("Slice", "s", scope.slice),
        ("CollectMode", "s", "inactive-or-failed"),
        ("PIDs", "au", "1", str(process)),
        *map(_property, scope.values.items()),
    ]
    words = [word for one in properties for word in one]
    argv = ("busctl", "call", *MANAGER, "StartTransientUnit", "ssa(sv)a(sa(sv))")
    try:
        completed = host.commands.run((*argv, name, "fail", str(len(properties)), *words, "0"))
    except FileNotFoundError as error:
        raise Refused(
            "start a command in {}",
            object=scope.slice,
            cause="busctl, with which systemd is asked, is missing",
            hint="reinstall the package systemd, to which it belongs",
        ) from error
    if completed.status != 0:
        said = completed.errors.strip().splitlines()
        raise Refused(
            "start a command in {}",
            object=scope.slice,
            cause=said[-1].rstrip(".") if said else f"busctl ended with exit status {completed.status}",
        )
    end = time.monotonic() + MOVE_SECONDS
    while f"/{scope.slice}/{name}" not in (host.files.read_optional(f"/proc/{process}/cgroup") or ""):
        if time.monotonic() > end:
            raise CannotLook("start a command in {}", object=scope.slice, cause="systemd did not move the process")
        time.sleep(POLL_SECONDS)


def _property(pair: Tuple[str, str]) -> Tuple[str, ...]:
    """A setting as a property of systemd on the bus: its name, its type and its words."""
    setting, value = pair
    limit, _of, device = setting.partition(" of ")
    if device:
        directive = next(key for word, key in LIMITS.values() if word == limit)
        return (directive, "a(st)", "1", device, value)
    directive = slice_files.DIRECTIVES[setting]
    if setting in (CPUS, MEMORY):
        mask = _bytes(cpulist.parse(value))
        return (directive, "ay", str(len(mask)), *map(str, mask))
    return (directive, "t", value)


def _bytes(numbers: Any) -> List[int]:
    """A set of numbers as bytes, the lowest number in the lowest bit of the first."""
    mask = sum(1 << number for number in numbers)
    return list(mask.to_bytes(max(1, (mask.bit_length() + 7) // 8), "little"))


def _text_of(files: Files, name: str) -> str:
    """The file of a slice of ours; empty where it is not one."""
    text = files.read_optional(slice_files.path_of(name)) if slice_files.SLICE.fullmatch(name) else None
    return text if text is not None and slice_files.is_ours(text) else ""


def _values_of(files: Files, name: str) -> Dict[str, str]:
    return slice_files.values_of([_text_of(files, name)])


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"the user {os.getuid()}"


def _is_member(group: str) -> bool:
    """As polkit sees it: by the groups of the user, whether this login has them yet or not."""
    import grp
    import pwd

    try:
        user = pwd.getpwuid(os.getuid())
        return grp.getgrnam(group).gr_gid in os.getgrouplist(user.pw_name, user.pw_gid)
    except KeyError:
        return False
