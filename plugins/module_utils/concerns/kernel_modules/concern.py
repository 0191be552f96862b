# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The concern ``kernel_modules``: modules that are loaded now and at every boot, and others that never are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core.change import Conflict, Plan, Step, Unmanaged
from ..._core.declared import WANTED
from ..._core.errors import CannotLook, DeclarationError
from ..._core.registration import Registration
from ..._core.setting import IN_SYNC, Setting
from ..._core.value import replace
from ..._kinds.own_files import OwnFile, header_of
from ..._linux import bootloader
from ..._linux.kernel_modules import read_installed
from ..._linux.modprobe import INSTALL, LOAD, SOFTDEP, ModprobeLine, parse_command_line, read_lines, read_modprobe
from .options import OPTIONS
from .spec import NAME, KernelModulesDeclaration, parse
from .state import (
    ANOTHER,
    BLOCK_FILE,
    BLOCKED,
    INITRAMFS,
    INITRAMFS_NOTE,
    LOAD_FILE,
    LOADED,
    MODPROBE_COPY,
    NOT_LOADED,
    OPTIONS_FILE,
    OUTDATED,
    STATE,
    KernelModulesDesired,
    KernelModulesState,
    Module,
    why_lacking,
)

if TYPE_CHECKING:
    from ..._core.baseline import Baseline
    from ..._core.contract import Scope
    from ..._core.protocols import Files, Host
    from ..._linux.bootloader import BootLoader

NOT_INSTALLED = "install it, leave it out, or set strict: false"


# Drivers with a parameter modeset: 0 keeps them from the screen even when something loads them in spite of all.
WITH_MODESET = ("ast", "i915", "mgag200", "nouveau", "radeon")


class KernelModules:
    """``convergence.Concern`` for modules of the kernel."""

    name = NAME
    options: Mapping[str, Any] = OPTIONS
    apply_at_boot = False
    registration = Registration(
        after=("hugepages",),
        cures=("no_driver", "no_ib_umad", "no_channel"),
        owns=("kernel argument module_blacklist", "kernel argument modprobe.blacklist"),
    )

    def parse(self, params: Mapping[str, Any]) -> KernelModulesDeclaration:
        declaration = parse(params)
        if params["parameters"]:
            from .parameters_spec import parse_parameters

            declaration = replace(declaration, parameters=parse_parameters(params, declaration.block))
        return declaration

    def everything(self, params: Mapping[str, Any], baseline: Baseline) -> KernelModulesDeclaration:
        names = tuple(name for name, setting in baseline.values if setting == STATE)
        from . import parameters

        return KernelModulesDeclaration(names, parameters=parameters.everything(baseline))

    def knobs(self, declaration: KernelModulesDeclaration) -> Tuple[str, ...]:
        return tuple(f"kernel argument {module}.{parameter}" for module, parameter in declaration.parameters)

    def observe(self, host: Host, declaration: KernelModulesDeclaration, scope: Scope) -> KernelModulesState:
        files = host.files
        running = files.read_optional("/proc/cmdline") or ""
        texts = read_modprobe(files)
        block = OwnFile(BLOCK_FILE, "block list", files.read_optional(BLOCK_FILE))
        options = OwnFile(OPTIONS_FILE, "parameters", texts.get(OPTIONS_FILE) or files.read_optional(OPTIONS_FILE))
        with_parameters = bool(declaration.parameters or options.text)
        outdated = files.exists(OUTDATED)
        loader = bootloader.detect(host, NAME, running)
        state = KernelModulesState(
            names=declaration.names,
            installed=read_installed(files),
            loaded=parse_modules(files.read_optional("/proc/modules") or ""),
            lines=read_lines(files, texts),
            running=parse_command_line("/proc/cmdline", running),
            coming=_coming(files, loader),
            load_file=OwnFile(LOAD_FILE, "load list", files.read_optional(LOAD_FILE)),
            block_file=block,
            options_file=options,
            rebuild=_rebuild(host) if declaration.block or block.text or with_parameters or outdated else (),
            outdated=outdated,
            noted=files.exists(INITRAMFS_NOTE),
        )
        if with_parameters:
            from . import parameters

            seen = parameters.observe(host, declaration, state, texts, loader)
            state = replace(state, parameters=seen)
        if state.rebuild and (declaration.block or declaration.parameters):
            from . import initramfs

            state = replace(state, initramfs=initramfs.observe(host, declaration, state, loader))
        at_stake = [name for name in declaration.block if _would_lose(name, state)]
        if at_stake:
            from .vital import refuse_vital

            refuse_vital(files, state.installed, at_stake)
        return state

    def resolve(self, declaration: KernelModulesDeclaration, state: KernelModulesState) -> KernelModulesDesired:
        for name in declaration.block:
            if state.installed.has_built_in(name):
                raise DeclarationError(
                    "block {}",
                    object=name,
                    cause=f"it is built into this kernel ({state.installed.release}), and is not a module",
                    hint="leave it out, or boot a kernel that has it as a module",
                )
        blocked = frozenset(declaration.block)
        for name in declaration.load:
            needed = [other for other in state.needs(name) if other in blocked]
            if needed:
                cause = f"it needs {needed[0]}, which is in the list block"
                raise DeclarationError("load {}", object=name, cause=cause, hint="remove one of the two")
        lacking = tuple(
            Unmanaged(name, STATE, why_lacking(name, state), goal="load {}", hint=NOT_INSTALLED)
            for name in declaration.load
            if not state.has(name)
        )
        load = tuple(name for name in declaration.load if state.has(name))
        desired = KernelModulesDesired(
            load=load,
            block=declaration.block,
            load_text=_text([name for name in load if not state.installed.has_built_in(name)]),
            block_text=_text([line for name in declaration.block for line in _blocking(name)]),
            unmanaged=lacking,
        )
        if declaration.parameters:
            from . import parameters

            desired = parameters.resolve(desired, declaration, state)
        return desired

    def restore(self, baseline: Baseline, state: KernelModulesState) -> KernelModulesDesired:
        from . import parameters

        values = {name: baseline.values[(name, STATE)].effective for name in state.names}
        return KernelModulesDesired(
            load=tuple(name for name, value in values.items() if value == LOADED),
            block=tuple(name for name, value in values.items() if value == NOT_LOADED),
            parameters=parameters.restore(baseline, state),
        )

    def plan(self, state: KernelModulesState, desired: KernelModulesDesired, scope: Scope) -> Plan:
        if scope.restoring and scope.immediate and not _is_restored(state, desired):
            from .plan import leave_impossible

            desired = leave_impossible(state, desired, scope)
        rows = [row for name in desired.load for row in _rows(name, (LOADED, LOADED), state, scope)]
        rows += [row for name in desired.block for row in _rows(name, (NOT_LOADED, BLOCKED), state, scope)]
        unmanaged, conflicts = desired.unmanaged, () if scope.restoring else _conflicts(state, desired, scope)
        if desired.parameters:
            from . import parameters

            rows += parameters.rows(state, desired, scope)
            if not scope.restoring:
                conflicts += parameters.conflicts(state, desired)
                unmanaged += parameters.hidden(state, desired) if scope.immediate else ()
        rows += _file_rows(state, desired) if scope.permanent else []
        steps: Tuple[Step, ...] = ()
        if any(row.status != IN_SYNC for row in rows):
            from .plan import plan_steps

            rows, steps = plan_steps(state, desired, rows, scope)
        return Plan(tuple(rows), steps, unmanaged, conflicts)

    def perform(self, step: Step, host: Host) -> None:
        from .initramfs_apply import perform

        perform(step, host)

    def report(self, state: KernelModulesState) -> Tuple[Dict[str, Any], Dict[str, Any]]:
        effective: Dict[str, Any] = {"modules": {name: state.effective(name) for name in state.names}}
        boot: Dict[str, Any] = {"modules": {name: state.next_boot(name) for name in state.names}}
        if state.parameters is not None and state.parameters.keys:
            from . import parameters

            effective["parameters"], boot["parameters"] = parameters.report(state.parameters, state)
        return effective, boot


CONCERN = KernelModules()


def _is_restored(state: KernelModulesState, desired: KernelModulesDesired) -> bool:
    """Whether every module is already as it was."""
    return all(state.effective(name) == LOADED for name in desired.load) and all(
        state.effective(name) == NOT_LOADED for name in desired.block
    )


def parse_modules(text: str) -> Dict[str, Module]:
    """/proc/modules: name, size, references, users, state and address of each module."""
    found = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) < 4:
            raise CannotLook("read the modules", object="/proc/modules", cause=f"{line[:80]!r} is not a module")
        name, _size, references, users = fields[:4]
        known = tuple(user for user in users.split(",") if user not in ("", "-"))
        found[name] = Module(int(references) if references.isdecimal() and "[permanent]" not in known else None, known)
    return found


def _coming(files: Files, loader: BootLoader) -> Tuple[ModprobeLine, ...]:
    lines = parse_command_line("/proc/cmdline", loader.command_line)
    if not lines:
        return ()
    names = [line.text.partition("=")[0] for line in lines]
    sources = bootloader.find_sources(files, loader, names)
    return tuple(
        replace(line, path=sources[name][0], number=sources[name][1]) if name in sources else line
        for line, name in zip(lines, names)
    )


def _would_lose(name: str, state: KernelModulesState) -> bool:
    """Whether to block a module takes anything away, now or at boot."""
    if name in state.loaded:
        return True
    return state.boot(name) != BLOCKED and state.installed.dependencies(name) is not None


def _rebuild(host: Host) -> Tuple[str, ...]:
    """All that are there, for which kernel boots next is not ours to say. An image of ostree is not ours to build."""
    if host.files.exists("/run/ostree-booted"):
        return ()
    commands = [("update-initramfs", "-u", "-k", "all"), ("dracut", "--force", "--regenerate-all")]
    if bootloader.kind_of_sdbootutil(host):
        # It puts what dracut builds beside the loader entries, under names of its own: no other image is booted.
        commands = [(bootloader.SDBOOTUTIL, "mkinitrd")]
    return next((command for command in commands if host.commands.find(command[0])), ())


def _text(lines: Sequence[str]) -> Optional[str]:
    return header_of(NAME) + "".join(f"{line}\n" for line in lines) if lines else None


def _blocking(name: str) -> List[str]:
    lines = [f"blacklist {name}", f"install {name} /bin/false"]
    return [*lines, f"options {name} modeset=0"] if name in WITH_MODESET else lines


def _rows(name: str, wanted: Tuple[str, str], state: KernelModulesState, scope: Scope) -> List[Setting]:
    """What is wanted of a module now and at boot: one row, or two where the words differ."""
    row = Setting(name, STATE, wanted[0], state.effective(name), state.next_boot(name), name)
    now, at_boot = scope.immediate, scope.carries
    if wanted[0] == wanted[1]:
        return [replace(row, effective_matters=now, boot_matters=at_boot)]
    rows = [replace(row, boot_matters=False)] if now else []
    return [*rows, replace(row, wanted=wanted[1], effective_matters=False)] if at_boot else rows


def _file_rows(state: KernelModulesState, desired: KernelModulesDesired) -> List[Setting]:
    made = [
        *state.block_file.rows(desired.block_text, others=ANOTHER),
        *state.options_file.rows(desired.options_text, others=ANOTHER),
        *state.load_file.rows(desired.load_text, others=ANOTHER),
    ]
    if state.outdated or state.faults or state.unread:
        found = state.modprobe_copy
        made.append(Setting(INITRAMFS, MODPROBE_COPY, WANTED, found, found, INITRAMFS, False))
    return made


def _conflicts(state: KernelModulesState, desired: KernelModulesDesired, scope: Scope) -> Tuple[Conflict, ...]:
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

    return conflicts_of(found, state, desired, scope)
