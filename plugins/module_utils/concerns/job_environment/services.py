# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The variables of services: DefaultEnvironment= of systemd, and Environment= of named units (systemd.exec(5)).

A file of variables (EnvironmentFile=) takes precedence over both, and a unit over the default. A process keeps those
with which it was started: that is read from /proc/PID/environ.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Collection, Dict, Iterator, List, Mapping, Optional, Tuple

from ..._core.change import THEM, Conflict
from ..._core.regex import regex
from ..._core.setting import Setting
from ..._kinds.own_files import Key, header_of
from ..._kinds.service_values import DEFAULT, MAIN, Effective, ServicesState, ServiceValues
from ..._linux import systemd
from ..._linux.escapes import split_words
from .spec import NAME

if TYPE_CHECKING:
    from ..._core.contract import Scope
    from ..._core.protocols import Files, Host

# What starts the processes of others: those that run are looked at where all services are to have a variable.
LAUNCHERS = tuple(
    f"{name}.service" for name in ("slurmd", "containerd", "docker", "crio", "kubelet", "ssh", "sshd", "cron", "crond")
)
MANY = 10_000
SHOWN = regex(r'"((?:[^"\\]|\\.)*)"|(\S+)')


class VariablesOfServices(ServiceValues):
    """Each item is the name of a variable."""

    concern = NAME
    holds = "variables"

    def lines(self, files: Files, unit: str) -> Iterator[Tuple[str, str, str]]:
        wanted = "Manager.DefaultEnvironment" if unit == DEFAULT else "Service.Environment"
        seen: Dict[str, None] = {}
        of_files: List[str] = []
        for path in self.sources(files, unit):
            for key, text in systemd.assignments(files.read_optional(path) or ""):
                if key == "Service.EnvironmentFile":
                    of_files = [*of_files, text] if text else []
                elif key == wanted and not text:
                    yield from ((path, name, "") for name in seen)
                elif key == wanted:
                    for name, value in _assigned(text):
                        seen[name] = None
                        yield path, name, value
        if unit != DEFAULT and of_files:
            from ..._linux.unit_command import environment_of

            environment = environment_of(files, unit, {"Service.EnvironmentFile": of_files})
            yield from ((path, name, value) for name, (value, path) in environment.items())

    def overrules(self, path: str) -> bool:
        of_unit = path == MAIN or os.path.dirname(path) in systemd.FOLDERS or os.path.dirname(path).endswith(".d")
        return super().overrules(path) if of_unit else True

    def effective(self, host: Host, units: List[str], items: Collection[str]) -> Effective:
        found: Effective = {}
        named = [unit for unit in units if unit != DEFAULT]
        if DEFAULT in units:
            block = next(iter(systemd.show(host, ("Environment",), ())))
            found[DEFAULT] = _of_shown(block, items), False
            named += [unit for unit in LAUNCHERS if unit not in named]
        if not named:
            return found
        pids = set()
        for unit, block in zip(named, systemd.show(host, ("MainPID", "Environment"), tuple(named))):
            pid = "".join(block.get("MainPID", ["0"]))
            # sshd writes its title over what it was started with, and then nobody can tell.
            kept = (host.files.read_optional(f"/proc/{pid}/environ") or "") if pid != "0" else ""
            if "=" in kept and (unit in units or pid not in pids):
                found[unit] = _of_process(kept, items), True
            elif unit in units:
                found[unit] = _of_shown(block, items), False
            # One service may have two names.
            pids.add(pid)
        return found

    def render(self, unit: str, values: Mapping[str, Optional[str]]) -> str:
        section, key = ("Manager", "DefaultEnvironment") if unit == DEFAULT else ("Service", "Environment")
        lines = [f'{key}="{name}={_escaped(value or "")}"\n' for name, value in sorted(values.items())]
        return "".join((header_of(self.concern), f"[{section}]\n", *lines))

    def launchers(
        self, files: Files, state: ServicesState, wanted: Mapping[Key, Optional[str]]
    ) -> Tuple[Mapping[Key, str], Tuple[Conflict, ...]]:
        """What daemons that run have in the place of what all services are to have, and which have it on purpose."""
        from ..._linux.unit_command import environment_of

        late: Dict[Key, str] = {}
        conflicts = []
        for unit, values in state.others.items():
            differing = {
                name: value
                for (one, name), value in wanted.items()
                if one == DEFAULT and values.get(name) != value and (unit, name) not in wanted
            }
            own = environment_of(files, unit, systemd.unit_lines(files, unit)) if differing else {}
            for name in differing:
                if name in own:
                    path = own[name][1]
                    conflicts.append(Conflict("systemd", path, None, unit, name, own[name][0], THEM))
                else:
                    late[(unit, name)] = values.get(name, "")
        return late, tuple(conflicts)

    def launcher_rows(
        self, late: Mapping[Key, str], wanted: Mapping[Key, Optional[str]], scope: Scope
    ) -> List[Setting]:
        """A daemon that runs without a variable of all services has it after a restart."""
        rows = []
        for (unit, name), value in late.items():
            if (DEFAULT, name) in wanted and scope.immediate:
                goal = wanted[(DEFAULT, name)]
                pending, needs = self.kept_by_process(unit)
                rows.append(Setting(unit, name, goal, value or None, goal, unit, True, False, pending, needs))
        return rows


SERVICES_VALUES = VariablesOfServices()


def _assigned(text: str) -> Iterator[Tuple[str, str]]:
    """The assignments of a line; systemd ignores one with a quote that is not closed."""
    try:
        words = split_words(text, MANY)
    except ValueError:
        return
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            yield name, value


def _of_shown(block: systemd.Properties, items: Collection[str]) -> Dict[str, str]:
    """The property Environment as systemctl shows it: in double quotes, with the escapes of a shell, where need be."""
    found = {}
    for quoted, plain in SHOWN.findall(" ".join(block.get("Environment", []))):
        name, equals, value = (re.sub(r"\\(.)", r"\1", quoted) or plain).partition("=")
        if equals and name in items:
            found[name] = value
    return found


def _of_process(text: str, items: Collection[str]) -> Dict[str, str]:
    """Of /proc/PID/environ only what is asked for: there may be secrets in it."""
    entries = (entry.partition("=") for entry in text.split("\0"))
    return {name: value for name, equals, value in entries if equals and name in items}


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')
