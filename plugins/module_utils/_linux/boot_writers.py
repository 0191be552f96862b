# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Everything that writes into the kernel at boot behind sysctl.d, tmpfiles.d and udev: services that are enabled, what
timers start, and the scripts that these run (one level deep), rc.local, sysfsutils, ufw, apport and systemd-networkd.

All concerns ask this one reader, and in one look it reads once (``snapshot.once``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from .._core.regex import regex
from .._core.snapshot import once
from .._core.value import frozen, replace
from . import sysctl_d, systemd, tuned
from .command_writes import RELOAD, SWAP
from .dropins import walk_files
from .foreign_files import foreign
from .interpreters import (
    OTHER_INTERPRETERS,
    SHELLS,
    arguments_behind,
    given_script,
    interpreter_before,
    interpreter_of,
    is_script,
    script_file,
)
from .shell_words import UNKNOWN
from .shell_writes import BEARING, read_command, read_script

if TYPE_CHECKING:
    from .._core.protocols import Files
    from .shell_writes import ShellWrite

__all__ = ("SWAP", "BootWrite", "commands", "network", "read")

RC_LOCAL = ("/etc/rc.local", "/etc/rc.d/rc.local")
SYSFS_CONF, SYSFS_FOLDER = "/etc/sysfs.conf", "/etc/sysfs.d"
UFW, UFW_DEFAULTS = "/etc/ufw/ufw.conf", "/etc/default/ufw"
APPORT, APPORT_UNIT = "/etc/default/apport", "apport.service"
RUNLEVEL = "/etc/rc2.d"
INIT = "/etc/init.d"
# The programs that set what those set that bring network interfaces up.
OF_NETWORK = ("ethtool", "ip")
OURS = "gpufleet"
# What a boot does not reach.
_NOT_AT_BOOT = (
    "rescue.",
    "emergency.",
    "halt.",
    "poweroff.",
    "reboot.",
    "suspend.",
    "hibernate.",
    "sleep.",
    "shutdown.",
)
_EXEC = re.compile(r"\s*(ExecStartPre|ExecStart|ExecStartPost)\s*=\s*(.*)")


# systemd.unit(5), "Specifiers". In a line that is not yet words, a character that no unit has stands for what is
# not known.
_SPECIFIER = regex(r"%(.)")
_UNSPECIFIED = "\1"


@frozen
class BootWrite:
    """A line by which ``owner`` writes ``value`` into ``target``: a path below /sys or /proc, maybe with the signs of
    glob(7), or ``SWAP``.

    ``value`` is None where it is not known before it is written. ``in_doubt``: it is not certain that it is written, or
    that it comes behind sysctl.d. A program of ``shell_writes.COMMANDS`` is a target with ``arguments``.
    """

    owner: str
    path: str
    line: Optional[int]
    target: str
    value: Optional[str]
    in_doubt: bool = False
    arguments: Tuple[str, ...] = ()


def read(files: Files) -> Tuple[BootWrite, ...]:
    """All writes, in the order in which they come as far as there is one, without those of ``network``."""
    return once(files, _read)


def network(files: Files) -> Tuple[BootWrite, ...]:
    """The writes of those that bring network interfaces up (``network_writers``). Only concerns of these ask for
    them, so that no other node reads these files.
    """
    return once(files, _read_network)


def commands(files: Files, program: str) -> Tuple[BootWrite, ...]:
    """The lines that run this program of ``shell_writes.COMMANDS`` at boot, and what amounts to them."""
    found = read(files)
    if program in OF_NETWORK:
        found = (*network(files), *found)
    return tuple(one for one in found if one.target == program)


def _read(files: Files) -> Tuple[BootWrite, ...]:
    return tuple(_Reader(files).read())


def _read_network(files: Files) -> Tuple[BootWrite, ...]:
    return tuple(_Reader(files).read_network())


class _Reader:
    def __init__(self, files: Files) -> None:
        self._files = foreign(files)
        self._units = systemd.unit_files(files)

    def read(self) -> Iterator[BootWrite]:
        yield from self._of_networkd()
        yield from self._of_ufw()
        yield from self._of_sysfsutils()
        yield from self._of_apport()
        for unit in self._services():
            yield from self._of_unit(unit)
        yield from self._of_init_scripts()
        yield from self._of_rc_local()
        yield from self._of_tuned()

    def read_network(self) -> Iterator[BootWrite]:
        from .network_writers import NetworkReader

        for owner, path, write in NetworkReader(self._files, self._units).read():
            yield from self._named(owner, path, (write,))

    def _text(self, path: str) -> str:
        return self._files.read_optional(path) or ""

    def _services(self) -> Iterator[str]:
        """The services that a boot or a timer starts, each once. Those of systemd itself write what their own files
        say, which others read.
        """
        found: Dict[str, None] = {}
        for unit in self._units.linked:
            if OURS in unit or unit.startswith("systemd-") or not unit.endswith((".service", ".timer")):
                continue
            folders = (folder.rpartition("/")[2] for folder in self._units.links(unit))
            if all(folder.startswith(_NOT_AT_BOOT) for folder in folders):
                continue
            found[self._started_by(unit) if unit.endswith(".timer") else unit] = None
        yield from found

    def _started_by(self, timer: str) -> str:
        """The service of a timer."""
        for path in self._units.paths(timer)[:1]:
            for key, value in systemd.assignments(self._text(path)):
                if key == "Timer.Unit":
                    return value
        return f"{timer.rpartition('.')[0]}.service"

    def _of_unit(self, unit: str) -> Iterator[BootWrite]:
        paths = self._units.paths(unit)
        if not paths or OURS in unit or self._units.status(unit) == systemd.MASKED:
            return
        sources = (paths[0], *self._drop_ins(unit))
        texts = {path: self._text(path) for path in sources}
        commands = _commands(texts)
        if not commands:
            return
        in_doubt = _is_in_doubt("\n".join(texts.values()))
        for path, number, command in commands:
            for write in self._of_command(unit, command):
                place = write if write.path else replace(write, path=path, line=number)
                yield replace(place, in_doubt=write.in_doubt or in_doubt)

    def _drop_ins(self, unit: str) -> Sequence[str]:
        return systemd.drop_ins(self._files, unit) if self._units.has_drop_ins(unit) else ()

    def _of_command(self, unit: str, command: str) -> Iterator[BootWrite]:
        """The writes of a line of ExecStart=. ``path`` is empty where the line itself says them."""
        from .unit_command import environment_of, split, words_of

        line = _specified(command.lstrip("-@:+!|"), unit)
        environment = {}
        if "$" in line and ("${" in line or BEARING.search(line)):
            environment = environment_of(self._files, unit, systemd.unit_lines(self._files, unit))
        words = [word for word, _place in words_of(line, environment, unit)] if environment else split(line)
        words = [word.replace(_UNSPECIFIED, UNKNOWN) for word in words]
        if not words:
            return
        script = given_script(words)
        if script is not None:
            # systemd.service(5): a doubled sign is a single one for the program.
            yield from self._named(unit, "", read_script(script.replace("$$", "$")))
            return
        yield from self._named(unit, "", read_command(words))
        program = script_file(words)
        if not program.startswith("/"):
            return
        interpreter = interpreter_before(words) or interpreter_of(self._files, program)
        if interpreter in SHELLS:
            arguments = arguments_behind(words, program)
            yield from self._named(unit, program, read_script(self._text(program), arguments))
        elif interpreter.startswith(OTHER_INTERPRETERS) and unit != APPORT_UNIT:
            from .program_writes import read_program

            yield from self._named(unit, program, read_program(self._text(program)))

    def _of_tuned(self) -> Iterator[BootWrite]:
        """The scripts of the active profile; its other sections are read where a concern knows their options."""
        if not self._text(tuned.ACTIVE):
            return
        again = tuned.reapplies_sysctl(self._files)
        for script in tuned.read_scripts(self._files):
            text = self._text(script.path) if is_script(self._files, script.path) else ""
            for write in self._named("tuned", script.path, tuned.read_script(script, text)):
                # Whether sysctl.d is applied again behind it goes by the order of the sections.
                in_doubt = script.conditional or (again and write.target.startswith("/proc/sys/"))
                yield replace(write, in_doubt=write.in_doubt or in_doubt)

    def _named(self, owner: str, path: str, writes: Sequence[ShellWrite]) -> Iterator[BootWrite]:
        for write in writes:
            line = write.number if path else None
            if write.target != RELOAD:
                in_doubt = write.in_doubt or (write.value is None and not write.arguments)
                yield BootWrite(owner, path, line, write.target, write.value, in_doubt, write.arguments)
            else:
                # Of all files of `sysctl --system` only this one is not read at boot anyway.
                yield from self._of_sysctl_file(owner, write.value or sysctl_d.CONF, in_doubt=write.in_doubt)

    def _of_sysctl_file(self, owner: str, path: str, *, in_doubt: bool = False) -> Iterator[BootWrite]:
        for line in sysctl_d.parse(path, self._text(path)):
            if line.value is not None:
                yield BootWrite(owner, path, line.number, f"/proc/sys/{line.key}", line.value, in_doubt)

    def _of_rc_local(self) -> Iterator[BootWrite]:
        """systemd-rc-local-generator(8): the first that may be executed."""
        for path in RC_LOCAL:
            if self._files.exists(path) and self._files.mode(path) & 0o111:
                yield from self._named("rc.local", path, read_script(self._text(path)))
                return

    def _of_init_scripts(self) -> Iterator[BootWrite]:
        """Scripts of init that have no unit: systemd-sysv-generator(8) makes one for each at boot."""
        for name in self._files.names(RUNLEVEL):
            script = name[3:]
            if (
                not name.startswith("S")
                or not script
                or self._units.paths(f"{script}.service")
                or script == "sysfsutils"
            ):
                continue
            for write in self._named(script, f"{INIT}/{script}", read_script(self._text(f"{INIT}/{script}"))):
                # It does several things by its argument.
                yield replace(write, in_doubt=True)

    def _of_sysfsutils(self) -> Iterator[BootWrite]:
        """sysfs.conf(5) of sysfsutils: paths below /sys."""
        by_init = any(name.startswith("S") and name.endswith("sysfsutils") for name in self._files.names(RUNLEVEL))
        if not by_init and self._units.status("sysfsutils.service") != systemd.ENABLED:
            return
        names = (f"{SYSFS_FOLDER}/{name}" for name in self._files.names(SYSFS_FOLDER) if name.endswith(".conf"))
        for path in (SYSFS_CONF, *names):
            for number, line in enumerate(self._text(path).splitlines(), 1):
                key, equals, value = line.partition("#")[0].partition("=")
                if equals and len(key.split()) == 1:
                    yield BootWrite("sysfsutils", path, number, f"/sys/{key.strip().strip('/')}", value.strip())

    def _of_ufw(self) -> Iterator[BootWrite]:
        """ufw has sysctl(8) read a file of its own, whenever it is loaded. At boot its unit is not ordered behind
        systemd-sysctl, so either of them may be the last.
        """
        if not re.search(r"^ENABLED=[\"']?yes", self._text(UFW), re.MULTILINE | re.IGNORECASE):
            return
        named = re.search(r"^IPT_SYSCTL=[\"']?([^\"'\s]*)", self._text(UFW_DEFAULTS), re.MULTILINE)
        if named and named[1]:
            yield from self._of_sysctl_file("ufw", named[1], in_doubt=True)

    def _of_apport(self) -> Iterator[BootWrite]:
        """Ubuntu's apport takes core dumps by itself; its script, in Python, sets a pattern that differs by release."""
        is_there = self._units.status(APPORT_UNIT) == systemd.ENABLED or self._files.exists(f"{INIT}/apport")
        if is_there and re.search(r"^enabled=1", self._text(APPORT), re.MULTILINE):
            yield BootWrite("apport", APPORT, None, "/proc/sys/kernel/core_pattern", None, in_doubt=True)

    def _of_networkd(self) -> Iterator[BootWrite]:
        """systemd.network(5): IPForward= is that of the machine."""
        if self._units.status("systemd-networkd.service") != systemd.ENABLED:
            return
        for path in walk_files(self._files, systemd.NETWORK_FOLDERS, ".network"):
            text = self._text(path)
            for key, value in systemd.assignments(text) if "IPForward" in text else ():
                word = value.lower()
                if key == "Network.IPForward" and word in (*systemd.TRUE, "ipv4", "ipv6"):
                    yield from _forwarding(path, text, word)


def _forwarding(path: str, text: str, word: str) -> Iterator[BootWrite]:
    lines = [number for number, one in enumerate(text.splitlines(), 1) if one.strip().startswith("IPForward")]
    for family, key in (("ipv4", "net/ipv4/ip_forward"), ("ipv6", "net/ipv6/conf/all/forwarding")):
        if word in (*systemd.TRUE, family):
            yield BootWrite("systemd-networkd", path, lines[-1], f"/proc/sys/{key}", "1")


def _commands(texts: Mapping[str, str]) -> List[Tuple[str, int, str]]:
    """The commands of a unit and its drop-ins with file and line; an empty one takes back those before."""
    found: Dict[str, List[Tuple[str, int, str]]] = {}
    for path, text in texts.items():
        started = None
        for number, line in enumerate(text.split("\n"), 1):
            if started is None:
                match = _EXEC.match(line)
                if match is None:
                    continue
                started = (match[1], number, "")
                line = match[2]
            key, first, before = started
            whole = f"{before} {line.strip()}".strip()
            if whole.endswith("\\"):
                started = (key, first, whole[:-1].rstrip())
                continue
            started = None
            commands = found.setdefault(key, [])
            if whole:
                commands.append((path, first, whole))
            else:
                commands.clear()
    return [command for key in ("ExecStartPre", "ExecStart", "ExecStartPost") for command in found.get(key, ())]


def _specified(line: str, unit: str) -> str:
    """A line of a unit with its specifiers replaced: that of the instance has its name, others are not known."""
    instance = unit.rpartition(".")[0].partition("@")[2]
    plain = instance.replace("-", "/")
    # Only a name that is a word is put into a line of words.
    known = {
        "%": "%",
        "i": instance if re.fullmatch(r"[\w.:-]+", instance) else _UNSPECIFIED,
        "I": plain if re.fullmatch(r"[\w.:/]+", plain) else _UNSPECIFIED,
    }
    return _SPECIFIER.sub(lambda match: known.get(match[1], _UNSPECIFIED), line)


def _is_in_doubt(text: str) -> bool:
    """Whether a unit may not run, or may run before systemd-sysctl."""
    said = [line.strip() for line in text.split("\n")]
    if any(re.match(r"(Condition|Assert)\w+=.", line) for line in said):
        return True
    early = any(re.match(r"DefaultDependencies=(no|false|0|off)\b", line, re.IGNORECASE) for line in said)
    return early and not any(line.startswith("After=") and "systemd-sysctl.service" in line for line in said)
