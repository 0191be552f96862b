# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""sysctl.d(5): what is written below /proc/sys at boot, and by whoever runs sysctl(8) later.

Of files with the same name only that of the strongest folder is read at all, and then all by name across the folders;
what comes later counts. /etc/sysctl.conf is not among them for systemd-sysctl, which does the work at boot, unless a
link in sysctl.d leads to it; for ``sysctl --system`` (procps) it is the last file in any case.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from .._core.value import frozen, replace
from .dropins import read_texts

if TYPE_CHECKING:
    from .._core.protocols import Files

CONF = "/etc/sysctl.conf"
COMMAND_LINE = "/proc/cmdline"

_BLANKS = " \t\n\r"
_SWAPPED = str.maketrans("./", "/.")


@frozen
class SysctlLine:
    """One line. ``key`` is in the form of a path below /proc/sys (``net/ipv4/conf/eth0.5/rp_filter``), maybe a glob.

    ``value`` is the text as it is written, with what looks like a comment behind it; None where the line has no
    ``=``: it takes its key out of all globs. ``lenient`` is the ``-`` before a key: a failure of the write is no error.
    """

    path: str
    number: int
    key: str
    value: Optional[str]
    lenient: bool


@frozen
class SysctlFiles:
    """All lines in the order in which they are read: ``boot`` by systemd-sysctl, ``conf`` those of /etc/sysctl.conf.

    ``sysctl --system`` reads ``(*boot, *conf)``. ``conf_at_boot``: a link leads to the latter, ``boot`` has them too,
    under the name of the link and at its place.
    """

    boot: Tuple[SysctlLine, ...]
    conf: Tuple[SysctlLine, ...]
    conf_at_boot: bool


def read_files(files: Files) -> SysctlFiles:
    """What they all say. Raises ``OSError`` where one is there and cannot be read."""
    texts = read_texts(files, "sysctl.d", ".conf")
    conf = tuple(parse(CONF, files.read_optional(CONF) or ""))
    place = files.resolve(CONF) if conf else ""
    return SysctlFiles(
        tuple(line for path, text in texts.items() for line in parse(path, text)),
        conf,
        bool(place) and any(files.resolve(path) == place for path in texts),
    )


def parse(path: str, text: str) -> Iterator[SysctlLine]:
    """The lines of one file that say something; a comment has a line of its own, and no line goes on in the next."""
    for number, line in enumerate(text.split("\n"), 1):
        line = line.strip(_BLANKS)
        if not line or line[0] in "#;":
            continue
        name, equals, value = line.partition("=")
        lenient = name[:1] == "-"
        key = normal(name[lenient:].strip(_BLANKS))
        if key and (equals or lenient):
            yield SysctlLine(path, number, key, value.strip(_BLANKS) if equals else None, lenient)


def parse_command_line(text: str) -> Iterator[SysctlLine]:
    """The arguments ``sysctl.KEY=value`` of the kernel, which it writes in order before it starts init.

    Every dot is a slash there (fs/proc/proc_sysctl.c); keys of modules are not there yet.
    """
    if "sysctl" not in text:
        return
    for match in re.finditer(r'(?:^|\s)("?)sysctl[./]([^\s="]+)=("[^"]*"|[^\s"]*)', text):
        value = match[3].strip('"')
        if match[1]:
            value = text[match.start(3) :].partition('"')[0]
        yield SysctlLine(COMMAND_LINE, 1, match[2].replace(".", "/"), value, lenient=True)


def normal(key: str) -> str:
    """A key in the form of a path below /proc/sys: ``net.ipv4.conf.eth0/5.mtu`` is ``net/ipv4/conf/eth0.5/mtu``.

    The separator that comes first decides: after a dot, dots and slashes change places; after a slash all stay.
    """
    dot, slash = key.find("."), key.find("/")
    if dot >= 0 and (slash < 0 or dot < slash):
        key = key.translate(_SWAPPED)
    return "/".join(part for part in key.split("/") if part not in ("", "."))


def written(lines: Iterable[SysctlLine], keys: Sequence[str]) -> Tuple[SysctlLine, ...]:
    """What lines write into these keys (each as ``normal`` has it), in the order of the writes: a glob as the key that
    it fits. What stays of a key is the last.

    As systemd-sysctl does it, and ``sysctl --system`` comes to the same: of equal keys the last line counts, at its
    place; one that only says again what was said leaves the place as it was. A key that has a line of its own, before
    or after, is not for globs.
    """
    options: Dict[str, SysctlLine] = {}
    for line in lines:
        known = options.get(line.key)
        if known is not None and known.value != line.value:
            del options[line.key]
        options[line.key] = line
    found: List[SysctlLine] = []
    for key, line in options.items():
        if line.value is None:
            continue
        if any(sign in key for sign in "*?["):
            found += [replace(line, key=one) for one in keys if one not in options and fits(one, key)]
        elif key in keys:
            found.append(line)
    return tuple(found)


def fits(key: str, glob: str) -> bool:
    """Whether a glob of glob(7) means a key: no sign of it stands for a slash."""
    names, patterns = key.split("/"), glob.split("/")
    return len(names) == len(patterns) and all(map(fnmatchcase, names, patterns))
