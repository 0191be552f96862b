# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What lctl(8) reads and sets of the client of Lustre, for one file system.

The client has an instance of most parameters for each server, such as ``osc.fs1-OST0003-osc-ffff9b2c0.checksums``.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Dict, Iterable, List, Mapping, Optional, Tuple

from ..._core.errors import CannotLook
from ..._core.regex import regex
from .values import bytes_of

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host

LCTL = "lctl"
SECONDS = 10
SUBSYSTEMS = r"(?:llite|lmv|lov|mdc|osc|ldlm\.namespaces)"
NAME = regex(rf"{SUBSYSTEMS}\.[a-z][a-z0-9_]*")
# Of Storage Scale.
ATTRIBUTE = regex(r"[a-z][A-Za-z0-9]*")
ATTRIBUTE_VALUE = regex(r"[A-Za-z0-9_.:/+-]+(?:[ ,;][A-Za-z0-9_.:/+-]+)*")
# So that nothing in it has to be quoted where a unit or a shell reads it.
VALUE = regex(r"[A-Za-z0-9_.+-]+")
# A value, and those of the servers that have another one.
SEVERAL = regex(
    r"([A-Za-z0-9_.+-]+)(?: \(([A-Za-z0-9_.+-]+ [A-Za-z0-9_.+-]+(?:, [A-Za-z0-9_.+-]+ [A-Za-z0-9_.+-]+)*)\))?"
)
LINE = regex(rf"({SUBSYSTEMS})\.([A-Za-z0-9_-]+)\.([a-z][a-z0-9_]*)=(.*)")
# What comes after the name of the file system: fs1 and fs1-a are two.
INSTANCE = regex(r"-((?:OST|MDT)[0-9a-f]{4})-\S+|-((?:cli(?:lmv|lov)-)?[0-9a-f]+)")
# Their instances are of servers, so that those of fs1-a are not taken for some of fs1.
SERVERS: Mapping[str, str] = {"osc": "OST", "mdc": "MDT"}
CURRENT = regex(r"\[(\S+)\]")
IN_PAGES = "osc.max_pages_per_rpc", "mdc.max_pages_per_rpc"
# It has to be lower than the other limit, which takes it down where it is not.
LAST = "mdc.max_mod_rpcs_in_flight"
SMAPS = "/proc/self/smaps"
PAGE_KB = regex(r"KernelPageSize: *([0-9]+) kB")


def read(host: Host, fsname: str, names: Iterable[str]) -> Optional[Dict[str, Dict[str, str]]]:
    """By name the value of each instance, none where the client has no such parameter. None without lctl.

    Raises ``CannotLook`` where it does not end.
    """
    patterns = [pattern_of(fsname, name) for name in names]
    try:
        completed = host.commands.run((LCTL, "get_param", *patterns), timeout=float(SECONDS))
    except OSError:
        return None
    if completed.timed_out:
        raise CannotLook("read {}", object=patterns[0], cause=f"lctl did not end within {SECONDS} seconds")
    # It fails where one of them is not there, and prints the others.
    return parse(completed.output, fsname)


def parse(text: str, fsname: str) -> Dict[str, Dict[str, str]]:
    """What ``lctl get_param`` prints. A parameter of several lines has its value on the one with its name."""
    found: Dict[str, Dict[str, str]] = {}
    at: Tuple[str, str] = ("", "")
    for line in text.splitlines():
        first = LINE.fullmatch(line)
        if first is not None:
            subsystem, instance, parameter, value = first.groups()
            at = (f"{subsystem}.{parameter}", instance)
            if not instance.startswith(fsname) or INSTANCE.fullmatch(instance[len(fsname) :]) is None:
                at = ("", "")
                continue
            current = CURRENT.search(value)
            found.setdefault(at[0], {})[instance] = current[1] if current is not None else value.strip()
        elif at[0]:
            name, colon, value = line.partition(":")
            if colon and name.strip() == at[0].rpartition(".")[2]:
                found[at[0]][at[1]] = value.strip()
    return found


def pattern_of(fsname: str, name: str) -> str:
    """Of all instances of a file system."""
    subsystem, _dot, parameter = name.rpartition(".")
    return f"{subsystem}.{fsname}-{SERVERS.get(subsystem, '')}*.{parameter}"


def seen(name: str, wanted: str, found: Mapping[str, str], page: int) -> str:
    """What the instances have: what is wanted, where they mean that."""
    if all(is_same(name, wanted_of(wanted, instance), value, page) for instance, value in found.items()):
        return wanted
    return told(found)


def told(found: Mapping[str, str]) -> str:
    """The value of most instances, and who has another."""
    most = Counter(found.values()).most_common(1)[0][0]
    others = [f"{_target(instance)} {value}" for instance, value in found.items() if value != most]
    return f"{most} ({', '.join(others)})" if others else most


def wanted_of(wanted: str, instance: str) -> str:
    """What is wanted of one instance, where each is to have what it had."""
    several = SEVERAL.fullmatch(wanted)
    if several is None or several[2] is None:
        return wanted
    others = dict(pair.split(" ") for pair in several[2].split(", "))
    return str(others.get(_target(instance), several[1]))


def is_same(name: str, wanted: str, found: str, page: int) -> bool:
    if wanted == found:
        return True
    if name in IN_PAGES and not wanted.isdecimal():
        return found.isdecimal() and bytes_of(wanted) == int(found) * page
    try:
        return float(wanted) == float(found)
    except ValueError:
        return False


def settings_of(name: str, wanted: str, found: Mapping[str, str], page: int) -> List[str]:
    """The arguments of ``lctl set_param`` for the instances that have another value."""
    subsystem, _dot, parameter = name.rpartition(".")
    goals = {instance: wanted_of(wanted, instance) for instance in found}
    return [
        f"{subsystem}.{instance}.{parameter}={goals[instance]}"
        for instance, value in found.items()
        if not is_same(name, goals[instance], value, page)
    ]


def in_order(names: Iterable[str]) -> List[str]:
    return sorted(names, key=lambda name: (name == LAST, name))


def page_size(files: Files) -> int:
    """In bytes; most machines with ARM processors have larger pages."""
    found = PAGE_KB.search(files.read_optional(SMAPS) or "")
    return int(found[1]) * 1024 if found is not None else 4096


def _target(instance: str) -> str:
    """The server of an instance, which a new mount does not change; that of the client is another with each mount."""
    at = instance.find("-OST") if "-OST" in instance else instance.find("-MDT")
    return instance[at + 1 :].partition("-")[0] if at >= 0 else instance.rpartition("-")[2]
