# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which packages are installed: by the status that dpkg keeps of all, or as rpm says."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Iterator, List, Optional, Sequence, Tuple

from .._core.errors import CannotLook
from .._core.regex import regex
from .._core.setting import Setting
from .._core.value import frozen

if TYPE_CHECKING:
    from .._core.protocols import Host

DPKG = "/var/lib/dpkg/status"
RPM = "rpm"
RPM_SECONDS = 20.0
# What rpm says of a package that is not there.
MISSING = ("is not installed", "no package provides")
PACKAGE, INSTALLED, NOT_INSTALLED = "package", "installed", "not installed"
# What can be compared of what apt and dnf take for packages: no files, addresses, groups, globs or comparisons. The
# version of apt may be a glob, and its name has an architecture where it is not that of the machine.
OF_APT = regex(r"([a-z0-9][a-z0-9.+-]+)(?::([a-z0-9-]+))?(?:=(\S+))?")
OF_DNF = regex(r"[A-Za-z0-9_][A-Za-z0-9_.+~^:-]*")


@frozen
class DebPackage:
    """An installed package. ``selection`` is what is to become of it, such as ``install`` or ``hold``."""

    name: str
    version: str
    architecture: str
    selection: str


@frozen
class DeclaredPackage:
    """``version`` is the one that is wanted, as a shell glob, empty for any. ``found`` is None where none is there."""

    name: str
    version: str
    found: Optional[str]

    @property
    def row(self) -> Setting:
        wanted = self.version or INSTALLED
        found = NOT_INSTALLED
        if self.found is not None:
            found = wanted if not self.version or fnmatchcase(self.found, self.version) else self.found
        return Setting(self.name, PACKAGE, wanted, found, found, self.name)


def declared(host: Host, packages: Sequence[str]) -> Tuple[DeclaredPackage, ...]:
    """These packages, as apt or dnf takes them, without those of which it cannot be told whether they are there.

    Raises ``CannotLook`` where rpm does not answer.
    """
    status = host.files.read_optional(DPKG)
    if status is not None:
        found = [_of_apt(status, one, match) for one in packages for match in [OF_APT.fullmatch(one)] if match]
        return tuple(found)
    if not packages or host.commands.find(RPM) is None:
        return ()
    # Of a version only whether it is there: its name may have hyphens too.
    known = [one for one in packages if OF_DNF.fullmatch(one)]
    there = known if _rpm_has(host, known) else [one for one in known if _rpm_has(host, [one])]
    lacking = [one for one in known if one not in there and not _rpm_has(host, ["--whatprovides", one])]
    return tuple(DeclaredPackage(one, "", None if one in lacking else INSTALLED) for one in known)


def _of_apt(status: str, package: str, match: re.Match[str]) -> DeclaredPackage:
    name, architecture, version = match.groups()
    versions = [one.version for one in of_dpkg(status, (name,)) if architecture in (None, one.architecture)]
    if not versions and version is None and _provides(status, name):
        versions = [INSTALLED]
    return DeclaredPackage(package.partition("=")[0], version or "", versions[0] if versions else None)


def _provides(status: str, name: str) -> bool:
    """Whether an installed package has this as another name of its own."""
    provides = regex(rf"^Provides: (?:.*, )?{re.escape(name)}(?: \(|,|$)", re.MULTILINE)
    providers = [one for one, block in _entries(status) if name in block and provides.search(block)]
    return next(of_dpkg(status, providers), None) is not None


def _rpm_has(host: Host, arguments: Sequence[str]) -> bool:
    """Whether rpm knows all of these packages."""
    if not arguments:
        return True
    # An epoch is not a part of what rpm calls a package.
    words: List[str] = [re.sub(r"-\d+:", "-", one) for one in arguments]
    try:
        completed = host.commands.run([RPM, "-q", *words], timeout=RPM_SECONDS)
    except OSError as error:
        raise CannotLook("ask rpm for packages", cause=error.strerror or str(error)) from error
    if completed.status != 0 and not any(text in completed.output for text in MISSING):
        said = " ".join(f"{completed.output} {completed.errors}".split())
        raise CannotLook("ask rpm for packages", cause=said or f"it ended with status {completed.status}")
    return completed.status == 0


def of_dpkg(status: str, names: Sequence[str] = (), prefixes: Sequence[str] = ()) -> Iterator[DebPackage]:
    """The installed packages with these names, or whose names begin so, in the text of dpkg's status (deb822)."""
    begins = tuple(prefixes)
    for name, block in _entries(status):
        if name in names or name.startswith(begins):
            values = dict(line.partition(": ")[::2] for line in block.splitlines() if line[:1] not in (" ", "\t"))
            state = values.get("Status", "").split()
            if len(state) == 3 and state[2] == "installed":
                yield DebPackage(name, values.get("Version", ""), values.get("Architecture", ""), state[0])


def _entries(status: str) -> Iterator[Tuple[str, str]]:
    for block in status.split("\n\n"):
        if block.startswith("Package: "):
            yield block[9 : block.find("\n")], block
