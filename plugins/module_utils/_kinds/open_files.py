# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Open files: ``fs.nr_open``, and the limits of sessions, none of which may be above it.

pam_limits sets the hard limit of a session by setrlimit(2), which fails for ``nofile`` above ``fs.nr_open``. It then
refuses the session, also root's (``setup_limits`` in pam_limits.c of Linux-PAM). ``unlimited`` depends on no value:
releases since 1.4 take it for ``fs.nr_open``, and older ones refuse it always. systemd lowers what is too high.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from .._core.errors import DeclarationError
from .._core.value import frozen

if TYPE_CHECKING:
    from .._core.errors import GpuFleetError
    from .._core.protocols import Files

CONF = "/etc/security/limits.conf"
FOLDER = "/etc/security/limits.d"
NR_OPEN, NR_OPEN_PATH = "fs/nr_open", "/proc/sys/fs/nr_open"
# ``sysctl_nr_open`` of fs/file.c, and what systemd makes of it where it is built with bump-proc-sys-fs-nr-open.
OWN_VALUE, RAISED_BY_SYSTEMD = 1048576, 1073741816
OWN_NAME = "the kernel's own value"
LIMITS, TUNABLES = "resource_limits", "kernel_tunables"
HARD_KINDS = ("hard", "-")


class NrOpenTooLow(DeclarationError):
    """``fs.nr_open`` is below a limit that is wanted; ``kernel_tunables`` may be about to raise it."""

    code = "nr_open_too_low"


class NofileTooHigh(DeclarationError):
    """A limit is above the ``fs.nr_open`` that is wanted; ``resource_limits`` may be about to lower it."""

    code = "nofile_too_high"


@frozen
class NofileLine:
    """The line of limits.conf(5) that decides the hard limit of a user, a group or all (``domain``)."""

    path: str
    number: int
    domain: str
    value: int


@frozen
class NrOpen:
    """``fs.nr_open`` now, None where the kernel does not show it, and after the next boot, with what sets it then."""

    now: Optional[int]
    boot: Optional[int]
    source: str = ""

    def fault_now(self, value: int) -> str:
        """How a hard limit is above the value now; empty where it is not."""
        return f"it is above {NR_OPEN_PATH}, which is {self.now}" if self.now is not None and value > self.now else ""

    def fault(self, value: int) -> str:
        """How a hard limit is above the value now, or after the next boot; empty where it is not."""
        later = self.boot is not None and value > self.boot
        at_boot = f"it is above fs.nr_open, which is {self.boot} after the next boot ({self.source})" if later else ""
        return self.fault_now(value) or at_boot


def read_limits(files: Files) -> Mapping[str, str]:
    """The texts that pam_limits reads, by path, in its order; those that say nothing are left out."""
    paths = [CONF, *(f"{FOLDER}/{name}" for name in files.names(FOLDER) if name.endswith(".conf"))]
    texts = ((path, files.read_optional(path)) for path in paths)
    return {path: text for path, text in texts if text}


def fields_of(text: str) -> Iterator[Tuple[int, List[str]]]:
    """The words of each line of limits.conf(5) with its number."""
    return ((number, line.partition("#")[0].split()) for number, line in enumerate(text.split("\n"), 1))


def hard_limits(files: Files) -> Tuple[NofileLine, ...]:
    """The lines that decide the hard limits of sessions now, the highest first."""
    deciding: Dict[str, NofileLine] = {}
    exempt = set()
    for path, text in read_limits(files).items():
        for number, fields in fields_of(text):
            if len(fields) == 2 and fields[1] == "-" and fields[0] != "*":
                exempt.add(fields[0])
            elif len(fields) >= 4 and fields[1].lower() in HARD_KINDS and fields[2].lower() == "nofile":
                value = re.match(r"[+-]?[0-9]+", fields[3])
                # What is no number is either unlimited, or does not count.
                if value or fields[3].lower() in ("unlimited", "infinity"):
                    deciding[fields[0]] = NofileLine(path, number, fields[0], int(value[0]) if value else -1)
    lines = (line for line in deciding.values() if line.domain not in exempt)
    return tuple(sorted(lines, key=lambda line: -line.value))


def read_nr_open(files: Files) -> NrOpen:
    """The value now, and what all who set it at boot make of it."""
    text = (files.read_optional(NR_OPEN_PATH) or "").strip()
    now = int(text) if text.isdecimal() else None
    from . import tunables

    writes = tunables.read_sysctl_at_boot(files, (NR_OPEN,))
    if not writes:
        return NrOpen(now, at_boot_by_itself(now), OWN_NAME)
    last = writes[-1]
    return NrOpen(now, int(last.value) if last.value.isdecimal() else None, last.place)


def at_boot_by_itself(now: Optional[int]) -> Optional[int]:
    """The value after a boot at which no file sets it: the kernel's own, unless systemd raises it."""
    return now if now is None or now >= RAISED_BY_SYSTEMD else OWN_VALUE


def refuse_lowered(lines: Sequence[NofileLine], when: str, before: Optional[int], value: Optional[int]) -> None:
    """Raise ``NofileTooHigh`` where a new value of ``fs.nr_open`` is below a hard limit that the old one allowed.

    The limit of a line that was too high before is no reason: it is not this change that refuses its sessions.
    """
    for line in lines:
        if value is not None and value < line.value and (before is None or line.value <= before):
            raise NofileTooHigh(
                "set {}",
                object="sysctl fs.nr_open",
                cause=f"{line.path}:{line.number} sets a hard nofile of {line.value} for {line.domain}, above the"
                f" fs.nr_open that would be in effect {when}, so pam_limits would refuse every session with that limit",
                wanted=value,
                hint=f"lower that limit first, or set fs.nr_open to at least {line.value}",
            )


def contradictions(declarations: Mapping[str, Mapping[str, Any]]) -> Mapping[str, GpuFleetError]:
    """The error for both concerns where one declares more open files than the other lets a session have."""
    most = _declared_nr_open(declarations.get(TUNABLES, {}))
    wanted, where = max(_declared_nofile(declarations.get(LIMITS, {})), default=(0, ""))
    if most is None or wanted <= most:
        return {}
    hint = "raise fs.nr_open, or lower nofile"
    return {
        LIMITS: DeclarationError(
            "set {}",
            object=f"nofile of {where}",
            cause=f"kernel_tunables declares fs.nr_open: {most}, and no process can have a limit above that",
            wanted=wanted,
            hint=hint,
        ),
        TUNABLES: DeclarationError(
            "set {}",
            object="sysctl fs.nr_open",
            cause=f"resource_limits declares nofile: {wanted} for {where}, which no process could have",
            wanted=most,
            hint=hint,
        ),
    }


def _declared_nr_open(declaration: Mapping[str, Any]) -> Optional[int]:
    from .._linux import sysctl_d

    keys = declaration.get("sysctl")
    if not isinstance(keys, dict) or declaration.get("state") == "absent":
        return None
    found = (value for key, value in keys.items() if sysctl_d.normal(str(key).strip()) == NR_OPEN)
    return _number(str(next(found, "")))


def _declared_nofile(declaration: Mapping[str, Any]) -> Iterator[Tuple[int, str]]:
    """The hard limits that are declared, each with what it is for."""
    units = declaration.get("units")
    named = (
        [(entry.get("name"), entry) for entry in units if isinstance(entry, dict)] if isinstance(units, list) else []
    )
    for where, limits in (*((name, declaration.get(name)) for name in ("sessions", "services")), *named):
        text = str(limits.get("nofile") or "") if isinstance(limits, dict) else ""
        value = _number(text.rpartition(":")[2])
        if value is not None and declaration.get("state") != "absent":
            yield value, str(where)


def _number(text: str) -> Optional[int]:
    return int(text) if text.strip().isdecimal() else None
