# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A machine for ``node_tools``, with a systemctl that makes links as the real one does offline."""

from __future__ import annotations

import io
import os
import re
import sys
import zipfile
from pathlib import Path
from typing import Dict, Mapping, Optional, Sequence

from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.plugins.module_utils._linux.boot_service import UNIT
from ansible_collections.gpufleet.node.plugins.module_utils.concerns.node_tools.state import UNIT_PATH
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, build

ETC = "/etc/systemd/system"


def small_program() -> bytes:
    """An archive like the program's, with so little in it that compiling it takes no time."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        # Of a fixed age, so that its sum is the same in every process.
        archive.writestr(zipfile.ZipInfo("ansible_collections/gpufleet/node/node/command.py"), "ANSWER = 42\n")
        archive.writestr(zipfile.ZipInfo("__main__.py"), "raise SystemExit(42)\n")
    return stream.getvalue()


class Systemctl:
    """systemctl. ``loaded`` is the text of the unit that systemd has read; None where it never did."""

    def __init__(self, host: FakeHost) -> None:
        self.files = host.files
        self.root = Path(host.files.root)
        self.loaded: Optional[str] = None
        self.scopes: Dict[str, str] = {}
        host.commands.programs["systemctl"] = self

    @property
    def text(self) -> str:
        path = self.root / UNIT_PATH.lstrip("/")
        return path.read_text() if path.exists() else ""

    def __call__(self, argv: Sequence[str]) -> Completed:
        verb = next(word for word in argv[1:] if not word.startswith("-"))
        if verb != "show":
            # A point to be killed at, like a write.
            self.files.effect("run", verb, "")
        if verb in ("enable", "reenable", "disable"):
            assert "--no-reload" in argv
            self._links(verb != "disable")
        elif verb == "daemon-reload":
            self.loaded = self.text
        elif argv[2] == "--property=NeedDaemonReload,DropInPaths":
            due = self.loaded is not None and self.loaded != self.text
            return Completed(0, f"NeedDaemonReload={'yes' if due else 'no'}\n", "")
        else:
            blocks = [f"Id={unit}\n{self.scopes.get(unit, 'DevicePolicy=auto')}\n" for unit in argv[4:]]
            return Completed(0, "\n".join(blocks), "")
        return Completed(0, "", "")

    def _links(self, enable: bool) -> None:
        folder = self.root / ETC.lstrip("/")
        # Not by glob, which leaves out links that lead nowhere on this machine.
        for place in list(folder.iterdir()):
            if place.is_dir() and UNIT in os.listdir(place):
                (place / UNIT).unlink()
                place.rmdir()
        for key, ending in (("WantedBy", "wants"), ("RequiredBy", "requires")):
            found = re.search(rf"^{key}=(.*)$", self.text, re.MULTILINE)
            for unit in found[1].split() if enable and found else ():
                (folder / f"{unit}.{ending}").mkdir(exist_ok=True)
                (folder / f"{unit}.{ending}" / UNIT).symlink_to(UNIT_PATH)


def machine(root: Path, more: Optional[Mapping[str, str]] = None, *, booted: bool = True) -> FakeHost:
    files = {
        f"{ETC}/.keep": "",
        "/usr/local/sbin/.keep": "",
        "/var/lib/.keep": "",
        **(more or {}),
    }
    files.update({"/run/systemd/system/.keep": ""} if booted else {})
    # The interpreter that runs this is there, wherever that is.
    files[sys.executable] = ""
    host = build(root, files)
    Systemctl(host)
    return host
