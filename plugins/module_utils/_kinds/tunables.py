# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The kind *tunables*: values in /sys and /proc, and all who give them one at boot or later.

What is in effect is what the kernel says. A boot passes the kernel command line, then systemd-sysctl and
systemd-tmpfiles, which do not wait for each other, then tuned, and what other services and scripts write.
``BootAssignment`` is one line of any of them.
"""

from __future__ import annotations

import re
from typing import (
    TYPE_CHECKING,
    Callable,
    Collection,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
)

from .._core.change import Change, Step, WriteAttribute
from .._core.setting import Scalar
from .._core.value import frozen
from .._linux import boot_writers, sysctl_d, tmpfiles_d, tuned

if TYPE_CHECKING:
    from .._core.protocols import Files
    from .._linux.sysctl_d import SysctlFiles, SysctlLine
    from .._linux.tmpfiles_d import TmpfilesLine


COMMAND_LINE = "kernel command line"
SYSCTL_D, SYSCTL_CONF = "sysctl.d", "sysctl.conf"
REAPPLIED = ("/run/", "/etc/")
PROC_SYS = "/proc/sys/"


@frozen
class Tunable:
    """One tunable; ``choices`` are the words it takes, none for a number."""

    path: str
    object: str
    setting: str
    value: Scalar
    choices: Tuple[str, ...] = ()

    def refusal(self, value: Scalar) -> str:
        """Why the kernel would not take this word; empty where nothing is known against it."""
        known = not self.choices or value in self.choices
        return "" if known else f"this kernel knows only {', '.join(self.choices)}"


def parse_value(text: str) -> Tuple[Scalar, Tuple[str, ...]]:
    """What a file of the kernel says, and the words it offers, of which the one in brackets is set."""
    active = re.search(r"\[(\S+)\]", text)
    if active:
        return active[1], tuple(word.strip("[]") for word in text.split())
    word = text.strip()
    return int(word) if re.fullmatch(r"-?[0-9]+", word) else word, ()


def read(files: Files, path: str, object: str) -> Optional[Tunable]:
    """A tunable that is named as its file; None where this kernel does not have it."""
    text = files.read_optional(path)
    return None if text is None else Tunable(path, object, path.rpartition("/")[2], *parse_value(text))


def write_step(path: str, change: Change, *more: Change) -> Step:
    """Write what the change is about into its file; ``more`` changes come with it."""
    return Step(WriteAttribute(path, str(change.after)), (change, *more), probes=(path,))


@frozen
class BootAssignment:
    """A line somewhere that gives a tunable a value. ``tunable`` is a path below /sys or /proc, in tmpfiles.d maybe a
    glob.

    ``at_boot`` and ``later`` say when it is carried out: at boot, or again while the system runs (an installed package
    runs systemd-tmpfiles, somebody runs ``sysctl --system``). ``in_doubt``: it may not be carried out, or ``value`` is
    empty because it is only known then, so that nothing is computed from it.
    """

    owner: str
    path: str
    line: Optional[int]
    tunable: str
    value: str
    at_boot: bool = True
    later: bool = True
    in_doubt: bool = False

    @property
    def place(self) -> str:
        """The file, with the line where there is one."""
        return self.path if self.line is None else f"{self.path}:{self.line}"

    @property
    def is_early(self) -> bool:
        """Whether it comes before systemd-tmpfiles at the latest."""
        return self.owner in (SYSCTL_D, SYSCTL_CONF, COMMAND_LINE)


def of_tmpfiles(line: TmpfilesLine) -> BootAssignment:
    value = (line.argument or "").strip()
    return BootAssignment("tmpfiles.d", line.path, line.number, line.target, value, later=not line.boot_only)


def tmpfiles_line(path: str, tunable: str, value: Scalar) -> TmpfilesLine:
    """The line of a file of ours that writes a value at every boot, and not when systemd-tmpfiles runs later."""
    (line,) = tmpfiles_d.parse(path, _written(tunable, value), tmpfiles_d.WRITE)
    return line


def tmpfiles_text(header: str, lines: Sequence[TmpfilesLine]) -> Optional[str]:
    """The file of these lines; None for none."""
    return header + "".join(f"{_written(line.target, line.argument)}\n" for line in lines) if lines else None


def _written(tunable: str, value: Scalar) -> str:
    return f"w! {tunable} - - - - {value}"


def read_sysctl(files: Files, tunables: Mapping[str, str]) -> Tuple[BootAssignment, ...]:
    """The last assignment in sysctl.d to any of these keys, and that in /etc/sysctl.conf, which counts only later.

    ``tunables`` are by key, as ``sysctl_d.normal`` has it. Keys of the same tunable are one.
    """
    found = sysctl_d.read_files(files)
    counts = _of_sysctl("sysctl.d", found.boot, tunables, at_boot=True)
    return counts if found.conf_at_boot else counts + _of_sysctl("sysctl.conf", found.conf, tunables, at_boot=False)


def of_sysctl(owner: str, line: SysctlLine) -> BootAssignment:
    """A line of sysctl.d, or an argument of the kernel, as an assignment to its key."""
    number = None if line.path == sysctl_d.COMMAND_LINE else line.number
    return BootAssignment(owner, line.path, number, line.key, line.value or "")


def assigned(owner: str, lines: Iterable[SysctlLine], keys: Sequence[str]) -> Iterator[BootAssignment]:
    """The values that lines write into these keys, in the order of the writes."""
    return (of_sysctl(owner, line) for line in sysctl_d.written(lines, keys))


@frozen
class SysctlSources:
    """All who write keys at boot: the lines of sysctl.d, of /etc/sysctl.conf and of the kernel's command line, in the
    order in which they are read, those of a profile of tuned, and services and scripts that come last.

    ``reapplied``: tuned applies what is in /run, /etc and /etc/sysctl.conf once more, behind its profile.
    """

    lines: Tuple[SysctlLine, ...]
    conf: Tuple[SysctlLine, ...]
    command_line: Tuple[SysctlLine, ...]
    tuned: Tuple[BootAssignment, ...]
    reapplied: bool
    writers: Tuple[BootAssignment, ...] = ()

    def writes(self, lines: Sequence[SysctlLine], keys: Sequence[str]) -> Iterator[BootAssignment]:
        """The values that a boot writes into these keys, in order, with these lines of sysctl.d."""
        yield from assigned(COMMAND_LINE, self.command_line, keys)
        yield from assigned(SYSCTL_D, lines, keys)
        yield from self.tuned
        if self.reapplied:
            yield from assigned(SYSCTL_D, (line for line in lines if line.path.startswith(REAPPLIED)), keys)
            yield from assigned(SYSCTL_CONF, self.conf, keys)
        yield from (one for one in self.writers if not one.in_doubt)


def read_sysctl_sources(files: Files, read: SysctlFiles, keys: Collection[str]) -> SysctlSources:
    """The sources of these keys. ``read`` are the files."""
    # A profile of tuned is read only where it has one, and the rest of it only where the profile has such keys.
    applied: List[str] = []

    def of_tuned(plugin: str, key: str) -> str:
        if plugin == "sysctl":
            applied.append(key)
        name = sysctl_d.normal(key) if plugin == "sysctl" else f"vm/{key}" if plugin == "vm" else ""
        return name if name in keys else ""

    by_tuned = read_tuned(files, of_tuned)
    command_line = tuple(sysctl_d.parse_command_line(files.read_optional(sysctl_d.COMMAND_LINE) or ""))
    reapplied = bool(applied) and tuned.reapplies_sysctl(files)
    writers = read_writers(files, lambda target: _sysctl_keys(target, keys))
    return SysctlSources(read.boot, read.conf, command_line, by_tuned, reapplied, writers)


def _sysctl_keys(target: str, keys: Collection[str]) -> Iterable[str]:
    key = target[len(PROC_SYS) :]
    if not target.startswith(PROC_SYS):
        return ()
    return [key] if key in keys else [one for one in keys if sysctl_d.fits(one, key)]


def read_sysctl_at_boot(files: Files, keys: Sequence[str]) -> Tuple[BootAssignment, ...]:
    """The values that a boot writes into these keys, in order."""
    sources = read_sysctl_sources(files, sysctl_d.read_files(files), keys)
    return tuple(one for one in sources.writes(sources.lines, keys) if one.tunable in keys)


def _of_sysctl(
    owner: str, lines: Sequence[SysctlLine], tunables: Mapping[str, str], *, at_boot: bool
) -> Tuple[BootAssignment, ...]:
    last = {tunables[line.key]: line for line in sysctl_d.written(lines, tuple(tunables))}
    return tuple(
        BootAssignment(owner, line.path, line.number, tunable, line.value or "", at_boot)
        for tunable, line in last.items()
    )


def read_tuned(files: Files, tunable_of: Callable[[str, str], str]) -> Tuple[BootAssignment, ...]:
    """What the active profile of an enabled tuned sets, includes resolved: it does so whenever it starts.

    ``tunable_of`` names the tunable of an option by plugin and key, empty for one that is not looked for.
    """
    if not files.exists("/etc/tuned/active_profile"):
        return ()  # Most nodes have no tuned; its files are parsed only where it has a profile.
    found: Dict[str, BootAssignment] = {}
    for option in tuned.read_active(files):
        tunable = tunable_of(option.plugin, option.key)
        if tunable:
            found[tunable] = BootAssignment("tuned", option.path, option.line, tunable, option.value)
    return tuple(found.values())


def read_writers(files: Files, tunables_of: Callable[[str], Iterable[str]]) -> Tuple[BootAssignment, ...]:
    """The writes of services and scripts at boot, behind all others. ``tunables_of`` names the tunables of a path."""
    return tuple(
        BootAssignment(one.owner, one.path, one.line, tunable, one.value or "", in_doubt=one.in_doubt)
        for one in boot_writers.read(files)
        for tunable in tunables_of(one.target)
    )
