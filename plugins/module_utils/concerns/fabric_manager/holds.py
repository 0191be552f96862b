# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What keeps packages in their versions: apt's holds, as dpkg's status has them, and dnf's versionlock.

That of dnf 5 is only read.

Held are the packages of a daemon, and with dpkg those of the driver in the same version: an upgrade of one without the
other leaves a daemon that does not start.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Dict, List, Mapping, Optional, Sequence, Tuple

from ..._core.errors import CannotLook
from ..._core.regex import regex
from ..._core.value import field, frozen
from ..._kinds import versionlock
from ..._linux import packages

if TYPE_CHECKING:
    from ..._core.protocols import Host
    from .daemons import Program
    from .notes import Notes

# Its own package has the architecture of the machine.
DPKG_ITSELF = "dpkg"
APT, DNF, DNF5 = "apt", "dnf", "dnf5"
# It is dnf 5 where this is a link to it.
DNF_PROGRAM = "/usr/bin/dnf"
# How the names of packages of the driver begin; of these only those of its own version count.
DRIVER = ("nvidia-", "libnvidia-", "xserver-xorg-video-nvidia-", "cuda-drivers")
RPM_FORMAT = r"%{NAME} %{NAME}-%|EPOCH?{%{EPOCH}}:{0}|:%{VERSION}-%{RELEASE}.*\n"
RPM_SECONDS = 20.0
_OWNER = regex(r"(\S+) \1-[0-9]+:\S+")
_NO_OWNER = "is not owned by any package"


@frozen
class Package:
    """``lock`` is the line of versionlock that holds it, empty with dpkg."""

    name: str
    held: bool
    lock: str = ""


@frozen
class Holds:
    """``manager`` is apt, dnf or dnf5, empty where nothing here can hold a package. ``locks`` is versionlock's text.

    ``owners`` is what rpm said of programs, by path, each with the file's version.
    """

    manager: str = ""
    packages: Mapping[str, Package] = field(default_factory=dict)
    locks: str = ""
    owners: Mapping[str, Tuple[str, str]] = field(default_factory=dict)


def observe(host: Host, programs: Sequence[Program], driver: Sequence[str], notes: Notes, *, restoring: bool) -> Holds:
    """``driver`` are the versions of the driver whose packages count too.

    What is held is to be released by ``restoring`` even where apt-mark, which would do it, is missing.
    """
    files = host.files
    status = files.read_optional(packages.DPKG)
    if status and (restoring or host.commands.find("apt-mark") is not None):
        names = tuple(name for program in programs for name in program.packages)
        return Holds(APT, {one.name: one for one in of_dpkg(status, names, driver)})
    if files.resolve(DNF_PROGRAM).endswith(f"/{DNF5}"):
        manager, locks = DNF5, files.read_optional(versionlock.TOML) or ""
        held = versionlock.names_of(locks)
    else:
        found = files.read_optional(versionlock.LIST)
        if found is None:
            return Holds()
        manager, locks = DNF, found
        held = list(versionlock.lines_of(locks))
    owners: Dict[str, Tuple[str, str]] = {}
    of_programs: Dict[str, Package] = {}
    for program in programs:
        path = host.commands.find(program.name)
        if path is not None:
            owners[path] = (files.version(path), _owner(host, path, notes))
            name, _blank, line = owners[path][1].partition(" ")
            if name:
                of_programs[name] = Package(name, any(fnmatchcase(name, one) for one in held), line)
    return Holds(manager, of_programs, locks, owners)


def of_dpkg(status: str, names: Sequence[str], driver: Sequence[str]) -> List[Package]:
    """The installed packages that belong to a daemon, or to the driver in one of these versions.

    One of another architecture than the machine's has it in its name, as apt has it: it is held on its own.
    """
    found: List[Tuple[str, str, bool]] = []
    native = ""
    for one in packages.of_dpkg(status, (DPKG_ITSELF,), (*names, *DRIVER)):
        if one.name == DPKG_ITSELF:
            native = one.architecture
        elif one.name.startswith(tuple(names)) or upstream(one.version) in driver:
            found.append((one.name, one.architecture, one.selection == "hold"))
    own = ("", "all", native)
    return [Package(name if one in own or not native else f"{name}:{one}", held) for name, one, held in found]


def upstream(version: str) -> str:
    """The version without dpkg's epoch and revision: ``1:570.158.01-0ubuntu1`` is 570.158.01."""
    bare = version.rpartition(":")[2]
    return bare.rpartition("-")[0] or bare


def with_locks(text: str, wanted: Mapping[str, Optional[str]]) -> str:
    """versionlock's text with these packages locked by these lines, or with None not at all."""
    lines = [line for line in text.split("\n") if versionlock.name_of(line) not in wanted]
    new = [line for _name, line in sorted(wanted.items()) if line]
    at = len(lines) - 1 if lines and lines[-1] == "" else len(lines)
    return "\n".join([*lines[:at], *new, *lines[at:]])


def _owner(host: Host, path: str, notes: Notes) -> str:
    """The package of a program, and the line that locks it; empty where rpm knows none."""
    known = notes.packages.get(path)
    if known is not None and known[0] == host.files.version(path):
        return known[1]
    try:
        completed = host.commands.run(["rpm", "-qf", "--qf", RPM_FORMAT, path], timeout=RPM_SECONDS)
    except OSError as error:
        raise CannotLook("find the package of {}", object=path, cause=error.strerror or str(error)) from error
    said = completed.output.strip()
    # Of two versions, as an update leaves them that was interrupted, the last one.
    line = said.rpartition("\n")[2]
    if completed.status == 0 and _OWNER.fullmatch(line):
        return line
    if completed.status != 0 and _NO_OWNER in said + completed.errors:
        return ""
    cause = (completed.errors.strip() or said) or f"rpm printed nothing, exit status {completed.status}"
    raise CannotLook("find the package of {}", object=path, cause=cause)
