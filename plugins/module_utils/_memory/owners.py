# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who else gives kernel knobs a value at boot: tmpfiles.d, sysctl.d and the active profile of tuned."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Dict, Iterable, List, Mapping, Optional, Tuple

from .._host.dropins import walk_files

if TYPE_CHECKING:
    from .._host.protocols import Files

TMPFILES_FOLDERS = ("/etc/tmpfiles.d", "/run/tmpfiles.d", "/usr/local/lib/tmpfiles.d", "/usr/lib/tmpfiles.d")
SYSCTL_FOLDERS = ("/etc/sysctl.d", "/run/sysctl.d", "/usr/local/lib/sysctl.d", "/usr/lib/sysctl.d")
SYSCTL_CONF = "/etc/sysctl.conf"
SYSCTL_KNOB = "/proc/sys/vm/nr_hugepages"
THP = "/sys/kernel/mm/transparent_hugepage"


@dataclass(frozen=True)
class Assignment:
    """A line somewhere that gives a knob a value. ``knob`` is a path below /sys or /proc, in tmpfiles.d maybe a glob.

    ``at_boot`` and ``later`` say when it is carried out: at boot, or again while the system runs (an installed package
    runs systemd-tmpfiles, somebody runs ``sysctl --system``). ``again`` is ``w+``, which earlier lines do not hide.
    """

    owner: str
    path: str
    line: Optional[int]
    knob: str
    value: str
    at_boot: bool = True
    later: bool = True
    again: bool = False


def parse_tmpfiles(path: str, text: str) -> Tuple[Assignment, ...]:
    """The lines of a tmpfiles.d(5) file that write a value into a knob of huge pages."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        fields = line.split(None, 6)
        if len(fields) == 7 and fields[0].startswith("w") and "hugepage" in fields[1]:
            kind, knob, argument = fields[0], fields[1].strip("\"'").replace("%%", "%"), fields[6].strip()
            value = re.sub(r"\\(?:([0-7]{3})|x([0-9a-fA-F]{2})|(.))", _unescape, argument).replace("%%", "%")
            found.append(
                Assignment(
                    "tmpfiles.d", path, number, knob, value.strip(), later="!" not in kind, again=kind.startswith("w+")
                )
            )
    return tuple(found)


def in_effect(lines: Iterable[Assignment]) -> List[Assignment]:
    """The lines that systemd-tmpfiles carries out, in its order: of those for the same path the first one counts.

    tmpfiles.d(5): "the entry in the file with the lexicographically earliest name will be applied".
    """
    by_path: Dict[str, List[Assignment]] = {}
    for line in lines:
        known = by_path.setdefault(line.knob, [])
        if not known or line.again:
            known.append(line)
    return [line for known in by_path.values() for line in known]


def read_tmpfiles(files: Files) -> Mapping[str, str]:
    """The tmpfiles.d files about huge pages, path to text, in the order in which they are read."""
    texts = ((path, files.read_optional(path) or "") for path in walk_files(files, TMPFILES_FOLDERS, ".conf"))
    return {path: text for path, text in texts if "hugepage" in text}


def read_sysctl(files: Files) -> Tuple[Assignment, ...]:
    """The assignments of vm.nr_hugepages that count: the last one in sysctl.d, and the one in /etc/sysctl.conf.

    systemd-sysctl reads the latter only where a link in sysctl.d points to it, ``sysctl --system`` in any case.
    """
    counts: List[Assignment] = []
    paths = tuple(walk_files(files, SYSCTL_FOLDERS, ".conf"))
    for path in paths:
        counts = _parse_sysctl(path, files.read_optional(path) or "", at_boot=True)[-1:] or counts
    if not any(path.endswith("/99-sysctl.conf") and files.resolve(path) == SYSCTL_CONF for path in paths):
        counts += _parse_sysctl(SYSCTL_CONF, files.read_optional(SYSCTL_CONF) or "", at_boot=False)[-1:]
    return tuple(counts)


def read_tuned(files: Files) -> Tuple[Assignment, ...]:
    """What the active profile of an enabled tuned sets, includes resolved: it does so whenever it starts."""
    if not files.exists("/etc/tuned/active_profile"):
        return ()  # Most nodes have no tuned; its files are parsed only where it has a profile.
    from .tuned import read_active

    return read_active(files)


def _parse_sysctl(path: str, text: str, *, at_boot: bool) -> List[Assignment]:
    pattern = re.compile(r"\s*-?vm[./]nr_hugepages(?:_mempolicy)?\s*=\s*(\d+)\s*$")
    matches = ((number, pattern.match(line)) for number, line in enumerate(text.splitlines(), 1))
    owner = "sysctl.d" if at_boot else "sysctl.conf"
    return [Assignment(owner, path, number, SYSCTL_KNOB, match[1], at_boot) for number, match in matches if match]


def _unescape(match: re.Match[str]) -> str:
    if match[1] or match[2]:
        return chr(int(match[1], 8) if match[1] else int(match[2], 16))
    return {"n": "\n", "t": "\t"}.get(match[3], match[3])
