# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The limits of services: those that systemd gives to each, and those of named units."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Collection, Dict, Iterator, List, Mapping, Optional, Tuple

from ..._kinds.open_files import NrOpenTooLow
from ..._kinds.own_files import Key, header_of
from ..._kinds.service_values import DEFAULT, Effective, ServiceValues
from ..._linux import systemd, systemd_numbers
from ..._linux.systemd_numbers import INFINITY

if TYPE_CHECKING:
    from ..._core.protocols import Files, Host
    from ..._kinds.open_files import NrOpen

# The names of /proc/PID/limits.
IN_PROC = {
    "Max locked memory": "memlock",
    "Max open files": "nofile",
    "Max processes": "nproc",
    "Max realtime priority": "rtprio",
}
# As some releases show infinity.
NO_LIMIT = str(systemd_numbers.MAX)


class LimitsOfServices(ServiceValues):
    """Each limit is ``soft:hard``, memory in bytes."""

    concern = "resource_limits"
    holds = "limits"

    def lines(self, files: Files, unit: str) -> Iterator[Tuple[str, str, str]]:
        prefix = "Manager.DefaultLimit" if unit == DEFAULT else "Service.Limit"
        items = {f"{prefix}{item.upper()}": item for item in IN_PROC.values()}
        for path in self.sources(files, unit):
            for key, text in systemd.assignments(files.read_optional(path) or ""):
                item = items.get(key)
                value = item and _parsed(item, text)
                if item and value is not None:
                    yield path, item, value

    def effective(self, host: Host, units: List[str], items: Collection[str]) -> Effective:
        found: Effective = {}
        shown = [item.upper() for item in IN_PROC.values()]
        if DEFAULT in units:
            names = tuple(f"DefaultLimit{item}{side}" for item in shown for side in ("", "Soft"))
            found[DEFAULT] = _shown(next(iter(systemd.show(host, names, ()))), "DefaultLimit"), False
        named = tuple(unit for unit in units if unit != DEFAULT)
        if named:
            for unit, block in zip(named, systemd.show(host, ("MainPID",), named)):
                of_process = host.files.read_optional(f"/proc/{''.join(block.get('MainPID', ['0']))}/limits")
                if of_process:
                    found[unit] = _of_process(of_process), True
        idle = tuple(unit for unit in named if unit not in found)
        if idle:
            names = tuple(f"Limit{item}{side}" for item in shown for side in ("", "Soft"))
            for unit, block in zip(idle, systemd.show(host, names, idle)):
                found[unit] = _shown(block, "Limit"), False
        return found

    def render(self, unit: str, values: Mapping[str, Optional[str]]) -> str:
        section, prefix = ("Manager", "DefaultLimit") if unit == DEFAULT else ("Service", "Limit")
        lines = [f"{prefix}{item.upper()}={value}\n" for item, value in values.items()]
        return "".join((header_of(self.concern), f"[{section}]\n", *lines))


SERVICES = LimitsOfServices()


def refuse_impossible(wanted: Mapping[Key, Optional[str]], nr_open: NrOpen) -> None:
    """Raise ``NrOpenTooLow`` for more open files than ``fs.nr_open`` lets a service have."""
    for (unit, item), value in wanted.items():
        hard = (value or "").partition(":")[2]
        fault = nr_open.fault_now(int(hard)) if item == "nofile" else ""
        if fault:
            raise NrOpenTooLow(
                "set nofile",
                object=unit,
                cause=f"{fault}, so no service would get it",
                wanted=value,
                hint="raise fs.nr_open first, as kernel_tunables does, or lower nofile",
            )


def _parsed(item: str, text: str) -> Optional[str]:
    """A limit as systemd reads it (systemd.exec(5)); None for a line that it ignores."""
    return systemd_numbers.limit(text, is_size=item == "memlock") if text else ""


def _shown(block: systemd.Properties, prefix: str) -> Dict[str, str]:
    limits = {}
    for item in IN_PROC.values():
        hard = block.get(f"{prefix}{item.upper()}", [])
        soft = block.get(f"{prefix}{item.upper()}Soft", hard)
        if hard and soft:
            limits[item] = ":".join(INFINITY if text == NO_LIMIT else text for text in (soft[0], hard[0]))
    return limits


def _of_process(text: str) -> Dict[str, str]:
    """What proc_pid_limits(5) has: a name, the soft and the hard limit."""
    limits = {}
    for line in text.splitlines():
        match = re.match(r"(Max [a-z ]+?)  +(\S+) +(\S+)", line)
        if match and match[1] in IN_PROC:
            limits[IN_PROC[match[1]]] = ":".join(INFINITY if one == "unlimited" else one for one in match.groups()[1:])
    return limits
