# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``kernel_modules``: modules that are loaded now and at every boot, and others that never are."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

from .._core.change import RIGHT, Conflict, Plan, Setting, Step, Unmanaged
from .._core.declared import WANTED
from .._core.errors import CannotLook, DeclarationError
from .._host import bootloader
from .._host.modules import Installed, read_installed
from .sources import (
    BLACKLIST,
    INSTALL,
    LOAD,
    SOFTDEP,
    Line,
    Lines,
    install_of,
    lines_of,
    parse_command_line,
    read_files,
    stop_of,
)
from .spec import NAME, OPTIONS, Declared, parse, refusal

if TYPE_CHECKING:
    from .._core.before import Before
    from .._host.protocols import Files, Host

LOAD_FILE = "/etc/modules-load.d/gpufleet-kernel_modules.conf"
BLOCK_FILE = "/etc/modprobe.d/gpufleet-kernel_modules.conf"
# It is there from before the block list changes until the initramfs was built anew.
OUTDATED = "/var/lib/gpufleet/kernel_modules.initramfs"
HEADER = "# Written by the module gpufleet.node.kernel_modules; changes are lost.\n"
STATE = "state"

LOADED = "loaded"
NOT_LOADED = "not loaded"
BLOCKED = "blocked"
BLACKLISTED = "blacklisted"
ON_DEMAND = "on demand"

NVIDIA = ("nvidia", "nvidia_drm", "nvidia_modeset", "nvidia_peermem", "nvidia_uvm")
# Drivers with a parameter modeset: 0 keeps them from the screen even when something loads them in spite of all.
WITH_MODESET = ("ast", "i915", "mgag200", "nouveau", "radeon")


@dataclass(frozen=True)
class Module:
    """A line of /proc/modules. ``references`` counts also ``users``, the modules that use it; None: it has to stay."""

    references: Optional[int]
    users: Tuple[str, ...]


@dataclass(frozen=True)
class State:
    """What was seen. ``names`` are the modules it is about, ``lines`` what files say of modules, ours too.

    ``running`` and ``coming`` is what the command lines of this boot and of the next say. ``rebuild`` is the command
    that builds the initramfs anew, ``outdated`` whether that is still to be done.
    """

    names: Tuple[str, ...]
    declared: Declared
    installed: Installed
    loaded: Mapping[str, Module]
    lines: Tuple[Line, ...]
    running: Tuple[Line, ...]
    coming: Tuple[Line, ...]
    load_text: Optional[str]
    block_text: Optional[str]
    rebuild: Tuple[str, ...]
    outdated: bool
    read_only: Tuple[str, ...]

    def effective(self, name: str) -> str:
        return LOADED if name in self.loaded or self.installed.has_built_in(name) else NOT_LOADED

    @cached_property
    def at_boot(self) -> Lines:
        return Lines((*self.lines, *self.coming))

    def boot(self, name: str, after: Optional[Lines] = None) -> str:
        """What the next boot brings, by these lines in the place of those that are there."""
        if self.installed.has_built_in(name):
            return LOADED
        every = after or self.at_boot
        if stop_of(name, every):
            return BLOCKED
        if lines_of(BLACKLIST, name, every):
            return BLACKLISTED
        asked = lines_of(LOAD, name, every) and not stop_of(name, every, self.needs(name))
        return LOADED if asked else ON_DEMAND

    def needs(self, name: str) -> Tuple[str, ...]:
        return self.installed.dependencies(name) or ()

    def has(self, name: str) -> bool:
        """Whether this kernel can have it. Debian's NVIDIA driver has other names, which its install commands say."""
        if self.effective(name) == LOADED or self.installed.dependencies(name) is not None:
            return True
        command = install_of(name, self.at_boot)
        real = re.findall(r"(?:-i|--ignore-install)\s+([\w-]+)", command.text) if command else []
        return any(self.installed.dependencies(other) is not None for other in real)


@dataclass(frozen=True)
class Desired:
    """What shall be loaded and what not; ``giving_back`` is ``state: absent``. None for a text means: no such file."""

    load: Tuple[str, ...]
    block: Tuple[str, ...]
    load_text: Optional[str] = None
    block_text: Optional[str] = None
    unmanaged: Tuple[Unmanaged, ...] = ()
    immediate: bool = True
    permanent: bool = True
    giving_back: bool = False


class KernelModules:
    """``road.Concern`` for modules of the kernel."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = False

    def observe(self, host: Host, params: Mapping[str, Any]) -> State:
        files = host.files
        declared = Declared()
        names: Tuple[str, ...] = ()
        if params["state"] == "absent":
            from .._core import before

            found = before.load(files, NAME).found
            names = tuple(identity for identity, setting in found if setting == STATE)
        else:
            declared = parse(params)
            names = (*declared.load, *declared.block)
        running = files.read_optional("/proc/cmdline") or ""
        block_text = files.read_optional(BLOCK_FILE)
        outdated = files.exists(OUTDATED)
        state = State(
            names=names,
            declared=declared,
            installed=read_installed(files),
            loaded=parse_modules(files.read_optional("/proc/modules") or ""),
            lines=read_files(files),
            running=parse_command_line("/proc/cmdline", running),
            coming=_coming(host, running),
            load_text=files.read_optional(LOAD_FILE),
            block_text=block_text,
            rebuild=_rebuild(host) if declared.block or block_text or outdated else (),
            outdated=outdated,
            read_only=_read_only(files) if host.may_change else (),
        )
        at_stake = [name for name in declared.block if _would_lose(name, state)]
        if at_stake:
            from .vital import refuse_vital

            refuse_vital(files, state.installed, at_stake)
        return state

    def normalise(self, params: Mapping[str, Any], state: State) -> Desired:
        declared = state.declared
        for name in declared.block:
            if state.installed.has_built_in(name):
                raise refusal(
                    DeclarationError,
                    "block",
                    name,
                    cause=f"it is built into this kernel ({state.installed.release}), and no module",
                    hint="leave it out, or boot a kernel that has it as a module",
                )
        blocked = frozenset(declared.block)
        for name in declared.load:
            needed = [other for other in state.needs(name) if other in blocked]
            if needed:
                cause = f"it needs {needed[0]}, which is in block"
                raise refusal(DeclarationError, "load", name, cause=cause, hint="leave one of the two out")
        lacking = tuple(
            Unmanaged(name, STATE, why_lacking(name, state)) for name in declared.load if not state.has(name)
        )
        if lacking and params["strict"]:
            hint = "install it, leave it out, or say strict: false"
            raise refusal(DeclarationError, "load", lacking[0].object, cause=lacking[0].reason, hint=hint)
        load = tuple(name for name in declared.load if state.has(name))
        return Desired(
            load=load,
            block=declared.block,
            load_text=_text([name for name in load if not state.installed.has_built_in(name)]),
            block_text=_text([line for name in declared.block for line in _blocking(name)]),
            unmanaged=lacking,
            immediate=params["immediate"],
            permanent=params["permanent"],
        )

    def restore(self, params: Mapping[str, Any], found: Before, state: State) -> Desired:
        values = {name: found.found[(name, STATE)].effective for name in state.names}
        desired = Desired(
            load=tuple(name for name, value in values.items() if value == LOADED),
            block=tuple(name for name, value in values.items() if value == NOT_LOADED),
            immediate=params["immediate"],
            permanent=params["permanent"],
            giving_back=True,
        )
        if all(state.effective(name) == value for name, value in values.items()):
            return desired
        from .plan import leave_impossible

        return leave_impossible(state, desired)

    def plan(self, state: State, desired: Desired) -> Plan:
        rows = [row for name in desired.load for row in _rows(name, (LOADED, LOADED), state, desired)]
        rows += [row for name in desired.block for row in _rows(name, (NOT_LOADED, BLOCKED), state, desired)]
        rows += _file_rows(state, desired)
        conflicts = () if desired.giving_back else _conflicts(state, desired)
        steps: Tuple[Step, ...] = ()
        if any(row.status != RIGHT for row in rows):
            from .plan import plan_steps

            rows, steps = plan_steps(state, desired, rows)
        return Plan(tuple(rows), steps, desired.unmanaged, conflicts)

    def perform(self, step: Step, host: Host) -> None:
        from .._core import steps

        steps.perform(step, host)

    def report(self, state: State) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        effective = {name: state.effective(name) for name in state.names}
        return {"modules": effective}, {"modules": {name: state.boot(name) for name in state.names}}


CONCERN = KernelModules()


def parse_modules(text: str) -> Dict[str, Module]:
    """/proc/modules: name, size, references, users, state and address of each module."""
    found = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 4:
            raise CannotLook("read the modules", object="/proc/modules", cause=f"{line[:80]!r} is no module")
        name, _size, references, users = fields[:4]
        known = tuple(user for user in users.split(",") if user not in ("", "-"))
        found[name] = Module(int(references) if references.isdigit() and "[permanent]" not in known else None, known)
    return found


def _coming(host: Host, running: str) -> Tuple[Line, ...]:
    loader = bootloader.detect(host, NAME, running)
    lines = parse_command_line("/proc/cmdline", loader.command_line)
    if not lines:
        return ()
    from .._host.bootloader_sources import find_sources

    names = [line.text.partition("=")[0] for line in lines]
    sources = find_sources(host.files, loader, names)
    return tuple(
        replace(line, path=sources[name][0], number=sources[name][1]) if name in sources else line
        for line, name in zip(lines, names)
    )


def _would_lose(name: str, state: State) -> bool:
    """Whether to block a module takes anything away, now or at boot."""
    if name in state.loaded:
        return True
    return state.boot(name) != BLOCKED and state.installed.dependencies(name) is not None


def _rebuild(host: Host) -> Tuple[str, ...]:
    """All that are there, for which kernel boots next is not ours to say. An image of ostree is not ours to build."""
    if host.files.exists("/run/ostree-booted"):
        return ()
    for command in (("update-initramfs", "-u", "-k", "all"), ("dracut", "--force", "--regenerate-all")):
        if host.commands.find(command[0]):
            return command
    return ()


def _read_only(files: Files) -> Tuple[str, ...]:
    """Those of our files that root may not write: what access(2) denies root is on a read-only file system."""
    denied = []
    for path in (LOAD_FILE, BLOCK_FILE):
        folder = path.rpartition("/")[0]
        while folder and not files.exists(folder):
            folder = folder.rpartition("/")[0]
        if not files.writable(f"{folder}/."):
            denied.append(path)
    return tuple(denied)


def why_lacking(name: str, state: State) -> str:
    installed = state.installed
    if name in NVIDIA and not state.has("nvidia"):
        return f"the NVIDIA driver is not installed for this kernel ({installed.release})"
    if not installed.depends:
        return f"there is no /lib/modules/{installed.release}/modules.dep"
    return f"this kernel ({installed.release}) has no such module"


def _text(lines: Sequence[str]) -> Optional[str]:
    return HEADER + "".join(f"{line}\n" for line in lines) if lines else None


def _blocking(name: str) -> List[str]:
    lines = [f"blacklist {name}", f"install {name} /bin/false"]
    return [*lines, f"options {name} modeset=0"] if name in WITH_MODESET else lines


def _rows(name: str, wanted: Tuple[str, str], state: State, desired: Desired) -> List[Setting]:
    """What is wanted of a module now and at boot: one row, or two where the words differ."""
    row = Setting(name, STATE, wanted[0], state.effective(name), state.boot(name), name)
    now, at_boot = desired.immediate, desired.permanent and not desired.giving_back
    if wanted[0] == wanted[1]:
        return [replace(row, effective_matters=now, boot_matters=at_boot)]
    rows = [replace(row, boot_matters=False)] if now else []
    return [*rows, replace(row, wanted=wanted[1], effective_matters=False)] if at_boot else rows


def _file_rows(state: State, desired: Desired) -> List[Setting]:
    if not desired.permanent:
        return []
    made = []
    for path, setting, found, wanted in (
        (BLOCK_FILE, "block list", state.block_text, desired.block_text),
        (LOAD_FILE, "load list", state.load_text, desired.load_text),
    ):
        goal = None if wanted is None else WANTED
        present = None if found is None else WANTED if found == wanted else "another"
        if goal is not None or present is not None:
            made.append(Setting(path, setting, goal, present, present, path, effective_matters=False))
    if state.outdated:
        made.append(Setting("initramfs", "block list", WANTED, "another", "another", "initramfs", False))
    return made


def _conflicts(state: State, desired: Desired) -> Tuple[Conflict, ...]:
    """The lines of others that want the contrary of what is declared."""
    found = []
    for names, wanted in ((desired.load, LOADED), (desired.block, BLOCKED)):
        for name in names:
            for line in state.at_boot.of(name):
                loads = line.word == LOAD or (line.word == INSTALL and not line.stops)
                contrary = loads == (wanted == BLOCKED) and line.word != SOFTDEP
                if contrary and line.path not in (LOAD_FILE, BLOCK_FILE):
                    found.append((name, wanted, line))
    if not found:
        return ()
    from .plan import conflicts_of

    return conflicts_of(found, state, desired)
