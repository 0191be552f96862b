# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine with units, and systemctl as far as it is asked about them: systemd 252 was tried with each verb."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set, Tuple

from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import BusCall, Completed
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build

ETC, LIB = "/etc/systemd/system", "/usr/lib/systemd/system"
TIMER = "[Timer]\nOnCalendar=daily\n[Install]\nWantedBy=timers.target\n"
SERVICE = "[Service]\nType=simple\nExecStart=/bin/a\n[Install]\nWantedBy=multi-user.target\n"
SOCKET = "[Socket]\nListenStream=/run/a\n[Install]\nWantedBy=sockets.target\n"
ONESHOT = "[Service]\nType=oneshot\nExecStart=/bin/a\n"
UNITS = {
    "man-db.timer": TIMER,
    "man-db.service": ONESHOT,
    "apt-daily.timer": TIMER,
    "apt-daily.service": ONESHOT,
    "cups.service": SERVICE,
    "cups.socket": SOCKET,
    "cups.path": "[Path]\nPathExists=/var/cache\n[Install]\nWantedBy=multi-user.target\n",
    "sshd.service": SERVICE,
}
ENABLED = {
    "man-db.timer": "timers.target",
    "apt-daily.timer": "timers.target",
    "cups.service": "multi-user.target",
    "cups.socket": "sockets.target",
    "cups.path": "multi-user.target",
}
DEBIAN = "ID=debian\nVERSION_ID=12\n"


class Units:
    """The units of a machine as systemd has them: which are active, and what it says of each besides."""

    def __init__(self, host: FakeHost, root: Path, active: Sequence[str]) -> None:
        self._root = root
        self.active: Set[str] = set(active)
        self.states: Dict[str, str] = {}
        self.said: Dict[str, Dict[str, str]] = {}
        self.asked: List[Sequence[str]] = []
        self.reloads = 0
        host.commands.programs["systemctl"] = self

    def __call__(self, argv: Sequence[str]) -> Completed:
        arguments = [word for word in argv[1:] if not word.startswith("--")]
        if arguments[0] == "show":
            self.asked.append(arguments[1:])
            return Completed(0, "\n".join(self._shown(name) for name in arguments[1:]), "")
        verb, names = arguments[0], arguments[1:]
        if verb == "daemon-reload":
            self.reloads += 1
        for name in names:
            getattr(self, f"_{verb}")(name)
        return Completed(0, "", "")

    def on_the_bus(self, calls: Sequence[BusCall]) -> List[Optional[Tuple[Any, ...]]]:
        """What systemd answers of its units by D-Bus."""
        return [self._answered(call) for call in calls]

    def _answered(self, call: BusCall) -> Optional[Tuple[Any, ...]]:
        if call.member == "ListUnitsByNames":
            (names,) = call.arguments
            told = [self._told(name) for name in names]
            return ([(of["Id"], "", of["LoadState"], of["ActiveState"], "", "", "/", 0, "", "/") for of in told],)
        interface, name = call.arguments
        unit = re.sub("_([0-9a-f]{2})", lambda match: chr(int(match[1], 16)), call.path.rpartition("/")[2])
        service = interface == "org.freedesktop.systemd1.Service"
        if service and not unit.endswith(".service"):
            return None
        value = self._told(unit).get(str(name), "")
        return (value if service or name in ("Id", "LoadState", "ActiveState") else value.split(),)

    def _shown(self, name: str) -> str:
        return "".join(f"{key}={value}\n" for key, value in self._told(name).items())

    def _told(self, name: str) -> Dict[str, str]:
        state = self.states.get(name, "active" if name in self.active else "inactive")
        service_type = next((line[5:] for line in self._text(name).splitlines() if line.startswith("Type=")), "")
        known = {"Id": name, "LoadState": "loaded", "ActiveState": state, "Type": service_type}
        # What nothing keeps loaded is read again when somebody asks for it.
        if state == "inactive" and self._place(name).is_symlink():
            known.update(LoadState="masked", Type="")
        return {**known, **self.said.get(name, {})}

    def _text(self, name: str) -> str:
        path = self._root / f"{LIB}/{name}".lstrip("/")
        return path.read_text(errors="surrogateescape") if path.exists() else ""

    def _place(self, name: str) -> Path:
        return self._root / f"{ETC}/{name}".lstrip("/")

    def _mask(self, name: str) -> None:
        if not os.path.lexists(self._place(name)):
            self._place(name).symlink_to("/dev/null")

    def _unmask(self, name: str) -> None:
        if self._place(name).is_symlink():
            self._place(name).unlink()

    def _enable(self, name: str) -> None:
        target = next(line[9:] for line in self._text(name).splitlines() if line.startswith("WantedBy="))
        folder = self._place(f"{target}.wants")
        folder.mkdir(exist_ok=True)
        if not os.path.lexists(folder / name):
            (folder / name).symlink_to(f"{LIB}/{name}")

    def _disable(self, name: str) -> None:
        for folder in self._place("").glob("*.wants"):
            if os.path.lexists(folder / name):
                (folder / name).unlink()
            if not list(folder.iterdir()):
                folder.rmdir()

    def _start(self, name: str) -> None:
        self.active.add(name)

    def _stop(self, name: str) -> None:
        self.active.discard(name)
        self.states.pop(name, None)


def files_of(units: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
    return {
        **{f"{LIB}/{name}": text for name, text in {**UNITS, **(units or {})}.items()},
        "/run/systemd/system/.keep": "",
        "/etc/os-release": DEBIAN,
        "/var/lib/dpkg/status": "",
    }


def links_of(enabled: Optional[Mapping[str, str]] = None) -> Dict[str, str]:
    return {f"{ETC}/{target}.wants/{name}": f"{LIB}/{name}" for name, target in {**ENABLED, **(enabled or {})}.items()}


def machine(root: Path, units: Optional[Mapping[str, str]] = None, active: Sequence[str] = tuple(ENABLED)) -> FakeHost:
    """A machine on which all that is enabled runs."""
    host = build(root, files_of(units), links_of())
    Units(host, root, active)
    return host


def units_of(host: FakeHost) -> Units:
    found = host.commands.programs["systemctl"]
    assert isinstance(found, Units)
    return found
