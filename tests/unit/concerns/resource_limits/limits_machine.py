# Copyright: (c) 2026, gpufleet contributors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""systemctl as far as it is asked about limits: what systemd has read, which is not always what its files say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, Sequence, Tuple

from ansible_collections.gpufleet.node.plugins.module_utils._core.protocols import Completed
from ansible_collections.gpufleet.node.tests.unit.support import FakeHost, execute_init

OURS = "99-gpufleet-resource_limits.conf"
LIB = "/usr/lib/systemd/system"
FILES = {
    "/run/systemd/system/.keep": "",
    "/proc/sys/fs/nr_open": "1048576\n",
    "/proc/sys/kernel/randomize_va_space": "2\n",
    f"{LIB}/slurmd.service": "[Service]\nLimitNOFILE=131072\n",
    f"{LIB}/containerd.service": "[Service]\nExecStart=/bin/containerd\n",
    # What dpkg or rpm would have made, so that it stays when our drop-in goes.
    "/etc/systemd/system/.keep": "",
    "/etc/systemd/system.conf": "[Manager]\n#DefaultLimitNOFILE=\n",
}
BUILT_IN = {"NOFILE": ("1024", "524288"), "MEMLOCK": ("8388608", "8388608")}


def proc_limits(memlock: str, nofile: str) -> str:
    """/proc/PID/limits as Linux 6.1 prints it."""
    return (
        "Limit                     Soft Limit           Hard Limit           Units     \n"
        "Max cpu time              unlimited            unlimited            seconds   \n"
        f"Max open files            {nofile:<20} {nofile:<20} files     \n"
        f"Max locked memory         {memlock:<20} {memlock:<20} bytes     \n"
        "Max processes             63506                63506                processes \n"
        "Max realtime priority     0                    0                    \n"
    )


class Systemd:
    """What systemd has read, by unit and item; the unit is empty for itself. ``pids`` are those of main processes."""

    def __init__(self, host: FakeHost) -> None:
        self._root = Path(host.files.root)
        self.pids: Dict[str, int] = {}
        self.read: Dict[str, str] = {}
        self.calls: Dict[str, int] = {"daemon-reload": 0, "daemon-reexec": 0, "show": 0}
        self.scopes: Dict[str, str] = {}
        self._executed = 0
        self._take_up("daemon-reexec")
        host.commands.programs["systemctl"] = self

    def __call__(self, argv: Sequence[str]) -> Completed:
        verb = argv[1]
        self.calls[verb] += 1
        if verb != "show":
            self._take_up(verb)
            return Completed(0, "", "")
        properties, units = argv[2].partition("=")[2].split(","), argv[4:]
        return Completed(0, "\n".join(self._shown(unit, properties) for unit in units or [""]), "")

    def _take_up(self, verb: str) -> None:
        if verb == "daemon-reexec":
            self._executed += 1
            execute_init(self._root, self._executed)
        folders = [f"etc/systemd/system/{unit}.service.d" for unit in ("slurmd", "containerd")]
        folders += ["etc/systemd/system.conf.d"] if verb == "daemon-reexec" else []
        for folder in folders:
            path = self._root / folder / OURS
            self.read[folder] = path.read_text() if path.exists() else ""

    def _shown(self, unit: str, properties: Sequence[str]) -> str:
        if unit in self.scopes:
            return f"Id={unit}\n{self.scopes[unit]}\n"
        if "NeedDaemonReload" in properties:
            folder = f"etc/systemd/system/{unit}.d"
            path = self._root / folder / OURS
            due = (path.read_text() if path.exists() else "") != self.read.get(folder, "")
            known = f"/{folder}/{OURS}" if self.read.get(folder) else ""
            return f"NeedDaemonReload={'yes' if due else 'no'}\nDropInPaths={known}\n"
        prefix = "Limit" if unit else "DefaultLimit"
        limits = self._limits("etc/systemd/system.conf.d", "DefaultLimit")
        if unit:
            limits.update(self._limits(f"etc/systemd/system/{unit}.d", "Limit"))
        lines = [f"MainPID={self.pids.get(unit, 0)}"] if "MainPID" in properties else []
        for item in ("MEMLOCK", "NOFILE", "NPROC", "RTPRIO"):
            soft, hard = limits.get(item, ("0", "0"))
            lines += [f"{prefix}{item}={hard}", f"{prefix}{item}Soft={soft}"]
        return "\n".join(lines) + "\n"

    def _limits(self, folder: str, prefix: str) -> Dict[str, Tuple[str, str]]:
        found = dict(BUILT_IN) if prefix == "DefaultLimit" else {}
        for item, soft, hard in re.findall(rf"^{prefix}(\w+)=(\w+):(\w+)$", self.read.get(folder, ""), re.MULTILINE):
            found[item] = (soft, hard)
        return found
