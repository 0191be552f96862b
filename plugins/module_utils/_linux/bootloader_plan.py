# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How arguments get into the boot loader that is there, and out again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Callable, Dict, List, Optional, Tuple

from .._core.change import RemoveFile, ReplaceFile, RoomAction, RunCommand, Step
from .._core.errors import DeclarationError, GpuFleetError, NotInEffect, OwnedByAnother
from .._core.planning import file_action
from .._core.steps import run
from .._core.value import frozen
from .bootloader import (
    DEFAULTS,
    GRUB,
    GRUBBY,
    KERNEL_COMMAND_LINE,
    OSTREE,
    SDBOOTUTIL,
    SYSTEMD,
    Arguments,
    BootLoader,
    change,
    change_line,
    foreign_lines,
    mark_of,
    menu_command_line,
    record_of,
    without,
)
from .loader_entries import OPTIONS, options_of

if TYPE_CHECKING:
    from .._core.protocols import Files, Host


Planner = Callable[[BootLoader, Arguments, Arguments], Tuple[Step, ...]]


@frozen
class Regenerate(RoomAction):
    """Let the generator of ``loader`` write ``configs`` (a menu, or entries) and read them back; on failure ``source``
    gets its ``previous`` text again.

    ``needed`` are arguments that the default entry of a menu and each entry must have then, ``removed`` those that it
    must not, unless others set them.
    """

    loader: str
    command: Tuple[str, ...]
    configs: Tuple[str, ...]
    needed: Arguments
    source: str
    previous: Optional[str]
    removed: Arguments = ()

    @property
    def programs(self) -> Tuple[str, ...]:
        return self.command[:1]


def plan_arguments(loader: BootLoader, wanted: Arguments, ours: Arguments) -> Tuple[Step, ...]:
    """The steps after which the next boot has ``wanted`` in place of ``ours``, this concern's arguments now.

    Pure. The last step completes the others. Raises ``DeclarationError`` when this loader cannot do it. What is
    about to be set is noted first, beside what it replaces, so that a run that was killed in between leaves no argument
    whose owner nobody knows; the note ends with the arguments that are there then.
    """
    record = record_of(loader.concern)
    drop = Step(RemoveFile(record))
    if not wanted and not ours and not loader.carried:
        return (drop,)
    if loader.reason:
        raise unsupported(loader, wanted, "set permanent: false")
    if wanted and loader.overwrite and not loader.overwrite.in_doubt:
        one = loader.overwrite
        raise OwnedByAnother(
            f"add kernel arguments to {loader.variable}",
            object=loader.source,
            cause=f"{one.path} line {one.line} comes after it and sets the variable again",
            found=one.value,
            wanted=" ".join(wanted),
            hint=f'write {loader.variable}="${loader.variable} ..." there',
        )
    planned = PLANNERS[loader.name](loader, wanted, ours)
    lines = tuple(dict.fromkeys(" ".join(arguments) for arguments in (wanted, ours) if arguments))
    first = (Step(ReplaceFile(record, "".join(f"{line}\n" for line in lines)), notes=(record,)),)
    last = (Step(ReplaceFile(record, f"{lines[0]}\n")),) if len(lines) > 1 else ()
    return (*(first if lines and lines != loader.recorded else ()), *planned, *(last if wanted else (drop,)))


def unsupported(loader: BootLoader, wanted: Arguments, otherwise: str) -> DeclarationError:
    """Why this loader takes no arguments; ``otherwise`` is what can be declared instead."""
    return DeclarationError(
        f"{'set' if wanted else 'remove'} kernel arguments for the next boot",
        cause=loader.reason,
        wanted=" ".join(wanted) or None,
        hint=f"{loader.hint}, or {otherwise}",
    )


def _grub(loader: BootLoader, wanted: Arguments, ours: Arguments) -> Tuple[Step, ...]:
    """A drop-in of ours, where the generator reads drop-ins as Debian's does; else a marked line in its defaults."""
    previous = loader.texts[loader.source]
    text = _without_our_line(previous, loader) if loader.source == DEFAULTS else None
    if wanted:
        words = " ".join(wanted).replace('"', '\\"')
        line = f'{loader.variable}="${loader.variable} {words}"  {mark_of(loader.concern)}'
        text = f"{text or ''}{line}\n" if not text or text.endswith("\n") else f"{text}\n{line}"
    steps = []
    if text != previous:
        steps.append(Step(file_action(loader.source, text)))
    removed = tuple(word for word in ours if word not in wanted)
    steps.append(_regeneration(loader, (loader.config,), wanted, removed))
    return tuple(steps)


def _regeneration(loader: BootLoader, configs: Tuple[str, ...], wanted: Arguments, removed: Arguments) -> Step:
    previous = loader.texts[loader.source]
    return Step(
        Regenerate(loader.name, loader.command, configs, wanted, loader.source, previous, removed), probes=configs
    )


def _sdbootutil(loader: BootLoader, wanted: Arguments, ours: Arguments) -> Tuple[Step, ...]:
    """The file of which sdbootutil makes the entries; it also predicts what unlocks an encrypted disk with them."""
    text = loader.texts[loader.source] or ""
    new = change_line(text, wanted, loader.carried)
    configs = tuple(path for path in loader.texts if path != loader.source)
    removed = tuple(word for word in (*ours, *loader.carried) if word not in wanted)
    steps = (Step(ReplaceFile(loader.source, new)),) if new != text else ()
    return (*steps, _regeneration(loader, configs, wanted, tuple(dict.fromkeys(removed))))


def _without_our_line(text: Optional[str], loader: BootLoader) -> Optional[str]:
    if text is None:
        return None
    line = rf"{loader.variable}=.*{re.escape(mark_of(loader.concern))}"
    rest, ended = re.subn(rf"^{line}\n", "", text, flags=re.MULTILINE)
    return rest if ended else re.sub(rf"\n{line}\Z", "", rest)


def _grubby(loader: BootLoader, wanted: Arguments, ours: Arguments) -> Tuple[Step, ...]:
    """GRUB that reads loader entries, as Red Hat's does: grubby edits those and what new kernels start from."""
    quoted = next((word for word in wanted if '"' in word), "")
    if quoted:
        raise DeclarationError(
            "set kernel arguments with {}",
            object="grubby",
            cause=f"it would write the quotes of {quoted} into {DEFAULTS}, where a shell then runs what follows the ;",
            hint="leave it out on this machine",
        )
    names = [_name_of(word) for word in (*without(loader.command_line, ours).split(), *wanted)]
    twice = sorted({name for name in map(_name_of, wanted) if names.count(name) > 1})
    if twice:
        raise DeclarationError(
            "set kernel arguments with {}",
            object="grubby",
            cause=f"it keeps each name once, and {', '.join(twice)} would occur twice",
            hint="declare one page size at boot on this machine",
        )
    argv = ["grubby", "--update-kernel=ALL"]
    if ours:
        argv.append(f"--remove-args={' '.join(ours)}")
    if wanted:
        argv.append(f"--args={' '.join(wanted)}")
    return (Step(RunCommand(tuple(argv), goal="set kernel arguments")),)


def _name_of(word: str) -> str:
    return word.lstrip('"').partition("=")[0]


def _ostree(loader: BootLoader, wanted: Arguments, ours: Arguments) -> Tuple[Step, ...]:
    """A system of images, whose deployments carry the arguments."""
    options = [f"--delete-if-present={word}" for word in ours] + [f"--append={word}" for word in wanted]
    return (Step(RunCommand(("rpm-ostree", "kargs", *options), goal="set kernel arguments", timeout=600.0)),)


def _systemd(loader: BootLoader, wanted: Arguments, ours: Arguments) -> Tuple[Step, ...]:
    """The entries themselves, and the file from which new kernels get theirs, if there is one.

    The entry that boots by default is the last one, so that after a run that was killed the next one goes on.
    """
    steps: List[Step] = []
    for path, text in loader.texts.items():
        if text is None:
            continue
        if path == KERNEL_COMMAND_LINE:
            new = change_line(text, wanted, loader.carried)
        else:
            new = _with_options(text, wanted, ours)
        if new != text:
            steps.append(Step(ReplaceFile(path, new)))
    return tuple(steps)


def _with_options(text: str, wanted: Arguments, ours: Arguments) -> str:
    """The text of an entry after ``change`` in one line with options: that which has what is ours, else the last.

    Where it has no such line it gets one, which goes with what is ours.
    """
    found = list(OPTIONS.finditer(text))
    if not found and not wanted:
        return text
    if not found:
        added = f"options {' '.join(wanted)}"
        return f"{text}{added}\n" if text.endswith("\n") else f"{text}\n{added}"
    having = [line for line in found if any(without(line[0], words) != line[0] for words in (wanted, ours))]
    line = (having or found)[-1]
    new = change(line[0], wanted, ours)
    before, behind = text[: line.start()], text[line.end() :]
    if new == "options":
        return before + behind[1:] if behind else before[:-1]
    return f"{before}{new}{behind}"


PLANNERS: Dict[str, Planner] = {
    GRUB: _grub,
    GRUBBY: _grubby,
    OSTREE: _ostree,
    SDBOOTUTIL: _sdbootutil,
    SYSTEMD: _systemd,
}


def regenerate(action: Regenerate, host: Host) -> None:
    """Generate the menu or the entries and read them back. When that fails the source is as it was before, and the
    error says so.
    """
    command = RunCommand(action.command, goal="generate the boot menu", timeout=300.0)
    try:
        run(command, host)
        for config in action.configs:
            _check(action, config, host.files)
    except GpuFleetError as error:
        if action.previous is None:
            host.files.remove(action.source)
        else:
            host.files.replace(action.source, action.previous)
        # Of several entries some may have been written before it failed; a menu is written in one piece.
        if isinstance(error, NotInEffect) or len(action.configs) > 1:
            host.commands.run(action.command, timeout=command.timeout)
        error.hint = f"{action.source} is again as it was before this step" + (f"; {error.hint}" if error.hint else "")
        error.args = (f"{error} {action.source} is again as it was before this step.",)
        raise


def _check(action: Regenerate, config: str, files: Files) -> None:
    """Raises ``NotInEffect`` where a menu or entry does not have what it must have, or still has what it must not."""
    if action.loader == GRUB:
        found, entry = menu_command_line(files, config), "the entry that boots by default"
    else:
        found, entry = options_of(files.read(config), {}), "it"
    missing = [word for word in action.needed if word not in found.split()]
    if missing:
        raise NotInEffect(
            "add kernel arguments to the boot menu",
            object=config,
            cause=f"{action.command[0]} ran, and {entry} lacks {' '.join(missing)}",
            found=found,
            wanted=" ".join(action.needed),
            hint="check whether the default entry is one that is not generated",
        )
    foreign = [line for _path, _number, line in foreign_lines(files, action.loader, {})]
    left = [word for word in action.removed if word in found.split() and not any(word in line for line in foreign)]
    if left:
        raise NotInEffect(
            "remove kernel arguments from the boot menu",
            object=config,
            cause=f"{action.command[0]} ran, and {entry} still has {' '.join(left)}",
            found=found,
            hint=f"check that {action.command[0]} writes this menu, and what else gives it these arguments",
        )
